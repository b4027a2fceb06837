"""`pm.fit` learns the private methods and stays itself for everything else."""

import inspect
import sys
from unittest import mock

import numpy as np
import pymc as pm
import pymc.sampling
import pymc.stats
import pymc.variational
import pymc.variational.inference
import pytest
import xarray as xr
from pymc.stats import log_density

import pymc_dp
from pymc_dp.driver import doors
from pymc_dp.engine.constants import CONSTANTS
from tests.checking.models import coin

PRIVATE = {"noise_multiplier": 2.0, "delta": 1e-5, "draws": 2, "progressbar": False}


@pytest.fixture(scope="module")
def model():
    return coin(40, 20)


@pytest.fixture(scope="module")
def fitted(model):
    with model:
        return pm.fit(3, method="dp_advi", **PRIVATE)


def releases(idata):
    return idata["privacy"].attrs["releases"]


@pytest.mark.parametrize("function", doors.WRAPPERS)
def test_a_function_is_wrapped_once_in_every_module_of_pymc(function):
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] == "pymc"]
    values = [x for module in modules for x in vars(module).values() if callable(x)]
    assert not any(value is function for value in values)
    [wrapped] = {x for x in values if getattr(x, "__wrapped__", None) is function}
    assert wrapped.__module__ == function.__module__


def test_signature_and_documentation_are_pymcs():
    assert inspect.signature(pm.fit) == inspect.signature(pm.fit.__wrapped__)
    assert pm.fit.__doc__ == pm.fit.__wrapped__.__doc__


def test_the_number_of_releases_is_the_callers_wherever_it_is_given(model):
    with model:
        assert releases(pm.fit(8, "dp_advi", **PRIVATE)) == 8
        assert releases(pm.fit(n=8, method="dp_advi", **PRIVATE)) == 8


def test_pymcs_ten_thousand_is_no_default_of_a_private_method(model):
    with model:
        assert releases(pm.fit(method="dp_advi", **PRIVATE)) == CONSTANTS.rounds + 1
        with mock.patch.object(pymc_dp, "fit") as private_fit:
            pm.fit(10_000, method="dp_advi", **PRIVATE)
    assert private_fit.call_args.kwargs["n"] == 10_000


@pytest.mark.parametrize(
    ("args", "kwargs"), [((3,), {}), ((), {"n": 3, "method": "advi"}), ((3, "fullrank_advi"), {})]
)
def test_pymcs_methods_work_as_before(model, args, kwargs):
    with model:
        approximation = pm.fit(*args, progressbar=False, random_seed=1, **kwargs)
    assert isinstance(approximation, pymc.variational.Approximation)


QUICK = {"compile_kwargs": {"mode": "FAST_COMPILE"}, "progressbar": False}
READERS = {
    "log_likelihood": [pm.stats.compute_log_likelihood, log_density.compute_log_density],
    "log_prior": [pm.stats.compute_log_prior],
    "posterior_predictive": [
        lambda *args, **kwargs: pm.sample_posterior_predictive(
            *args, extend_inferencedata=True, **kwargs
        )
    ],
}
CALLS = [(group, read, named) for group in READERS for read in READERS[group] for named in (0, 1)]


@pytest.mark.parametrize(("group", "read", "named"), CALLS)
def test_what_pymc_adds_from_the_data_is_marked_and_warned_of(
    model, fitted, group, read, named, tmp_path
):
    name = "trace" if group == "posterior_predictive" else "idata"
    said = r"not covered .* pymc_dp.save leaves it"
    idata = fitted.copy()
    with model, pytest.warns(pymc_dp.PrivacyWarning, match=said) as warned:
        read(**QUICK, **{name: idata}) if named else read(idata, **QUICK)
    assert len(warned) == 1
    assert idata[group].attrs["guarantee"].startswith("none: computed after the fit")
    assert "guarantee" not in idata["posterior"].attrs
    assert f"WARNING: this tree also holds ['{group}'" in pymc_dp.privacy_report(idata)
    idata.to_netcdf(tmp_path / "all.nc")
    with xr.open_datatree(tmp_path / "all.nc") as written:  # the mark travels along
        assert written[group].attrs["guarantee"].startswith("none")


def test_what_pymc_returns_beside_the_tree_is_marked_too(model, fitted):
    idata = fitted.copy()
    with model:
        with pytest.warns(pymc_dp.PrivacyWarning):
            beside = pm.sample_posterior_predictive(idata["posterior"], **QUICK)
        with pytest.warns(pymc_dp.PrivacyWarning):
            bare = pm.stats.compute_log_likelihood(idata, extend_inferencedata=False, **QUICK)
    assert all("guarantee" in group.attrs for group in beside.children.values())
    assert "guarantee" in bare.attrs
    assert "log_likelihood" not in idata.children


def test_draws_of_pymcs_own_samplers_are_left_as_they_are(model):
    posterior = xr.Dataset({"p": (("chain", "draw"), np.full((1, 2), 0.5))})
    with model:
        beside = pm.sample_posterior_predictive(posterior, **QUICK)
    assert all("guarantee" not in group.attrs for group in beside.children.values())
