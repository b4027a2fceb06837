"""Models as PyMC's published examples spell them fit, or a sentence names how to write them."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp
from tests import zoo

N = 60
RNG = np.random.default_rng(1)
X = RNG.uniform(0, 5, N)
Y = RNG.normal(size=N)


def changepoint():
    years = np.arange(1851, 1851 + N)
    switchpoint = pm.DiscreteUniform("switchpoint", lower=1851, upper=1910)
    early, late = pm.Exponential("early", 1.0), pm.Exponential("late", 1.0)
    rate = pm.math.switch(switchpoint >= years, early, late)
    pm.Poisson("disasters", rate, observed=RNG.poisson(2, N))


def two_groups_of_unequal_size():
    shared = pm.HalfNormal("shared", 2)
    pm.Normal("drug", pm.Normal("a"), shared, observed=Y[:35])
    pm.Normal("placebo", pm.Normal("b"), shared, observed=Y[35:])


def a_row_for_all_visitors_of_a_variant():
    p = pm.Beta("p", 1, 1, shape=2)
    pm.Binomial("bought", n=np.array([900, 800]), p=p, observed=np.array([90, 120]))


def a_histogram_of_the_records():
    p = pm.Dirichlet("p", np.ones(4))
    pm.Multinomial("counts", n=N, p=p, observed=np.array([10, 20, 20, 10]))


def missing_values_set_into_an_array():
    values = np.where(np.arange(N) % 7, Y, np.nan)
    missing = np.isnan(values)
    unseen = pm.Normal("unseen", shape=int(missing.sum()))
    filled = pt.set_subtensor(pt.as_tensor(values)[missing], unseen)
    pm.Potential("values", pm.logp(pm.Normal.dist(pm.Normal("mu"), 1.0), filled))


def gaussian_process_centred_by_the_data():
    gp = pm.gp.HSGP(m=[20], c=1.5, cov_func=pm.gp.cov.Matern52(1, ls=pm.LogNormal("ls")))
    pm.Normal("y", gp.prior("f", X=X[:, None]), 1.0, observed=Y)


@pytest.mark.parametrize(
    ("build", "way_out"),
    [
        (changepoint, r"use a continuous one: pm.math.sigmoid\(\(t - switchpoint\) / width\)"),
        (two_groups_of_unequal_size, "stack groups in one, with an index of the group"),
        (a_row_for_all_visitors_of_a_variant, "has its own `p`, .* give each member of the group"),
        (a_histogram_of_the_records, "Give one row a record in place of totals"),
        (missing_values_set_into_an_array, "leave missing values as nan in observed="),
        (gaussian_process_centred_by_the_data, "call gp.prior_linearized with a public grid"),
    ],
)
def test_a_model_that_cannot_be_fitted_as_published_says_how_to_write_it(build, way_out):
    model = zoo.build(build)
    with pytest.raises(pymc_dp.NotSeparableError, match=way_out):
        pymc_dp.explain(model)


def test_a_gaussian_process_with_public_centre_and_boundary_is_fitted():
    with pm.Model() as model:
        ls = pm.LogNormal("ls", 0, 0.5)
        gp = pm.gp.HSGP(m=[N], L=[6.0], cov_func=pm.gp.cov.Matern52(1, ls=ls))
        gp.prior_linearized(np.linspace(-1, 6, 9)[:, None])
        pm.Normal("y", gp.prior("f", X=X[:, None]), 1.0, observed=Y)
    assert "dp_advi" in str(pymc_dp.explain(model))
