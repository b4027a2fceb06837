"""The norm that clips a record is the norm of what the record adds to the sum, at every point.

Guard 2 of the tests of a guarantee, and soundness, rule 2: the norms and the sum are two graphs,
and PyTensor rewrites each of them by itself. Where the rewritten numbers differ, a record that
seems short is not clipped.
"""

from functools import partial

import numpy as np
import pymc as pm
import pytest

from pymc_dp.contributions import frontier, gradients
from pymc_dp.contributions.frontier import NoFrontierRuleError
from pymc_dp.contributions.gradients import gradient, plain_gradient
from pymc_dp.privacy.norms import row_norms
from tests.guarantees.toys import before_noise, wall_of
from tests.guarantees.vips_toys import dense
from tests.zoo import build, separated

# dense where a sigmoid rounds to 0 or 1, and far beyond
SWEEP = np.concatenate([np.linspace(-40, 40, 200), np.linspace(-800, 800, 30)])
ROW = np.arange(len(SWEEP))


def slope(x, *shape):
    return x @ pm.Normal("b", shape=(1, *shape))


def binomial_by_scalars(x):
    p = pm.math.sigmoid(pm.Normal("a") + pm.Normal("b") * x[:, 0])
    pm.Binomial("y", 9, p, observed=ROW % 10)


def groups(x):
    g, s = pm.Normal("g", shape=2), pm.HalfNormal("s")
    eta = s * g[pm.Data("group", ROW % 2)] * x[:, 0]
    pm.Bernoulli("y", logit_p=eta, observed=ROW // 2 % 2)


def negative_binomial(x):
    alpha = pm.HalfNormal("alpha")
    pm.NegativeBinomial("y", mu=pm.math.exp(slope(x)), alpha=alpha, observed=ROW % 7)


def mixture(x):
    w, mu = pm.Dirichlet("w", np.ones(2)), pm.Normal("mu", shape=2)
    pm.NormalMixture("y", w, mu, 1.0, observed=SWEEP)


def bernoulli(x):
    pm.Bernoulli("y", logit_p=slope(x), observed=ROW % 2)


MODELS = {
    "bernoulli": bernoulli,
    "probit": lambda x: pm.Bernoulli("y", p=pm.math.invprobit(slope(x)), observed=ROW % 2),
    "binomial by scalars": binomial_by_scalars,
    "groups": groups,
    "poisson": lambda x: pm.Poisson("y", pm.math.exp(slope(x)), observed=ROW % 7),
    "negative binomial": negative_binomial,
    "softmax": lambda x: pm.Categorical("y", logit_p=slope(x, 3), observed=ROW % 3),
    "student": lambda x: pm.StudentT("y", 4, mu=slope(x), sigma=2.0, observed=np.cos(ROW)),
    "mixture": mixture,
}


def largest_excess(name, contribute=gradient, draws=1):
    """By what share a record adds more than its norm says, of those that add anything."""
    records, columns = separated(build(lambda: MODELS[name](pm.Data("x", SWEEP[:, None]))))
    points = np.linspace(1.0, 0.9, draws * records.size).reshape(draws, records.size)
    context = (points, 0.3 * points) if contribute is plain_gradient else points
    contribution = contribute(records, "python")
    finite = np.isfinite(dense(contribution, columns, context)[0])
    kept = {name: column._replace(values=column.values[finite]) for name, column in columns.items()}
    norms, vectors = dense(contribution, kept, context)
    alone = row_norms(vectors)
    assert (alone > 1e-290).sum() > 0.25 * len(ROW)
    return np.max(alone[alone > 1e-290] / norms[alone > 1e-290]) - 1


@pytest.mark.parametrize("name", MODELS)
def test_no_norm_is_short(name):
    assert largest_excess(name) < 1e-9


def test_no_norm_is_short_in_the_papers_own_form_and_of_several_draws():
    assert largest_excess("groups", plain_gradient) < 1e-9
    assert largest_excess("groups", partial(gradient, draws=2), 2) < 1e-9


@pytest.mark.parametrize("name", ["groups", "negative binomial", "mixture"])
def test_no_norm_is_short_where_gradients_are_formed(name, monkeypatch):
    def no_frontier(*graph):
        raise NoFrontierRuleError

    monkeypatch.setattr(gradients, "record_sums", no_frontier)
    assert largest_excess(name) < 1e-9


def test_a_norm_that_is_a_third_short_is_caught(monkeypatch):
    norms = frontier.graph_norms
    monkeypatch.setattr(frontier, "graph_norms", lambda rows: norms(rows) * 2 / 3)
    assert largest_excess("bernoulli") > 0.4


def difference_of_products(u, v):
    b = pm.Normal("b", shape=1)
    return u @ b - v @ b


def product_with_opposites(u, v):
    b = pm.Normal("b", shape=1)
    return pm.math.concatenate([u, v], axis=1) @ pm.math.concatenate([b, -b])


@pytest.mark.parametrize("predictor", [difference_of_products, product_with_opposites])
def test_a_record_whose_parts_cancel_does_not_drown_the_others(predictor):
    # in exact numbers it adds nothing; in double precision 1e17 - 1e17 swallows what is between
    rng = np.random.default_rng(4)
    u, v, y = rng.normal(size=(30, 1)), rng.normal(size=(30, 1)), 1 + rng.normal(size=30)

    def model():
        pm.Normal("y", predictor(pm.Data("u", u), pm.Data("v", v)), 1.0, observed=y)

    records, columns = separated(build(model))
    contribution = gradient(records, "python")

    def total(*more):
        held = {
            name: column._replace(values=np.append(column.values, more, axis=0))
            for name, column, more in zip(columns, columns.values(), more, strict=False)
        }
        wall = wall_of({**columns, **held}, contribution)
        return before_noise(wall, np.full((1, records.size), 0.1)).total

    without = total()
    assert np.linalg.norm(without) > 1
    for large in (1e8, 1e15, 1e17, 1e25, 1e100, 1e200):
        rows = {"u": [[large]], "v": [[large]], "y": [5.0]}
        assert np.linalg.norm(total(*(rows[name] for name in columns)) - without) < 1e-3
