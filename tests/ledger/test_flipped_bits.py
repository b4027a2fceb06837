"""A ledger's file in which the disk has changed a bit is refused, or has the same balance."""

import sqlite3
from contextlib import closing, contextmanager

import pytest

from pymc_dp import Ledger
from pymc_dp.ledger import file as ledger_file
from pymc_dp.ledger.filters import FILTERS
from pymc_dp.ledger.ledger import balances
from tests.ledger.test_ledger import FULL, ONE

PAGE = 512  # the smallest that SQLite has, so that little of the file is free space


@pytest.fixture
def whole(new, path):
    """The bytes of a ledger in which one fit has ended early, one runs, and one is paid."""
    ledger = new()
    with ledger.reserve("dp_advi", FULL) as book:
        book(ONE)
    ledger.reserve("vips", FULL)(ONE)
    ledger.spend("a mean", epsilon=0.1)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA page_size={PAGE}")
        db.execute("VACUUM")
    return path.read_bytes()


@pytest.fixture
def balance_of(path, monkeypatch):
    """What a ledger whose file holds some bytes has spent and left, None where it is refused."""
    held = {}

    @contextmanager
    def in_memory(path, mode="rw"):
        with closing(sqlite3.connect(":memory:")) as db:
            db.deserialize(held["file"])
            yield db

    def read(file):
        held["file"] = bytes(file)
        try:
            terms, fits = ledger_file.terms_of(path), ledger_file.fits_of(path)
        except (ValueError, sqlite3.Error):
            return None
        return terms, balances(FILTERS[terms.filter](terms.epsilon, terms.delta, terms.order), fits)

    monkeypatch.setattr(ledger_file, "_opened", in_memory)
    return read


def bits_of_rows(file):
    """Return every bit of the pages that hold rows, but for those of free space."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(file)
        roots = db.execute("SELECT rootpage FROM sqlite_master WHERE type = 'table'").fetchall()
    places = [(root - 1) * PAGE + i for [root] in roots for i in range(PAGE)]
    return [8 * place + k for place in places if file[place] for k in range(8)]


def other_balances(balance_of, file, bits):
    """Yield the balances that are neither refused nor that of the file as it was written."""
    expected = balance_of(file)
    assert expected is not None
    for bit in bits:
        flipped = bytearray(file)
        flipped[bit // 8] ^= 1 << bit % 8
        if (balance := balance_of(flipped)) not in (None, expected):
            yield balance


def test_no_bit_of_a_row_changes_a_balance(whole, balance_of):
    assert not list(other_balances(balance_of, whole, bits_of_rows(whole)))


@pytest.mark.slow
def test_no_bit_of_the_file_changes_a_balance(whole, balance_of):
    assert not list(other_balances(balance_of, whole, range(len(whole) * 8)))


def without(table, column):
    """A digest that leaves a column of one table out."""
    digest = ledger_file._digest

    def faulty(rows):
        cut = [row[:column] + row[column + 1 :] for row in rows[table]]
        return digest([*rows[:table], cut, *rows[table + 1 :]])

    return faulty


FIELDS = {
    "epsilon": (0, 1),
    "amount": (1, 2),
    "ended": (1, 4),
    "price": (2, 1),
    "planned": (2, 2),
    "booked": (2, 3),
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_digest_that_leaves_a_field_out_is_caught(field, monkeypatch, request):
    monkeypatch.setattr(ledger_file, "_digest", without(*FIELDS[field]))
    whole, balance_of = (request.getfixturevalue(name) for name in ("whole", "balance_of"))
    assert any(other_balances(balance_of, whole, bits_of_rows(whole)))


CHANGES = [
    "DELETE FROM releases WHERE fit = 1",
    "DELETE FROM fits WHERE id = 1",
    "UPDATE fits SET id = id + 3 WHERE id = 1",
    "UPDATE releases SET booked = 0",
    "UPDATE terms SET epsilon = 3",
    "DELETE FROM seal",
]


@pytest.mark.parametrize("change", CHANGES)
def test_rows_that_another_program_has_changed_are_refused(whole, path, change):
    """It knows how to go around the file's own guards."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        guards = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            db.execute(f"DROP TRIGGER {name}")
        db.execute(change)
        for _, guard in guards:
            db.execute(guard)
    with pytest.raises(ValueError, match="is damaged: its rows and their digest do not match"):
        Ledger(path)
