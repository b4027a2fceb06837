"""The norm that clips a record is the norm of what the record adds to the sum, at every point.

Guard 2 of the tests of a guarantee, and soundness, rule 2: the norms and the sum are two graphs,
and PyTensor rewrites each of them by itself. Where the rewritten numbers differ, a record that
seems short is not clipped.
"""

import numpy as np
import pymc as pm
import pytest

from pymc_dp.contributions import frontier, gradients
from pymc_dp.contributions.frontier import NoFrontierRuleError
from pymc_dp.contributions.gradients import gradient, plain_gradient
from pymc_dp.privacy.norms import row_norms
from tests.guarantees.toys import before_noise, wall_of
from tests.zoo import build as model_of
from tests.zoo import separated

# dense where a sigmoid rounds to 0 or 1, and far beyond
SWEEP = np.concatenate([np.linspace(-40, 40, 200), np.linspace(-800, 800, 30)])
ROWS = len(SWEEP)


def bernoulli():
    b = pm.Normal("b", shape=1)
    return pm.Bernoulli("y", logit_p=data() @ b, observed=np.arange(ROWS) % 2)


def bernoulli_probit():
    b = pm.Normal("b", shape=1)
    return pm.Bernoulli("y", p=pm.math.invprobit(data() @ b), observed=np.arange(ROWS) % 2)


def binomial_by_scalars():
    a, b = pm.Normal("a"), pm.Normal("b")
    p = pm.math.sigmoid(a + b * data()[:, 0])
    return pm.Binomial("y", 9, p, observed=np.arange(ROWS) % 10)


def groups():
    g, s = pm.Normal("g", shape=2), pm.HalfNormal("s")
    eta = s * g[pm.Data("group", np.arange(ROWS) % 2)] * data()[:, 0]
    return pm.Bernoulli("y", logit_p=eta, observed=np.arange(ROWS) // 2 % 2)


def poisson():
    b = pm.Normal("b", shape=1)
    return pm.Poisson("y", pm.math.exp(data() @ b), observed=np.arange(ROWS) % 7)


def negative_binomial():
    b, alpha = pm.Normal("b", shape=1), pm.HalfNormal("alpha")
    return pm.NegativeBinomial(
        "y", mu=pm.math.exp(data() @ b), alpha=alpha, observed=np.arange(ROWS) % 7
    )


def softmax():
    b = pm.Normal("b", shape=(1, 3))
    return pm.Categorical("y", logit_p=data() @ b, observed=np.arange(ROWS) % 3)


def student():
    b, sd = pm.Normal("b", shape=1), pm.HalfNormal("sd")
    return pm.StudentT("y", 4, mu=data() @ b, sigma=sd, observed=np.cos(np.arange(ROWS)))


def mixture():
    w, mu = pm.Dirichlet("w", np.ones(2)), pm.Normal("mu", shape=2)
    return pm.NormalMixture("y", w, mu, 1.0, observed=SWEEP)


def data():
    return pm.Data("x", SWEEP[:, None])


MODELS = [
    bernoulli,
    bernoulli_probit,
    binomial_by_scalars,
    groups,
    poisson,
    negative_binomial,
    softmax,
    student,
    mixture,
]


def compiled(build, contribute=gradient):
    records, columns = separated(model_of(build))
    return contribute(records, "python"), columns, records.size


def norms_and_sums(contribution, columns, context):
    """Return the norms of all records, and the norms of what each adds to a sum by itself."""
    with np.errstate(all="ignore"):
        batch = {name: column.take(np.arange(ROWS)) for name, column in columns.items()}
        norms = contribution.norms(contribution.prepare(batch, context), context)
        alone = np.empty((ROWS, contribution.size))
        for i in range(ROWS):
            one = {name: column.take(np.array([i])) for name, column in columns.items()}
            prepared = contribution.prepare(one, context)
            alone[i] = contribution.weighted_sum(prepared, context, np.ones(1))
        return norms, row_norms(alone)


def largest_excess(contribution, columns, context):
    """By what share a record adds more than its norm says, of those that add anything."""
    norms, alone = norms_and_sums(contribution, columns, context)
    counted = np.isfinite(norms) & (alone > 1e-290)
    assert counted.mean() > 0.25
    return np.max(alone[counted] / norms[counted]) - 1


@pytest.mark.parametrize("build", MODELS)
def test_no_norm_is_short(build):
    contribution, columns, size = compiled(build)
    points = np.linspace(1.0, 0.9, size)[None]
    assert largest_excess(contribution, columns, points) < 1e-9


@pytest.mark.parametrize("build", [groups, negative_binomial, mixture])
def test_no_norm_is_short_where_gradients_are_formed(build, monkeypatch):
    def no_frontier(*graph):
        raise NoFrontierRuleError

    monkeypatch.setattr(gradients, "record_sums", no_frontier)
    contribution, columns, size = compiled(build)
    points = np.linspace(1.0, 0.9, size)[None]
    assert largest_excess(contribution, columns, points) < 1e-9


@pytest.mark.parametrize("build", [bernoulli, groups])
def test_no_norm_is_short_in_the_papers_own_form(build):
    contribution, columns, size = compiled(build, plain_gradient)
    points = np.linspace(1.0, 0.9, size)[None]
    assert largest_excess(contribution, columns, (points, 0.3 * points)) < 1e-9


def test_no_norm_of_several_draws_is_short():
    contribution, columns, size = compiled(groups, lambda *args: gradient(*args, draws=2))
    points = np.linspace(1.0, 0.9, 2 * size).reshape(2, size)
    assert largest_excess(contribution, columns, points) < 1e-9


def test_a_norm_that_is_a_third_short_is_caught(monkeypatch):
    norms = frontier.graph_norms
    monkeypatch.setattr(frontier, "graph_norms", lambda rows: norms(rows) * 2 / 3)
    contribution, columns, size = compiled(bernoulli)
    assert largest_excess(contribution, columns, np.ones((1, size))) > 0.4


def difference():
    b = pm.Normal("b", shape=1)
    return b[0] * pm.Data("u", np.zeros(30)) - b[0] * pm.Data("v", np.zeros(30))


def difference_of_products():
    b = pm.Normal("b", shape=2)
    return pm.Data("u", np.zeros((30, 2))) @ b - pm.Data("v", np.zeros((30, 2))) @ b


def product_with_opposites():
    b = pm.Normal("b", shape=1)
    both = pm.math.stack([pm.Data("u", np.zeros(30)), pm.Data("v", np.zeros(30))], axis=1)
    return both @ pm.math.concatenate([b, -b])


@pytest.mark.parametrize("build", [difference, difference_of_products, product_with_opposites])
def test_a_record_whose_parts_cancel_does_not_drown_the_others(build):
    # in exact numbers it adds nothing; in double precision 1e17 - 1e17 swallows what is between
    with pm.Model() as model:
        pm.Normal("y", build(), 1.0, observed=np.zeros(30))
    records, columns = separated(model)
    contribution = gradient(records, "python")
    rng = np.random.default_rng(4)
    values = {name: rng.normal(size=c.values.shape) + (name == "y") for name, c in columns.items()}

    def total(values):
        held = {name: c._replace(values=values[name]) for name, c in columns.items()}
        return before_noise(wall_of(held, contribution), np.full((1, records.size), 0.1)).total

    without = total(values)
    assert np.linalg.norm(without) > 2
    for large in (1e8, 1e15, 1e17, 1e25, 1e100, 1e200):
        one = {
            name: np.full((1, *v.shape[1:]), 5.0 if name == "y" else large)
            for name, v in values.items()
        }
        with_it = {name: np.concatenate([v, one[name]]) for name, v in values.items()}
        assert np.linalg.norm(total(with_it) - without) < 1e-3
