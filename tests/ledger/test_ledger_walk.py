"""Fits that begin, release, end, die, are settled and go on, in random order.

After every step the ledger owes at least what was drawn of every fit, and never more than its
limit. Each fault that is planted here breaks one of the two.
"""

import random
from contextlib import suppress
from fractions import Fraction

import pytest

from pymc_dp import ReleaseError
from pymc_dp.ledger import file as ledger_file
from pymc_dp.ledger.file import Entry, exact, fits_of
from pymc_dp.ledger.filters import Filter
from pymc_dp.ledger.ledger import Booking
from tests.ledger.test_ledger import DELTA
from tests.plans import plan_from, release_from

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")

# dear releases among cheap ones: a half and a quarter of a budget of epsilon 2
PLANS = []
for noise in (8.0, 12.0):
    cheap = release_from("cheap", "full", 1.0, 1.0, 8.0 * noise, 4)
    dear = release_from("dear", "full", 1.0, 1.0, noise, 8)
    PLANS.append(plan_from((cheap, dear), "add_remove", DELTA / 20, "pld"))
STEPS = ("begin", "begin", "release", "release", "release", "end", "kill", "settle", "go_on")


class Fit:
    """A process that fits, with what it has drawn."""

    def __init__(self, plan, booking, drawn=()):
        self.plan, self.booking, self.drawn = plan, booking, list(drawn)
        self.left = [release for release in plan.releases for _ in range(release.count)]
        for release in self.drawn:
            self.left.remove(release)


class Walk:
    """A ledger, the fits that live, and what was drawn of all."""

    def __init__(self, ledger, seed):
        self.ledger, self.rng = ledger, random.Random(seed)
        self.fits = {}  # by their number; those that were killed, too
        self.living = []
        self.limit = ledger._filter.limit
        self.prices = [ledger._filter.price(plan) for plan in PLANS]

    def step(self):
        name = self.rng.choice(STEPS)
        with suppress(ReleaseError, ValueError):  # the ledger refused
            getattr(self, name)()

    def begin(self):
        plan = self.rng.choice(PLANS)
        fit = Fit(plan, self.ledger.reserve("dp_advi", plan))
        self.fits[fit.booking.fit] = fit
        self.living.append(fit)

    def release(self):
        fits = [fit for fit in self.living if fit.left]
        if not fits:
            return
        fit = self.rng.choice(fits)
        release = self.rng.choice(fit.left)
        fit.left.remove(release)
        fit.booking(release)
        fit.drawn.append(release)

    def end(self):
        if self.living:
            fit = self.living.pop(self.rng.randrange(len(self.living)))
            ends = [None, KeyboardInterrupt(), SystemExit()] * 3 + [ReleaseError()]
            error = self.rng.choice(ends)
            fit.booking.__exit__(type(error), error, None)

    def kill(self):
        if self.living:
            self.living.pop(self.rng.randrange(len(self.living)))

    def settle(self):
        """Settle a fit that may well be alive."""
        fits = self.rng.choice([self.living, list(self.fits.values())])
        if fits:
            self.ledger.settle(self.rng.choice(fits).booking.fit)

    def go_on(self):
        if not self.fits:
            return
        number = self.rng.choice(list(self.fits))
        old = self.fits[number]
        booking = self.ledger.resume(number, "dp_advi", old.plan, len(old.drawn))
        self.fits[number] = Fit(old.plan, booking, old.drawn)
        self.living.append(self.fits[number])

    def drawn(self, fit):
        """Return what a fit has drawn costs."""
        price = self.prices[PLANS.index(fit.plan)]
        upfront = exact(price.upfront.amount) if fit.drawn else Fraction()
        return upfront + sum(exact(price.amounts.get(r, 0.0)) for r in fit.drawn)

    def check(self):
        entries = fits_of(self.ledger.path)
        limit = self.limit
        assert sum(entry.owed.amount for entry in entries) <= exact(limit.amount)
        assert sum(entry.owed.delta for entry in entries) <= exact(limit.delta)
        for entry in entries:
            if entry.fit in self.fits:
                assert entry.owed.amount >= self.drawn(self.fits[entry.fit])
        drawn = sum(map(self.drawn, self.fits.values()), Fraction())
        assert drawn <= exact(limit.amount)


def walk(ledger, seed, prices=None):
    found = Walk(ledger, seed)
    found.prices = prices or found.prices
    for _ in range(150):
        found.step()
        found.check()
    return found


@pytest.mark.parametrize("filter", ["rdp", "zcdp", "sum"])
@pytest.mark.parametrize("seed", [0, 1])
def test_whatever_happens_no_fit_draws_more_than_is_owed_and_nobody_overspends(new, filter, seed):
    found = walk(new(filter=filter, epsilon=6.0 if filter == "sum" else 2.0), seed)
    entries = fits_of(found.ledger.path)
    assert any(entry.ended and 0 < entry.booked < entry.planned for entry in entries)
    assert sum(len(fit.drawn) for fit in found.fits.values()) > 5


# --- planted faults ---


def books_late(monkeypatch):
    """Book each release when the next one is asked for, which a killed process never does."""
    genuine, waiting = Booking.__call__, {}

    def late(self, release):
        if self in waiting:
            genuine(self, waiting[self])
        waiting[self] = release

    monkeypatch.setattr(Booking, "__call__", late)


def goes_on_although_it_ended(monkeypatch):
    guards = tuple(table for table in ledger_file.TABLES if "releases_grow" not in table)
    monkeypatch.setattr(ledger_file, "TABLES", guards)

    def heedless(path, fit, position, price):
        with ledger_file.changing(path) as (db, _):
            sql = "UPDATE releases SET booked = booked + 1 WHERE fit = ? AND price = ?"
            return db.execute(sql, (fit, price)).rowcount == 1

    monkeypatch.setattr(ledger_file, "book", heedless)


def goes_on_without_its_rest(monkeypatch):
    def unasked(path, terms, fit, limit):
        with ledger_file.changing(path) as (db, _):
            db.execute("UPDATE fits SET ended = 0 WHERE id = ?", (fit,))
        return True

    monkeypatch.setattr(ledger_file, "reopen", unasked)


def averages_the_plan(monkeypatch):
    """Let every release cost the same."""
    genuine = Filter.price

    def averaged(self, plan):
        found = genuine(self, plan)
        each = sum(amount * count for amount, count in found.counts.items()) / plan.total
        return found._replace(amounts=dict.fromkeys(found.amounts, each), counts={each: plan.total})

    monkeypatch.setattr(Filter, "price", averaged)


def sets_nothing_aside(monkeypatch):
    """Let a fit that runs owe what it has booked, as if it could not book more."""
    monkeypatch.setattr(Entry, "owed", Entry.of_booked)


def frees_all(monkeypatch):
    """Let a fit that was settled owe nothing."""
    owed = property(lambda entry: entry._with([]) if entry.ended else entry.of_plan)
    monkeypatch.setattr(Entry, "owed", owed)


def forgets_one(monkeypatch):
    """Book nothing for the second release."""
    genuine = ledger_file.book

    def forgetful(path, fit, position, price):
        return position == 1 or genuine(path, fit, position, price)

    monkeypatch.setattr(ledger_file, "book", forgetful)


def walks(new, prices):
    for seed in range(20):
        ledger = new()
        walk(ledger, seed, prices)
        ledger.path.unlink()


FAULTS = [books_late, goes_on_although_it_ended, goes_on_without_its_rest, averages_the_plan]
FAULTS += [sets_nothing_aside, frees_all, forgets_one]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught(new, monkeypatch, fault):
    ledger = new()
    prices = Walk(ledger, 0).prices
    ledger.path.unlink()
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        walks(new, prices)
