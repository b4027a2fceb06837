"""The mixture of the DP-SEP paper: its data, its model, the exact posterior and the errors.

All data here are made up; the reference and the errors read them and are not private.
"""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist, pdist
from scipy.special import softmax

from benchmarks.data import load

COMPONENTS, D, RECORDS = 4, 4, 1000
NOISE_VARIANCE, PRIOR_VARIANCE = 0.25, 10.0
SWEEPS, BURN_IN = 5000, 500
# generated data: standard deviation of the centres, and the least distance between two
SPREAD, APART = 1.5, 2.0
# a mean this near to its component has found it: two standard deviations of a record, and less than
# half the distance between the two nearest components
FOUND = 1.0


class Posterior(NamedTuple):
    """Means, shape (K, d), and covariances, (K, d, d), of the components' centres."""

    means: np.ndarray
    covariances: np.ndarray


class Case(NamedTuple):
    """Records, their true labels, and the exact posterior."""

    X: np.ndarray
    label: np.ndarray
    reference: Posterior


class Error(NamedTuple):
    """Squared Frobenius errors averaged over components, and whether all means are near."""

    means: float
    covariances: float
    found: bool


@cache
def papers_data(folder: Path) -> Case:
    """Read the paper's data."""
    data = load(folder, "dpsep_mog_N1000.npz")
    return case(data["X"], data["y"].astype(int), data["true_means"])


@cache
def generated(seed: int) -> Case:
    """Make up data; no two centres are closer than four standard deviations of a record."""
    rng = np.random.default_rng([seed, 1])
    while True:
        centres = SPREAD * rng.normal(size=(COMPONENTS, D))
        if pdist(centres).min() >= APART:
            break
    label = rng.integers(COMPONENTS, size=RECORDS)
    X = centres[label] + NOISE_VARIANCE**0.5 * rng.normal(size=(RECORDS, D))
    return case(X, label, centres)


def case(X: np.ndarray, label: np.ndarray, centres: np.ndarray) -> Case:
    return Case(X, label, gibbs(X, centres, np.random.default_rng(0)))


def model(X: np.ndarray) -> pm.Model:
    """Write the model as the paper has it: only the centres are unknown."""
    with pm.Model() as mixture:
        shares = pm.Data("shares", np.full(COMPONENTS, 1 / COMPONENTS))
        noise = pm.Data("noise", NOISE_VARIANCE * np.eye(D))
        mu = pm.Normal("mu", 0, PRIOR_VARIANCE**0.5, shape=(COMPONENTS, D))
        components = [pm.MvNormal.dist(mu[k], cov=noise) for k in range(COMPONENTS)]
        pm.Mixture("x", w=shares, comp_dists=components, observed=X)
    return mixture


def responsibilities(X: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """How likely each component is for each record, shape (N, K), if these are the centres."""
    return softmax(-cdist(X, centres, "sqeuclidean") / (2 * NOISE_VARIANCE), axis=1)


def gibbs(X: np.ndarray, start: np.ndarray, rng: np.random.Generator) -> Posterior:
    """Draw labels and centres in turn; the start names the components."""
    mu, draws = start.copy(), np.empty((SWEEPS, *start.shape))
    for sweep in range(SWEEPS):
        r = responsibilities(X, mu)
        label = (rng.random((len(X), 1)) > r.cumsum(axis=1)[:, :-1]).sum(axis=1)
        member = np.eye(COMPONENTS)[label]
        variance = 1 / (member.sum(axis=0) / NOISE_VARIANCE + 1 / PRIOR_VARIANCE)[:, None]
        mean = variance * (member.T @ X) / NOISE_VARIANCE
        mu = draws[sweep] = mean + np.sqrt(variance) * rng.normal(size=mean.shape)
    kept = draws[BURN_IN:]
    covariances = [np.cov(kept[:, k], rowvar=False) for k in range(COMPONENTS)]
    return Posterior(kept.mean(axis=0), np.stack(covariances))


def match(ours: Posterior, reference: Posterior) -> Posterior:
    """Order our components so that the squared distances of means are least in sum."""
    _, order = linear_sum_assignment(cdist(reference.means, ours.means, "sqeuclidean"))
    return Posterior(ours.means[order], ours.covariances[order])


def compare(ours: Posterior, reference: Posterior) -> Error:
    """Measure errors after the best matching of components."""
    matched = match(ours, reference)
    squared = ((matched.means - reference.means) ** 2).sum(axis=1)
    off = matched.covariances - reference.covariances
    return Error(
        float(squared.mean()),
        float((off**2).sum(axis=(1, 2)).mean()),
        bool(squared.max() < FOUND**2),
    )
