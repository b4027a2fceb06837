"""A ledger holds a data set's budget over many fits: nothing is overspent, forgotten or refunded.

Soundness, rule 17: settings of later fits may depend on earlier results, so that a filter is
needed, where composing events would be wrong. Each guard has a planted fault that it must reject.
"""

import itertools
import math
import multiprocessing
import os
import sqlite3
import threading
from contextlib import closing, suppress
from functools import partial

import numpy as np
import pytest
from scipy.stats import norm

import pymc_dp
from pymc_dp import Ledger, ReleaseError
from pymc_dp.accounting.accountants import divergences
from pymc_dp.ledger import file as ledger_file
from pymc_dp.ledger.file import fits_of
from pymc_dp.ledger.filters import FILTERS, Cost, ExternalMechanism, Price, best_order
from pymc_dp.privacy.contribution import Query
from pymc_dp.privacy.private_data import Column, PrivateData
from pymc_dp.privacy.wall import PrivacyWall
from pymc_dp.results.tree import plan_from_json
from pymc_dp.testing import deterministic_noise
from tests.guarantees.toys import vectors
from tests.plans import plan_from, release_from

DELTA = 1e-5
FORK = multiprocessing.get_context("fork")
pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")


def plan_of(
    sampling="full", rate=1.0, noise=4.0, count=1, neighbours="add_remove", delta=DELTA, **terms
):
    release = release_from("score", sampling, rate, 1.0, noise, count)
    return plan_from((release,), neighbours, delta, "pld", **terms)


FULL = plan_of(noise=8.0, count=3)
[ONE] = FULL.releases
BATCHES = plan_of("poisson", 0.1, 5.0, 100)


def fit(model, ledger, **settings):
    settings = {"n": 5, "noise_multiplier": 5.0, "noise_aware": False, **settings}
    return pymc_dp.fit(
        model=model, ledger=ledger, delta=DELTA, draws=2, progressbar=False, **settings
    )


# --- terms ---


def test_a_ledger_keeps_its_terms(new, path):
    created = new(neighbours="zero_out", unit="person_id", filter="zcdp")
    opened = Ledger(path)
    assert opened.terms == created.terms
    assert opened.terms[:6] == ("survey", 2.0, DELTA, "zero_out", "person_id", "zcdp")


@pytest.mark.parametrize(("name", "value"), [("epsilon", 3.0), ("unit", "person")])
def test_other_terms_than_the_stored_ones_are_refused(new, path, name, value):
    new()
    with pytest.raises(ValueError, match=f"{name}={value!r} is not the ledger's"):
        Ledger(path, **{name: value})


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({"epsilon": None}, "does not exist, and to create it epsilon= is missing"),
        ({"delta": None}, "delta= is missing"),
        ({"dataset": None}, "dataset= is missing"),
        ({"epsilon": math.inf}, "must be above 0 and finite"),
        ({"epsilon": -1.0}, "must be above 0 and finite"),
        ({"delta": 1.0}, "strictly between 0 and 1"),
        ({"neighbours": "swap"}, "neighbours='swap' is unknown"),
        ({"filter": "pld"}, "filter='pld' is unknown"),
        ({"epsilon": 1e-9, "delta": 1e-12}, "No Rényi order means"),
    ],
)
def test_bad_terms_create_nothing(new, path, terms, sentence):
    with pytest.raises(ValueError, match=sentence):
        new(**terms)
    assert not path.exists()


def test_another_file_is_not_taken_for_a_ledger(path):
    path.write_text("a letter to the editor, which is long enough to be read as a header" * 9)
    with pytest.raises(ValueError, match="is not a ledger"):
        Ledger(path)
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE diary (day TEXT)")
    with pytest.raises(ValueError, match="is not a ledger"):
        Ledger(path, epsilon=1.0, delta=DELTA, dataset="survey")


# --- filters ---


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_a_filters_limit_means_its_budget_and_no_more(name, epsilon):
    chosen = FILTERS[name](epsilon, DELTA, best_order(epsilon, DELTA))
    assert chosen.meaning(chosen.limit)[0] == pytest.approx(epsilon, rel=1e-6)
    assert chosen.meaning(chosen.limit)[0] <= epsilon
    assert chosen.meaning(Cost(1.001 * chosen.limit.amount))[0] > epsilon


@pytest.mark.parametrize("epsilon", [1e-4, 3e-4, 1e-3, 3e-3, 1e-2])
def test_a_limit_is_never_above_its_budget_however_small(epsilon):
    chosen = FILTERS["zcdp"](epsilon, DELTA, 0.0)
    assert chosen.limit.amount > 0
    assert chosen.meaning(chosen.limit)[0] <= epsilon


def test_costs_are_those_of_the_definitions():
    order = 18.0
    assert FILTERS["rdp"](1.0, DELTA, order).cost(FULL).amount == pytest.approx(3 * order / 128)
    assert FILTERS["zcdp"](1.0, DELTA, order).cost(FULL).amount == pytest.approx(3 / 128)
    assert FILTERS["sum"](1.0, DELTA, order).cost(FULL) == (FULL.epsilon(), DELTA)
    replaced = plan_of(noise=8.0, count=3, neighbours="replace_one")
    assert FILTERS["zcdp"](1.0, DELTA, order).cost(replaced).amount == pytest.approx(3 / 32)


@pytest.mark.parametrize(
    ("filter", "plan", "sentence"),
    [
        ("rdp", plan_of("poisson", 0.1, neighbours="replace_one"), "No proof covers"),
        ("zcdp", BATCHES, "releases of all records alone"),
    ],
)
def test_what_no_proof_covers_is_refused(new, filter, plan, sentence):
    ledger = new(neighbours=plan.neighbours.value, filter=filter)
    with pytest.raises(ValueError, match=sentence):
        ledger.reserve("dp_advi", plan)
    assert ledger.report().count("Fit") == 0


# --- adaptive settings ---

# Fit 1 and either branch compose to (1, 1e-5), but the branch can be chosen by fit 1's result.
FIRST = plan_of(noise=6.0)
BRANCHES = [plan_of(noise=4.76332928182313), plan_of("poisson", 0.01, 0.6855936843062175)]


def delta_of_branch(plan, epsilon):
    """Probability that the branch's privacy loss exceeds epsilon, in the sense of delta."""
    [release] = plan.releases
    q, s = release.sampler.rate, release.noise_multiplier
    ratio = (np.exp(epsilon) - (1 - q)) / q
    loss = s**2 * np.log(np.maximum(ratio, 1e-300)) + 0.5
    p = (1 - q) * norm.sf(loss / s) + q * norm.sf((loss - 1) / s)
    return np.maximum(p - np.exp(epsilon) * norm.sf(loss / s), 0)


def adaptive_delta(*branches):
    """Delta at epsilon 1 of fit 1 and the worse branch, picked by what fit 1 returned."""
    x = np.linspace(-12, 14, 20001)
    mu = 1 / FIRST.releases[0].noise_multiplier
    spent = mu * x + mu**2 / 2
    worst = np.max([delta_of_branch(plan, 1.0 - spent) for plan in branches], axis=0)
    return float((norm.pdf(x) * worst).sum() * (x[1] - x[0]))


@pytest.mark.parametrize(
    ("filter", "branch"),
    # filter="zcdp" takes no sampled batches at all
    [("rdp", 0), ("rdp", 1), ("sum", 0), ("sum", 1), ("zcdp", 0)],
)
def test_a_ledger_refuses_what_plain_composition_would_allow(new, filter, branch):
    ledger = new(epsilon=1.0001, filter=filter)
    first, then = (
        plan_from(plan.releases, "add_remove", DELTA / 2, "pld")
        for plan in (FIRST, BRANCHES[branch])
    )
    ledger.reserve("fit 1", first)
    with pytest.raises(ValueError, match="Nothing was spent"):
        ledger.reserve("fit 2", then)


def test_plain_composition_in_place_of_a_filter_is_caught(new, monkeypatch):
    class Plain:
        measure, limit = "epsilon of the composed events", Cost(1.0001)
        releases = ()

        def price(self, plan):
            before = plan_from(self.releases, "add_remove", DELTA, "pld").epsilon()
            self.releases += plan.releases
            after = plan_from(self.releases, "add_remove", DELTA, "pld").epsilon()
            return Price(Cost(after - before), {}, {0.0: 1})

    for branch in BRANCHES:
        ledger = new(epsilon=1.0001)
        monkeypatch.setattr(Ledger, "_filter", Plain())
        ledger.reserve("fit 1", FIRST)
        ledger.reserve("fit 2", branch)  # accepts both branches, which together are not private
        ledger.path.unlink()
    assert adaptive_delta(*BRANCHES) > 1.6 * DELTA


# --- fits ---


def test_a_fit_takes_its_plan_from_the_ledger(new, model):
    ledger = new()
    idata = fit(model, ledger)
    plan = plan_from_json(idata["privacy"].attrs["dp_event"])
    [entry] = fits_of(ledger.path)
    assert (entry.method, entry.planned, entry.booked) == ("dp_advi", 5, 5)
    assert entry.of_plan.rounded().amount == pytest.approx(
        divergences(plan, (ledger.terms.order,))[0]
    )
    assert ledger.left.amount == pytest.approx(
        ledger._filter.limit.amount - entry.of_plan.rounded().amount
    )


def test_a_fit_that_would_overspend_spends_nothing(new, model):
    ledger = new()
    fit(model, ledger, n=200)
    before = ledger.report()
    with pytest.raises(ValueError, match=r"costs [\d.]+ \(epsilon [\d.]+ at .* Nothing was"):
        fit(model, ledger, noise_multiplier=1.0, n=200)
    assert ledger.report() == before


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"neighbours": "zero_out"}, "neighbours='zero_out' is not that of the ledger"),
        ({"noise_multiplier": 0.0}, "A fit without noise is not private"),
        ({"method": "dp_advi", "clip_norm": -1.0}, "clip_norm=-1.0"),
    ],
)
def test_a_fit_that_does_not_belong_is_refused(new, model, settings, sentence):
    ledger = new()
    with pytest.raises(ValueError, match=sentence):
        fit(model, ledger, **settings)
    assert fits_of(ledger.path) == []


def test_units_are_compared_by_the_whole_name_of_their_column(new):
    ledger = new(unit="site_code")
    ledger.reserve("dp_advi", plan_of("poisson", 0.1, 5.0, 10, unit="site_code"))
    sites = plan_of("poisson", 0.1, 5.0, 10, unit="site_id")
    with pytest.raises(ValueError, match="unit='site_id' is not that of the ledger, 'site_code'"):
        ledger.reserve("dp_advi", sites)
    assert "per site_code (add_remove)" in ledger.report()


def test_draws_that_no_one_can_prove_exact_are_refused(new):
    draw = release_from("draw", "full", 1.0, 1.0, 100.0, 1, "exponential")
    with pytest.raises(ValueError, match="takes noisy sums alone"):
        new().reserve("dp_ops", plan_from((draw,), "add_remove", DELTA, "pld"))


def test_a_fit_in_test_mode_is_refused(new, model):
    ledger = new()
    with deterministic_noise(1), pytest.raises(ValueError, match="Test mode gives no privacy"):
        fit(model, ledger)
    assert fits_of(ledger.path) == []


def test_a_path_opens_a_ledger_that_exists(new, model, path):
    with pytest.raises(ValueError, match=r"does not exist: create it with its terms, pymc_dp\.L"):
        fit(model, str(path))
    assert not path.exists()
    new()
    for given in (path, str(path)):
        fit(model, given)
    assert len(fits_of(path)) == 2
    with pytest.raises(TypeError, match=r"must be a pymc_dp\.Ledger, or the path of one"):
        fit(model, 3)


def test_the_dry_run_takes_a_ledger_and_leaves_it_alone(new, model):
    ledger = new()
    pymc_dp.plan(model, noise_multiplier=5.0, delta=DELTA, ledger=ledger)
    assert fits_of(ledger.path) == []


def test_the_report_says_what_was_spent_and_what_is_left(new, model):
    ledger = new()
    fit(model, ledger)
    text = ledger.report()
    assert "Ledger of 'survey': (2, 1e-05)-differential privacy per record (add_remove)" in text
    assert "Fit 1: dp_advi, 0.0" in text
    assert "5 of 5 releases booked" in text
    assert "once it is spent, the total is (2, 1e-05)" in text
    assert "do not publish it" not in text
    fit(model, ledger, callbacks=[stop])
    assert "1 of 5 releases booked" in ledger.report()
    assert "Not all releases are booked of fit 2" in ledger.report()


def test_the_file_holds_neither_times_nor_data(new, model):
    ledger = new()
    fit(model, ledger)
    tables = {
        "terms": ["dataset", "epsilon", "delta", "neighbours", "unit", "filter", "renyi_order"],
        "fits": ["id", "method", "amount", "delta", "ended"],
        "releases": ["fit", "price", "planned", "booked"],
        "seal": ["digest"],
    }
    with closing(sqlite3.connect(ledger.path)) as db:
        columns = {t: [row[1] for row in db.execute(f"PRAGMA table_info({t})")] for t in tables}
    assert columns == tables


def stop(state, _, i):
    raise StopIteration


# --- what is booked stays booked ---


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM fits",
        "DELETE FROM releases",
        "UPDATE releases SET booked = booked - 1",
        "UPDATE releases SET price = 0",
        "UPDATE releases SET planned = 1",
        "UPDATE releases SET fit = 2",
        "UPDATE fits SET amount = 1",
        "UPDATE fits SET delta = 1",
        "INSERT OR REPLACE INTO fits VALUES (1, 'x', 0.0, 0.0, 1)",
        "INSERT OR REPLACE INTO releases SELECT fit, price, 3, 0 FROM releases",
        "UPDATE terms SET epsilon = 100",
        "DELETE FROM terms",
        "INSERT INTO terms SELECT * FROM terms",
    ],
)
def test_the_file_itself_refuses_refunds_and_other_terms(new, change):
    ledger = new()
    ledger.reserve("dp_advi", FULL)(ONE)
    with closing(sqlite3.connect(ledger.path)) as db:
        with pytest.raises(sqlite3.IntegrityError, match="and what was booked"):
            db.execute(change)


def test_the_file_itself_refuses_releases_of_a_fit_that_has_ended(new):
    ledger = new()
    with ledger.reserve("dp_advi", FULL) as book:
        book(ONE)
    with closing(sqlite3.connect(ledger.path)) as db:
        with pytest.raises(sqlite3.IntegrityError, match="and what was booked"):
            db.execute("UPDATE releases SET booked = booked + 1")


def test_a_ledger_without_its_guards_is_refused(new, path):
    new()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DROP TRIGGER releases_stay")
    with pytest.raises(ValueError, match="it has other tables"):
        Ledger(path)


# --- numbers of NumPy ---


def test_single_precision_cannot_hide_a_cost_above_what_is_left(new):
    ledger = new(filter="sum", epsilon=100.0, delta=1.1e-5)
    above = np.float32(1.1e-5)
    assert above <= 1.1e-5  # NumPy rounds the other one
    assert float(above) > 1.1e-5
    with pytest.raises(ValueError, match="Nothing was spent"):
        ledger.reserve("dp_advi", plan_of(delta=above))


FIT = {"id": 1, "method": "x", "amount": 0.1, "delta": 0.0, "ended": 0}
RELEASE = {"fit": 1, "price": 0.1, "planned": 3, "booked": 0}


@pytest.mark.parametrize("column", ["amount", "delta", "ended", "price", "planned", "booked"])
@pytest.mark.parametrize("value", [-1, np.int64(3).tobytes(), None])
def test_the_file_itself_refuses_what_is_no_number_of_at_least_zero(new, column, value):
    table, row = ("fits", FIT) if column in FIT else ("releases", RELEASE)
    values = tuple((row | {column: value}).values())
    with closing(sqlite3.connect(new().path)) as db:
        with pytest.raises(sqlite3.IntegrityError, match=r"CHECK|cannot store|NOT NULL"):
            db.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(values))})", values)


# --- releases are booked before they are handed out ---


def wall_with(ledger, plan):
    data = PrivateData({"x": Column(np.ones((20, 2)), 0, "float64")})
    contributions = {release.name: vectors(2) for release in plan.releases}
    return PrivacyWall(data, contributions, plan, reserve=partial(ledger.reserve, "toy", plan))


def test_a_release_that_cannot_be_booked_is_not_made(new, monkeypatch):
    ledger = new()
    wall = wall_with(ledger, plan_of("poisson", 0.5, 40.0, 2))
    wall.release(Query("score", None))
    ledger.path.rename(ledger.path.with_suffix(".moved"))
    monkeypatch.setattr(PrivacyWall, "_clipped_sum", None)  # no record is read
    with pytest.raises(ReleaseError, match="could not be booked"):
        wall.release(Query("score", None))


# a cheap release, and one that costs 30 times as much
CHEAP = release_from("cheap", "poisson", 0.01, 1.0, 5.0, 7)
DEAR = release_from("dear", "poisson", 0.9, 1.0, 5.0, 1)
CHEAP_AND_DEAR = plan_from((CHEAP, DEAR), "add_remove", DELTA, "pld")


def times_handed_out(ledger, name):
    """Fork a fit after its first release, and let both ask for the same one; count successes."""
    wall = wall_with(ledger, CHEAP_AND_DEAR)
    wall.release(Query("cheap", None))

    def release():
        wall._process = os.getpid()  # the wall itself refuses forks: here the ledger has to
        wall.release(Query(name, None))

    child = FORK.Process(target=release)
    child.start()
    child.join()
    assert child.exitcode == 0
    try:
        release()
    except ReleaseError:
        return 1
    return 2


def test_a_forked_fit_cannot_make_its_dear_release_twice(new):
    ledger = new()
    assert times_handed_out(ledger, "dear") == 1
    assert fits_of(ledger.path)[0].booked == 2


def test_a_ledger_that_counts_releases_alone_is_caught(new, monkeypatch):
    def counted(path, fit, position, price):
        """Book one more release, whatever its place in the plan and its price."""
        with ledger_file.changing(path) as (db, _):
            sql = "UPDATE releases SET booked = booked + 1 WHERE fit = ? AND booked < planned"
            return db.execute(f"{sql} AND price <= ?", (fit, price)).rowcount >= 1

    monkeypatch.setattr(ledger_file, "book", counted)
    assert times_handed_out(new(), "dear") == 2


def test_a_fit_goes_on_from_all_that_is_booked_and_nothing_else(new):
    ledger = new()
    book = ledger.reserve("dp_advi", FULL)
    book(ONE)
    for made in (0, 2):
        with pytest.raises(ValueError, match="has booked 1 releases of this fit"):
            ledger.resume(book.fit, "dp_advi", FULL, made)
    with pytest.raises(ValueError, match="has set no such plan aside"):
        ledger.resume(book.fit, "vips", FULL, 1)
    ledger.resume(book.fit, "dp_advi", FULL, 1)(ONE)
    assert fits_of(ledger.path)[0].booked == 2


def test_a_fit_that_goes_on_has_the_terms_of_the_ledger(new):
    ledger = new()
    book = ledger.reserve("dp_advi", FULL)
    with deterministic_noise(1), pytest.raises(ValueError, match="Test mode gives no privacy"):
        ledger.resume(book.fit, "dp_advi", FULL, 0)


def test_what_the_wall_checks_is_checked_before_the_plan_is_set_aside(new):
    plan = plan_of("poisson", 0.5, 4.0, 2, unit="person")
    ledger = new(unit="person", epsilon=9.0)
    with pytest.raises(ValueError, match="The plan is for unit='person'"):
        wall_with(ledger, plan)
    assert fits_of(ledger.path) == []


# --- several processes ---


def race(ledger, plan):
    """Let threads reserve at the same moment; return how many were not refused."""
    start, admitted = threading.Barrier(6), []

    def reserve():
        start.wait()
        with suppress(ValueError):
            admitted.append(ledger.reserve("racer", plan))

    threads = [threading.Thread(target=reserve) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(admitted)


def test_a_reservation_is_atomic(new, slow_reader):
    ledger = new(epsilon=0.5)
    assert race(ledger, plan_of(noise=15.0)) == 3
    assert ledger.left.amount >= 0


def test_a_reservation_without_a_transaction_is_caught(new, slow_reader, monkeypatch):
    ledger = new(epsilon=0.5)
    monkeypatch.setattr(ledger_file, "locked", ledger_file._opened)
    assert race(ledger, plan_of(noise=15.0)) > 3  # what they leave behind may even be damaged


@pytest.mark.parametrize(
    ("filter", "price", "amount", "delta"),
    [
        ("zcdp", {"rho": 0.01}, lambda order: 0.01, 0.0),
        ("zcdp", {"epsilon": 0.2}, lambda order: 0.02, 0.0),
        ("rdp", {"rho": 0.01}, lambda order: 0.01 * order, 0.0),
        ("rdp", {"epsilon": 0.01}, lambda order: order * 0.01**2 / 2, 0.0),
        ("rdp", {"epsilon": 0.5}, lambda order: 0.5, 0.0),
        ("sum", {"epsilon": 0.5}, lambda order: 0.5, 0.0),
        ("sum", {"epsilon": 0.5, "delta": 1e-6}, lambda order: 0.5, 1e-6),
    ],
)
def test_a_mechanism_of_another_library_takes_its_price(new, filter, price, amount, delta):
    ledger = new(filter=filter)
    before = ledger.left
    ledger.spend("mean age", **price)
    assert before.amount - ledger.left.amount == pytest.approx(amount(ledger.terms.order))
    assert before.delta - ledger.left.delta == pytest.approx(delta)
    assert "mean age" in ledger.report()
    assert "1 of 1 releases booked" in ledger.report()


def test_the_price_of_pure_epsilon_bounds_the_divergence_of_randomised_response():
    """No pure mechanism has larger divergences (Bun and Steinke 2016)."""
    for epsilon, order in itertools.product((0.05, 0.5, 2.0, 8.0), (1.5, 18.0, 200.0)):
        p = 1 / (1 + math.exp(-epsilon))
        pairs = ((p, 1 - p), (1 - p, p))
        powers = [order * math.log(a) + (1 - order) * math.log(b) for a, b in pairs]
        divergence = np.logaddexp(*powers) / (order - 1)
        [bound] = ExternalMechanism(None, epsilon).renyi([order])
        assert 0.1 * bound < divergence <= bound * (1 + 1e-12)


@pytest.mark.parametrize(
    ("filter", "price", "sentence"),
    [
        ("rdp", {"rho": 10.0}, r"costs \d+ \(epsilon .* in Rényi .* Nothing was spent"),
        ("rdp", {"rho": -1.0}, "rho=-1.0 must be at least 0"),
        ("rdp", {"rho": math.nan}, "rho=nan must be"),
        ("rdp", {}, "Give rho= or epsilon="),
        ("rdp", {"rho": 0.1, "epsilon": 0.1}, "and not both"),
        ("rdp", {"rho": 0.1, "delta": 1e-6}, "0 where rho= is given"),
        ("rdp", {"epsilon": 0.1, "delta": 1e-6}, "filter='sum'"),
        ("sum", {"rho": 0.1}, "give epsilon= and delta="),
        ("sum", {"epsilon": 0.1, "delta": -1e-6}, "delta=-1e-06 must be at least 0"),
        ("rdp", {"epsilon": "0.1"}, "epsilon='0.1' must be a number"),
        ("rdp", {"what": "a\nLeft: 9", "rho": 0.1}, "must say in one line"),
    ],
)
def test_a_price_that_is_not_the_ledgers_spends_nothing(new, filter, price, sentence):
    ledger = new(filter=filter)
    before = ledger.left
    with pytest.raises((ValueError, TypeError), match=sentence):
        ledger.spend(**{"what": "mean age", **price})
    assert ledger.left == before
