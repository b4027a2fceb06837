"""Clipped scores have no bias, whatever the clip norm, where outcomes are the model's."""

import numpy as np
import pytest
from scipy.stats import norm

from pymc_dp.contributions.scores import CENTRING, DRAWS
from pymc_dp.contributions.whitened import At, clip_consistently, split, vectors

ALPHA = 1e-6
ROWS = 200_000


# scores of unit variance


def exponential(rng, shape):
    return 1 - rng.exponential(size=(*shape, 1))


def rare(rng, shape):
    return ((rng.random((*shape, 1)) < 0.02) - 0.02) / (0.02 * 0.98) ** 0.5


def squares(rng, shape):
    r = rng.normal(size=(*shape, 2))
    return np.stack([r[..., 0], (r[..., 0] ** 2 - 1) / 2**0.5], axis=-1)


def overdispersed(rng, shape):
    return (rng.poisson(rng.gamma(0.5, 4.0, (*shape, 1))) - 2.0) / 10**0.5


SCORES = [exponential, rare, squares, overdispersed]


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


def test_scores_within_the_bound_stay_as_they_are():
    s = np.random.default_rng(1).uniform(-0.5, 0.5, (100, 5, 3))
    np.testing.assert_array_equal(clip_consistently(s, 1.0), s)


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
