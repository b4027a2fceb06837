"""Small models with closed-form updates, and what their records contribute at two public states."""

from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_dp.driver.fit import set_up
from pymc_dp.privacy.contribution import Contribution, Noisy
from tests.zoo import build as model_of
from tests.zoo import columns_of

N = 30
# where a sigmoid is curved, where it rounds to 0 or 1, and far beyond
SWEEP = np.concatenate([np.linspace(-6, 6, 20), np.linspace(-800, 800, 10)])
X = np.column_stack([SWEEP, np.cos(SWEEP)])
YES = np.arange(N) % 2
COUNTS = np.arange(N) % 7
TRIALS = 7 + np.arange(N) % 3
GROUP = np.arange(N) % 3
REAL = np.sin(SWEEP) * SWEEP


def weights(**prior):
    return pm.Data("X", X) @ pm.Normal("b", 0, **(prior or {"sigma": 2}), shape=2)


def gaussian():
    pm.Normal("y", weights(), 0.8, observed=REAL)


def logistic():
    pm.Bernoulli("y", logit_p=weights(), observed=YES)


def binomial():
    pm.Binomial("y", pm.Data("trials", TRIALS), logit_p=weights(), observed=COUNTS)


def two_columns():
    W = pm.Normal("W", 0, 2, shape=(2, 2))
    pm.Normal("y", pm.Data("X", X) @ W, 0.8, observed=X[::-1])


def two_outcomes():
    eta = weights()
    pm.Normal("y", eta, tau=pm.Gamma("tau", 2, 1), observed=REAL)
    pm.Bernoulli("z", logit_p=eta, observed=YES)


def categorical():
    p = pm.Dirichlet("p", np.full((3, 4), 2.0))
    pm.Categorical("y", p[pm.Data("group", GROUP)], observed=COUNTS % 4)


def poisson():
    mu = pm.Gamma("r", 2, 1) * pm.Data("exposure", 1 + np.abs(SWEEP))
    pm.Poisson("y", mu, observed=COUNTS)


def poisson_hierarchy():
    r = pm.Gamma("r", 2, pm.Gamma("rate", 2, 1))
    pm.Poisson("y", r * pm.Data("exposure", 1 + np.abs(SWEEP)), observed=COUNTS)


def mixture():
    w, mu = pm.Dirichlet("w", [2.0, 3.0]), pm.Normal("mu", 0.5, 3.0, shape=2)
    pm.NormalMixture("y", w, mu, tau=pm.Gamma("tau", 3, 2, shape=2), observed=REAL)


def probit():
    pm.Bernoulli("y", p=pm.math.invprobit(weights()), observed=YES)


def log_link():
    groups = pm.Normal("g", 0, 1, shape=3)[pm.Data("group", GROUP)]
    pm.Poisson("y", pm.math.exp(weights() + groups), observed=COUNTS)


def student():
    pm.StudentT("y", nu=4, mu=weights(), sigma=0.8, observed=REAL)


def centres():
    return pm.Normal("mu", 0.5, 3.0, shape=2, initval=[-1.0, 1.0])


def unknown_shares():
    pm.NormalMixture("y", pm.Dirichlet("w", [2.0, 3.0]), centres(), sigma=0.7, observed=REAL)


def known_covariance():
    mu = pm.Normal("mu", 0.5, 3.0, shape=(2, 2))
    covariance = pm.Data("covariance", [[0.5, 0.2], [0.2, 0.4]])
    parts = [pm.MvNormal.dist(mu[k], cov=covariance) for k in range(2)]
    pm.Mixture("y", pm.Data("shares", [0.3, 0.7]), parts, observed=X)


# one of each kind of sums, and of each kind of site
REGRESSIONS = [binomial, two_columns, two_outcomes]
BLOCKS = [categorical, poisson, mixture]
PREDICTORS = [probit, log_link, student, two_outcomes]
MIXTURES = [unknown_shares, known_covariance]
PUBLIC = ("shares", "covariance")


class Toy(NamedTuple):
    """A model made ready for its fit, with what its first two queries ask for."""

    contribution: Contribution
    columns: dict[str, Any]
    contexts: list[Any]
    clip_norms: list[float]


def prepared(build, n, method="vips", **settings):
    """Settle the plan of a fit."""
    model = model_of(build)
    public = [name for name in PUBLIC if name in model.named_vars]
    # the methods' own updates, where rounds are the default
    settings = {"delta": 1e-5, "sampling": "full", "noise_aware": False, **settings}
    settings["public"] = public
    return set_up(model, method, n, **settings)


def toy(build, n=2, method="vips", **settings):
    """Prepare a model; what its first release says is made up."""
    found = prepared(build, n, method, **{"noise_multiplier": 5.0, **settings})
    compiled, method = found.method.compile("python"), found.method
    rng = np.random.default_rng(5)
    state = method.init(rng)
    query = method.query(state, rng=rng)
    noisy = Noisy(rng.normal(0.5, 1.0, method.size), 0.1, 1.0)
    later = method.query(compiled.update(state, query, noisy), rng=rng)
    contribution = compiled.contributions[query.name]
    clip_norms = [x.clip_norm or found.plan.releases[0].clip_norm for x in (query, later)]
    contexts = [query.context, later.context]
    return Toy(contribution, columns_of(found), contexts, clip_norms)


def dense(contribution, columns, context):
    """Return the norms of all records, and the vector that each adds to a sum, row by row."""
    rows = next(iter(columns.values())).rows
    batch = {name: column.take(np.arange(rows)) for name, column in columns.items()}
    with np.errstate(all="ignore"):  # as the wall does
        at = contribution.prepare(batch, context)
        alone = [contribution.weighted_sum(at, context, one) for one in np.eye(rows)]
        return contribution.norms(at, context), np.array(alone)
