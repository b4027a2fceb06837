"""Time a step of vips and dp_sep beside its non-private pass: ``python -m benchmarks.passes``.

The pass gathers the same batch and sums the same expected statistics, with no norms, no clipping,
no noise and no update. Milliseconds are medians over alternating rounds of one run.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pymc as pm
from scipy.special import expit

from pymc_dp.driver.fit import set_up
from pymc_dp.driver.run import compile_method
from pymc_dp.privacy.private_data import open_private
from pymc_dp.privacy.wall import PrivacyWall

ROUNDS = 9
SECONDS = 0.3
BATCH = 4096


def logistic(rows: int, d: int) -> pm.Model:
    """Logistic regression."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, d))
    y = rng.binomial(1, expit(X[:, 0]))
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=pm.math.dot(X, pm.Normal("b", 0, 1, shape=d)), observed=y)
    return model


def mixture(rows: int, components: int) -> pm.Model:
    """Mixture of normals with all parameters unknown."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(components))
        mu, tau = pm.Normal("mu", 0, 3, shape=components), pm.Gamma("tau", 2, 2, shape=components)
        pm.NormalMixture("y", w, mu, tau=tau, observed=rng.normal(size=rows))
    return model


def topics(rows: int, words: int, count: int) -> pm.Model:
    """Topics of documents of about 100 words."""
    rng = np.random.default_rng(0)
    W = rng.poisson(100 / words, size=(rows, words))
    with pm.Model() as model:
        beta = pm.Dirichlet("beta", np.full(words, 0.5), shape=(count, words))
        theta = pm.Dirichlet("theta", np.full(count, 0.1), shape=(rows, count))
        pm.Multinomial("w", n=W.sum(1), p=pm.math.dot(theta, beta), observed=W)
    return model


def belief_network(rows: int, outputs: int, units: int) -> pm.Model:
    """Sigmoid belief network with one layer of hidden units."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        W = pm.Normal("W", 0, 1, shape=(outputs, units))
        b, c = pm.Normal("b", 0, 1, shape=units), pm.Normal("c", 0, 1, shape=outputs)
        z = pm.Bernoulli("z", logit_p=b, shape=(rows, units))
        y = rng.integers(0, 2, size=(rows, outputs))
        pm.Bernoulli("y", logit_p=pm.math.dot(z, W.T) + c, observed=y)
    return model


def gaussians(rows: int, components: int, d: int) -> pm.Model:
    """Mixture of Gaussians with known weights and covariance."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3, shape=(components, d))
        parts = [pm.MvNormal.dist(mu[k], cov=np.eye(d)) for k in range(components)]
        x = rng.normal(size=(rows, d))
        pm.Mixture("x", np.full(components, 1 / components), parts, observed=x)
    return model


class Case(NamedTuple):
    """One row of the table; ``batch`` is the number of rows of a batch."""

    label: str
    method: str
    build: Callable[[], pm.Model]
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


def milliseconds(step: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - start) / repeats * 1e3


def steps(case: Case) -> tuple[Callable, Callable]:
    """Return a private step and the pass behind it."""
    model, budget = case.build(), {"noise_multiplier": 2.0, "delta": 1e-6}
    private = set_up(model, case.method, None, **budget).data
    rows = next(iter(open_private(private).columns.values()))
    rate = case.batch / rows.rows
    prepared = set_up(model, case.method, 10**5, sample_rate=rate, **budget)
    compiled = compile_method(prepared, "python")
    wall = PrivacyWall(prepared.data, compiled.contributions, prepared.plan)
    columns = open_private(prepared.data).columns
    rng = np.random.default_rng(0)
    states = [prepared.method.init(rng)]
    contributions = compiled.contributions

    def step() -> None:
        query = prepared.method.query(states[0], rng=rng)
        states[0] = compiled.update(states[0], query, wall.release(query))

    def plain() -> np.ndarray:
        query = prepared.method.query(states[0], rng=rng)
        contribution = contributions[query.name]
        chosen = np.flatnonzero(rng.random(rows.rows) < rate)
        values = {name: column.take(chosen) for name, column in columns.items()}
        at = contribution.prepare(values, query.context)
        return contribution.weighted_sum(at, query.context, np.ones(len(chosen)))

    return step, plain


def main() -> None:
    print(
        "| method | case | step, ms | pass, ms | ratio (range) |\n|---|---|---|---|---|",
        flush=True,
    )
    for case in CASES:
        both = steps(case)
        repeats = []
        for step in both:
            milliseconds(step, 2)
            repeats.append(max(2, int(1e3 * SECONDS / milliseconds(step, 2))))
        times = np.array(
            [
                [milliseconds(s, k) for s, k in zip(both, repeats, strict=True)]
                for _ in range(ROUNDS)
            ]
        )
        ratio = times[:, 0] / times[:, 1]
        private, plain = np.median(times, axis=0)
        print(
            f"| {case.method} | {case.label}, B={case.batch} | {private:.2f} | {plain:.2f} | "
            f"{np.median(ratio):.2f} ({ratio.min():.2f}-{ratio.max():.2f}) |",
            flush=True,
        )


if __name__ == "__main__":
    main()
