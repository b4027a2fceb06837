"""Private methods as objects: PyMC runs them by its own protocol, with and without our hook."""

from unittest import mock

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from pymc.variational.callbacks import CheckParametersConvergence, Tracker

import pymc_dp
from tests import zoo

TERMS = {"noise_multiplier": 2.0, "delta": 1e-5, "draws": 2}
without_hook = pm.fit.__wrapped__
FITS = [pm.fit, without_hook]


@pytest.fixture(scope="module")
def model():
    return zoo.odds(np.tile([[1.0, 0.0], [0.0, 1.0]], (20, 1)), np.repeat([0, 1], [10, 30]), x="x")


@pytest.mark.parametrize(("kind", "fit"), [(pymc_dp.VIPS, pm.fit), (pymc_dp.DPADVI, without_hook)])
def test_pymc_runs_a_private_method_that_is_an_object(model, kind, fit):
    with model:
        idata = fit(method=kind(**TERMS), progressbar=False)
    assert isinstance(idata, xr.DataTree)
    assert idata["privacy"].attrs["method"] == kind.method
    assert idata["privacy"].attrs["delta"] == 1e-5


def asked(fit, model, *args, method=None, **kwargs):
    """Return what pymc_dp.fit was asked for."""
    method = method or pymc_dp.DPADVI(epsilon=1, delta=1e-5)
    with mock.patch.object(pymc_dp, "fit") as private_fit, model:
        fit(*args, method=method, **kwargs)
    return private_fit.call_args.kwargs


@pytest.mark.parametrize("fit", FITS)
def test_the_settings_of_the_object_and_of_the_call_arrive(model, fit):
    found = asked(fit, model, 7, progressbar=False, callbacks=[])
    expected = {"n": 7, "method": "dp_advi", "epsilon": 1, "delta": 1e-5}
    assert found == {**expected, "progressbar": False, "callbacks": []}


@pytest.mark.parametrize("fit", FITS)
def test_pymcs_default_number_of_steps_is_none_of_ours(model, fit):
    assert "n" not in asked(fit, model)
    assert asked(fit, model, method=pymc_dp.VIPS(n=10_000, epsilon=1))["n"] == 10_000


def test_a_start_that_pymc_would_drop_is_refused(model):
    with pytest.raises(ValueError, match="start= is refused in a private fit"):
        pm.fit(model=model, start={"b": [0.0, 0.0]}, method=pymc_dp.DPADVI(**TERMS))


@pytest.mark.parametrize("fit", FITS)
def test_a_setting_that_is_given_twice_is_refused(model, fit):
    with model, pytest.raises(TypeError, match="multiple values for keyword argument 'delta'"):
        fit(method=pymc_dp.VIPS(**TERMS), delta=1e-3)


def fit(model, callback):
    return pymc_dp.fit(model=model, callbacks=[callback], progressbar=False, n=3, **TERMS)


def test_pymcs_tracker_sees_released_states(model):
    tracker = Tracker(given=lambda state, losses, i: (state, losses, i))
    fit(model, tracker)
    states, losses, steps = zip(*tracker["given"], strict=True)
    assert steps == (0, 1, 2)
    assert losses == (None, None, None)
    assert all(hasattr(state, "_fields") for state in states)


def test_pymcs_check_of_convergence_is_refused_before_anything_is_spent(model, tmp_path):
    ledger = pymc_dp.Ledger(tmp_path / "a.ledger", epsilon=9, delta=1e-5, dataset="a")
    with pytest.raises(ValueError, match="CheckParametersConvergence.* leave it out"):
        pymc_dp.fit(model=model, callbacks=[CheckParametersConvergence()], ledger=ledger, **TERMS)
    assert ledger.spent.amount == 0


def test_a_callback_for_an_approximation_is_told_what_it_is_given(model):
    def callback(approximation, losses, i):
        return approximation.params

    with pytest.warns(RuntimeWarning, match=r"\(state, None, i\), with what was released"):
        fit(model, callback)
