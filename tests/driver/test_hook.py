"""`pm.fit` learns the private methods and stays itself for everything else."""

import importlib
import inspect
from unittest import mock

import numpy as np
import pymc as pm
import pymc.variational
import pymc.variational.inference
import pytest
import xarray as xr

import pymc_dp
from pymc_dp.driver import hook
from pymc_dp.methods.gaussian.schedule import ROUNDS

PRIVATE = {"noise_multiplier": 2.0, "delta": 1e-5, "draws": 2, "progressbar": False}
BOUND_IN = [pm, pymc.variational, pymc.variational.inference]
original = pm.fit.__wrapped__


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        pm.Bernoulli("y", p, observed=np.repeat([0, 1], [20, 40]))
    return model


def releases(idata):
    return idata["privacy"].attrs["releases"]


@pytest.mark.parametrize("module", BOUND_IN)
def test_fit_is_wrapped_once_wherever_it_is_bound(module):
    assert module.fit is pm.fit
    assert module.fit.__wrapped__ is original
    assert not hasattr(original, "__wrapped__")


def test_installing_again_changes_nothing():
    before = pm.fit
    hook.install()
    importlib.reload(pymc_dp)
    assert pm.fit is before


def test_signature_and_documentation_are_pymcs():
    assert inspect.signature(pm.fit) == inspect.signature(original)
    assert pm.fit.__doc__ == original.__doc__
    assert pm.fit.__name__ == "fit"


@pytest.mark.parametrize("method", ["dp_advi", "DP_ADVI", "dp_fullrank_advi"])
def test_private_methods_return_a_tree(model, method):
    with model:
        idata = pm.fit(7, method, **PRIVATE)
    assert isinstance(idata, xr.DataTree)
    assert idata["privacy"].attrs["method"].lower() == method.lower()


def test_the_number_of_releases_is_the_callers_wherever_it_is_given(model):
    with model:
        assert releases(pm.fit(8, "dp_advi", **PRIVATE)) == 8
        assert releases(pm.fit(8, method="dp_advi", **PRIVATE)) == 8
        assert releases(pm.fit(n=8, method="dp_advi", **PRIVATE)) == 8


def test_pymcs_ten_thousand_is_no_default_of_a_private_method(model):
    with model:
        assert releases(pm.fit(method="dp_advi", **PRIVATE)) == ROUNDS + 1
        with mock.patch.object(hook, "private_fit") as private_fit:
            pm.fit(10_000, method="dp_advi", **PRIVATE)
    assert private_fit.call_args.kwargs["n"] == 10_000


def test_model_and_seed_are_handed_on_by_position(model):
    with mock.patch.object(hook, "private_fit") as private_fit:
        pm.fit(4, "dp_advi", model, 7, epsilon=1.0)
    expected = {"n": 4, "method": "dp_advi", "model": model, "random_seed": 7, "epsilon": 1.0}
    assert private_fit.call_args == mock.call(**expected)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((3,), {}),
        ((), {"n": 3, "method": "advi"}),
        ((3, "fullrank_advi"), {}),
    ],
)
def test_pymcs_methods_work_as_before(model, args, kwargs):
    with model:
        approximation = pm.fit(*args, progressbar=False, random_seed=1, **kwargs)
    assert isinstance(approximation, pymc.variational.Approximation)


def test_a_method_that_is_an_object_goes_to_pymc(model):
    with model:
        approximation = pm.fit(3, method=pm.ADVI(), progressbar=False)
    assert isinstance(approximation, pymc.variational.Approximation)


def test_pymcs_result_is_the_same_with_and_without_the_hook(model):
    with model:
        hooked = pm.fit(5, random_seed=3, progressbar=False)
        plain = original(5, random_seed=3, progressbar=False)
    assert np.array_equal(hooked.mean.eval(), plain.mean.eval())


def test_an_unknown_method_is_pymcs_error(model):
    with model, pytest.raises(KeyError, match="method should be one of"):
        pm.fit(3, method="nonsense")


def test_a_private_keyword_does_not_make_a_plain_method_private(model):
    with model, pytest.raises(TypeError):
        pm.fit(3, method="advi", epsilon=1.0, progressbar=False)


def test_pm_sample_still_starts_from_advi(model):
    from pymc.sampling import mcmc

    class Stop(Exception):  # noqa: N818
        pass

    with model, mock.patch.object(hook, "private_fit") as private_fit:
        with mock.patch.object(pm.variational.inference, "ADVI", side_effect=Stop) as advi:
            with pytest.raises(Stop):
                mcmc.init_nuts(init="advi", n_init=3, progressbar=False)
    assert advi.called
    assert not private_fit.called
