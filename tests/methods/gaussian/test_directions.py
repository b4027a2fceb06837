"""The curvature along the path to the mode, which a round releases by itself."""

from types import SimpleNamespace

import numpy as np
import pytest

from pymc_dp.contributions.joint_vector import At, vector_size
from pymc_dp.contributions.tails import SIZE
from pymc_dp.methods.gaussian.coordinates import whitened_direction
from pymc_dp.methods.gaussian.release import unwhitened
from pymc_dp.privacy.query import Noisy

D = 4
RNG = np.random.default_rng(0)
PATH = RNG.normal(size=D)
H = np.cov(RNG.normal(size=(D, 20)))


def state_at(at):
    start = SimpleNamespace(start=at.point - PATH)
    return SimpleNamespace(at=at, number=1.0, held=np.zeros(D, bool), learnt=start)


COORDINATES = {"matrix": np.tri(D) + np.eye(D), "diagonal": np.linspace(1, 2, D)}


@pytest.mark.parametrize("W", COORDINATES.values(), ids=COORDINATES)
def test_it_is_that_along_the_path_whatever_the_coordinates(W):
    direction = whitened_direction(W, PATH)
    at = At(np.zeros(D), W, 2.0, 3.0, 0.7, direction)
    matrix = np.diag(W) if W.ndim == 1 else W
    value = np.zeros(vector_size(D) if W.ndim == 2 else 2 * D + SIZE + 2)
    value[-2] = at.along_scale * direction @ matrix @ H @ matrix.T @ direction
    found = unwhitened(Noisy(value, 0.5, 1.0), state_at(at)).path
    np.testing.assert_allclose(found.vector, PATH)
    assert found.curvature == pytest.approx(PATH @ H @ PATH)
    squared = float(np.sum(np.linalg.solve(matrix.T, PATH) ** 2))
    assert found.noise_sd == pytest.approx(squared * 0.5 / at.along_scale)


def test_where_there_is_no_path_nothing_is_released_along_it():
    assert whitened_direction(np.eye(D), np.zeros(D)) is None
    at = At(np.zeros(D), np.eye(D), 2.0, 3.0, 0.7)
    assert unwhitened(Noisy(np.zeros(vector_size(D)), 0.5, 1.0), state_at(at)).path is None
