"""From averaged sums to a Gaussian posterior; all of it post-processing."""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.conjugate.expectation import converged
from pymc_dp.methods.linear.defaults import DEFAULTS
from pymc_dp.methods.linear.noise_precision import TINY, Energies, NoisePrecision
from pymc_dp.methods.linear.quadratic import Sums
from pymc_dp.methods.normal import (
    Gammas,
    GaussianPrior,
    NoisyAverage,
    Spectrum,
    expected_precision,
    spectral_edge,
    within_trust_region,
)


class Solved(NamedTuple):
    """The posterior that averaged sums imply."""

    # linear, precision: natural parameters of the Gaussian prior at the precisions' expectations
    linear: np.ndarray
    precision: np.ndarray
    weights: np.ndarray  # expected noise precision of each predictor
    noise_precisions: list[float]  # those that are latents
    # posterior covariance: eigenvalues of the curvature that noise made negative count as 0
    covariance: np.ndarray
    step_covariance: np.ndarray  # for steps: eigenvalues below the noise's edge are raised to it
    gammas: Gammas  # {latent: natural parameters}
    noise: dict[str, NoisePrecision]  # {latent: posterior}: those of the gammas that are noise's

    def residual(self, latest: Sums, mean: np.ndarray, step: float) -> np.ndarray:
        """Newton step m + h V (g - (P0 m - h0))."""
        slope = self.weights @ latest.score + self.linear - self.precision @ mean
        return np.asarray(mean + step * self.step_covariance @ slope)

    def step_towards(self, mean: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Go from ``mean`` towards ``wanted``, inside the trust region."""
        precision = np.diag(self.precision)
        move = within_trust_region(wanted - mean, precision, DEFAULTS.trust_radius)
        return np.asarray(mean + move)

    def absolute(self, averages: Sums) -> np.ndarray:
        """The paper's solution m = V (h0 + n1)."""
        return np.asarray(self.step_covariance @ (self.weights @ averages.score + self.linear))


def solve(
    precisions: tuple[str | None, ...],
    prior: GaussianPrior,
    sums: NoisyAverage[Sums],
    mean: np.ndarray,
    gammas: Gammas,
    loss: float = 0.0,
) -> Solved:
    """Update precisions and Gaussian covariance in turn until they converge.

    ``precisions`` names the noise precision of each predictor that has one; ``loss`` is what
    bounding adds to the variance of their energies, as a share.
    """
    energies = {
        name: energies_of(name, precisions, sums, loss) for name in filter(None, precisions)
    }
    noise: dict[str, NoisePrecision] = {}
    for _ in range(DEFAULTS.rounds if gammas else 1):
        linear, precision = prior.natural(gammas)
        weights = np.array([expected_precision(name, gammas) for name in precisions])
        spectrum = Spectrum.of(np.tensordot(weights, sums.value.curvature, axes=1))
        edge = np.linalg.norm(weights) * spectral_edge(sums.variance.curvature, len(mean))
        covariance = np.linalg.inv(spectrum.floored(0.0) + precision)
        step_covariance = np.linalg.inv(spectrum.floored(DEFAULTS.step_floor * edge) + precision)
        normal = prior.rule(mean, covariance) if gammas else []
        before, gammas = gammas, dict(gammas)
        for name in gammas:
            gammas[name] = of_prior = prior.message(name, gammas, normal)
            if name in energies:
                noise[name] = NoisePrecision.of(of_prior, energies[name])
                both = zip(of_prior, noise[name].of_records, strict=True)
                gammas[name] = tuple(a + b for a, b in both)
        if converged(before, gammas):
            break
    latent = [w for name, w in zip(precisions, weights, strict=True) if name]
    return Solved(linear, precision, weights, latent, covariance, step_covariance, gammas, noise)


def energies_of(
    name: str, precisions: tuple[str | None, ...], sums: NoisyAverage[Sums], loss: float
) -> Energies:
    """Add up the released energies of a noise precision, over its predictors."""
    mine = [i for i, precision in enumerate(precisions) if precision == name]
    value, variance = sums
    # a number of records below its noise's standard deviation is raised to that
    shape = np.maximum(value.shape[mine], max(float(variance.shape) ** 0.5, TINY)).sum()
    energy = float(np.maximum(value.energy[mine], 0.0).sum())
    of_noise = np.broadcast_to(variance.energy, value.energy.shape)[mine].sum()
    # energies of records with one precision have the variance A / tau^2
    return Energies(float(shape), energy, float(of_noise + loss * energy**2 / shape))
