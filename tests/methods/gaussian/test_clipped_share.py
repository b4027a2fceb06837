"""What clipping leaves of scores is foreseen from the norm that they are clipped to."""

import numpy as np
import pytest

from pymc_dp.contributions.joint_vector import At, split
from pymc_dp.contributions.whitened_vectors import vectors
from pymc_dp.methods.gaussian.clipped_share import VarianceShare, expected_share
from pymc_dp.methods.gaussian.defaults import DEFAULTS

ROWS, OUTCOMES = 4000, 12


def scores_of_a_line(d, rng):
    """Scores of slopes and a log sd, each of variance 1."""
    x, r = rng.normal(size=(ROWS, 1, d - 1)), rng.normal(size=(ROWS, OUTCOMES, 1))
    return np.concatenate([x * r, (r**2 - 1) / 2**0.5], axis=2)


def scores_of_choices(d, rng, effect=1.0):
    """Scores of a logistic regression whose predictor has this sd, of variance 1 on average."""
    x = rng.normal(size=(ROWS, 1, d))
    p = 1 / (1 + np.exp(-effect * x.mean(axis=2, keepdims=True) * d**0.5))
    scores = x * ((rng.uniform(size=(ROWS, OUTCOMES, 1)) < p) - p)
    return scores / (scores**2).mean() ** 0.5


def foreseen_and_true(scores, bound):
    """Variance and curvature that clipping leaves: what a bound says, and the truth."""
    d = scores.shape[2]
    at = At(np.zeros(d), np.eye(d), bound, 1e9, ratio=1.0)
    sums = split(vectors(scores, at).sum(axis=0), at)
    trace = float(np.trace(sums.curvature))
    unknown = VarianceShare().add(
        sums.variance, trace, 1e9 * trace, expected_share(trace, ROWS * bound**2)
    )
    exact = sums.variance / trace, trace / (ROWS * (scores**2).sum(axis=2).mean())
    return (unknown.mean, unknown.curvature_share), exact


@pytest.mark.parametrize("relative_bound", [1.2, 1.6, 2.5])
@pytest.mark.parametrize("scores", [scores_of_a_line, scores_of_choices])
@pytest.mark.parametrize("d", [4, 12])
def test_a_bound_says_about_what_clipping_leaves(d, scores, relative_bound):
    drawn = scores(d, np.random.default_rng(1))
    foreseen, true = foreseen_and_true(drawn, relative_bound * d**0.5)
    assert foreseen[0] == pytest.approx(true[0], abs=2 * DEFAULTS.variance_sd)
    assert foreseen[1] == pytest.approx(true[1], abs=0.25)


def test_where_outcomes_are_all_but_certain_too_little_is_taken_away():
    drawn = scores_of_choices(12, np.random.default_rng(1), effect=3.5)
    foreseen, true = foreseen_and_true(drawn, 1.6 * 12**0.5)
    assert foreseen[0] > true[0]
    assert foreseen[1] > true[1]


def test_what_was_measured_well_counts_more_than_the_bound():
    measured = VarianceShare().add(0.7, 1.0, noise_sd=0.005, expected=1.0)
    assert measured.mean == pytest.approx(0.7, abs=0.01)
    assert measured.upper == pytest.approx(0.7, abs=0.02)


def test_without_clipping_nothing_is_taken_away():
    exact = VarianceShare().add(1.0, 1.0, noise_sd=0.0, expected=expected_share(1.0, np.inf))
    assert (exact.mean, exact.curvature_share) == (1.0, 1.0)
