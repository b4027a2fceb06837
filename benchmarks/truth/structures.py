"""Group d, second part: groups, curves and mixtures."""

from functools import partial

import numpy as np
import pymc as pm
from scipy.interpolate import BSpline
from scipy.special import expit

from benchmarks.truth.problem import ALL, ANY, Arrays, Problem, Truth

RECORDS = 5000
SLOPE_GROUPS = 20
KNOTS, DEGREE = 8, 3
TWO, THREE = np.array([-3.0, 3.0]), np.array([-4.0, 0.0, 4.0])
WEIGHTS = np.full(3, 5.0)


def _groups(size: int, rng: np.random.Generator) -> Truth:
    mu, spread = rng.normal(), abs(rng.normal())
    group = rng.normal(mu, spread, size)
    return {"mu": mu, "spread": spread, "slope": rng.normal(), "group": group}


def _precise_groups(size: int, rng: np.random.Generator) -> Truth:
    mu, tau = rng.normal(), rng.gamma(4, 1 / 4)
    group = rng.normal(mu, tau**-0.5, size)
    return {"mu": mu, "tau": tau, "slope": rng.normal(), "group": group}


def _members(truth: Truth, rng: np.random.Generator) -> Arrays:
    member = rng.integers(0, len(truth["group"]), RECORDS)
    x = rng.normal(size=RECORDS)
    p = expit(truth["group"][member] + truth["slope"] * x)
    return {"member": member, "x": x, "y": rng.binomial(1, p)}


def _answers(group, slope, data: Arrays) -> None:
    """Add what members of groups answered to a model."""
    psi = group[pm.Data("member", data["member"])] + slope * pm.Data("x", data["x"])
    pm.Bernoulli("y", logit_p=psi, observed=data["y"])


def _hierarchical(size: int, data: Arrays) -> None:
    mu, spread = pm.Normal("mu"), pm.HalfNormal("spread")
    slope = pm.Normal("slope")
    _answers(pm.Normal("group", mu, spread, shape=size), slope, data)


def _hierarchical_precision(size: int, data: Arrays) -> None:
    mu, tau = pm.Normal("mu", 0, 1), pm.Gamma("tau", 4, 4)
    slope = pm.Normal("slope", 0, 1)
    _answers(pm.Normal("group", mu, tau=tau, shape=size), slope, data)


def _lines(rng: np.random.Generator) -> Truth:
    """Draw a line for each group, with correlated intercepts and slopes."""
    spread, correlation = rng.gamma(4, 1 / 4, 2), 2 * rng.beta(2, 2) - 1
    below = np.array([correlation, np.sqrt(1 - correlation**2)])
    chol = np.array([[spread[0], 0], spread[1] * below])
    mu, z = rng.normal(size=2), rng.normal(size=(SLOPE_GROUPS, 2))
    return {
        "mu": mu,
        "chol": np.array([chol[0, 0], *chol[1]]),
        "z": z,
        "s": abs(rng.normal()),
        "chol_stds": spread,
        "line": mu + z @ chol.T,
    }


def _along_lines(truth: Truth, rng: np.random.Generator) -> Arrays:
    member, x = rng.integers(0, SLOPE_GROUPS, RECORDS), rng.normal(size=RECORDS)
    intercept, slope = truth["line"][member].T
    return {"member": member, "x": x, "y": rng.normal(intercept + slope * x, truth["s"])}


def _correlated(data: Arrays) -> None:
    sds = pm.Gamma.dist(4, 4, size=2)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=sds)
    mu, z = pm.Normal("mu", shape=2), pm.Normal("z", shape=(SLOPE_GROUPS, 2))
    line = pm.Deterministic("line", mu + z @ chol.T)
    mine = line[pm.Data("member", data["member"])]
    mean = mine[:, 0] + mine[:, 1] * pm.Data("x", data["x"])
    pm.Normal("y", mean, pm.HalfNormal("s"), observed=data["y"])


def _correlated_regular(data: Arrays) -> None:
    """Take the lines themselves for latents: 250 records tell each of them well."""
    sds = pm.Gamma.dist(4, 4, size=2)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=sds)
    mu = pm.Normal("mu", shape=2)
    line = pm.MvNormal("line", mu, chol=chol, shape=(SLOPE_GROUPS, 2))
    mine = line[pm.Data("member", data["member"])]
    mean = mine[:, 0] + mine[:, 1] * pm.Data("x", data["x"])
    pm.Normal("y", mean, pm.HalfNormal("s"), observed=data["y"])


def _curve(rng: np.random.Generator) -> Truth:
    return {"w": rng.normal(size=KNOTS + DEGREE - 1), "s": abs(rng.normal())}


def _basis(x: np.ndarray) -> np.ndarray:
    """Evaluate cubic B-splines with even knots on [0, 1]; shape (records, splines)."""
    inner = np.linspace(0, 1, KNOTS)
    knots = np.concatenate([np.zeros(DEGREE), inner, np.ones(DEGREE)])
    return BSpline.design_matrix(x, knots, DEGREE).toarray()


def _on_the_curve(truth: Truth, rng: np.random.Generator) -> Arrays:
    B = _basis(rng.uniform(size=RECORDS))
    return {"B": B, "y": rng.normal(B @ truth["w"], truth["s"])}


def _spline(data: Arrays) -> None:
    w, s = pm.Normal("w", shape=data["B"].shape[1]), pm.HalfNormal("s")
    pm.Normal("y", pm.Data("B", data["B"]) @ w, s, observed=data["y"])


def _two_centres(rng: np.random.Generator) -> Truth:
    return {"centre": rng.normal(TWO, 1.0)}


def _of_two(truth: Truth, rng: np.random.Generator) -> Arrays:
    chosen = rng.integers(0, 2, RECORDS)
    return {"y": rng.normal(truth["centre"][chosen], 1.0)}


def _two(data: Arrays) -> None:
    centre = pm.Normal("centre", TWO, 1, shape=2)
    pm.NormalMixture("y", w=[0.5, 0.5], mu=centre, sigma=1, observed=data["y"])


def _three_centres(rng: np.random.Generator) -> Truth:
    return {"w": rng.dirichlet(WEIGHTS), "centre": rng.normal(THREE, 1.0)}


def _of_three(truth: Truth, rng: np.random.Generator) -> Arrays:
    chosen = rng.choice(3, RECORDS, p=truth["w"])
    return {"y": rng.normal(truth["centre"][chosen], truth.get("s", np.ones(3))[chosen])}


def _three(data: Arrays) -> None:
    w = pm.Dirichlet("w", WEIGHTS)
    centre = pm.Normal("centre", THREE, 1, shape=3)
    pm.NormalMixture("y", w=w, mu=centre, sigma=1, observed=data["y"])


def _three_shapes(rng: np.random.Generator) -> Truth:
    return _three_centres(rng) | {"s": rng.gamma(8.0, 1 / 8.0, 3)}


def _three_unknown(data: Arrays) -> None:
    w, s = pm.Dirichlet("w", WEIGHTS), pm.Gamma("s", 8, 8, shape=3)
    centre = pm.Normal("centre", THREE, 1, shape=3)
    pm.NormalMixture("y", w=w, mu=centre, sigma=s, observed=data["y"])


LINES = ("mu", "chol_stds", "line", "s")
PROBLEMS = (
    *(
        Problem(
            f"groups-{size}",
            "d",
            partial(_groups, size),
            _members,
            partial(_hierarchical, size),
            ANY,
            spread="spread_log__",
        )
        for size in (8, 40)
    ),
    Problem(
        "groups-8-precision",
        "d",
        partial(_precise_groups, 8),
        _members,
        partial(_hierarchical_precision, 8),
        ALL,
        spread="tau_log__",
    ),
    Problem(
        "correlated-slopes",
        "d",
        _lines,
        _along_lines,
        _correlated,
        ANY,
        LINES,
        regular=_correlated_regular,
    ),
    Problem("spline", "d", _curve, _on_the_curve, _spline, ANY),
    Problem("mixture-2", "d", _two_centres, _of_two, _two, ALL),
    Problem("mixture-3", "d", _three_centres, _of_three, _three, ALL),
    Problem("mixture-3-scales", "d", _three_shapes, _of_three, _three_unknown, ANY),
)
