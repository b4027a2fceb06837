"""Mixtures in which the component of some records is known: weights of exactly 0 and 1."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_dp.calibration.budget import Budget
from pymc_dp.contributions.gradients import each_gradient
from pymc_dp.driver.fit import separation

rng = np.random.default_rng(0)
N = 50
Y = rng.normal(size=N)
KNOWN = (rng.random(N) < 0.7).astype(float)
LABEL = KNOWN * (rng.random(N) < 0.4)


def mixture(weight, of_components):
    with pm.Model() as model:
        known, label = pm.Data("known", KNOWN), pm.Data("label", LABEL)
        p, mu = pm.Beta("p", 1, 1), pm.Normal("mu", 0, 1, shape=2)
        w = weight(known, label, p)
        of_components(pt.stack([1 - w, w], axis=1), mu)
    return model


def as_distribution(w, mu):
    parts = [pm.Normal.dist(mu[0], 1.0), pm.Normal.dist(mu[1], 1.0)]
    pm.Mixture("y", w=w, comp_dists=parts, observed=Y)


def as_potential(w, mu):
    y = pm.Data("y", Y)
    first, second = (pt.log(w[:, k]) - (y - mu[k]) ** 2 / 2 for k in (0, 1))
    pm.Potential("like", pt.logaddexp(first, second))


def by_sum(known, label, p):
    return known * label + (1 - known) * p


def gradients(model):
    records, _ = separation(model, Budget(epsilon=1.0, delta=1e-5))(model)
    batch = {"known": KNOWN, "label": LABEL, "y": Y}
    return each_gradient(records, "python")(batch, np.array([0.3, -0.5, 0.8]))


@pytest.mark.parametrize("of_components", [as_distribution, as_potential])
def test_records_of_known_components_have_the_gradient_of_that_component(of_components):
    found = gradients(mixture(by_sum, of_components))
    one = KNOWN == 1
    expected = np.stack([np.zeros(N), (1 - LABEL) * (Y + 0.5), LABEL * (Y - 0.8)], axis=1)
    np.testing.assert_allclose(found[one], expected[one], atol=1e-12)
    by_choice = mixture(lambda *of: pt.switch(pt.gt(of[0], 0.5), *of[1:]), of_components)
    np.testing.assert_allclose(found, gradients(by_choice), atol=1e-12)


def test_a_weight_below_0_is_no_weight():
    below = mixture(lambda known, label, p: by_sum(known, label, p) - 2.0, as_distribution)
    assert np.isnan(gradients(below)).any(axis=1).all()
