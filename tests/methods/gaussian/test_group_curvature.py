"""No record reads two groups of an array: what that says of the curvature."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.contributions.drawn_scores import drawn_scores
from pymc_dp.methods.gaussian.belief import Curvature
from pymc_dp.methods.gaussian.factors import Model, with_departures
from pymc_dp.methods.gaussian.group_curvature import Groups
from pymc_dp.methods.gaussian.shifts import find_groups, groups_that_never_meet
from pymc_dp.testing import deterministic_noise
from tests.zoo import separated

GROUPS, ROWS = 40, 6000
QUIETLY = {"delta": 1e-5, "progressbar": False, "backend": "python"}
no_warning = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")


def schools(rng, groups=GROUPS, rows=ROWS):
    """Yes-no answers of the members of many groups, about an intercept."""
    member, x = rng.choice(groups, rows, p=rng.dirichlet(np.full(groups, 3))), rng.normal(size=rows)
    effect = 0.5 * rng.normal(size=groups)
    answers = rng.random(rows) < 1 / (1 + np.exp(0.3 - effect[member] - 0.4 * x))
    with pm.Model() as model:
        group = pm.Normal("group", 0, pm.HalfNormal("spread"), shape=groups)
        psi = pm.Normal("intercept", 0, 2) + group[pm.Data("member", member)]
        logit = psi + pm.Normal("slope") * pm.Data("x", x)
        pm.Bernoulli("y", logit_p=logit, observed=answers.astype(int))
    return model, {"group": effect, "slope": 0.4}


def test_pairs_of_groups_are_apart_and_nothing_else_is():
    records, _ = separated(schools(np.random.default_rng(0))[0])
    groups = find_groups(records, lambda: drawn_scores(records, "python"))
    assert groups_that_never_meet(records, groups) is groups
    is_group = np.array([label.startswith("group") for label in records.labels])
    assert is_group.sum() == GROUPS
    np.testing.assert_array_equal(groups.grouped, is_group)
    both = np.outer(is_group, is_group) & ~np.eye(len(is_group), dtype=bool)
    np.testing.assert_array_equal(groups.apart, both)


def lines(rng, groups, rows):
    """A line of its own for each group, beside crossed groups; x is far from 0."""
    member, other, x = *rng.integers(0, groups, (2, rows)), 3 + rng.normal(size=rows)
    a, b = rng.normal(size=groups), 0.3 * rng.normal(size=groups)
    y = rng.normal(a[member] + b[member] * x, 1.0)
    with pm.Model() as model:
        level = pm.Normal("level", 0, pm.HalfNormal("spread"), shape=groups)
        slope = pm.Normal("slope", 0, pm.HalfNormal("spread of slopes"), shape=groups)
        beside = pm.Normal("beside", 0, 0.1, shape=groups)
        own = pm.Data("member", member)
        mean = level[own] + slope[own] * pm.Data("x", x) + beside[pm.Data("other", other)]
        pm.Normal("y", mean, pm.HalfNormal("s"), observed=y)
    return model, {"level": a, "slope": b}


def test_arrays_that_one_index_picks_have_the_same_groups():
    records, _ = separated(lines(np.random.default_rng(0), 12, 500)[0])
    groups = find_groups(records, lambda: drawn_scores(records, "python"))
    array, place = np.transpose(
        [label.strip("]").split("[") for label in records.labels if "[" in label]
    )
    kept = np.array(["[" in label for label in records.labels])
    array = np.where(array == "slope", "level", array)
    same_index, same_place = (x[:, None] == x for x in (array, place))
    np.testing.assert_array_equal(groups.apart[np.ix_(kept, kept)], same_index & ~same_place)
    np.testing.assert_array_equal(groups.mates[np.ix_(kept, kept)], same_index & same_place)


def test_arrays_that_are_never_read_together_have_one_index_by_a_third():
    member, part = np.arange(12) % 3, np.arange(12) % 2
    own = np.eye(3, dtype=bool)[member]
    read = np.hstack([own & (part == 0)[:, None], own, own & (part == 1)[:, None]])
    shifts = np.kron(np.eye(3), np.ones((3, 1)))
    groups = Groups.of(shifts, [3, 3, 3], read)
    assert len(np.unique(groups.picked_by)) == 1
    elsewhere = np.roll(own, 1, axis=0)
    groups = Groups.of(shifts[:6, :2], [3, 3], np.hstack([own, elsewhere]))
    assert len(np.unique(groups.picked_by)) == 2


def sd_of_slope(epsilon):
    model, truth = schools(np.random.default_rng(0))
    with deterministic_noise(0):
        idata = pymc_dp.fit(model=model, epsilon=epsilon, random_seed=0, **QUIETLY)
    slope = idata["posterior"]["slope"]
    assert abs(slope.mean() - truth["slope"]) < 4 * slope.std()
    return float(slope.std())


@no_warning
def test_slopes_beside_many_groups_are_known_nearly_as_well_as_without_privacy():
    assert sd_of_slope(1) < 2.5 * sd_of_slope(np.inf)


def z_of(model, truth, name):
    """How far effects of more groups than have a released matrix are off, without privacy."""
    idata = pymc_dp.fit(model=model, epsilon=np.inf, draws=300, random_seed=0, **QUIETLY)
    found = idata["posterior"][name]
    z = (found.mean(("chain", "draw")) - truth[name]) / found.std(("chain", "draw"))
    return float(np.mean(z**2) ** 0.5)


def many_schools():
    return schools(np.random.default_rng(0), groups=160, rows=16_000)


@no_warning
def test_effects_of_more_groups_than_have_a_matrix_are_right_without_privacy():
    assert 0.6 < z_of(*many_schools(), "group") < 1.4


@no_warning
@pytest.mark.slow
def test_lines_of_as_many_groups_are_right_without_privacy():
    assert 0.6 < z_of(*lines(np.random.default_rng(0), 60, 8000), "slope") < 1.4


def design(x_of_group=0.0):
    """The curvature of an intercept, two slopes and GROUPS groups of records of weight 1/4."""
    rng = np.random.default_rng(3)
    member = rng.choice(GROUPS, ROWS, p=rng.dirichlet(np.full(GROUPS, 3)))
    x = rng.normal(size=(ROWS, 2))
    x[:, 0] += x_of_group * rng.normal(size=GROUPS)[member]
    rows = np.column_stack([np.ones(ROWS), x, np.eye(GROUPS)[member]])
    single, together = np.eye(3), np.ones((GROUPS, 1))
    V = np.block([[single, np.zeros((3, 1))], [np.zeros((GROUPS, 3)), together]])
    return rows.T @ rows / 4, Groups.of(V, [1, 2, GROUPS])


def with_noise(H, share, seed):
    """Add the noise that a release in whitened coordinates has."""
    Q = share * (H + np.eye(len(H)))
    root = np.linalg.cholesky(Q)
    G = np.random.default_rng(seed).normal(size=H.shape)
    return Curvature(H + root @ (G + G.T) / 2 @ root.T, Q)


def of_groups(x_of_group, noise=0.05):
    H, groups = design(x_of_group)
    found = groups.without_pairs(with_noise(H, noise, seed=1))
    of_shifts = with_noise(groups.shifts.T @ H @ groups.shifts, noise / 10, seed=2)
    alike = groups.alike(of_shifts.spectrum().matrix(0.15), found, np.diag(H))
    return H, alike, groups.unlike(found, alike)


def predictor_of_groups():
    """The curvature of an intercept, two slopes and GROUPS groups, one slope's x that of a group.

    The model that groups are alike is wrong along the slope of the groups' predictor and their
    effects, which cancel.
    """
    rng = np.random.default_rng(7)
    member, w = rng.integers(0, GROUPS, ROWS), rng.normal(size=GROUPS)
    x = np.column_stack([w[member], rng.normal(size=ROWS)])
    rows = np.column_stack([np.ones(ROWS), x, np.eye(GROUPS)[member]])
    H, (_, groups) = rows.T @ rows / 4 + np.eye(3 + GROUPS) / 10, design()
    found = groups.without_pairs(with_noise(H, 0.1, seed=1))
    cancels = np.array([0, 1.0, 0, *-w])
    alike = groups.alike(groups.shifts.T @ H @ groups.shifts, found, np.diag(H))
    return found, Model(groups.unlike(found, alike), 0.1), cancels


def test_directions_that_were_found_with_little_noise_are_not_as_the_model_says():
    found, model, cancels = predictor_of_groups()
    departed = with_departures(found, model)
    before, after = (cancels @ matrix @ cancels for matrix in (model.matrix, departed.matrix))
    assert after < before / 3
    assert departed.fitted_share == pytest.approx(model.fitted_share + 2 / (4 + GROUPS))


def test_shifts_that_were_clipped_more_are_brought_to_the_size_of_the_groups():
    H, groups = design()
    found = groups.without_pairs(with_noise(H, 0.05, seed=1))
    clipped = 0.6 * groups.shifts.T @ H @ groups.shifts
    resized = groups.resized(clipped, found, np.diag(H))
    np.testing.assert_allclose(np.diag(resized), np.diag(clipped) / 0.6, rtol=0.1)
    hidden = groups.resized(clipped, with_noise(H, 100.0, seed=1), np.diag(H))
    np.testing.assert_allclose(hidden, clipped, rtol=0.05)


def information(H, latent=1):
    """What records say of a latent where the groups are not known."""
    return 1 / np.linalg.inv(H + np.diag([1.0] * 3 + [4.0] * GROUPS))[latent, latent]


def test_groups_whose_records_are_alike_are_as_the_model_of_them_says():
    H, alike, found = of_groups(x_of_group=0.0)
    assert information(found) == pytest.approx(information(H), rel=0.1)
    assert np.array_equal(alike, found)


def test_a_predictor_that_differs_between_groups_is_told_from_them():
    H, alike, found = of_groups(x_of_group=2.0)
    assert information(found) < 2 * information(H)
    assert information(alike) > 3 * information(H)  # without what was found to differ
