"""Models of every kind: those that separate into records, and those that must be refused.

The data are small, made up, and the same in every run. No dimension but the records' has length N.
"""

from collections.abc import Mapping

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_dp.model import Column, separate
from pymc_dp.privacy.private_data import open_private

N, D = 13, 3
rng = np.random.default_rng(20260714)
X = rng.normal(size=(N, D))
SQUARE = rng.normal(size=(N, N))
WIDE = np.hstack([SQUARE, SQUARE[:, :2]])
BINARY = np.array([0, 1] * 6 + [1])
GROUP = rng.permutation([0] * 6 + [1] * 7)
REAL = rng.normal(size=N)
POSITIVE = rng.gamma(2.0, size=N) + 0.1
COUNT = rng.poisson(3.0, size=N)
CATEGORY = rng.permutation([0, 1, 2] * 4 + [1])
PAIRS = rng.normal(size=(N, 2))


def separated(model, **settings):
    """Split a model, and open its private data."""
    records, data = separate(model, **settings)
    return records, dict(open_private(data).columns)


def columns_of(prepared):
    """Open the private data of a prepared fit."""
    return dict(open_private(prepared.data).columns)


def take(columns: Mapping[str, Column], rows: list[int]) -> dict[str, np.ndarray]:
    return {name: column.take(np.array(rows)) for name, column in columns.items()}


def logistic():
    a, b = pm.Normal("a", 0, 2), pm.Normal("b", shape=D)
    pm.Bernoulli("y", logit_p=a + X @ b, observed=BINARY)


def logistic_data():
    x, y = pm.Data("x", X), pm.Data("y_data", BINARY)
    a, b = pm.Normal("a", 0, 2), pm.Normal("b", shape=D)
    pm.Bernoulli("y", logit_p=a + pt.dot(x, b), observed=y, shape=x.shape[0])


def minibatch(batch_size=N):
    x, y = pm.Minibatch(X, REAL, batch_size=batch_size)
    pm.Normal("y", pt.dot(x, pm.Normal("b", shape=D)), 1.0, observed=y, total_size=N)


def two_observed():
    a, b, s = pm.Normal("a"), pm.Normal("b", shape=D), pm.HalfNormal("s")
    eta = X @ b
    pm.Bernoulli("y", logit_p=a + eta, observed=BINARY)
    pm.Normal("y2", eta, s, observed=REAL)


def vector_potential():
    a, s = pm.Normal("a"), pm.HalfNormal("s")
    pm.Potential("p", pm.logp(pm.Normal.dist(a, s), REAL))


def custom_dist():
    a = pm.Normal("a")
    pm.CustomDist("y", a, logp=lambda value, mu: -0.5 * (value - mu) ** 2, observed=REAL)


def hierarchical():
    pm.modelcontext(None).add_coords({"clinic": ["north", "south"], "patient": range(N)})
    g = pm.Data("g", GROUP, dims="patient")
    mu, tau, s = pm.Normal("mu"), pm.HalfNormal("tau"), pm.Exponential("s", 1)
    alpha = pm.Normal("alpha", mu, tau, dims="clinic")
    slope = pm.Normal("slope", dims="clinic")
    mean = pm.Deterministic("mean", alpha[g] + X[:, 0] * slope[GROUP], dims="patient")
    pm.StudentT("y", nu=4, mu=mean, sigma=s, observed=REAL, dims="patient")


def two_indices():
    alpha = pm.Normal("alpha", shape=(2, 3))
    pm.Normal("y", alpha[GROUP, CATEGORY], 1.0, observed=REAL)


def switch():
    t, s = pm.Normal("t", shape=2), pm.HalfNormal("s")
    pm.Normal("y", pm.math.switch(BINARY > 0, t[0], t[1]), s, observed=REAL)


def normal_mixture():
    w = pm.Dirichlet("w", np.ones(3))
    ordered = pm.distributions.transforms.ordered
    mu = pm.Normal("mu", [-1, 0, 1], shape=3, transform=ordered, initval=[-1.0, 0, 1])
    pm.NormalMixture("y", w=w, mu=mu, sigma=pm.HalfNormal("s", shape=3), observed=REAL)


def zero_inflated():
    psi, b = pm.Beta("psi", 1, 1), pm.Normal("b", 0, 0.1, shape=D)
    pm.ZeroInflatedPoisson("y", psi=psi, mu=pm.math.exp(pm.math.dot(X, b)), observed=COUNT)


def zero_sum():
    z, alpha = pm.ZeroSumNormal("z", shape=2), pm.Exponential("alpha", 1)
    pm.NegativeBinomial("y", mu=pm.math.exp(z[GROUP]), alpha=alpha, observed=COUNT)


def weibull():
    b, k = pm.Normal("b", 0, 0.2, shape=D), pm.Gamma("k", 2, 1)
    pm.Weibull("y", alpha=k, beta=pm.math.exp(X @ b), observed=POSITIVE)


def mv_normal():
    sd = pm.Exponential.dist(1.0, shape=2)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=sd)
    mu, b = pm.Normal("mu", shape=2), pm.Normal("b", shape=(D, 2))
    pm.MvNormal("y", mu + X @ b, chol=chol, observed=PAIRS)


def categorical():
    b = pm.Normal("b", shape=(D, 3))
    pm.Categorical("y", logit_p=X @ b, observed=CATEGORY)


def softmax():
    b = pm.Normal("b", shape=(D, 3))
    pm.Categorical("y", p=pm.math.softmax(X @ b, axis=-1), observed=CATEGORY)


def ordered_logistic():
    ordered = pm.distributions.transforms.ordered
    cuts = pm.Normal("cuts", [-0.5, 0.5], shape=2, transform=ordered, initval=[-0.5, 0.5])
    b = pm.Normal("b", shape=D)
    pm.OrderedLogistic("y", eta=X @ b, cutpoints=cuts, observed=CATEGORY)


def graded_items():
    ordered = pm.distributions.transforms.ordered
    cuts = pm.Normal("cuts", [-0.5, 0.5], shape=(2, 2), transform=ordered)
    eta = X @ pm.Normal("b", shape=(D, 2))
    items = np.column_stack([CATEGORY, CATEGORY[::-1]])
    pm.OrderedLogistic("y", eta=eta, cutpoints=cuts, compute_p=False, observed=items)


def month_of_the_event():
    hazard = pm.math.sigmoid(pm.Normal("h", shape=2) + (X @ pm.Normal("b", shape=D))[:, None])
    stay = pt.cumprod(1 - hazard, axis=1)
    p = pt.concatenate([hazard[:, :1], hazard[:, 1:] * stay[:, :-1], stay[:, -1:]], axis=1)
    pm.Categorical("y", p=p, observed=CATEGORY)


def horseshoe():
    tau, lam = pm.HalfCauchy("tau", 1), pm.HalfCauchy("lam", 1, shape=D)
    z = pm.Normal("z", shape=D)
    pm.Normal("y", X @ (z * lam * tau), 1.0, observed=REAL)


def hsgp():
    cov = pm.gp.cov.ExpQuad(1, ls=pm.Gamma("ls", 2, 1))
    gp = pm.gp.HSGP(m=[5], L=[6.0], cov_func=cov)
    gp.prior_linearized(np.linspace(-3, 4, 9)[:, None])  # a public grid fixes the centre
    f = gp.prior("f", X=X[:, :1])
    pm.Normal("y", f, 1.0, observed=REAL)


def neural_network():
    w1, b1 = pm.Normal("w1", shape=(D, 5)), pm.Normal("b1", shape=5)
    w2, b2 = pm.Normal("w2", shape=5), pm.Normal("b2")
    hidden = pm.math.tanh(pm.math.dot(X, w1) + b1)
    pm.Bernoulli("y", logit_p=pm.math.dot(hidden, w2) + b2, observed=BINARY)


def more_columns_than_records():
    pm.Normal("y", WIDE @ pm.Normal("b", shape=N + 2), 1.0, observed=REAL)


def repeated_measures():
    a, s = pm.Normal("a", shape=2), pm.HalfNormal("s")
    pm.Normal("y", a, s, observed=PAIRS)


def stacked_columns():
    b, x1 = pm.Normal("b", shape=3), pm.Data("x1", X[:, 0])
    x = pt.stack([pt.ones(N), x1, X[:, 1] ** 2], axis=1)
    pm.Normal("y", (x * b).sum(-1), 1.0, observed=REAL)


def einsum():
    b = pm.Normal("b", shape=D)
    pm.Normal("y", pt.einsum("ij,j->i", pm.Data("x", X), b), 1.0, observed=REAL)


def transposed():
    b = pm.Normal("b", shape=D)
    pm.Normal("y", pt.dot(b, pm.Data("x", X).T), 1.0, observed=REAL)


def gp_marginal():
    gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, pm.Gamma("ls", 2, 1)))
    gp.marginal_likelihood("y", X=X[:, :1], y=REAL, sigma=0.5)


def mv_normal_over_records():
    pm.MvNormal("y", np.zeros(N), cov=pm.HalfNormal("s") * np.eye(N), observed=REAL)


def autoregression():
    rho = pm.Normal("rho", shape=1)
    pm.AR("y", rho=rho, sigma=1.0, init_dist=pm.Normal.dist(0, 1, shape=1), observed=REAL)


def random_walk():
    s = pm.HalfNormal("s")
    pm.GaussianRandomWalk("y", sigma=s, init_dist=pm.Normal.dist(0, 1), observed=REAL)


def summed_potential():
    a, s = pm.Normal("a"), pm.HalfNormal("s")
    pm.Potential("p", pm.logp(pm.Normal.dist(a, s), REAL).sum())


def standardised():
    x, b = pm.Data("x", X[:, 0]), pm.Normal("b")
    pm.Normal("y", b * (x - x.mean()) / x.std(), 1.0, observed=REAL)


def lagged():
    y, r = pm.Data("series", REAL), pm.Normal("r")
    pm.Normal("y", r * y[:-1], 1.0, observed=y[1:])


def gram():
    x, b = pm.Data("x", X), pm.Normal("b", shape=N)
    pm.Normal("y", pt.dot(pt.dot(x, x.T), b), 1.0, observed=REAL)


def two_lengths():
    a = pm.Normal("a")
    pm.Normal("y1", a, 1.0, observed=REAL)
    pm.Normal("y2", a, 1.0, observed=REAL[:5])


def a_latent_for_every_row():
    theta = pm.Normal("theta", shape=N)
    pm.Normal("y", theta[np.arange(N)], 1.0, observed=REAL)


def random_effects():
    pm.Normal("y", pm.Normal("theta", shape=N), 1.0, observed=REAL)


def overdispersed():
    mu, s, e = pm.Normal("mu"), pm.HalfNormal("s"), pm.Normal("e", shape=N)
    pm.Poisson("y", pm.math.exp(mu + s * e), observed=COUNT)


def build(describe) -> pm.Model:
    with pm.Model() as model:
        describe()
    return model


# the models that most tests need, on data of their own; ``more`` are further arrays, such as units


def _on(data, describe) -> pm.Model:
    with pm.Model() as model:
        for name, values in data.items():
            pm.Data(name, values)
        describe()
    return model


def line(X, y, prior_sd=1.0, sd=1.0, x="X", **more) -> pm.Model:
    """Build a normal regression with a slope ``b`` for each column; without an sd it is ``s``."""

    def describe():
        scale = pm.HalfNormal("s", 1) if sd is None else sd
        pm.Normal("y", _predictor(x, X, prior_sd), scale, observed=y)

    return _on(more, describe)


def odds(X, y, prior_sd=1.0, x="X", **more) -> pm.Model:
    """Build a logistic regression with a slope ``b`` for each column."""
    return _on(more, lambda: pm.Bernoulli("y", logit_p=_predictor(x, X, prior_sd), observed=y))


def _predictor(name, X, prior_sd):
    return pm.Data(name, X) @ pm.Normal("b", 0, prior_sd, shape=X.shape[1])


def coin(y, **more) -> pm.Model:
    """Build a coin with an even prior."""
    return _on(more, lambda: pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=y))


def mean(y, prior_sd=1.0, sd=1.0, name="mu") -> pm.Model:
    """Build normal outcomes of an unknown mean."""
    return _on({}, lambda: pm.Normal("y", pm.Normal(name, 0, prior_sd), sd, observed=y))


# fmt: off
ACCEPTED = {"small_minibatch": lambda: minibatch(batch_size=4)} | {
    f.__name__: f
    for f in (
        logistic, logistic_data, minibatch, two_observed, vector_potential, custom_dist,
        hierarchical, two_indices, switch, normal_mixture, zero_inflated,
        zero_sum, weibull, mv_normal, categorical, softmax,
        ordered_logistic, graded_items, month_of_the_event, horseshoe, hsgp, neural_network,
        more_columns_than_records, repeated_measures, stacked_columns, einsum, transposed,
    )
}
# fmt: on
# what the error must say
REFUSED = {
    gp_marginal: ("`y`", "one number for all records"),
    mv_normal_over_records: ("`y`", "one number for all records"),
    autoregression: ("`y`",),
    random_walk: ("`y`",),
    summed_potential: ("`p`", "one number for all records"),
    standardised: ("`y`", "`x`", "across its records"),
    lagged: ("`y`", "slice"),
    gram: ("`y`", "`x`"),
    two_lengths: ("y1", "y2", "differ in number"),
    a_latent_for_every_row: ("`theta`", "local latent"),
}
LOCAL = {random_effects: "theta", overdispersed: "e"}
# minibatches draw rows at random: what they stand for
STANDS_FOR = {"minibatch": einsum, "small_minibatch": einsum}
