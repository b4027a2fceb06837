"""A ledger under attack: hostile number contexts, links, damaged files, disks that fail."""

import decimal
import os
import sqlite3
import threading
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from pymc_dp import Ledger, ReleaseError
from pymc_dp.ledger import file as ledger_file
from pymc_dp.ledger.file import Exact, exact, fits_of
from pymc_dp.ledger.filters import Cost, Price
from tests.ledger.test_ledger import DELTA, FULL, ONE, plan_of

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")
TERMS = {"epsilon": 2.0, "delta": DELTA, "dataset": "survey"}


# --- numbers ---

CONTEXTS = [
    decimal.Context(prec=2),
    decimal.Context(prec=2, traps=[decimal.Inexact, decimal.Rounded, decimal.FloatOperation]),
]


@pytest.mark.parametrize("context", CONTEXTS)
def test_the_callers_decimal_context_changes_no_sum(new, context):
    ledger = new(filter="sum")
    with decimal.localcontext(context):
        for _ in range(19):
            ledger.spend("a 20th and a bit", epsilon=0.1000001)
        with pytest.raises(ValueError, match="Nothing was spent"):
            ledger.spend("a 20th and a bit", epsilon=0.1000001)
    assert ledger.spent.amount == pytest.approx(1.9000019)


def test_a_sum_in_the_callers_context_is_caught(new, monkeypatch):
    def in_context(costs):
        amounts, deltas = zip(*costs, strict=True)
        return Exact(sum(amounts), sum(deltas))

    monkeypatch.setattr(ledger_file, "exact", lambda x: decimal.Decimal(repr(float(x))))
    monkeypatch.setattr(ledger_file, "total", in_context)
    ledger = new(filter="sum", epsilon=2.0)
    with decimal.localcontext(decimal.Context(prec=1)):
        for _ in range(30):  # 0.9 + 0.09 is 1, and 1 + 0.09 is 1 again
            ledger.spend("a little", epsilon=0.09)
    assert ledger_file.fits_of(ledger.path)[-1].fit == 30


def fits_in(limit, *costs):
    return ledger_file._within(limit, [Exact(exact(a), exact(b)) for a, b in costs])


def test_comparisons_are_exact():
    limit = Cost(0.3, 1e-5)
    just = np.nextafter(0.1, 0)
    assert fits_in(limit, Cost(0.1), Cost(0.2))  # in binary it is more than 0.3
    assert not fits_in(limit, Cost(0.1), Cost(0.2), Cost(5e-324))
    assert not fits_in(limit, Cost(1e-300, 1e-5), Cost(1e-300, 5e-324))
    assert fits_in(limit, Cost(just), Cost(0.2))
    assert exact(np.float32(0.1)) == Fraction("0.10000000149011612")
    assert exact(np.float64(1e-5)) == Fraction(1, 100_000)


@pytest.mark.parametrize("number", [np.inf, np.nan, -np.inf])
@pytest.mark.parametrize("field", ["amount", "delta", "release"])
def test_a_price_that_is_not_finite_is_refused(new, number, field, monkeypatch):
    ledger = new()
    price = Price(Cost(0.1), {}, {0.0: 1})
    if field == "release":
        price = price._replace(counts={number: 1})
    else:
        price = price._replace(upfront=Cost(**{"amount": 0.1, field: number}))
    monkeypatch.setattr(type(ledger._filter), "price", lambda *_: price)
    with pytest.raises(ValueError, match="Nothing was spent"):
        ledger.spend("x", rho=0.1)
    assert fits_of(ledger.path) == []


def test_a_term_that_is_no_number_is_refused(path):
    for name, value in {"epsilon": "2", "delta": True}.items():
        with pytest.raises(TypeError, match=f"{name}={value!r} must be a number"):
            Ledger(path, **TERMS | {name: value})
    assert not path.exists()


# --- other files at the same path ---


def test_a_link_that_moves_to_another_ledger_changes_nothing(tmp_path):
    rich, poor, link = (tmp_path / name for name in ("rich", "poor", "link"))
    Ledger(rich, **TERMS | {"epsilon": 50.0})
    Ledger(poor, **TERMS | {"epsilon": 0.1})
    link.symlink_to(rich)
    ledger = Ledger(link)
    link.unlink()
    link.symlink_to(poor)
    ledger.reserve("dp_advi", plan_of(noise=1.0))
    assert [len(fits_of(path)) for path in (rich, poor)] == [1, 0]


def test_a_file_that_was_replaced_by_another_ledger_is_refused(path):
    ledger = Ledger(path, **TERMS | {"epsilon": 50.0})
    path.unlink()
    Ledger(path, **TERMS | {"epsilon": 0.1})
    with pytest.raises(ValueError, match="is another ledger than the one that was opened"):
        ledger.reserve("dp_advi", plan_of(noise=1.0))
    assert fits_of(path) == []


def test_a_limit_of_other_terms_is_caught(path, monkeypatch):
    ledger = Ledger(path, **TERMS | {"epsilon": 50.0})
    path.unlink()
    poor = Ledger(path, **TERMS | {"epsilon": 0.1})
    genuine = ledger_file.changing
    monkeypatch.setattr(ledger_file, "changing", lambda path, terms=None: genuine(path))
    ledger.reserve("dp_advi", plan_of(noise=1.0))
    assert poor.left.amount < 0


def test_a_file_with_two_names_is_refused(new, path, tmp_path):
    ledger = new()
    book = ledger.reserve("dp_advi", FULL)
    os.link(path, tmp_path / "other")
    for name in (path, tmp_path / "other"):
        with pytest.raises(ValueError, match="has several names; keep one of its hard links"):
            Ledger(name)
    with pytest.raises(ReleaseError, match="several names"):
        book(ONE)
    with pytest.raises(ReleaseError, match="several names"):
        ledger.reserve("dp_advi", FULL)
    (tmp_path / "other").unlink()
    book(ONE)
    assert [fit.booked for fit in fits_of(path)] == [1]


# --- damaged files, and disks that fail ---


def test_an_empty_file_is_refused_and_not_taken_for_a_new_ledger(path, monkeypatch):
    monkeypatch.setattr(ledger_file, "CREATION_SECONDS", 0.05)
    path.touch()
    with pytest.raises(ValueError, match="is not a ledger"):
        Ledger(path, **TERMS)
    assert path.stat().st_size == 0


def test_who_finds_a_ledger_half_created_waits_for_it(new, path):
    path.touch()
    found = []
    thread = threading.Thread(target=lambda: found.append(new()))
    thread.start()
    ledger_file.create(path, ledger_file.new_terms(TERMS, path))
    thread.join()
    assert found[0].terms.dataset == "survey"


def test_what_cannot_be_created_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="could not be created"):
        Ledger(tmp_path / "no such folder" / "x", **TERMS)
    with pytest.raises(ValueError, match="is not a ledger"):
        Ledger(tmp_path, **TERMS)


def fail_at(monkeypatch, statement):
    """Let the disk fail at a statement, as SQLite says it of a write that cannot be flushed."""
    connect = sqlite3.connect

    class Failing(sqlite3.Connection):
        def execute(self, sql, *args):
            if sql.startswith(statement):
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(sql, *args)

    monkeypatch.setattr(sqlite3, "connect", partial(connect, factory=Failing))


@pytest.mark.parametrize("statement", ["BEGIN", "INSERT", "COMMIT"])
def test_a_disk_that_fails_sets_nothing_aside_and_releases_nothing(new, monkeypatch, statement):
    ledger = new()
    with monkeypatch.context() as patch:
        fail_at(patch, statement)
        with pytest.raises(ReleaseError, match=r"could not be set aside in .* \(disk I/O error\)"):
            ledger.reserve("dp_advi", FULL)
    assert fits_of(ledger.path) == []


def test_a_booking_that_may_have_been_written_is_not_written_twice(new, monkeypatch):
    """The flush fails after the write: who asks again is refused, for the release may be known."""
    ledger = new()
    book = ledger.reserve("dp_advi", FULL)
    written = ledger_file.book

    def late(*args):
        written(*args)
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(ledger_file, "book", late)
        with pytest.raises(ReleaseError, match="could not be booked"):
            book(ONE)
    with pytest.raises(ReleaseError, match="booked in .* already"):
        book(ONE)
    assert fits_of(ledger.path)[0].booked == 1
