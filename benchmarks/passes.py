"""Time a step of vips and dp_sep beside its non-private pass: ``python -m benchmarks.passes``.

The pass gathers the same batch and sums the same expected statistics, with no norms, no clipping,
no noise and no update. Milliseconds are medians over alternating rounds of one run.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pymc as pm
from scipy.special import expit

from benchmarks.steps import measure, table
from pymc_dp.driver.fit import set_up
from pymc_dp.driver.run import compile_method
from pymc_dp.privacy.private_data import open_private
from pymc_dp.privacy.wall import PrivacyWall

BATCH = 4096


def logistic(rows: int, d: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, d))
    y = rng.binomial(1, expit(X[:, 0]))
    pm.Bernoulli("y", logit_p=pm.math.dot(X, pm.Normal("b", 0, 1, shape=d)), observed=y)


def mixture(rows: int, components: int) -> None:
    """Mixture of normals with all parameters unknown."""
    rng = np.random.default_rng(0)
    w = pm.Dirichlet("w", np.ones(components))
    mu, tau = pm.Normal("mu", 0, 3, shape=components), pm.Gamma("tau", 2, 2, shape=components)
    pm.NormalMixture("y", w, mu, tau=tau, observed=rng.normal(size=rows))


def topics(rows: int, words: int, count: int) -> None:
    """Topics of documents of about 100 words."""
    rng = np.random.default_rng(0)
    W = rng.poisson(100 / words, size=(rows, words))
    beta = pm.Dirichlet("beta", np.full(words, 0.5), shape=(count, words))
    theta = pm.Dirichlet("theta", np.full(count, 0.1), shape=(rows, count))
    pm.Multinomial("w", n=W.sum(1), p=pm.math.dot(theta, beta), observed=W)


def belief_network(rows: int, outputs: int, units: int) -> None:
    rng = np.random.default_rng(0)
    W = pm.Normal("W", 0, 1, shape=(outputs, units))
    b, c = pm.Normal("b", 0, 1, shape=units), pm.Normal("c", 0, 1, shape=outputs)
    z = pm.Bernoulli("z", logit_p=b, shape=(rows, units))
    y = rng.integers(0, 2, size=(rows, outputs))
    pm.Bernoulli("y", logit_p=pm.math.dot(z, W.T) + c, observed=y)


def gaussians(rows: int, components: int, d: int) -> None:
    """Mixture of Gaussians with known weights and covariance."""
    rng = np.random.default_rng(0)
    mu = pm.Normal("mu", 0, 3, shape=(components, d))
    parts = [pm.MvNormal.dist(mu[k], cov=np.eye(d)) for k in range(components)]
    x = rng.normal(size=(rows, d))
    pm.Mixture("x", np.full(components, 1 / components), parts, observed=x)


class Case(NamedTuple):
    """One row of the table; ``batch`` is the number of rows of a batch."""

    label: str
    method: str
    describe: Callable[[], None]
    batch: int


CASES = (
    Case("logistic, d=10", "vips", lambda: logistic(50_000, 10), BATCH),
    Case("logistic, d=100", "vips", lambda: logistic(50_000, 100), BATCH),
    Case("mixture, 5 components", "vips", lambda: mixture(50_000, 5), BATCH),
    Case("topics, 1000 words, 20 topics", "vips", lambda: topics(2000, 1000, 20), 200),
    Case("belief network, 784 x 50", "vips", lambda: belief_network(1000, 784, 50), 500),
    Case("logistic, d=10", "dp_sep", lambda: logistic(50_000, 10), BATCH),
    Case("logistic, d=100", "dp_sep", lambda: logistic(50_000, 100), BATCH),
    Case("mixture, 4 components, d=4", "dp_sep", lambda: gaussians(20_000, 4, 4), BATCH),
)


def row(case: Case) -> list[object]:
    """Return the cells of one case."""
    # updates of their own, where rounds are the default
    terms = {"noise_multiplier": 2.0, "delta": 1e-6, "noise_aware": False}
    with pm.Model() as model:
        case.describe()
    data = open_private(set_up(model, case.method, None, **terms).data)
    rows, columns = data.number, data.columns
    rate = case.batch / rows
    prepared = set_up(model, case.method, 3000, sample_rate=rate, **terms)
    compiled = compile_method(prepared, "python")
    wall = PrivacyWall(prepared.data, compiled.contributions, prepared.plan)
    rng = np.random.default_rng(0)
    states = [prepared.method.init(rng)]

    def step() -> None:
        query = prepared.method.query(states[0], rng=rng)
        states[0] = compiled.update(states[0], query, wall.release(query))

    def plain() -> np.ndarray:
        query = prepared.method.query(states[0], rng=rng)
        contribution = compiled.contributions[query.name]
        chosen = np.flatnonzero(rng.random(rows) < rate)
        values = {name: column.take(chosen) for name, column in columns.items()}
        at = contribution.prepare(values, query.context)
        return contribution.weighted_sum(at, query.context, np.ones(len(chosen)))

    times = measure({"step": step, "pass": plain})
    ratio = np.array([t["step"] / t["pass"] for t in times])
    each = [f"{np.median([t[name] for t in times]):.2f}" for name in ("step", "pass")]
    shown = f"{np.median(ratio):.2f} ({ratio.min():.2f}-{ratio.max():.2f})"
    return [case.method, f"{case.label}, B={case.batch}", *each, shown]


def main() -> None:
    columns = ("method", "case", "step, ms", "pass, ms", "ratio (range)")
    table(columns, (row(case) for case in CASES))


if __name__ == "__main__":
    main()
