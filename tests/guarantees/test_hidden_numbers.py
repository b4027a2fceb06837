"""Numbers that hide in closures, loops and scalars are withheld, refused, or at least listed.

Guard 6 of the tests of a guarantee. Soundness, rule 21: a deterministic that holds a number from
elsewhere stays behind, since ``b * y_sd`` beside ``b`` gives ``y_sd`` away; constants that no check
can see into are listed in the result. Priors must not read data by any way.
"""

import json

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.scan import scan

import pymc_dp
from pymc_dp.model import separate

SECRET = 123456.78125
X = np.random.default_rng(0).normal(size=(30, 2))
COLUMN_MEANS = np.array([0.123, 4.56, 0.789])


def fit(model, **settings):
    terms = {"n": 6, "noise_multiplier": 2.0, "delta": 1e-5, "draws": 2, "progressbar": False}
    return pymc_dp.fit(model=model, **{**terms, **settings})


def regression(deterministic=None, prior=None):
    with pm.Model() as model:
        b = pm.Normal("b", shape=2) if prior is None else prior()
        if deterministic is not None:
            pm.Deterministic("d", deterministic(b))
        pm.Normal("y", pm.Data("X", X) @ b, 1.0, observed=X[:, 0] + 0.5)
    return model


def in_a_loop(b):
    return scan(lambda p: p * SECRET, outputs_info=b, n_steps=2, return_updates=False)[-1]


def in_a_nested_graph(b):
    x = pt.vector("x", shape=(2,))
    return OpFromGraph([x], [x * SECRET])(b)


# tests/model/test_released.py has more of them
REVEALING = {
    "a product": lambda b: b * SECRET,
    "a list": lambda b: b * [1.0, SECRET],
    "a draw": lambda b: b + pm.Normal.dist(SECRET, 1e-9, shape=2),
    "a loop": in_a_loop,
    "a nested graph": in_a_nested_graph,
}


@pytest.mark.parametrize("case", REVEALING)
def test_a_deterministic_with_a_number_of_its_own_stays_behind(case):
    assert separate(regression(REVEALING[case]))[0].outputs.withheld == ("d",)


def test_a_fit_leaves_it_out_and_releases_what_is_of_latents_alone():
    idata = fit(regression(REVEALING["a product"]))
    assert list(idata["posterior"].data_vars) == ["b"]
    assert json.loads(idata["privacy"].attrs["withheld"]) == ["d"]
    assert "d" in fit(regression(pm.math.softmax))["posterior"]


def test_a_deterministic_that_is_declared_public_is_released():
    idata = fit(regression(REVEALING["a product"]), public=(name for name in ["d"]))
    assert "d" in idata["posterior"]
    assert json.loads(idata["privacy"].attrs["declared_public"]) == ["d"]


def by_log_density():
    def logp(value, mu):
        return -((value - pt.as_tensor_variable(COLUMN_MEANS).sum()) ** 2)

    return pm.CustomDist("b", 0.0, logp=logp, shape=2)


def by_distribution():
    def dist(mu, size):
        return pm.Normal.dist(pt.as_tensor_variable(COLUMN_MEANS).sum(), 1, size=size)

    return pm.CustomDist("b", 0.0, dist=dist, shape=2)


def by_argument():
    return pm.Normal("b", pt.as_tensor_variable(COLUMN_MEANS).sum(), 1, shape=2)


@pytest.mark.parametrize("prior", [by_argument, by_log_density, by_distribution])
def test_a_prior_that_reads_an_array_of_another_shape_is_refused(prior):
    with pytest.raises(pymc_dp.NotSeparableError, match="`b` reads an unnamed array"):
        fit(regression(prior=prior))


def test_a_likelihood_that_reads_an_array_of_its_own_is_refused():
    def logp(value, mu):
        return -((value - mu * pt.as_tensor_variable(COLUMN_MEANS).sum()) ** 2)

    with pm.Model() as model:
        b = pm.Normal("b", shape=2)
        pm.CustomDist("y", pm.Data("X", X) @ b, logp=logp, observed=X[:, 0] + 0.5)
    with pytest.raises(pymc_dp.NotSeparableError, match="reads an unnamed array"):
        fit(model)


def _lines(attrs):
    return [line.partition(": ") for line in json.loads(attrs["trusted_constants"])]


def test_every_trusted_number_is_listed():
    with pm.Model() as model:
        unit = pm.Data("unit", 2.5)
        b = pm.Normal("b", np.array([0.5, 1.7]), 3.3, shape=2)
        a = pm.Normal("a", np.array([1.2345]), 4.4, shape=1)
        pm.Normal("y", pm.Data("X", X) @ b + a, unit, observed=X[:, 0] + 0.5)
    attrs = fit(model, public=["unit"])["privacy"].attrs
    trusted = {name: row for name, _, row in _lines(attrs)}
    count = {name: int(row.split()[0]) for name, row in trusted.items() if row}
    assert count["prior of b"] >= 3  # two means, their scale
    assert count["prior of a"] >= 2
    assert "likelihood of y" in trusted
    assert json.loads(attrs["declared_public"]) == ["unit"]
