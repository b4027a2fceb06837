"""Many chains in step draw from the density that they are given."""

import numpy as np
import pytest
from scipy import stats

from pymc_dp.engine.sampler import draw_by_hamiltonian

DRAWS = 4000


def log_of_exponential(z):
    """Log density of log(x), where x is exponential; it is not a number below -30."""
    x = np.exp(z)
    value = np.where(z > -30, z - x, np.nan)
    return value.sum(axis=1), 1 - x


def drawn(density, d=1, seed=0):
    rng = np.random.default_rng(seed)
    return draw_by_hamiltonian(density, rng.normal(size=(100, d)), DRAWS, rng).points


def test_correlations_and_scales_are_drawn():
    covariance = np.array([[1e12, 9e5], [9e5, 1.0]])
    precision = np.linalg.inv(covariance)

    def density(z):
        slope = -z @ precision
        return (z * slope).sum(axis=1) / 2, slope

    start = np.random.default_rng(0).normal(size=(100, 2)) * [1e5, 0.1]
    x = draw_by_hamiltonian(density, start, DRAWS, np.random.default_rng(1)).points
    assert np.cov(x, rowvar=False) == pytest.approx(covariance, rel=0.2)


def test_points_at_which_a_matrix_is_singular_stop_their_own_chains_alone():
    def density(z):
        if (z < -2).any():  # as inverses of many matrices together do
            raise np.linalg.LinAlgError("Singular matrix")
        return log_of_exponential(z)

    x = drawn(density)
    assert x.min() >= -2
    cut = np.exp(-np.exp(-2.0))  # P(log x > -2)
    uniform = 1 - np.exp(-np.exp(x[::4].ravel())) / cut
    assert stats.kstest(uniform, "uniform").pvalue > 1e-6


def with_islands(share):
    """Log density of a normal distribution; some chains start on a point of high density."""

    def density(z):
        alone = z[:, 0] == -1.0
        return np.where(alone, 1e9, -(z[:, 0] ** 2) / 2), -z

    start = np.random.default_rng(0).normal(size=(100, 1))
    start[: round(100 * share)] = -1.0
    return draw_by_hamiltonian(density, start, 100, np.random.default_rng(0))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_chains_that_do_not_move_are_counted(share):
    assert with_islands(share).stuck == share


def along_a_curve(width):
    """Log density of a second coordinate that is all but the square of the first."""

    def density(z):
        x, off = z[:, 0], (z[:, 1] - z[:, 0] ** 2) / width**2
        slope = np.column_stack([-x + 2 * x * off, -off])
        return -(x**2) / 2 - off * (z[:, 1] - x**2) / 2, slope

    x = np.random.default_rng(0).normal(size=100)
    start = np.column_stack([x, x**2])
    return draw_by_hamiltonian(density, start, 1000, np.random.default_rng(1)).unmixed


def test_coordinates_that_stay_where_they_began_are_named():
    assert along_a_curve(1e-3).all()
    assert not along_a_curve(3.0).any()
