"""Normal distributions with a precision that is diagonal along axes, behind its first columns."""

import numpy as np
import pytest

from pymc_dp.engine.conditional import Conditional

POINTS = 4


def random_precision(first, last, seed=0):
    """Return precisions, (n, k, k), that are a fixed matrix and a factor times I behind some."""
    rng = np.random.default_rng(seed)
    k = first + last
    root = rng.normal(size=(POINTS, k, k))
    fixed, A = rng.normal(size=(last, 2 * last)), root @ root.swapaxes(1, 2)
    factor = np.exp(rng.normal(0, 4, size=(POINTS, 1, 1)))
    A[:, first:, first:] = fixed @ fixed.T + factor * np.eye(last)
    A[:, :first, :first] += 1e3 * k**2 * np.eye(first)  # positive definite
    return A, np.linalg.eigh(fixed @ fixed.T), factor[:, 0]


def example(first, last, factor_is=lambda factor: factor):
    """Return the distribution, its precision, and its natural parameter of the mean."""
    A, (values, axes), factor = random_precision(first, last)
    linear = np.random.default_rng(1).normal(size=A.shape[:2])
    normal = Conditional.of(linear, A[:, :, :first], values + factor_is(factor), axes)
    return normal, A, linear


def moments(first, last, factor_is=lambda factor: factor):
    """Return the mean, entries of the covariance and log|A|, and those of the whole matrix."""
    normal, A, linear = example(first, last, factor_is)
    rows, columns = np.indices((first + last,) * 2).reshape(2, -1)
    shown = (np.minimum(rows, columns) < first) | (rows == columns)
    rows, columns = rows[shown], columns[shown]
    inverse = np.linalg.inv(A)
    return {
        "mean": (normal.mean, np.einsum("nij,nj->ni", inverse, linear)),
        "covariance": (normal.covariances(rows, columns), inverse[:, rows, columns]),
        "log determinant": (normal.log_determinant, np.linalg.slogdet(A)[1]),
    }


MOMENTS = ["mean", "covariance", "log determinant"]
SHAPES = [(1, 6), (3, 4), (5, 0), (0, 5), (0, 0)]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(("first", "last"), SHAPES)
def test_the_moments_are_those_of_the_whole_matrix(first, last, moment):
    own, whole = moments(first, last)[moment]
    np.testing.assert_allclose(own, whole, rtol=1e-9)


@pytest.mark.parametrize("moment", MOMENTS)
def test_moments_of_a_wrong_factor_are_others(moment):
    own, whole = moments(1, 6, lambda factor: 1.001 * factor)[moment]
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(own, whole, rtol=1e-9)


def whitened_covariance(normal, k, precision):
    """Return the covariance of draws, (k, k), in coordinates in which it is to be I."""
    one = Conditional(*[x if x is normal.axes else x[[k] * 4000] for x in normal])
    drawn = one.draw(np.random.default_rng(k)) - one.mean
    return np.cov(drawn @ np.linalg.cholesky(precision), rowvar=False)


@pytest.mark.parametrize(("first", "last"), [(2, 3), (0, 3), (3, 0)])
def test_draws_have_the_covariance_of_the_whole_matrix(first, last):
    normal, A, _ = example(first, last)
    for k, precision in enumerate(A):
        white = whitened_covariance(normal, k, precision)
        assert white == pytest.approx(np.eye(first + last), abs=0.12)


def test_draws_of_a_wrong_factor_have_another():
    normal, A, _ = example(2, 3, lambda factor: 2 * factor + 1e3)
    white = whitened_covariance(normal, 0, A[0])
    assert white != pytest.approx(np.eye(5), abs=0.12)


def test_a_precision_that_rounding_has_made_negative_gives_no_density_and_finite_draws():
    first = -np.ones((1, 3, 1))
    with np.errstate(invalid="ignore"):
        normal = Conditional.of(np.ones((1, 3)), first, np.ones((1, 2)), np.eye(2))
    assert np.isnan(normal.log_determinant).all()
    assert np.isfinite(normal.draw(np.random.default_rng(0))).all()
