"""A fit that has made its first release returns a result: what could stand in its way is refused.

Soundness, rule 41. A result of two draws is built before the first release, and neither warnings
nor numpy's settings, nor a variable that fails at some draws, cost what is paid for.
"""

import datetime
import io
import sys
import warnings

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert

import pymc_dp
from pymc_dp.driver import run
from pymc_dp.errors import PosteriorWarning

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(24, 2)), rng.normal(size=24)
GOOD = {"noise_multiplier": 4.0, "delta": 1e-5, "draws": 20, "progressbar": False}


def model_of(name="b", dim=None, labels=(), compute=None):
    """A regression with one variable or dimension of a given name, or one deterministic."""
    with pm.Model(coords=None if dim is None else {dim: labels}) as model:
        b = pm.Normal(name, shape=2) if dim is None else pm.Normal(name, dims=dim)
        if compute is not None:
            pm.Deterministic("computed", compute(b))
        pm.Normal("y", pm.Data("X", X) @ b, 1.0, observed=Y)
    return model


def grid(b):
    points = pm.Data("points", np.linspace(-1, 1, 3000))
    return b[0] + b[1] * points[:, None] * points


def always_singular(b):
    return pt.linalg.inv(b[0] * pt.ones((2, 2)))


def sometimes_singular(b):
    # at no draw of the rehearsal, and at some draws of the fit
    positive = pt.maximum(b[0], 0.0)
    return pt.linalg.inv(pt.stack([pt.stack([positive, 1.0]), pt.stack([positive, 2.0])]))


TIMES = [
    [datetime.date(2020, 1, day) for day in (1, 2)],
    [datetime.datetime(2020, 1, day) for day in (1, 2)],
    pd.period_range("2020-01", periods=2, freq="M"),
    pd.interval_range(0, 2),
    pd.date_range("2020-01-01", periods=2, tz="UTC"),
]
HOPELESS = [
    ({"name": "chain"}, "'chain'. are found in both data_vars and coords.* give plain names"),
    ({"name": "."}, "could write.* give plain names"),
    ({"dim": "a/b", "labels": ["u", "v"]}, "'/' character.* give plain names"),
    ({"dim": "k", "labels": [("u", 1), ("v", 2)]}, "coords that are numbers or text"),
    ({"compute": grid}, "9,000,000 of them in `computed`.* holds at most 536,870,912"),
    ({"compute": always_singular}, "two draws fail with LinAlgError"),
]


@pytest.mark.parametrize(("described", "sentence"), HOPELESS)
def test_what_no_result_can_hold_is_refused_before_the_first_release(
    no_release, described, sentence
):
    public = ["points", "computed"] if described.get("compute") is grid else []
    with pytest.raises(ValueError, match=f"(?s)(?=.*othing was released).*{sentence}"):
        pymc_dp.fit(model=model_of(**described), public=public, **GOOD | {"draws": 1000})


@pytest.mark.parametrize(
    "labels", [["u", 3], [None, "v"], [1, 2], pd.Categorical(["u", "v"]), *TIMES]
)
def test_labels_that_a_file_can_hold_are_not_refused(labels, tmp_path):
    idata = pymc_dp.fit(model=model_of(dim="k", labels=labels), **GOOD)
    pymc_dp.save(idata, tmp_path / "result.nc")
    assert idata["posterior"]["k"].dtype.kind in "iUOM"


def test_a_variable_that_fails_at_some_draws_is_left_out_and_the_others_are_not():
    with pytest.warns(PosteriorWarning, match="lacks `computed`: at some draws"):
        idata = pymc_dp.fit(model=model_of(compute=sometimes_singular), public=["computed"], **GOOD)
    assert list(idata["posterior"].data_vars) == ["b"]
    assert "lacks `computed`" in idata["privacy"].attrs["doubts"]


def says_a_number_of_the_data(b):
    # an assertion's text is the author's, and no check reads it
    return Assert(f"the largest outcome was {Y.max():.6f}")(b, pt.sin(1e4 * b[0]) > -0.9)


def test_the_text_of_an_error_is_not_published():
    model = model_of(compute=says_a_number_of_the_data)
    with pytest.warns(PosteriorWarning, match=r"cannot be computed \(AssertionError\)"):
        idata = pymc_dp.fit(model=model, public=["computed"], **GOOD | {"draws": 1000})
    assert f"{Y.max():.6f}" not in idata["privacy"].attrs["doubts"]


def mixture():
    with pm.Model() as model:
        # so far apart that weights of components underflow
        w, places = pm.Dirichlet("w", np.ones(2)), pm.Normal("m", 0, 30, shape=2)
        pm.NormalMixture("y", w, places, sigma=0.7, observed=40 * Y)
    return model


def fails_at_once(*args):
    raise RuntimeError("no plot")


def fit_under_errors(model, method, callbacks=()):
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        return pymc_dp.fit(model=model, method=method, callbacks=callbacks, **GOOD)


@pytest.mark.parametrize(("build", "method"), [(model_of, "dp_advi"), (mixture, "vips")])
def test_neither_warnings_nor_floating_point_errors_end_a_fit(build, method):
    posterior = fit_under_errors(build(), method)["posterior"].to_dataset()
    assert all(np.isfinite(x).all() for x in posterior.data_vars.values())


def test_a_screen_that_is_gone_ends_no_fit(monkeypatch):
    screen = io.StringIO()
    screen.close()
    monkeypatch.setattr(sys, "stdout", screen)
    idata = pymc_dp.fit(model=model_of(), **GOOD | {"progressbar": True})
    assert idata["privacy"].attrs["releases_made"] == idata["privacy"].attrs["releases"]


def test_a_failing_callback_ends_no_fit_where_warnings_are_errors(monkeypatch):
    """And the planted fault: nothing protects the update."""
    attrs = fit_under_errors(model_of(), "dp_advi", [fails_at_once])["privacy"].attrs
    assert attrs["releases_made"] == attrs["releases"]
    monkeypatch.setattr(run, "undisturbed", warnings.catch_warnings)
    with pytest.raises(RuntimeWarning, match="no plot"):
        fit_under_errors(model_of(), "dp_advi", [fails_at_once])
