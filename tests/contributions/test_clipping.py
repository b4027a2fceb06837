"""Clipped scores have no bias where outcomes are the model's; both outcomes are the limit."""

import numpy as np
import pytest
from scipy.stats import norm

from pymc_dp.contributions import whitened
from pymc_dp.contributions.scores import CENTRING, DRAWS, drawn_scores
from pymc_dp.contributions.whitened import (
    At,
    clip_consistently,
    split,
    vectors,
    whitened_scores,
)
from pymc_dp.privacy.contribution import with_draws
from tests import zoo

ALPHA = 1e-6
ROWS = 200_000


# scores of unit variance


def rare(rng, shape):
    return ((rng.random((*shape, 1)) < 0.02) - 0.02) / (0.02 * 0.98) ** 0.5


def squares(rng, shape):
    r = rng.normal(size=(*shape, 2))
    return np.stack([r[..., 0], (r[..., 0] ** 2 - 1) / 2**0.5], axis=-1)


def overdispersed(rng, shape):
    return (rng.poisson(rng.gamma(0.5, 4.0, (*shape, 1))) - 2.0) / 10**0.5


SCORES = [rare, squares, overdispersed]


def check_mean_is_zero(u):
    error = u.std(axis=0) / len(u) ** 0.5
    assert (np.abs(u.mean(axis=0)) <= norm.isf(ALPHA / 2 / u.shape[1]) * error).all()


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("bound", [1.6, 3.0])
def test_the_mean_of_a_clipped_score_is_zero(scores, bound):
    s = scores(np.random.default_rng(1), (ROWS, 1 + CENTRING))
    bound = bound * s.shape[-1] ** 0.5
    u = clip_consistently(s, bound)[:, 0]
    assert np.linalg.norm(u, axis=1).max() <= bound * (1 + 1e-9)
    check_mean_is_zero(u)


@pytest.mark.parametrize("scores", SCORES)
def test_clipping_alone_is_biased_and_is_seen(scores):
    s = scores(np.random.default_rng(1), (ROWS, 1 + CENTRING))[:, 0]
    u = s * np.minimum(1, 1.6 / np.maximum(np.linalg.norm(s, axis=1), 1e-300))[:, None]
    with pytest.raises(AssertionError):
        check_mean_is_zero(u)


@pytest.mark.parametrize("bound", [1.6, 3.0])
def test_the_slope_is_that_of_the_clipped_scores_mean(bound):
    """Against the difference of means where the rate of exponential outcomes differs slightly."""
    rng, step = np.random.default_rng(3), 0.05
    x = rng.exponential(size=(ROWS // 4, 1 + DRAWS, 1))
    at = At(np.zeros(1), np.eye(1), bound, 100.0)
    sums = split(vectors(1 - x, at).mean(axis=0), at)
    moved = [x.copy(), x.copy()]
    for scores, sign in zip(moved, (1, -1), strict=True):
        scores[:, 0] *= np.exp(sign * step)  # E[1 - x exp(z)] falls with z, as does the score
    above, below = (split(vectors(1 - m, at).mean(axis=0), at).score for m in moved)
    assert sums.curvature[0, 0] == pytest.approx((below - above).item() / (2 * step), rel=0.05)


# records of two outcomes
BOUNDS = [(0.4, 1.0), (1.0, 0.2), (np.inf, np.inf)]


def scores_of(p, x, outcomes):
    """Scores (outcome - p) x of one record, shape (1, outcomes, d)."""
    return np.array([[(outcome - p) * x for outcome in outcomes]])


@pytest.mark.parametrize(("score", "curvature"), BOUNDS)
def test_the_clipped_scores_mean_is_zero_and_its_slope_the_curvature(score, curvature):
    at = At(np.zeros(2), np.eye(2), score, curvature, direction=np.array([0.6, 0.8]))
    p, x = 0.1, np.array([3.0, 1.0])
    each = [split(vectors(scores_of(p, x, [k, 0, 1]), at)[0], at) for k in (0, 1)]
    np.testing.assert_allclose(p * each[1].score + (1 - p) * each[0].score, 0, atol=1e-7)
    # with the predictor's slope, at which the shift stays as it is: d E[u] / d psi = E[u s] / x
    slope = p * np.outer(each[1].score, (1 - p) * x) - (1 - p) * np.outer(each[0].score, p * x)
    np.testing.assert_allclose(each[0].curvature, slope, rtol=1e-6)
    assert each[0].along == pytest.approx(at.direction @ slope @ at.direction, rel=1e-5)
    variance = p * each[1].score @ each[1].score + (1 - p) * each[0].score @ each[0].score
    assert each[0].variance == pytest.approx(variance)


def clipped_apart(scores, weights, bound):
    """Clip every score by itself: the mean is no longer zero."""
    weighted = scores * weights[:, None, None]
    return weighted * np.minimum(1, bound / np.linalg.norm(weighted, axis=2, keepdims=True))


def test_scores_that_are_clipped_apart_are_seen(monkeypatch):
    monkeypatch.setattr(whitened, "clip_both", clipped_apart)
    with pytest.raises(AssertionError):
        test_the_clipped_scores_mean_is_zero_and_its_slope_the_curvature(*BOUNDS[0])


def test_an_outcome_that_is_neither_adds_nothing():
    records, columns = zoo.separated(zoo.build(zoo.ACCEPTED["logistic"]))
    contribution = whitened_scores(drawn_scores(records))
    at = At(np.zeros(records.size), np.eye(records.size), 0.4, 1.0)
    batch = {leaf: column.take(np.arange(6)) for leaf, column in columns.items()}
    batch["y"][2] = 2
    batch = with_draws(contribution, batch, at, np.random.default_rng(0))
    norms = contribution.norms(contribution.prepare(batch, at), at)
    assert np.flatnonzero(~np.isfinite(norms)).tolist() == [2]
