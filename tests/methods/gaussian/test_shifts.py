"""Groups shift together first, so that what they have in common is found from few coordinates."""

import math

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.contributions.drawn_scores import drawn_scores
from pymc_dp.contributions.score_scales import score_scales
from pymc_dp.methods.advi import AdviOptions
from pymc_dp.methods.gaussian.schedule import ROUNDS, RoundTerms, schedule
from pymc_dp.methods.gaussian.shifts import Shifts, find_groups
from pymc_dp.methods.gaussian.stages import SCALES, SCORES, SHIFTED
from pymc_dp.sampling.samplers import Full
from pymc_dp.testing import deterministic_noise
from tests import zoo
from tests.guarantees.test_whitened_norms import rows_of

GROUPS, ROWS = 8, 640
QUIETLY = {"progressbar": False, "backend": "python", "random_seed": 1, "draws": 400}
RNG = np.random.default_rng(0)
GROUP, OTHER = np.arange(ROWS) % GROUPS, np.arange(ROWS) // GROUPS % GROUPS
X, Y = RNG.normal(size=(ROWS, 2)), RNG.normal(size=ROWS)


def effects(*shape):
    return pm.Normal("effects", 0, 1, shape=shape)


def intercepts():
    mean = effects(GROUPS)[pm.Data("group", GROUP)] + pm.Data("X", X) @ pm.Normal("b", shape=2)
    pm.Normal("y", mean, pm.HalfNormal("s"), observed=Y)


def intercepts_and_slopes():
    own = effects(GROUPS, 2)[pm.Data("group", GROUP)]
    pm.Normal("y", (own * pm.Data("X", X)).sum(axis=1), 1, observed=Y)


def two_columns():
    mean = effects(GROUPS, GROUPS)[pm.Data("group", GROUP), pm.Data("other", OTHER)]
    pm.Normal("y", mean, 1, observed=Y)


def columns_of_effects():
    own = effects(2, GROUPS)[:, pm.Data("group", GROUP)]
    pm.Normal("y", own[0] + own[1] * pm.Data("X", X)[:, 0], 1, observed=Y)


def binary():
    mean = effects(GROUPS)[pm.Data("group", GROUP)]
    pm.Bernoulli("y", logit_p=mean, observed=(Y > 0).astype(int))


def compared():
    own = effects(GROUPS)
    mean = own[pm.Data("group", GROUP)] - own[pm.Data("other", OTHER)]
    pm.Normal("y", mean, 1, observed=Y)


def few_groups():
    pm.Normal("y", effects(2)[pm.Data("group", GROUP % 2)], pm.HalfNormal("s"), observed=Y)


def no_groups():
    pm.Normal("y", pm.Data("X", X) @ effects(2), 1, observed=Y)


def separated(build):
    with pm.Model() as model:
        build()
    return zoo.separated(model)


def directions(build):
    records, _ = separated(build)
    groups = find_groups(records, lambda: drawn_scores(records, "python"))
    return groups and groups.shifts


def ones_of(*blocks):
    """Return block-diagonal columns of ones."""
    V = np.zeros((sum(blocks), len(blocks)))
    V[np.arange(len(V)), np.repeat(np.arange(len(blocks)), blocks)] = 1
    return V


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (intercepts, ones_of(GROUPS, 1, 1, 1)),
        (intercepts_and_slopes, np.tile(np.eye(2), (GROUPS, 1))),
        (two_columns, ones_of(GROUPS**2)),
        (columns_of_effects, ones_of(GROUPS, GROUPS)),
        (binary, ones_of(GROUPS)),
    ],
)
def test_groups_of_which_a_record_reads_one_shift_together(build, expected):
    np.testing.assert_array_equal(directions(build), expected)


@pytest.mark.parametrize("build", [compared, few_groups, no_groups])
def test_other_latents_do_not(build):
    assert directions(build) is None


@pytest.mark.parametrize("build", [intercepts, intercepts_and_slopes, binary])
def test_scores_of_shifts_are_sums_of_those_of_groups(build):
    records, columns = separated(build)
    scores, V = drawn_scores(records, "python"), directions(build)
    shifts = Shifts(records.start, V)
    u = 0.1 * np.arange(V.shape[1])
    batch = {name: column.take(np.arange(ROWS)) for name, column in columns.items()}

    def formed(scores, point):
        weights, vectors = scores.of_batch(batch, point)
        return np.einsum("roc,crd->rod", weights, vectors) if len(vectors) else weights

    of_shifts, of_groups = formed(shifts.scores(scores), u), formed(scores, shifts.point(u))
    # products of 26 bits, whose last bits are the same in any batch
    np.testing.assert_allclose(of_shifts, of_groups @ V, rtol=0, atol=3e-7 * abs(of_shifts).max())


def check_first_release(contribution, columns, context, histograms):
    assert np.linalg.norm(rows_of(contribution, columns, context), axis=1).max() <= histograms**0.5


def test_the_first_release_of_shifts_has_a_histogram_for_each_of_them():
    records, columns = separated(binary)
    scores, V = drawn_scores(records, "python"), directions(binary)
    shifted = Shifts(records.start, V).scores(scores)
    check_first_release(score_scales(shifted), columns, np.zeros(1), V.shape[1])
    with pytest.raises(AssertionError):  # of groups each, with the sensitivity of shifts
        check_first_release(score_scales(scores), columns, records.start, V.shape[1])


def terms(rounds):
    options = AdviOptions(sampling=Full, num_records=None, noise=1.0)
    return RoundTerms.of(options, rounds + 1, shifts=True)


@pytest.mark.parametrize("rounds", [4, ROUNDS, 30])
def test_rounds_of_shifts_cost_little_of_the_budget(rounds):
    first = terms(rounds).of_shifts
    shares = [share.of_release for share in schedule(rounds, 0.04, of_shifts=first).of_rounds]
    assert len(shares) == rounds
    assert sum(shares) == pytest.approx(0.96)
    assert sum(shares[:first]) < 0.35
    assert min(shares) > 0


def test_a_plan_says_which_releases_are_of_shifts():
    with pm.Model() as model:
        intercepts()
    releases = pymc_dp.plan(model=model, epsilon=1, delta=1e-5).plan.releases
    first = terms(ROUNDS).of_shifts
    names = [release.name for release in releases for _ in range(release.count)]
    assert names == [SCALES, *[SHIFTED] * first, *[SCORES] * (ROUNDS - first)]


def test_without_noise_no_release_is_of_shifts():
    with pm.Model() as model:
        intercepts()
    releases = pymc_dp.plan(model=model, epsilon=math.inf).plan.releases
    assert {release.name for release in releases} == {SCALES, SCORES}
    assert sum(release.count for release in releases) == 1 + 2 * ROUNDS


def far_away():
    """Groups whose mean and residuals are far from the start, and predictors without centre."""
    rng = np.random.default_rng(5)
    number, rows = 45, 4500
    group, x = rng.integers(0, number, rows), np.log1p(rng.gamma(2, 1, (rows, 3)))
    truth, slopes = rng.normal(20, 2, number), np.array([0.8, 0.5, 0.3])
    outcome = truth[group] + x @ slopes + rng.normal(0, 1.5, rows)
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 20, shape=number), pm.Normal("b", 0, 1, shape=3)
        mean = a[pm.Data("group", group)] + pm.Data("x", x) @ b
        pm.Normal("y", mean, pm.HalfNormal("s", 5), observed=outcome)
    return model, {"a": truth, "b": slopes, "s": 1.5}


def farthest(idata, truth):
    """Return the largest error in posterior standard deviations."""
    found = {name: idata["posterior"][name].to_numpy()[0] for name in truth}
    return max(np.abs((z.mean(axis=0) - truth[k]) / z.std(axis=0)).max() for k, z in found.items())


def fitted(model, truth):
    with deterministic_noise(1):
        return farthest(pymc_dp.fit(model=model, epsilon=1, delta=1e-5, **QUIETLY), truth)


def test_groups_far_away_are_found():
    assert fitted(*far_away()) < 4


def stopped_after(releases, model):
    def stop(state, _, release):
        if release + 1 >= releases:
            raise StopIteration

    with deterministic_noise(1):
        return pymc_dp.fit(model=model, epsilon=1, delta=1e-5, callbacks=[stop], **QUIETLY)


@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")
@pytest.mark.parametrize("releases", [2, 4, 8])
def test_a_fit_that_ends_while_groups_shift_has_the_prior_of_what_sets_them_apart(releases):
    model, truth = far_away()
    with pytest.warns(pymc_dp.PosteriorWarning, match="all groups of an array moved together"):
        idata = stopped_after(releases, model)
    a, s = (idata["posterior"][name].to_numpy()[0] for name in ("a", "s"))
    assert a.shape[1:] == truth["a"].shape
    differences = (a - a.mean(axis=1, keepdims=True)).std(axis=0)
    assert np.all((10 < differences) & (differences < 25))  # the prior's standard deviation is 20
    if releases == 8:  # residuals are those of a model without groups
        assert s.std() < 1.5
        assert 1.5 < s.mean() < 5


def test_scores_that_are_no_numbers_show_no_groups():
    records, _ = separated(intercepts)
    scores = drawn_scores(records, "python")

    def nothing(batch, point):
        found = scores.of_batch(batch, point)
        return found._replace(vectors=np.full_like(found.vectors, np.nan))

    assert find_groups(records, lambda: scores._replace(of_batch=nothing)) is None
