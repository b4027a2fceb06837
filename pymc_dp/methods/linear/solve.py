"""From averaged sums to a Gaussian posterior; all of it post-processing."""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.blocks.expectation import agree_closely
from pymc_dp.methods.blocks.exponential import Natural
from pymc_dp.methods.blocks.gaussian_prior import Gammas, GaussianPrior, expected_precision
from pymc_dp.methods.blocks.noise_aware import Told, told_apart
from pymc_dp.methods.linear.quadratic import Sums

# rounds of updates over precisions and what they scale; they cost nothing
ROUNDS = 30
# the share of the noise's spectral edge below which eigenvalues of a curvature are noise
FLOOR = 0.5
# where a likelihood is no parabola, a step moves the Gaussian latents by at most this many prior
# standard deviations, on average
TRUST = 1.0


class Solved(NamedTuple):
    """The posterior that averaged sums imply.

    Attributes
    ----------
    linear, precision : (d,), (d, d)
        Natural parameters of the Gaussian prior at the precisions' expectations.
    weights : (P,)
        Expected noise precision of each predictor.
    covariance : (d, d)
        Posterior covariance: eigenvalues of the curvature that noise made negative count as 0.
    step_covariance : (d, d)
        For steps: eigenvalues below the noise's edge are raised to it.
    gammas : {latent: natural parameters}
    """

    linear: np.ndarray
    precision: np.ndarray
    weights: np.ndarray
    covariance: np.ndarray
    step_covariance: np.ndarray
    gammas: Gammas

    def residual(self, latest: Sums, mean: np.ndarray, step: float) -> np.ndarray:
        """Newton step m + h V (g - (P0 m - h0))."""
        slope = self.weights @ latest.score + self.linear - self.precision @ mean
        return mean + step * self.step_covariance @ slope

    def within_reach(self, mean: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Go from ``mean`` towards ``wanted``, inside the trust region."""
        move = wanted - mean
        size = np.sqrt(np.mean(np.diag(self.precision) * move**2))
        return mean + move * min(1.0, TRUST / max(size, 1e-300))

    def absolute(self, averages: Sums) -> np.ndarray:
        """The paper's solution m = V (h0 + n1)."""
        return self.step_covariance @ (self.weights @ averages.score + self.linear)


def solve(
    precisions: tuple[str | None, ...],
    prior: GaussianPrior,
    averages: Sums,
    variances: Sums,
    mean: np.ndarray,
    gammas: Gammas,
) -> Solved:
    """Update precisions and Gaussian covariance in turn until they agree.

    ``precisions`` names the noise precision of each predictor that has one.
    """
    for _ in range(ROUNDS if gammas else 1):
        linear, precision = prior.natural(gammas)
        weights = np.array([expected_precision(name, gammas) for name in precisions])
        curvature = np.tensordot(weights, averages.curvature, axes=1)
        edge = np.linalg.norm(weights) * np.sqrt(variances.curvature * 2 * len(mean))
        covariance = _inverse(curvature, 0.0, precision)
        step_covariance = _inverse(curvature, FLOOR * edge, precision)
        before, gammas = (
            gammas,
            _updated(precisions, prior, averages, variances, mean, covariance, gammas),
        )
        if agree_closely(before, gammas):
            break
    return Solved(linear, precision, weights, covariance, step_covariance, gammas)


def _inverse(curvature: np.ndarray, floor: float, precision: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(curvature)
    return np.linalg.inv((vectors * np.maximum(values, floor)) @ vectors.T + precision)


def _updated(
    precisions: tuple[str | None, ...],
    prior: GaussianPrior,
    averages: Sums,
    variances: Sums,
    mean: np.ndarray,
    covariance: np.ndarray,
    gammas: Gammas,
) -> Gammas:
    """Set every Gamma to what its prior and the released sums say."""
    gammas = dict(gammas)
    normal = prior.rule(mean, covariance) if gammas else []
    for name in gammas:
        says = _of_precision(name, precisions, averages, variances)
        of_prior = prior.message(name, gammas, normal)
        gammas[name] = tuple(a + b for a, b in zip(of_prior, says, strict=True))
    return gammas


def _of_precision(
    name: str, precisions: tuple[str | None, ...], averages: Sums, variances: Sums
) -> tuple[float, float]:
    """Return what the released sums say about a Gamma: shape and rate, 0 if it is no noise's."""
    mine = [i for i, precision in enumerate(precisions) if precision == name]
    # a rate that noise has swallowed stays at the noise's own scale
    rates = np.maximum(averages.energy[mine], variances.energy**0.5)
    return float(np.maximum(averages.shape[mine], 0.0).sum()), float(rates.sum())


def told_of(
    name: str,
    eta: Natural,
    precisions: tuple[str | None, ...],
    averages: Sums,
    variances: Sums,
) -> Told:
    """Take apart what prior and released sums say about the Gamma of a noise precision."""
    says = _of_precision(name, precisions, averages, variances)
    count = precisions.count(name)
    return told_apart(eta, says, (count * variances.shape, count * variances.energy))
