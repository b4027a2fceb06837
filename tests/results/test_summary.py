"""How much of a posterior's width is noise: the table beside ArviZ's."""

import re

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_dp

ROWS = 600
ENDS = ["noise_sd", "noise_share"]
QUIETLY = {"delta": 1e-5, "progressbar": False, "backend": "python", "random_seed": 1}


def model():
    """A scalar, a vector, and latents with named dimensions whose labels are not in order."""
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(ROWS, 2)), np.arange(ROWS) % 3
    coords = {"clinic": ["west", "north", "east"], "half": [10, 2]}
    with pm.Model(coords=coords) as built:
        a = pm.Normal("a", 0, 1)
        b = pm.Normal("b", 0, 1, shape=2)
        level = pm.Normal("level", 0, 1, dims="clinic")
        table = pm.Normal("table", 0, 1, dims=("half", "clinic"))
        member = pm.Data("group", group)
        psi = a + pm.Data("X", X) @ b + level[member]
        psi = psi + table[pm.Data("side", rng.integers(0, 2, ROWS)), member]
        pm.Normal("y", psi, 1.0, observed=rng.normal(X @ [1.0, -1.0], 1.0))
    return built


@pytest.fixture(scope="module")
def idata():
    return pymc_dp.fit(model=model(), method="vips", epsilon=4, draws=500, **QUIETLY)


@pytest.fixture(scope="module")
def plain():
    return pymc_dp.fit(
        model=model(), method="vips", epsilon=4, draws=50, noise_aware=False, **QUIETLY
    )


def test_two_columns_follow_those_of_arviz(idata):
    table = pymc_dp.summary(idata)
    theirs = az.summary(idata, kind="stats")
    assert list(table.columns) == [*theirs.columns, *ENDS]
    pd.testing.assert_frame_equal(table[theirs.columns], theirs)


def test_every_row_holds_its_own_noise(idata):
    table, noise = pymc_dp.summary(idata), idata["noise_sd"].to_dataset()
    assert table.loc["b[1]", "noise_sd"] == rounded(noise["b"][1])
    at = noise["table"].sel(half=2, clinic="north")
    assert table.loc["table[2, north]", "noise_sd"] == rounded(at)


def rounded(value):
    return float(f"{float(value):.2g}")


def test_the_noises_share_is_that_of_the_variance(idata):
    table = pymc_dp.summary(idata)
    assert table["noise_share"].between(0, 1).all()
    assert (table["noise_share"] > 0).all()
    variance = idata["posterior"]["b"].var(("chain", "draw")).to_numpy()
    shares = table.loc[["b[0]", "b[1]"], "noise_share"]
    np.testing.assert_allclose(shares, idata["noise_sd"]["b"].to_numpy() ** 2 / variance, rtol=0.06)


def test_what_does_not_vary_has_no_noise(idata):
    fixed = idata["posterior"].to_dataset().assign(c=(("chain", "draw"), np.ones((1, 500))))
    groups = {name: group.to_dataset() for name, group in idata.children.items()}
    groups |= {"posterior": fixed, "noise_sd": groups["noise_sd"].assign(c=0.0)}
    table = pymc_dp.summary(xr.DataTree.from_dict(groups), var_names=["c"])
    assert table.loc["c", ENDS].tolist() == [0.0, 0.0]


def test_a_fit_without_noise_has_no_share_of_it():
    idata = pymc_dp.fit(model=model(), method="vips", epsilon=np.inf, draws=50, **QUIETLY)
    table = pymc_dp.summary(idata)
    assert (table[ENDS] == 0).all(axis=None)
    noise = pymc_dp.check(idata)["noise"]
    assert (noise.value, noise.verdict) == (0, "fine")


SENTENCE = "This posterior leaves the privacy noise out: arviz.summary(idata) says the rest"


@pytest.mark.parametrize("read", [pymc_dp.summary, pymc_dp.plot_noise])
def test_a_posterior_without_the_noise_is_refused_in_a_sentence(plain, read):
    with pytest.raises(ValueError, match=re.escape(SENTENCE)):
        read(plain)
