"""Along the path a curvature is known whatever noise hides, and steps follow how it changes."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

import pymc_dp
from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.contributions.joint_vector import At
from pymc_dp.driver.fit import set_up
from pymc_dp.driver.run import compile_method
from pymc_dp.methods.gaussian import rounds
from pymc_dp.methods.gaussian.belief import Curvature
from pymc_dp.methods.gaussian.directions import measured_along
from pymc_dp.methods.gaussian.factors import Believed
from pymc_dp.methods.gaussian.path import Path
from pymc_dp.methods.gaussian.release import _path
from pymc_dp.testing import deterministic_noise

QUIETLY = {"progressbar": False, "backend": "python", "random_seed": 1}


@given(st.integers(0, 10**6), st.integers(1, 8), st.floats(1e-3, 1e3))
def test_a_curvature_along_the_path_leaves_a_matrix_positive_definite(seed, d, curvature):
    draws = np.random.default_rng(seed)
    A, p = draws.normal(size=(d, d)), draws.normal(size=d)
    H = A @ A.T + 0.1 * np.eye(d)
    H = H + Path(p, curvature, 0.0).rank_one_change(H)
    assert p @ H @ p == pytest.approx(curvature)
    assert np.linalg.eigvalsh(H)[0] > 0


def test_an_edge_of_the_noise_does_not_hide_what_is_known_along_the_path():
    """In 40 directions noise of 1 hides all eigenvalues below 9, and takes them for their mean."""
    d, p = 40, np.eye(40)[0]
    found = Curvature(5 * np.eye(d), np.eye(d))
    assert found.spectrum().matrix(0.15)[0, 0] > 3
    known = found.spectrum(Path(p, 0.5, 0.1))
    assert p @ known.matrix(0.15) @ p == pytest.approx(0.5)
    assert p @ known.matrix_at_least(0.7) @ p == pytest.approx(0.5)


@given(st.floats(-2, 2), st.floats(-0.5, 0.5), st.floats(0, 2))
def test_the_slope_is_zero_where_the_average_curvature_says_that_the_mode_is(rate, slope, prior):
    path = Path(np.ones(1), 1.0, 0.0)
    average = path.towards_mode(rate, slope, prior).curvature
    end = slope / (average + prior)
    if -1 < end < 1:
        fallen = quad(lambda t: np.exp(-rate * t), 0, end)[0]
        assert slope - fallen - prior * end == pytest.approx(0, abs=1e-6)


def test_a_change_within_the_noise_changes_nothing():
    assert Path(np.ones(1), 0.9, 0.0).rate(1.0, 0.1) == 0
    assert Path(np.ones(1), 0.5, 0.0).rate(1.0, 0.1) > 0
    assert Path(np.ones(1), 0.5, 0.3).rate(1.0, 0.1) == 0
    assert Path(np.ones(1), 0.5, 0.0).rate(-1.0, 0.1) == 0


def test_the_mode_is_sought_between_the_start_and_a_path_twice_as_long():
    path = Path(np.ones(1), 1.0, 0.0)
    assert path.towards_mode(1.0, 10.0, 0.0).curvature == pytest.approx(1 - np.exp(-1))
    assert path.towards_mode(1.0, -10.0, 0.0).curvature == pytest.approx(np.e - 1)


def test_of_the_path_nothing_is_believed_from_a_model_of_factors():
    """The model takes the curvature along the path for 20 times what the matrix says."""
    noise = 0.1 * np.eye(3)
    found, modelled = Curvature(np.eye(3), noise), Curvature(20 * np.eye(3), noise)
    released = Path(np.eye(3)[0], 1.0, 0.1)
    believed = measured_along(Believed(modelled, noise, is_modelled=True), found, released)
    assert believed.path.curvature == pytest.approx(1.0)
    assert believed.error[0, 0] < 0.1


@pytest.mark.parametrize("d", [MANY_LATENTS, MANY_LATENTS + 1])
def test_a_diagonal_says_nothing_of_a_path(d):
    found = Curvature(np.eye(d), 0.01 * np.eye(d))
    released = Path(np.ones(d), 9.0 * d, 0.1)
    path = measured_along(Believed(found, found.noise, d > MANY_LATENTS), found, released).path
    is_diagonal = d > MANY_LATENTS
    assert (path.curvature == pytest.approx(9.0 * d)) == is_diagonal


def test_a_path_is_the_released_direction_and_a_unit_of_it_where_it_has_no_length():
    W, direction = np.diag([2.0, 4.0]), np.array([0.6, 0.8])
    at = At(np.array([6.0, 16.0]), W, 2.0, 3.0, 0.7, direction)
    found = [_path(at, 1.0, 0.5, start) for start in (np.zeros(2), at.point)]
    np.testing.assert_allclose(found[0].vector, 5 * direction @ W)
    assert found[0].curvature == pytest.approx(25)
    assert found[1].noise_sd == 0.5


def counts_with_an_end():
    """Counts whose log mean a potential ends, beyond which its gradient is not a number."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, 5)
        pm.Potential("edge", pt.sqrt(4 - b))
        y = np.random.default_rng(0).poisson(40.0, 2000)
        pm.Poisson("y", pt.exp(b), observed=y)
    return model


@pytest.mark.filterwarnings("ignore")
def test_a_prior_that_is_not_a_number_on_the_path_costs_no_result():
    with deterministic_noise(1):
        idata = pymc_dp.fit(model=counts_with_an_end(), epsilon=1, delta=1e-5, **QUIETLY)
    assert np.isfinite(idata["posterior"]["b"]).all()


def test_the_trial_before_a_fit_loses_no_round(monkeypatch):
    lost, losing = [], rounds._lost
    monkeypatch.setattr(rounds, "_lost", lambda *given: lost.append(given) or losing(*given))
    X = np.random.default_rng(0).normal(size=(500, 2))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        pm.Bernoulli("y", logit_p=X @ b, observed=(X[:, 0] > 0).astype(int))
    compile_method(set_up(model, "dp_advi", None, epsilon=1, delta=1e-5), "python")
    assert not lost
