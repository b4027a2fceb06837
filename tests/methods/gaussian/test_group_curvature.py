"""No record reads two groups of an array: what that says of the curvature."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.contributions.drawn_scores import drawn_scores
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
def test_lines_of_as_many_groups_are_right_without_privacy():
    assert 0.6 < z_of(*lines(np.random.default_rng(0), 60, 8000), "slope") < 1.4
