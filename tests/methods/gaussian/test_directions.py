"""The curvature along the way to the mode, which a round releases by itself."""

from types import SimpleNamespace

import numpy as np
import pytest

from pymc_dp.contributions.joint_vector import At, vector_size
from pymc_dp.contributions.tails import SIZE
from pymc_dp.methods.gaussian.belief import Curvature
from pymc_dp.methods.gaussian.coordinates import whitened_direction
from pymc_dp.methods.gaussian.directions import along, measured_along
from pymc_dp.methods.gaussian.factors import Believed
from pymc_dp.methods.gaussian.release import Along, unwhitened
from pymc_dp.privacy.query import Noisy

D = 4
RNG = np.random.default_rng(0)
WAY = RNG.normal(size=D)
H = np.cov(RNG.normal(size=(D, 20)))


def state_at(at):
    return SimpleNamespace(at=at, number=1.0)


COORDINATES = {"matrix": np.tri(D) + np.eye(D), "diagonal": np.linspace(1, 2, D)}


@pytest.mark.parametrize("W", COORDINATES.values(), ids=COORDINATES)
def test_it_is_that_along_the_way_whatever_the_coordinates(W):
    direction = whitened_direction(W, WAY)
    at = At(np.zeros(D), W, 2.0, 3.0, 0.7, direction)
    matrix = np.diag(W) if W.ndim == 1 else W
    value = np.zeros(vector_size(D) if W.ndim == 2 else 2 * D + SIZE + 2)
    value[-2] = at.along_scale * direction @ matrix @ H @ matrix.T @ direction
    found = unwhitened(Noisy(value, 0.5, 1.0), state_at(at)).along
    to_way = WAY @ found.direction[:, 0] / (found.direction[:, 0] @ found.direction[:, 0])
    np.testing.assert_allclose(to_way * found.direction[:, 0], WAY)
    assert to_way**2 * found.curvature.estimate[0, 0] == pytest.approx(WAY @ H @ WAY)
    assert found.curvature.noise[0, 0] == pytest.approx(0.5 / at.along_scale)


def test_where_there_is_no_way_nothing_is_released_along_it():
    assert whitened_direction(np.eye(D), np.zeros(D)) is None
    at = At(np.zeros(D), np.eye(D), 2.0, 3.0, 0.7)
    assert unwhitened(Noisy(np.zeros(vector_size(D)), 0.5, 1.0), state_at(at)).along is None


def believed(noise, is_modelled):
    Q = noise * np.eye(D)
    return Believed(Curvature(np.eye(D), Q), Q, 3 * Q, is_modelled)


def released(estimate, noise):
    return Along(WAY[:, None], Curvature(np.full((1, 1), estimate), np.full((1, 1), noise)))


def test_a_model_is_doubted_along_the_way_and_what_was_released_is_not():
    squared = WAY @ WAY
    fallen = released(0.1 * squared, 0.1 * squared)
    found = [
        along(measured_along(believed(0.01, modelled), fallen).curvature, WAY[:, None])
        for modelled in (True, False)
    ]
    shares = [x.estimate[0, 0] / squared for x in found]
    assert shares[0] < 0.15
    assert shares[1] > 0.95


def test_nothing_is_learnt_of_directions_whose_noise_is_independent():
    across = np.linalg.svd(WAY[None])[2][1:].T
    before = believed(0.1, is_modelled=True)
    after = measured_along(before, released(0.2, 0.01))
    for x, y in (
        (before.curvature.estimate, after.curvature.estimate),
        (before.error, after.error),
    ):
        np.testing.assert_allclose(across.T @ y @ across, across.T @ x @ across, atol=1e-12)


def test_steps_need_not_be_cautious_along_a_way_whose_curvature_is_known():
    after = measured_along(believed(1.0, is_modelled=True), released(0.2, 0.01))
    assert WAY @ after.without_model @ WAY < 0.02
