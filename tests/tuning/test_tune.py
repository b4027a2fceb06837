"""A search among settings costs what Papernot and Steinke (2022) say, and shows its winner alone.

Soundness, rule 19: the number of runs and the losers stay hidden, the score is inside the base
event, the law of the number is fixed, and no run stops early.
"""

import importlib
import json
import math
import multiprocessing
import os
from itertools import pairwise

import numpy as np
import pymc as pm
import pytest
from scipy.special import gammaln
from scipy.stats import chisquare

import pymc_dp
from pymc_dp import Ledger, ReleaseError
from pymc_dp.accounting.accountants import ETA, ORDERS, Selection, divergences, draw_runs, halting
from pymc_dp.accounting.plan import Full, Poisson, Release, ReleaseSpec
from pymc_dp.calibration.budget import calibrate_selection, relative_noise
from pymc_dp.contributions.checks import Range
from pymc_dp.driver.fit import set_up
from pymc_dp.ledger.file import fits_of
from pymc_dp.privacy.wall import PrivacyWall
from pymc_dp.tuning.tune import NAME, with_score
from tests import zoo
from tests.plans import plan_from, release_from
from tests.zoo import columns_of

tuning = importlib.import_module("pymc_dp.tuning.tune")
DELTA, ALPHA = 1e-5, 1e-6
pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")


def plan_of(*releases, neighbours="add_remove"):
    return plan_from(releases, neighbours, DELTA, "rdp_dp_accounting")


def score(noise=10.0, rate=0.1, count=200):
    return release_from("score", "full" if rate == 1 else "poisson", rate, 1.0, noise, count)


ONE = plan_of(score(), score(20.0, 1.0, 1))
OTHER = plan_of(score(60.0, 1.0, 150))  # costs more at low orders, less at high ones


# --- the price ---


@pytest.mark.parametrize("runs", [1.5, 20.0, 200.0])
@pytest.mark.parametrize("plan", [ONE, OTHER])
def test_the_price_of_one_setting_is_dp_accountings(plan, runs):
    from dp_accounting import dp_event, rdp

    event = dp_event.RepeatAndSelectDpEvent(plan.event, mean=runs, shape=ETA)
    expected = rdp.RdpAccountant(ORDERS).compose(event)
    found = Selection((plan,), runs)
    np.testing.assert_allclose(found.renyi(), expected.rdp, rtol=1e-6)
    assert found.epsilon() == pytest.approx(expected.get_epsilon(DELTA), rel=1e-6)


def test_the_price_is_that_of_the_worst_setting_at_every_order():
    one, other = divergences(ONE), divergences(OTHER)
    assert (one > other).any()
    assert (one < other).any()
    both = Selection((ONE, OTHER), 20.0)
    for plan in (ONE, OTHER):
        assert (both.renyi() >= Selection((plan,), 20.0).renyi()).all()
        assert both.epsilon() >= Selection((plan,), 20.0).epsilon()


def test_calibration_never_exceeds_the_target_and_comes_close():
    batches = [ReleaseSpec("score", Poisson(0.1), 1.0, 200)]
    settings = [
        [*batches, ReleaseSpec("last", Full(), 1.0, count=1, share=0.2)],
        [ReleaseSpec("score", Full(), 1.0, 150)],
        [ReleaseSpec("score", Poisson(0.02), 1.0, 100)],
    ]
    found = calibrate_selection([(plan_of(), specs) for specs in settings], 20.0, 1.0)
    assert 0.97 < found.epsilon() <= 1.0
    for plan, specs in zip(found.plans, settings, strict=True):
        noise = [release.noise_multiplier for release in plan.releases]
        assert np.array(noise) / noise[0] == pytest.approx(relative_noise(specs))


# --- the law of the number of runs ---


def log_pmf(k, runs):
    """Definition 1 of Papernot and Steinke (2022)."""
    gamma = halting(runs)
    rising = gammaln(k + ETA) - gammaln(ETA) - gammaln(k + 1)
    return k * math.log1p(-gamma) + rising - math.log(gamma**-ETA - 1)


def p_value(draws, runs):
    edges = [1, 2, 3, 5, 9, 17, 33, 65, 10**9]
    seen = [sum(a <= k < b for k in draws) for a, b in pairwise(edges)]
    pmf = np.exp(log_pmf(np.arange(1, 65), runs))
    expected = [pmf[a - 1 : b - 1].sum() for a, b in pairwise(edges[:-1])]
    expected.append(1 - sum(expected))
    return chisquare(seen, np.array(expected) * len(draws)).pvalue


def test_the_number_of_runs_is_drawn_from_the_law():
    rng = np.random.default_rng(0)
    draws = [draw_runs(20.0, rng) for _ in range(20_000)]
    assert min(draws) == 1
    assert p_value(draws, 20.0) > ALPHA


@pytest.mark.parametrize("fault", ["always the mean", "geometric", "zero is made one"])
def test_another_law_is_caught(fault):
    rng = np.random.default_rng(0)
    draws = {
        "always the mean": np.full(20_000, 20),
        "geometric": rng.geometric(1 / 20, 20_000),
        "zero is made one": np.fmax(1, rng.negative_binomial(ETA, halting(20.0), 20_000)),
    }[fault]
    assert p_value(draws, 20.0) < ALPHA


# --- the score ---

LIMITS = Range(-3.0, 0.0)


def regression(y):
    X = np.random.default_rng(1).normal(size=(len(y), 2))
    return zoo.odds(X, y)


def test_the_score_is_the_clipped_log_predictive_density():
    model = regression(np.random.default_rng(0).integers(0, 2, 60))
    fit = set_up(model, "dp_advi", 5, noise_multiplier=2.0, delta=DELTA, accountant="rdp")
    method = with_score(fit.records, fit.method, LIMITS)
    contribution = method.compile("python").contributions[NAME]
    batch = {name: np.array(column.values) for name, column in columns_of(fit).items()}
    points = np.random.default_rng(2).normal(scale=3, size=(30, 2))
    [found] = contribution.rows(contribution.prepare(batch, points), points).T
    eta = np.where(batch["y"][:, None] == 1, 1, -1) * (batch["X"] @ points.T)
    density = np.log(np.mean(1 / (1 + np.exp(-eta)), axis=1))
    np.testing.assert_allclose(found, np.clip(density, *LIMITS) + 1.5, rtol=1e-5)
    assert method.releases[-1].clip_norm == LIMITS.radius == 1.5


# --- the search ---

SETTINGS = [{"clip_norm": 0.5}, {"clip_norm": 2.0}, {"n": 8}]


@pytest.fixture(scope="module")
def model():
    return regression(np.random.default_rng(0).integers(0, 2, 60))


def tune(model, settings=SETTINGS, **terms):
    terms = {"n": 8, "epsilon": 2.0, "delta": DELTA, "draws": 3, "backend": "python", **terms}
    return pymc_dp.tune(model, settings, **terms)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "x.ledger", epsilon=10.0, delta=1e-4, dataset="toy")


class Search:
    """Watch the runs of a search, and say how many there are."""

    def __init__(self, patch, count=5):
        self.runs, run_releases = [], tuning.run_releases

        def watched(fit, *args):
            states, outcome = run_releases(fit, *args)
            self.runs.append((fit, states, outcome))
            return states, outcome

        patch.setattr(tuning, "run_releases", watched)
        patch.setattr(tuning, "draw_runs", lambda runs, rng: count)


def test_the_best_of_all_runs_is_returned(model, monkeypatch):
    search = Search(monkeypatch)
    idata = tune(model)
    scores = [states[-1].state.score for _, states, _ in search.runs]
    fit, states, _ = search.runs[int(np.argmax(scores))]
    assert len(scores) == 5
    np.testing.assert_array_equal(
        idata["fit"]["mean_vector"], fit.method.describe(states[-1])["mean_vector"]
    )


def test_every_run_makes_its_whole_plan_with_the_score_last(model, monkeypatch):
    search = Search(monkeypatch)
    tune(model)
    for fit, states, outcome in search.runs:
        assert len(outcome.made) == fit.plan.total == len(states) - 1
        assert outcome.made[-1] == fit.plan.releases[-1]
        assert outcome.made[-1].name == NAME


@pytest.fixture(scope="module")
def tuned(model):
    return tune(model, public=["X"])


def rebuilt(written):
    """Make a search of what a result states of it."""
    releases = [[Release.from_dict(r) for r in plan["releases"]] for plan in written["plans"]]
    return Selection(tuple(plan_of(*each) for each in releases), written["selection"]["mean"])


def test_the_result_states_the_whole_price(tuned):
    privacy = tuned["privacy"]
    assert 1.9 < privacy.attrs["epsilon"] <= 2.0
    assert tuned["posterior"].attrs["epsilon"] == privacy.attrs["epsilon"]
    assert privacy.attrs["accountant"] == "rdp_dp_accounting"
    assert (privacy["epsilon_spent"] == privacy.attrs["epsilon"]).all()
    assert json.loads(privacy.attrs["selected"]) in SETTINGS
    written = json.loads(privacy.attrs["dp_event"])
    search = rebuilt(written)
    assert search.epsilon() == pytest.approx(privacy.attrs["epsilon"])
    # the price of the winner alone would be too low
    assert search.plans[written["chosen"]].epsilon() < 0.8 * privacy.attrs["epsilon"]
    report = pymc_dp.privacy_report(tuned)
    assert "the best of a secret number of runs" in report
    assert "out of 3 settings, by a private score. The guarantee covers the choice" in report


def visible(model, monkeypatch, tmp_path, capfd, caplog, count):
    """Everything that a search of so many runs leaves behind, but for the values themselves."""
    with monkeypatch.context() as patch:
        Search(patch, count)
        path = tmp_path / f"{count}.ledger"
        ledger = Ledger(path, epsilon=10.0, delta=1e-4, dataset="toy")
        idata = tune(model, [{"clip_norm": 0.5}, {"clip_norm": 0.5}], ledger=ledger)
    of_winner = {"dp_event", "doubts"}
    attrs = {k: v for k, v in idata["privacy"].attrs.items() if k not in of_winner}
    shapes = {n: {k: v.shape for k, v in g.to_dataset().items()} for n, g in idata.items()}
    printed = capfd.readouterr()
    return attrs, shapes, path.read_bytes(), printed.out + printed.err + caplog.text


def test_nothing_tells_how_many_runs_there_were(model, monkeypatch, tmp_path, capfd, caplog):
    one = visible(model, monkeypatch, tmp_path, capfd, caplog, 1)
    many = visible(model, monkeypatch, tmp_path, capfd, caplog, 6)
    assert one == many
    assert one[-1] == ""


def test_a_ledger_that_counts_runs_is_caught(model, monkeypatch, tmp_path, capfd, caplog):
    run_releases = tuning.run_releases

    def telling(fit, compiled, rng, steps):
        path = max(tmp_path.glob("*.ledger"), key=lambda p: p.stat().st_mtime_ns)
        Ledger(path).reserve("run", plan_of(score(1000.0, 1.0, 1)))
        return run_releases(fit, compiled, rng, steps)

    monkeypatch.setattr(tuning, "run_releases", telling)
    one = visible(model, monkeypatch, tmp_path, capfd, caplog, 1)
    many = visible(model, monkeypatch, tmp_path, capfd, caplog, 6)
    assert one[2] != many[2]


@pytest.mark.parametrize("seed", [7, None])
def test_public_draws_do_not_tell_which_run_has_won(model, monkeypatch, seed):
    seeds = []
    make = np.random.default_rng

    def seen(seed=None):
        if not isinstance(seed, np.ndarray):  # those are of outcomes drawn behind the wall
            seeds.append(seed)
        return make(seed)

    monkeypatch.setattr(np.random, "default_rng", seen)
    Search(monkeypatch, 6)
    tune(model, random_seed=seed)
    assert set(seeds[-6:]) == {seed}


def test_a_search_is_set_aside_before_any_release_and_booked_once_before_it_returns(
    model, ledger, monkeypatch
):
    release, seen = PrivacyWall.release, []

    def watched(self, query):
        seen.append([(fit.planned, fit.booked) for fit in fits_of(ledger.path)])
        return release(self, query)

    monkeypatch.setattr(PrivacyWall, "release", watched)
    tune(model, ledger=ledger)
    assert all(entry == [(1, 0)] for entry in seen)
    assert [(fit.planned, fit.booked) for fit in fits_of(ledger.path)] == [(1, 1)]


def test_a_ledger_takes_the_price_of_the_search(model, ledger, tmp_path):
    attrs = tune(model, ledger=ledger)["privacy"].attrs
    [entry] = fits_of(ledger.path)
    assert entry.method == "tune of 3 settings"
    price = rebuilt(json.loads(attrs["dp_event"])).renyi((ledger.terms.order,))[0]
    assert entry.of_plan.rounded().amount == pytest.approx(price)
    sums = Ledger(tmp_path / "y", epsilon=10.0, delta=1e-4, dataset="toy", filter="sum")
    attrs = tune(model, ledger=sums)["privacy"].attrs
    assert fits_of(sums.path)[0].of_plan.rounded() == (attrs["epsilon"], DELTA)


def test_a_ledger_of_gaussians_refuses_a_search(model, tmp_path):
    gaussians = Ledger(tmp_path / "y", epsilon=10.0, delta=1e-4, dataset="toy", filter="zcdp")
    with pytest.raises(ValueError, match="and selections have no useful rho"):
        tune(model, ledger=gaussians)
    assert fits_of(gaussians.path) == []


def test_an_interrupted_search_returns_nothing_and_is_paid_for(model, ledger, monkeypatch):
    calls, release = [], PrivacyWall.release

    def interrupted(self, query):
        calls.append(query)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return release(self, query)

    monkeypatch.setattr(PrivacyWall, "release", interrupted)
    with pytest.raises(KeyboardInterrupt, match="its budget is spent"):
        tune(model, ledger=ledger)
    assert len(calls) == 3
    [entry] = fits_of(ledger.path)
    assert (entry.booked, entry.ended) == (0, True)
    assert ledger.spent.amount == entry.of_plan.rounded().amount > 0  # the number of runs is secret


@pytest.mark.parametrize(
    ("settings", "terms", "sentence"),
    [
        ([{"n": 8}], {}, "at least two dicts"),
        ([{"epsilon": 1.0}, {}], {}, r"settings\[0\] has epsilon="),
        (SETTINGS, {"accountant": "pld"}, "tune has accountant="),
        (SETTINGS, {"runs": 1.0}, "runs=1.0 must be above 1"),
        (SETTINGS, {"score_range": (0.0, -1.0)}, "two finite numbers, the smaller one first"),
        (SETTINGS, {"neighbours": "replace_one"}, "No proof covers sampling='poisson'"),
        ([{"clip_norm": -1.0}, {}], {}, "clip_norm=-1.0"),
        ([{"data": {"y": [0, 1]}}, {"n": 9}], {}, r"settings\[0\] has data=, .* to tune"),
    ],
)
def test_bad_input_is_refused_before_anything_is_spent(model, ledger, settings, terms, sentence):
    with pytest.raises(ValueError, match=sentence):
        tune(model, settings, **{"ledger": ledger, **terms})
    assert fits_of(ledger.path) == []


def test_records_with_latents_of_their_own_have_no_score(ledger):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=2)
        z = pm.Normal("z", 0, 1, shape=(60, 2))
        pm.Normal("y", z + mu, 1, observed=np.zeros((60, 2)))
    with pytest.raises(ValueError, match="entry for every record"):
        tune(model, [{"n": 8}, {"n": 9}], ledger=ledger)
    assert fits_of(ledger.path) == []


# --- a search that is forked on its way ---


def forked_search(model, monkeypatch, ledger=None):
    """Fork at the first of 41 runs; return both processes' later settings, and how each ended."""
    ours, run, fork = [], tuning._run, multiprocessing.get_context("fork")
    pipe, far_end = fork.Pipe()
    child = found = None

    def forking(fits, compiled, i, seed):
        nonlocal child, found
        ours.append(i)
        if len(ours) == 1:
            child = os.fork()
            found = run(fits, compiled, i, seed)
        return found

    monkeypatch.setattr(tuning, "draw_runs", lambda runs, rng: 41)
    monkeypatch.setattr(tuning, "_run", forking)
    try:
        tune(model, ledger=ledger)
        end = "returned"
    except ReleaseError:
        end = "refused"
    if child == 0:
        far_end.send((ours[1:], end))
        os._exit(0)
    os.waitpid(child, 0)
    return (ours[1:], end), pipe.recv()


def test_a_fork_does_not_share_the_secret_choices(model, monkeypatch):
    (ours, _), (theirs, _) = forked_search(model, monkeypatch)
    assert len(ours) == len(theirs) == 40
    assert ours != theirs


def test_one_generator_for_both_sides_of_a_fork_is_caught(model, monkeypatch):
    class Held(tuning.SecretRandom):
        @property
        def generator(self):
            return self._generators[1]  # as it was before the fork

    monkeypatch.setattr(tuning, "SecretRandom", Held)
    (ours, _), (theirs, _) = forked_search(model, monkeypatch)
    assert ours == theirs


def test_a_ledger_pays_for_one_side_of_a_fork(model, ledger, monkeypatch):
    ends = [end for _, end in forked_search(model, monkeypatch, ledger)]
    assert sorted(ends) == ["refused", "returned"]
    [entry] = fits_of(ledger.path)
    assert (entry.booked, entry.planned) == (1, 1)
