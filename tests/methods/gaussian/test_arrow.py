"""Normal distributions with a precision that is diagonal along axes, behind its first columns."""

import numpy as np
import pytest

from pymc_dp.methods.gaussian.arrow import Conditional

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


def of(first, last, factor_is=lambda factor: factor):
    """Return the distribution, its precision, and its natural parameter of the mean."""
    A, (values, axes), factor = random_precision(first, last)
    linear = np.random.default_rng(1).normal(size=A.shape[:2])
    found = Conditional.of(linear, A[:, :, :first], values + factor_is(factor), axes)
    return found, A, linear


SHAPES = [(1, 6), (3, 4), (5, 0), (0, 5), (0, 0)]


@pytest.mark.parametrize(("first", "last"), SHAPES)
def test_the_moments_are_those_of_the_whole_matrix(first, last):
    found, A, linear = of(first, last)
    rows, columns = np.indices((first + last,) * 2).reshape(2, -1)
    shown = (np.minimum(rows, columns) < first) | (rows == columns)
    rows, columns = rows[shown], columns[shown]
    covariance = np.linalg.inv(A)
    np.testing.assert_allclose(found.mean, np.einsum("nij,nj->ni", covariance, linear), rtol=1e-9)
    of_entries = covariance[:, rows, columns]
    np.testing.assert_allclose(found.covariances(rows, columns), of_entries, rtol=1e-9)
    np.testing.assert_allclose(found.log_determinant, np.linalg.slogdet(A)[1], rtol=1e-9)


def test_a_wrong_factor_is_seen():
    found, A, _ = of(1, 6, lambda factor: 1.001 * factor)
    assert (abs(found.log_determinant - np.linalg.slogdet(A)[1]) > 1e-9).all()


@pytest.mark.parametrize(("first", "last"), [(2, 3), (0, 3), (3, 0)])
def test_draws_have_the_covariance_of_the_whole_matrix(first, last):
    found, A, _ = of(first, last)
    for k, precision in enumerate(A):
        one = Conditional(*[x if x is found.axes else x[[k] * 4000] for x in found])
        drawn = one.draw(np.random.default_rng(k)) - one.mean
        white = drawn @ np.linalg.cholesky(precision)
        assert np.cov(white, rowvar=False) == pytest.approx(np.eye(first + last), abs=0.12)
