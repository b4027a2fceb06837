"""Where records are outcomes alone, what the model expects of scores takes no budget."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.contributions.drawn_scores import drawn_scores
from pymc_dp.contributions.joint_vector import At
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.expected_scores import expected_scores
from pymc_dp.methods.gaussian.schedule import ROUNDS, schedule
from pymc_dp.model import separate
from pymc_dp.testing import deterministic_noise

Y = np.random.default_rng(0).gamma(3.0, 1.0, 500)


def waiting_times():
    pm.Exponential("y", pm.Gamma("rate", 2, 2), observed=Y)


def location_and_scale():
    pm.Normal("y", pm.Normal("mu"), pm.HalfNormal("s"), observed=Y)


def lengths():
    pm.Gamma("y", alpha=2.0, beta=pm.Gamma("rate", 2, 2), observed=Y)


def coin():
    pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=(Y > 3).astype(int))


def persons():
    """Three outcomes of each person, which a latent of its own correlates: I + 1 1'."""
    own = pm.Normal("own", shape=(len(Y), 1))
    pm.Normal("y", own + pm.Normal("mu", shape=3), 1.0, observed=np.column_stack([Y] * 3))


def line():
    pm.Normal("y", pm.Data("x", Y[::-1]) * pm.Normal("b"), 1.0, observed=Y)


def of(build, of_units=False):
    with pm.Model() as model:
        build()
    records, _ = separate(model)
    return expected_scores(records, drawn_scores(records, "python"), of_units)


def at(*point, bound=np.inf):
    return At(np.array(point), np.eye(len(point)), bound, 100 * bound, 1.0)


# the information of one record in unconstrained latents
KNOWN = [
    (waiting_times, (0.7,), [[1.0]]),
    (location_and_scale, (0.3, np.log(2.0)), [[0.25, 0.0], [0.0, 2.0]]),
    (lengths, (0.2,), [[2.0]]),
    (coin, (np.log(3.0),), [[3 / 16]]),
    (persons, (0.4, 0.0, -1.0), np.eye(3) - 0.25),  # the inverse of I + 1 1'
]


@pytest.mark.parametrize(("build", "point", "information"), KNOWN)
def test_curvature_is_the_information_of_the_model(build, point, information):
    expected = of(build)(at(*point))
    np.testing.assert_allclose(expected.curvature, information, atol=0.1 * np.max(information))
    assert expected.variance_share == pytest.approx(1.0)


def test_curvature_is_that_of_clipped_scores():
    free, clipped = (of(waiting_times)(at(0.7, bound=bound)) for bound in (np.inf, 1.0))
    assert clipped.curvature < 0.8 * free.curvature
    assert clipped.variance_share < 0.9


def test_predictors_and_units_leave_it_unknown():
    assert of(line) is None
    assert of(waiting_times, of_units=True) is None


def of_two_shapes():
    a, b = pm.HalfNormal("a", 2), pm.HalfNormal("b", 2)
    pm.Beta("y", a, b, observed=Y / (1 + Y))


def test_nothing_is_expected_where_the_models_own_outcomes_have_no_score():
    expected = of(of_two_shapes)
    assert expected(at(0.0, 0.0)) is not None
    assert expected(at(-5.0, -5.0)) is None  # its outcomes are 0 and 1, by rounding


def test_what_a_wrong_model_expects_is_corrected_by_releases():
    """Times of shape 3 vary less than the model of rounds expects: noise hides none of it."""
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", 0, 10), 10.0, observed=np.repeat(Y, 8))
    with deterministic_noise(1):
        idata = pymc_dp.fit(model=model, epsilon=4, delta=1e-5, progressbar=False, backend="python")
    exact = Y.mean()
    off = float(idata["posterior"]["mu"].mean()) - exact
    assert abs(off) < 3 * float(idata["posterior"]["mu"].std())


def test_more_of_the_budget_is_left_to_scores():
    known, unknown = (
        sum(share.score for share in schedule(ROUNDS, 0.04, of_curvature).of_rounds)
        for of_curvature in (DEFAULTS.share_if_expected, 1.0)
    )
    assert known > 1.3 * unknown
