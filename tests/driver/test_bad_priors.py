"""Priors that no double-precision fit can take are refused before it has cost anything."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp
from pymc_dp.errors import NotSeparableError
from pymc_dp.model import separate

rng = np.random.default_rng(5)
X, Y = rng.normal(size=(2, 50))

BAD = {
    "a negative sd": (lambda: pm.Normal("a", 0, -1.0), "`a` has no finite density"),
    "no number": (lambda: pm.Normal("a", 0, np.nan), "`a` has no finite density"),
    "an infinite sd": (lambda: pm.Normal("a", 0, np.inf), "`a` has no finite density"),
    "a start far out": (lambda: pm.Normal("a", 0, 1, initval=1e300), "`a` has no finite density"),
    "too many entries": (lambda: pm.Normal("a", shape=10**9)[0], "`a` has more than"),
    "points": (
        lambda: pm.Interpolated("a", np.r_[0.0, 1, 2.5], np.r_[0.0, 1, 0]),
        "`a` is a pm.Interpolated",
    ),
}


def model_of(prior):
    with pm.Model() as model:
        pm.Normal("y", prior() * X, 1.0, observed=Y)
    return model


@pytest.mark.parametrize("what", BAD)
def test_a_prior_beyond_double_precision_is_refused_with_a_sentence(what):
    prior, sentence = BAD[what]
    with pytest.raises(ValueError, match=sentence):
        pymc_dp.plan(model=model_of(prior), epsilon=1, delta=1e-5)


@pytest.mark.parametrize("start", [10**400, np.inf, None, [1, 2], 1 + 2j, "here", np.ma.masked])
def test_a_start_that_is_no_number_is_refused_with_a_sentence(start):
    model = model_of(lambda: pm.Normal("a"))
    with pytest.raises(ValueError, match="initial value|Invalid string strategy"):
        pymc_dp.plan(model=model, public_start={"a": start}, epsilon=1, delta=1e-5)


@pytest.mark.parametrize(
    "prior",
    [
        lambda: pm.Normal("a", 0, 1e20),
        lambda: pm.Normal("a", [0.0, 1e-20, 5], 1).sum(),
        lambda: pm.Normal("a", 0, 1, initval=30.0),
    ],
)
def test_a_wide_prior_is_not(prior):
    assert 0.9 < pymc_dp.plan(model=model_of(prior), epsilon=1, delta=1e-5).epsilon <= 1


def shares(component):
    """Shares of a whole, of which many are none or all."""
    with pm.Model() as model:
        w, nu = pm.Dirichlet("w", np.ones(3)), pm.Gamma("nu", 2, 0.2)
        mu = pm.math.sigmoid(pm.Normal("b") * X)
        parts = [pm.DiracDelta.dist(0.0), pm.DiracDelta.dist(1.0), component(mu, nu)]
        pm.Mixture("y", w, parts, observed=np.repeat([0, 0.2, 0.5, 0.7, 1], 10))
    return model


def beta(mu, nu):
    return pm.Beta.dist(mu=mu, nu=nu)


def beta_inside(mu, nu):
    """The component that the refusal writes."""

    def logp(y, mu, nu):
        inside = (y > 0) & (y < 1)
        density = pm.logp(pm.Beta.dist(mu=mu, nu=nu), pt.switch(inside, y, 0.5))
        return pt.switch(inside, density, -np.inf)

    def dist(mu, nu, size):
        return pm.Beta.dist(mu=mu, nu=nu, size=size)

    return pm.CustomDist.dist(mu, nu, dist=dist, logp=logp)


@pytest.mark.parametrize("ask", [pymc_dp.explain, pymc_dp.plan, pymc_dp.fit])
def test_a_density_without_gradient_at_its_own_atoms_is_refused(ask, no_release):
    settings = {} if ask is pymc_dp.explain else {"epsilon": 1, "delta": 1e-5}
    with pytest.raises(NotSeparableError, match=r"density of `y` is no number at 0, 1, .*CustomD"):
        ask(model=shares(beta), **settings)


def test_the_component_that_the_refusal_writes_is_fitted():
    assert separate(shares(beta_inside))[0].outcomes
