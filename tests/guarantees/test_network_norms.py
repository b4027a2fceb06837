"""No record moves a network's sums by more than the clip norm, and some record reaches it.

Guard 2 of the tests of a guarantee, for sites whose parts are shortened one by one before the
whole is clipped.
"""

import numpy as np
import pymc as pm
import pytest
from hypothesis import strategies as st

from pymc_dp.errors import ReleaseError
from pymc_dp.methods.sep.network import recognise
from pymc_dp.methods.sep.network_fit import Context, Typical, bounded_layout, contribution
from pymc_dp.model import constrained
from pymc_dp.privacy.contribution import FactoredContribution
from pymc_dp.privacy.norms import row_norms
from tests.guarantees.test_sensitivity import EXTREMES, C, check_neighbours, covered_by
from tests.zoo import build as model_of
from tests.zoo import separated

ROWS = 40
RNG = np.random.default_rng(4)
X = RNG.normal(size=(ROWS, 2)) * np.geomspace(0.01, 100, ROWS)[:, None]
UNITS = 3


def output():
    z = pm.math.maximum(0, pm.math.dot(pm.Data("X", X), pm.Normal("W", shape=(2, UNITS))))
    return pm.math.dot(z, pm.Normal("w", shape=UNITS)) + pm.Normal("b")


def regression():
    pm.Normal("y", output(), tau=pm.Gamma("tau", 2, 1), observed=RNG.normal(size=ROWS) * 5)


def classes():
    pm.Bernoulli("y", logit_p=output(), observed=np.arange(ROWS) % 2)


number = st.one_of(st.floats(-3, 3), st.sampled_from(EXTREMES))
RECORDS = {
    "regression": st.fixed_dictionaries({"X": st.tuples(number, number), "y": number}),
    "classes": st.fixed_dictionaries(
        {"X": st.tuples(number, number), "y": st.sampled_from([0, 1, -5, 2**40])}
    ),
}
LOUD = {"regression": {"X": (300.0, -400.0), "y": 1e4}, "classes": {"X": (30.0, 400.0), "y": 0}}


@pytest.fixture(scope="module")
def compiled():
    found = {}
    for build in (regression, classes):
        records, columns = separated(constrained(model_of(build)))
        network = recognise(records)
        d = network.prior.d
        scales = bounded_layout(C, Typical(1.0, 1.0, np.ones(d)), build is regression)
        sites = contribution(records, network, scales, "python")
        mean = np.concatenate(
            [np.ravel(MEANS[build.__name__][name]) for name in network.prior.shapes]
        )
        asked = Context(mean, np.full(d, VARIANCES[build.__name__]), 30.0, 20.0)
        found[build.__name__] = sites, columns, asked, d, scales
    return found


def covered_by_network(compiled, name, contribution=None):
    sites, columns, asked, *_ = compiled[name]
    return covered_by(contribution or sites, columns, asked)


def prepared(compiled, name):
    sites, columns, asked, *_ = compiled[name]
    batch = {leaf: column.take(np.arange(ROWS)) for leaf, column in columns.items()}
    return sites, batch, asked, sites.prepare(batch, asked)


# the cavity; units that cancel leave classes open, where a record says most
VARIANCES = {"regression": 0.1, "classes": 1e-6}
MEANS = {
    "regression": {
        "W": np.linspace(0.2, 1, 2 * UNITS).reshape(2, UNITS),
        "w": np.ones(3),
        "b": 0.5,
    },
    "classes": {"W": np.full((2, UNITS), 0.5), "w": np.array([1.0, -1.0, 0.0]), "b": 0.0},
}
LOUD_OR_NOT = st.one_of(RECORDS["regression"], st.just(LOUD["regression"]))
BOTH = pytest.mark.parametrize("name", RECORDS)


@BOTH
def test_norms_are_those_of_the_vectors_that_are_summed(compiled, name):
    sites, _, asked, rows = prepared(compiled, name)
    alone = [sites.weighted_sum(rows, asked, one) for one in np.eye(ROWS)]
    np.testing.assert_allclose(sites.norms(rows, asked), np.linalg.norm(alone, axis=1), rtol=1e-9)


@BOTH
def test_a_record_contributes_the_same_whatever_is_beside_it(compiled, name):
    sites, batch, asked, rows = prepared(compiled, name)
    for i in range(0, ROWS, 7):
        one = {leaf: values[i : i + 1] for leaf, values in batch.items()}
        np.testing.assert_allclose(sites.prepare(one, asked), rows[i : i + 1], rtol=1e-9)


@BOTH
def test_every_part_keeps_its_bound_and_some_reach_it(compiled, name):
    _, _, _, rows = prepared(compiled, name)
    layout, bounds = compiled[name][-1]
    for part, bound in zip(layout.slices.values(), bounds, strict=True):
        norms = row_norms(rows[:, part])
        assert norms.max() <= bound * (1 + 1e-12)
        assert norms.max() >= bound * (1 - 1e-12)


@BOTH
def test_no_record_moves_a_sum_beyond_the_clip_norm(compiled, name):
    check_neighbours(covered_by_network(compiled, name), RECORDS[name])


@BOTH
def test_some_record_reaches_the_bound(compiled, name):
    covered = covered_by_network(compiled, name)
    assert 0.99 <= np.linalg.norm(covered([LOUD[name]]) - covered([])) <= 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_a_record_that_is_not_finite_adds_nothing(compiled, bad):
    covered = covered_by_network(compiled, "regression")
    others = [{"X": (0.3, -0.2), "y": 0.1}]
    record = {"X": (bad, 1.0), "y": 0.0}
    np.testing.assert_allclose(covered([*others, record]), covered(others), atol=1e-12)


def test_an_outcome_outside_the_likelihood_adds_nothing(compiled):
    covered = covered_by_network(compiled, "classes")
    np.testing.assert_array_equal(covered([{"X": (0.3, -0.2), "y": 2}]), 0)


# --- planted faults ------------------------------------------------------------------------------


def factored(sites, **faulty):
    """Return the same contribution by norms and weighted sums, some of them wrong."""
    parts = {name: getattr(sites, name) for name in ("norms", "weighted_sum", "prepare")}
    return FactoredContribution(sites.size, sites.width, **{**parts, **faulty})


def norms_of_the_scores_alone(sites, d):
    """Clip the scores to the whole norm, and let the other parts come on top."""

    def whole(batch, asked):
        return sites.prepare(batch, asked) * ([1 / 0.85] * d + [1] * (sites.size - d))

    return factored(sites, prepare=whole, norms=lambda rows, asked: row_norms(rows[:, :d]))


def a_count_that_is_left_out(sites, d):
    """Count records by a number that no norm covers."""

    def longer(batch, asked):
        rows = sites.prepare(batch, asked)
        rows[:, -1] = 1
        return rows

    return factored(sites, prepare=longer, norms=lambda rows, asked: row_norms(rows[:, :-1]))


def means_over_the_batch(sites, d):
    def mean(rows, asked, weights):
        return weights @ rows * 20 / len(rows)

    return factored(sites, weighted_sum=mean)


@pytest.mark.parametrize(
    "fault", [norms_of_the_scores_alone, a_count_that_is_left_out, means_over_the_batch]
)
def test_a_faulty_contribution_is_caught(compiled, fault):
    sites, _, _, d, _ = compiled["regression"]
    covered = covered_by_network(compiled, "regression", fault(sites, d))
    with pytest.raises((AssertionError, ReleaseError)):
        check_neighbours(covered, LOUD_OR_NOT)


@pytest.mark.parametrize("d", [1, 7])
def test_shares_of_an_infinite_clip_norm_clip_nothing(d):
    scales = bounded_layout(np.inf, Typical(2.0, 3.0, np.ones(d)), with_noise=True)
    assert not np.isfinite(scales.bounds).any()
    assert all(part.scale == 1 for part in scales.layout.parts.values())
