"""How often intervals of a weighted fit hold the coefficients of a finite population.

Samples are drawn from one population with chances that depend on the outcome: person by person, in
strata, or by household. The population's own coefficients are those of a fit to all of it.

    python -m benchmarks.survey 60                     # 60 samples of each design and model
    python -m benchmarks.survey 60 linear outcome      # of one
    python -m benchmarks.survey wages                  # CPS wages, beside a fit without weights
"""

import os
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm

import pymc_dp
from benchmarks.data import VARIABLE, load

PERSONS, SAMPLE, WAGES = 400_000, 10_000, "cps_asec_2024_wages.csv.gz"
TERMS = {"epsilon": 1.0, "delta": 1e-5, "backend": "python", "progressbar": False}
Fitted = tuple[np.ndarray, np.ndarray]  # coefficients, and their covariance


class Sample(NamedTuple):
    """A sample of the population."""

    x: np.ndarray  # (n, 3)
    y: np.ndarray
    weight: np.ndarray
    household: np.ndarray | None  # where households were drawn
    upper: float  # the largest weight that the design gives


class Population(NamedTuple):
    """Everybody: predictors, outcome, household and stratum."""

    x: np.ndarray
    y: np.ndarray
    household: np.ndarray
    stratum: np.ndarray


@cache
def population(kind: str) -> Population:
    """Make a population whose outcomes are not quite those of the model."""
    rng = np.random.default_rng(1)
    household = np.sort(rng.integers(0, PERSONS * 2 // 5, PERSONS))
    stratum = household % 20
    shared = rng.normal(size=household.max() + 1)[household]  # what a household has in common
    x = rng.normal(size=(PERSONS, 3))
    x[:, 0] = 0.7 * x[:, 0] + 0.7 * shared
    x[:, 1] = x[:, 1] > 0.5
    own = 0.4 * rng.normal(size=household.max() + 1)[household]
    level = np.linspace(-0.4, 0.4, 20)[stratum] + own
    linear = 0.5 + x @ [0.5, -0.4, 0.2] + 0.1 * x[:, 0] * x[:, 2] + level
    if kind == "linear":
        y = linear + rng.normal(size=PERSONS) * np.where(x[:, 1] > 0, 1.0, 0.7)
    else:
        y = (rng.random(PERSONS) < 1 / (1 + np.exp(-linear))).astype(float)
    return Population(x, y, household, stratum)


def draw(kind: str, design: str, seed: int) -> Sample:
    """Draw a sample of about `SAMPLE` persons."""
    people, rng = population(kind), np.random.default_rng(seed)
    # of any scale: up to eight times as large for some
    of_linear = np.clip(np.exp(0.8 * (people.y - 0.5)), 0.35, 2.8)
    chance = of_linear if kind == "linear" else 0.4 + 1.2 * people.y
    if design == "strata":  # as many of each stratum: small samples where chances are small
        own = np.bincount(people.stratum, chance) / np.bincount(people.stratum)
        chance = (own**3)[people.stratum]
    if design == "households":
        own = np.bincount(people.household, chance) / np.maximum(np.bincount(people.household), 1)
        chance = own[people.household]
    chance = chance * SAMPLE / chance.sum()
    if design == "households":
        picked = rng.random(people.household.max() + 1) < own * SAMPLE / own[people.household].sum()
        rows = np.flatnonzero(picked[people.household])
    elif design == "strata":
        sizes = np.bincount(people.stratum, chance).round().astype(int)
        strata = [np.flatnonzero(people.stratum == k) for k in range(len(sizes))]
        drawn = zip(strata, sizes, strict=True)
        rows = np.concatenate([rng.choice(own, n, replace=False) for own, n in drawn])
    else:
        rows = np.flatnonzero(rng.random(PERSONS) < chance)
    household = people.household[rows] if design == "households" else None
    weight = 1 / chance[rows]
    return Sample(people.x[rows], people.y[rows], weight, household, float(1 / chance.min()))


def by_design(kind: str, sample: Sample) -> Fitted:
    """Fit without privacy: the weighted estimate, and its sandwich covariance."""
    X, w = np.column_stack([np.ones(len(sample.y)), sample.x]), sample.weight
    beta = np.zeros(X.shape[1])
    for _ in range(1 if kind == "linear" else 12):
        mean, slope = _mean(kind, X @ beta)
        H = (X * (w * slope)[:, None]).T @ X
        beta = beta + np.linalg.solve(H, X.T @ (w * (sample.y - mean)))
    scores = X * (w * (sample.y - _mean(kind, X @ beta)[0]))[:, None]
    if sample.household is not None:
        _, unit = np.unique(sample.household, return_inverse=True)
        scores = np.stack([np.bincount(unit, s) for s in scores.T], axis=1)
    V = np.linalg.inv(H)
    return beta, V @ (scores.T @ scores) @ V


def _mean(kind: str, linear: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if kind == "linear":
        return linear, np.ones_like(linear)
    p = 1 / (1 + np.exp(-linear))
    return p, p * (1 - p)


@cache
def truth(kind: str) -> np.ndarray:
    """Return the population's own coefficients."""
    people = population(kind)
    everybody = Sample(people.x, people.y, np.ones(PERSONS), None, 1.0)
    return by_design(kind, everybody)[0]


def model_of(kind: str, sample: Sample) -> pm.Model:
    """Build the model, with weights and households beside it."""
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 5), pm.Normal("b", 0, 5, shape=sample.x.shape[1])
        linear = a + pm.Data("x", sample.x) @ b
        if kind == "linear":
            pm.Normal("y", linear, pm.HalfNormal("sd", 3), observed=sample.y)
        else:
            pm.Bernoulli("y", logit_p=linear, observed=sample.y.astype(int))
        pm.Data("weight", sample.weight)
        if sample.household is not None:
            pm.Data("household", sample.household)
    return model


def fit(kind: str, sample: Sample, **options: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fit privately; return means, total sds and what of them is noise."""
    if sample.household is not None:
        options["unit"] = "household"
    idata = pymc_dp.fit(model=model_of(kind, sample), **TERMS, **options)
    found, k = idata["fit"], sample.x.shape[1] + 1
    own, noise = (
        np.diag(found[name].to_numpy())[:k] for name in ("covariance_matrix", "noise_covariance")
    )
    return found["mean_vector"].to_numpy()[:k], np.sqrt(own + noise), np.sqrt(noise)


def one(kind: str, design: str, seed: int) -> np.ndarray:
    """Return z, the width over what it should be and over the design's, and what weights change."""
    sample = draw(kind, design, seed)
    beta, V = by_design(kind, sample)
    unweighted = by_design(kind, sample._replace(weight=np.ones(len(sample.y))))[0]
    sd = np.sqrt(np.diag(V))
    weights = pymc_dp.SurveyWeights("weight", upper=sample.upper)
    mean, total, noise = fit(kind, sample, weights=weights)
    expected = np.sqrt(sd**2 + noise**2)
    z = (mean - truth(kind)) / total
    far = (unweighted - truth(kind)) / sd
    without_privacy = (beta - truth(kind)) / sd
    return np.stack([z, total / expected, total / sd, far, without_privacy])


def wages() -> Iterator[str]:
    """Compare widths with and without weights on the CPS wages, where Kish's factor is expected."""
    table = load(Path(os.environ.get(VARIABLE, "data")), WAGES)
    years = (table["experience"] - 20) / 20
    x = np.stack([(table["educ_years"] - 13) / 4, years, years**2 - 0.3], axis=1)
    y = table["log_wage"] - 11
    for upper in (1.6e6, 8e5):
        weight = np.minimum(table["A_FNLWGT"], upper)
        kish = float(np.sqrt(np.mean(weight**2)) / weight.mean())
        cut = float((table["A_FNLWGT"] > upper).mean())
        sample = Sample(x, y, weight, None, upper)
        beta, V = by_design("linear", sample)
        alike = by_design("linear", sample._replace(weight=np.ones(len(y))))[1]
        yield (
            f"upper {upper:.1e} (cuts {cut:.2%}): Kish {kish:.2f}, ratio of sds without privacy "
            f"{np.sqrt(np.diag(V) / np.diag(alike)).round(2)}"
        )
        found = []
        for _ in range(4):
            weights = pymc_dp.SurveyWeights("weight", upper=upper)
            mean, total, noise = fit("linear", sample, weights=weights)
            _, sd, own = fit("linear", sample)
            records = np.sqrt((total**2 - noise**2) / (sd**2 - own**2))
            found.append([total / sd, records, np.abs(mean - beta) / total])
        ratio, records, z = np.mean(found, axis=0).round(2)
        yield f"  with privacy {ratio}, of the records' part {records}, mean |z| {z}"


def coverage(sets: int, kind: str, design: str) -> str:
    """Say how 90% intervals of so many samples did."""
    found = np.array([one(kind, design, seed) for seed in range(sets)])
    z, width, total, far, without = np.moveaxis(found, 1, 0)
    inside = (np.abs(z) < 1.645).mean(axis=0)
    return (
        f"{kind:8} {design:10} coverage {inside.mean():.3f} "
        f"({inside.min():.2f}-{inside.max():.2f}), without privacy "
        f"{(np.abs(without) < 1.645).mean():.3f}, sd of z {z.std():.2f}, "
        f"farthest {np.abs(z).max():.1f}, width over design and noise {np.median(width):.2f} "
        f"({np.quantile(width, 0.1):.2f}-{np.quantile(width, 0.9):.2f}), over design "
        f"{np.median(total):.2f}, unweighted off by {np.abs(far.mean(axis=0)).max():.1f} sds"
    )


def main(arguments: list[str]) -> None:
    warnings.simplefilter("ignore")
    if arguments[:1] == ["wages"]:
        for line in wages():
            print(line, flush=True)
        return
    sets, *chosen = arguments or ["60"]
    kinds, designs = ("linear", "logistic"), ("outcome", "strata", "households")
    for kind in kinds:
        for design in designs:
            if {kind, design}.issuperset(chosen):
                print(coverage(int(sets), kind, design), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
