"""A fit that ends early owes the releases that it booked, and can never make another one.

A filter that adds up releases is fully adaptive: a fit may end after any of them. Each guard has a
planted fault that it must reject; `test_ledger_walk.py` tries the guards in every order.
"""

import os
import sqlite3

import numpy as np
import pytest

from pymc_dp import ReleaseError
from pymc_dp.driver import run as driver_run
from pymc_dp.errors import UnbookedError, UnreadableError
from pymc_dp.ledger import file as ledger_file
from pymc_dp.ledger.file import fits_of
from pymc_dp.ledger.ledger import Booking
from pymc_dp.privacy.contribution import Query
from pymc_dp.privacy.wall import PrivacyWall
from tests.ledger.test_ledger import CHEAP_AND_DEAR, FORK, FULL, ONE, fit, plan_of, stop, wall_with
from tests.ledger.test_ledger_walk import goes_on_although_it_ended

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")


class CrashError(BaseException):
    """The process of a fit is killed."""


# --- what a fit owes ---


@pytest.mark.parametrize(("filter", "error"), [("rdp", StopIteration), ("zcdp", KeyboardInterrupt)])
def test_a_fit_that_is_stopped_owes_what_it_has_booked(new, model, filter, error):
    def callback(state, _, i):
        raise error

    ledger = new(filter=filter)
    idata = fit(model, ledger, sampling="full", callbacks=[callback])
    [entry] = fits_of(ledger.path)
    assert (entry.booked, entry.planned, entry.ended) == (1, 5, True)
    assert ledger.spent.amount == pytest.approx(entry.of_plan.rounded().amount / 5)
    assert idata["privacy"].attrs["releases_made"] == 1


def test_where_whole_plans_add_up_a_stopped_fit_owes_its_plan(new, model):
    ledger = new(filter="sum")
    fit(model, ledger, callbacks=[stop])
    [entry] = fits_of(ledger.path)
    assert entry.ended
    assert ledger.spent[:2] == entry.of_plan.rounded() == entry.upfront


def test_a_fit_that_is_killed_owes_its_plan_until_somebody_settles_it(new, model):
    def crash(state, _, i):
        raise CrashError

    ledger = new()
    with pytest.raises(CrashError):
        fit(model, ledger, callbacks=[crash])
    [entry] = fits_of(ledger.path)
    assert (entry.booked, entry.ended) == (1, False)
    assert ledger.spent.amount == entry.of_plan.rounded().amount
    text = ledger.report()
    assert "1 of 5 releases booked for 0.0" in text
    assert "it is running, or its process was killed, in which case ledger.settle(1) frees" in text
    ledger.settle(1)
    assert ledger.spent.amount == pytest.approx(entry.of_plan.rounded().amount / 5)
    assert "ledger.settle" not in ledger.report()


def fits_that_failed(ledger, model, monkeypatch):
    """Let one fit fail at its first release, and one at its fourth."""
    genuine, failing = PrivacyWall._clipped_sum, [1, 4]

    def clipped_sum(wall, *args):
        if len(wall.made) == failing[0]:
            del failing[0]
            raise ReleaseError("beyond its bound")
        return genuine(wall, *args)

    monkeypatch.setattr(PrivacyWall, "_clipped_sum", clipped_sum)
    while failing:
        with pytest.raises(ReleaseError, match="beyond its bound"):
            fit(model, ledger)
    return fits_of(ledger.path)


def test_a_release_that_failed_costs_the_whole_plan_whichever_it_was(new, model, monkeypatch):
    """The records may be why it failed, and the price must not tell when."""
    ledger = new()
    first, second = fits_that_failed(ledger, model, monkeypatch)
    assert first[2:] == second[2:]
    assert first.booked == first.planned
    with pytest.raises(ValueError, match="Fit 1 cannot be settled: .* has settled it already"):
        ledger.settle(1)
    assert "do not publish it" not in ledger.report()


def test_a_price_that_tells_when_a_release_failed_is_caught(new, model, monkeypatch):
    settle = ledger_file.settle
    monkeypatch.setattr(ledger_file, "settle", lambda path, fit, whole=False: settle(path, fit))
    first, second = fits_that_failed(new(), model, monkeypatch)
    assert first.owed < second.owed


@pytest.mark.parametrize(
    "error",
    [UnreadableError("lost"), UnbookedError("disk full"), RuntimeError("a bug"), CrashError()],
)
def test_a_fit_that_can_go_on_keeps_its_plan_set_aside(new, error):
    ledger = new()
    book = ledger.reserve("dp_advi", FULL)
    book(ONE)
    with pytest.raises(type(error)), book:
        raise error
    [entry] = fits_of(ledger.path)
    assert (entry.booked, entry.ended) == (1, False)
    ledger.settle(1)
    assert ledger.spent.amount == pytest.approx(entry.of_plan.rounded().amount / 3)


# --- each release at its own price ---


@pytest.mark.parametrize(("filter", "plan"), [("rdp", CHEAP_AND_DEAR), ("zcdp", FULL)])
def test_the_releases_of_a_plan_add_up_to_its_price(new, filter, plan):
    chosen = new(filter=filter)._filter
    counts = chosen.price(plan).counts
    added = sum(amount * count for amount, count in counts.items())
    assert added == pytest.approx(chosen.cost(plan).amount, rel=1e-12)
    assert sum(counts.values()) == plan.total


# --- a fit that is settled makes no further release ---


def goes_on_after_it_was_settled(ledger):
    """Settle a fit that runs, give all that it had left to another, and let it go on."""
    wall = wall_with(ledger, plan_of(noise=7.0, count=8))
    wall.release(Query("score", None))
    ledger.settle(1)
    ledger.spend("all the rest", rho=ledger.left.amount / ledger.terms.order * (1 - 1e-9))
    try:
        wall.release(Query("score", None))
    except UnbookedError as error:
        return str(error)
    return "released"


def test_a_fit_that_was_settled_while_it_runs_is_refused_its_next_release(new, monkeypatch):
    ledger, drawn = new(), []
    monkeypatch.setattr(PrivacyWall, "_clipped_sum", lambda *args: drawn.append(1) or np.zeros(2))
    text = goes_on_after_it_was_settled(ledger)
    assert "Fit 1 was settled in" in text
    assert "can make no further release" in text
    assert len(drawn) == 1  # no record is read
    assert ledger.left.amount >= 0


def test_a_settled_fit_that_may_go_on_is_caught(new, monkeypatch):
    goes_on_although_it_ended(monkeypatch)
    ledger = new()
    assert goes_on_after_it_was_settled(ledger) == "released"
    assert ledger.left.amount < 0


@pytest.mark.parametrize("end", [KeyboardInterrupt, ReleaseError, None])
def test_a_fork_that_ends_does_not_settle_its_parents_fit(new, end):
    ledger = new()

    def ending(booking):
        try:
            with booking:
                if end is not None:
                    raise end
        except BaseException:
            pass

    with ledger.reserve("dp_advi", FULL) as book:
        child = FORK.Process(target=ending, args=(book,))
        child.start()
        child.join()
        book(ONE)
        assert not fits_of(ledger.path)[0].ended
    assert fits_of(ledger.path)[0].ended


def test_a_fork_that_settles_its_parents_fit_is_caught(new, monkeypatch):
    genuine = Booking.__exit__

    def anybody(self, *error):
        self._process = os.getpid()
        genuine(self, *error)

    monkeypatch.setattr(Booking, "__exit__", anybody)
    with pytest.raises(UnbookedError, match="was settled"):
        test_a_fork_that_ends_does_not_settle_its_parents_fit(new, KeyboardInterrupt)


@pytest.mark.parametrize("number", [2, "one"])
def test_a_fit_that_is_not_there_cannot_be_settled(new, number):
    ledger = new()
    ledger.reserve("dp_advi", FULL)
    with pytest.raises(ValueError, match=f"Fit {number!r} cannot be settled: .* holds no such fit"):
        ledger.settle(number)


def test_a_disk_that_fails_at_the_end_leaves_the_plan_owed_and_the_result(new, model, monkeypatch):
    ledger = new()

    def broken(*args, **settings):
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(ledger_file, "settle", broken)
        idata = fit(model, ledger, callbacks=[stop])
        with pytest.raises(ReleaseError, match=r"Fit 1 could not be settled in .*disk I/O"):
            ledger.settle(1)
    assert idata["privacy"].attrs["releases_made"] == 1
    [entry] = fits_of(ledger.path)
    assert ledger.spent.amount == entry.of_plan.rounded().amount


# --- a fit that goes on ---


def interrupted_then_others(ledger, rest):
    """Interrupt a fit of half the budget, let others take so much of the rest, and resume it."""
    plan = plan_of(noise=10.0, count=10)
    with ledger.reserve("dp_advi", plan) as book:
        for _ in range(4):
            book(plan.releases[0])
    ledger.spend("others", rho=rest * ledger.left.amount / ledger.terms.order)
    return ledger.resume(1, "dp_advi", plan, 4), plan.releases[0]


def test_a_fit_that_goes_on_pays_once(new):
    ledger = new()
    booking, release = interrupted_then_others(ledger, 0.1)
    with booking as book:
        others = ledger.spent.amount
        for _ in range(6):
            book(release)
    assert ledger.spent.amount == others
    entry = fits_of(ledger.path)[0]
    assert entry.booked == entry.planned
    with pytest.raises(UnbookedError):
        booking(release)


def test_a_fit_whose_rest_others_have_taken_cannot_go_on(new):
    ledger = new()
    said = r"others? .*have taken it: .*epsilon .* of it are booked, .*epsilon .* left"
    with pytest.raises(ValueError, match=said):
        interrupted_then_others(ledger, 0.95)
    entry = fits_of(ledger.path)[0]
    assert (entry.booked, entry.ended) == (4, True)
    assert ledger.left.amount > 0


def test_a_driver_that_settles_nothing_is_caught(new, model, monkeypatch):
    def unsettled(ends, setup, ledger, checkpoint):
        return ledger.reserve(setup.name, setup.plan)

    monkeypatch.setattr(driver_run, "_account", unsettled)
    ledger = new()
    fit(model, ledger, callbacks=[stop])
    assert not fits_of(ledger.path)[0].ended
