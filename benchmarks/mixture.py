"""The mixture of the DP-SEP paper's Table 1: ``python -m benchmarks.mixture --data-dir DIR``.

Squared Frobenius errors of posterior means and covariances, averaged over the four components. The
reference is the exact posterior by Gibbs sampling, with the labels unknown. A second table has data
generated in the same way, on which no setting was tried out. All data are made up; the errors read
them and are not private.
"""

import argparse
import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist, pdist
from scipy.special import softmax

import pymc_dp
from benchmarks.data import add_data_dir, load
from pymc_dp.fit import run
from pymc_dp.prepare import compile_prepared, prepare
from pymc_dp.wall import PrivacyWall

COMPONENTS, D, RECORDS = 4, 4, 1000
NOISE_VARIANCE, PRIOR_VARIANCE = 0.25, 10.0
SWEEPS, BURN_IN = 5000, 500
# generated data: standard deviation of the centres, and the least distance between two
SPREAD, APART = 1.5, 2.0
DELTA = 1e-5
# a mean this near to its component has found it: two standard deviations of a record, and less than
# half the distance between the two nearest components
FOUND = 1.0
EPSILONS = (1.0, 5.0, 50.0)
FREE = {"epsilon": math.inf}


class Posterior(NamedTuple):
    """Means, shape (K, d), and covariances, (K, d, d), of the components' centres."""

    means: np.ndarray
    covariances: np.ndarray


class Error(NamedTuple):
    """Squared Frobenius errors averaged over components, and whether all means are near."""

    mean: float
    covariance: float
    found: bool


class Row(NamedTuple):
    """A fit to measure."""

    label: str
    epsilon: float
    settings: dict[str, Any]


# Vinaroz and Park, Table 1; the reference there is not the one here
PAPERS = (
    ("SEP, paper", math.inf, 0.0020, 0.0004),
    ("DP-SEP, paper", 1.0, 82.9746, 5.0777),
    ("DP-SEP, paper", 5.0, 12.1623, 1.0655),
    ("DP-SEP, paper", 50.0, 2.2411, 0.0358),
    ("DP-EM, paper", 1.0, 7.5166, 57.8665),
    ("DP-EM, paper", 5.0, 10.4548, 3.7573),
    ("DP-EM, paper", 50.0, 5.3769, 1.3189),
)


def rows() -> Iterator[Row]:
    """List the fits; the number of records is public under replace-one neighbours alone."""
    known = {"neighbours": "replace_one", "num_records": RECORDS}
    yield Row("sep", math.inf, {"method": "sep"})
    yield Row("dp_sep, clipped, no noise", math.inf, {"method": "dp_sep", **FREE})
    private: dict[str, dict[str, Any]] = {
        "dp_sep, add/remove": {"method": "dp_sep"},
        "dp_sep, replace-one": {"method": "dp_sep", **known},
        "vips, add/remove": {"method": "vips"},
    }
    for label, settings in private.items():
        for epsilon in EPSILONS:
            yield Row(label, epsilon, settings | {"epsilon": epsilon, "delta": DELTA})


def build(X: np.ndarray) -> pm.Model:
    """Write the model as the paper has it: only the centres are unknown."""
    with pm.Model() as model:
        shares = pm.Data("shares", np.full(COMPONENTS, 1 / COMPONENTS))
        noise = pm.Data("noise", NOISE_VARIANCE * np.eye(D))
        mu = pm.Normal("mu", 0, PRIOR_VARIANCE**0.5, shape=(COMPONENTS, D))
        components = [pm.MvNormal.dist(mu[k], cov=noise) for k in range(COMPONENTS)]
        pm.Mixture("x", w=shares, comp_dists=components, observed=X)
    return model


def gibbs(X: np.ndarray, start: np.ndarray, rng: np.random.Generator) -> Posterior:
    """Draw labels and centres in turn; the start names the components."""
    mu, draws = start.copy(), np.empty((SWEEPS, *start.shape))
    for sweep in range(SWEEPS):
        r = softmax(-cdist(X, mu, "sqeuclidean") / (2 * NOISE_VARIANCE), axis=1)
        label = (rng.random((len(X), 1)) > r.cumsum(axis=1)[:, :-1]).sum(axis=1)
        member = np.eye(COMPONENTS)[label]
        variance = 1 / (member.sum(axis=0) / NOISE_VARIANCE + 1 / PRIOR_VARIANCE)[:, None]
        mean = variance * (member.T @ X) / NOISE_VARIANCE
        mu = draws[sweep] = mean + np.sqrt(variance) * rng.normal(size=mean.shape)
    kept = draws[BURN_IN:]
    covariances = [np.cov(kept[:, k], rowvar=False) for k in range(COMPONENTS)]
    return Posterior(kept.mean(axis=0), np.stack(covariances))


def posterior_of(fit: xr.Dataset) -> Posterior:
    """Read the centres' moments off a result; mean-field fits have variances alone."""
    means = fit["mean_vector"].to_numpy().reshape(COMPONENTS, D)
    if "covariance_matrix" in fit:
        whole = fit["covariance_matrix"].to_numpy().reshape(COMPONENTS, D, COMPONENTS, D)
        return Posterior(means, np.stack([whole[k, :, k] for k in range(COMPONENTS)]))
    sds = fit["standard_deviation"].to_numpy().reshape(COMPONENTS, D)
    return Posterior(means, np.stack([np.diag(sd**2) for sd in sds]))


def compare(ours: Posterior, reference: Posterior) -> Error:
    """Match components so that the squared distances of means are least in sum."""
    distances = cdist(reference.means, ours.means, "sqeuclidean")
    _, order = linear_sum_assignment(distances)
    matched = distances[np.arange(COMPONENTS), order]
    off = ours.covariances[order] - reference.covariances
    return Error(
        float(matched.mean()),
        float((off**2).sum(axis=(1, 2)).mean()),
        bool(matched.max() < FOUND**2),
    )


def compiled(settings: dict[str, Any]) -> Callable[[np.ndarray, int], Posterior]:
    """Compile one kind of fit; return what fits any data from the start of a seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pymc_dp.PrivacyWarning)
        template = build(np.zeros((RECORDS, D)))
        prepared = prepare(
            template, n=None, sampling="full", public=("shares", "noise"), **settings
        )
        parts = compile_prepared(prepared, "python")
    method, plan = prepared.method, prepared.plan
    [(name, column)] = prepared.columns.items()

    def fit(X: np.ndarray, seed: int) -> Posterior:
        rng = np.random.default_rng(seed)
        wall = PrivacyWall({name: column._replace(values=X)}, parts.contributions, plan)
        ask = partial(method.query, rng=rng)
        states = run(wall, method.init(rng), ask, parts.update, range(plan.total))
        return posterior_of(method.describe(states[-1]))

    return fit


def generated(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Make up records and centres; no two centres are closer than four deviations of a record."""
    rng = np.random.default_rng([seed, 1])
    while True:
        centres = SPREAD * rng.normal(size=(COMPONENTS, D))
        if pdist(centres).min() >= APART:
            break
    label = rng.integers(COMPONENTS, size=RECORDS)
    return centres[label] + NOISE_VARIANCE**0.5 * rng.normal(size=(RECORDS, D)), centres


def table(
    title: str, cases: list[tuple[np.ndarray, Posterior]], rows: list[Row], more: tuple = ()
) -> None:
    """Fit all cases, each from a start of its own; print medians, and the worst in brackets."""
    print(f"\n{title}: median (worst) of {len(cases)} fits.\n")
    head = ("fit", "epsilon", "means", "covariances", "all four found")
    print(line(*head) + "\n" + "|---" * len(head) + "|", flush=True)
    for row in rows:
        fit = compiled(row.settings)
        errors = [compare(fit(X, k), reference) for k, (X, reference) in enumerate(cases)]
        cells = [row.label, f"{row.epsilon:g}"]
        for values in ([e.mean for e in errors], [e.covariance for e in errors]):
            cells.append(f"{np.median(values):.2g} ({max(values):.2g})")
        print(line(*cells, f"{sum(e.found for e in errors)} of {len(cases)}"), flush=True)
    for label, epsilon, mean, covariance in more:
        print(line(label, f"{epsilon:g}", f"{mean:.4g}", f"{covariance:.4g}", ""), flush=True)


def line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--data-sets", type=int, default=20)
    add_data_dir(parser)
    arguments = parser.parse_args()
    data = load(arguments.data_dir, "dpsep_mog_N1000.npz")
    reference = gibbs(data["X"], data["true_means"], np.random.default_rng(0))
    size = np.mean((reference.covariances**2).sum(axis=(1, 2)))
    print(
        f"Squared Frobenius errors against Gibbs sampling, N={RECORDS}, delta={DELTA:g}. The "
        f"covariances' own squared norm is {size:.2g}."
    )
    table("The paper's data", [(data["X"], reference)] * arguments.seeds, [*rows()], PAPERS)
    made_up = [generated(seed) for seed in range(arguments.data_sets)]
    cases = [(X, gibbs(X, centres, np.random.default_rng(0))) for X, centres in made_up]
    table("Generated data, a fit to each set", cases, [*rows()])


if __name__ == "__main__":
    main()
