"""Draws and descriptions of Gaussian posteriors."""

import copy
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_dp.methods.conjugate.blocks import labels_of, natural_parameters
from pymc_dp.methods.conjugate.exponential import GAMMA, INVERSE_GAMMA, NORMAL, of_variance
from pymc_dp.methods.gaussian.noise_floor import Spectrum
from pymc_dp.methods.gaussian.noisy_mean import covariance_with_noise, mean_with_noise
from pymc_dp.methods.gaussian.prior import Gammas, GaussianPrior
from pymc_dp.methods.method import Both, Draws
from pymc_dp.model import Records

# eigenvalues of correlations are at least so large
LEAST_EIGENVALUE = 1e-12


class GaussianPosterior(NamedTuple):
    """Gaussian latents v jointly, and the precisions behind them."""

    mean: np.ndarray
    covariance: np.ndarray  # or its diagonal, (d,), where latents are independent
    noise: np.ndarray  # covariance of the privacy noise on ``mean``
    gammas: Gammas  # {latent: natural parameters}
    # {latent: (draws, rng) -> draws of the precision}: those of ``gammas`` whose natural parameters
    # hold released sums, with the privacy noise on these
    blocks: Mapping[str, Callable[[int, np.random.Generator], np.ndarray]] = MappingProxyType({})

    def draw(self, prior: GaussianPrior, draws: int, rng: np.random.Generator) -> Draws:
        """Draw all latents by name."""
        v = draw_gaussian(self.mean, self.covariance, draws, rng)
        gammas = {
            name: prior.values(name, GAMMA.sample(eta, draws, rng))
            for name, eta in self.gammas.items()
        }
        return prior.point(v) | gammas

    def draw_with_noise(self, prior: GaussianPrior, draws: int, rng: np.random.Generator) -> Both:
        """Draw all latents with the privacy noise on the released sums, and without it.

        Where noise exceeds the prior, the prior decides. Both have the same random numbers.
        """
        without = self.draw(prior, draws, copy.deepcopy(rng))
        natural = prior.natural if self.covariance.ndim == 2 else prior.natural_diagonals
        linear, precision = natural(self.gammas)
        widened = self._replace(
            mean=mean_with_noise(self.mean, self.noise, linear, precision),
            covariance=covariance_with_noise(self.covariance, self.noise, precision),
        )
        values = widened.draw(prior, draws, rng)
        blocks = {name: prior.values(name, draw(draws, rng)) for name, draw in self.blocks.items()}
        return values | blocks, without

    def describe(self, records: Records, prior: GaussianPrior) -> xr.Dataset:
        """Return moments, natural parameters, and the noise on the mean."""
        square = ("gaussian", "gaussian_")
        labels = labels_of(records, prior.shapes)
        found = describe_gaussian(self.mean, self.covariance, labels, square)
        variables: dict[str, Any] = {}
        for name, of_tau in self.gammas.items():
            variance = name in prior.variances
            family, own = (INVERSE_GAMMA, of_variance(of_tau)) if variance else (GAMMA, of_tau)
            variables |= natural_parameters(records, {name: family}, {name: own})
        if self.covariance.ndim == 1:
            linear, precision = (prior.point(x / self.covariance) for x in (self.mean, 1.0))
            eta = {name: (linear[name], precision[name]) for name in prior.shapes}
            variables |= natural_parameters(records, dict.fromkeys(eta, NORMAL), eta)
            variables["noise_sd"] = ("gaussian", self.noise**0.5)
        else:
            matrix = np.linalg.inv(self.covariance)
            variables["noise_covariance"] = (square, self.noise)
            variables["precision_mean"] = ("gaussian", matrix @ self.mean)
            variables["precision_matrix"] = (square, matrix)
        return found.assign(variables)


def describe_gaussian(
    mean: np.ndarray,
    covariance: np.ndarray,
    labels: list[str],
    dims: tuple[str, str] = ("rows", "columns"),
) -> xr.Dataset:
    """Return moments of a Gaussian; ``covariance`` may be a diagonal, shape (d,)."""
    rows, columns = dims
    joint = covariance.ndim == 2
    sd = np.sqrt(np.diag(covariance) if joint else covariance)
    variables: dict[str, Any] = {"mean_vector": (rows, mean), "standard_deviation": (rows, sd)}
    if not joint:
        return xr.Dataset(variables, {rows: labels})
    variables["covariance_matrix"] = (dims, covariance)
    return xr.Dataset(variables, {rows: labels, columns: labels})


def draw_gaussian(
    mean: np.ndarray, covariance: np.ndarray, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw from a Gaussian, shape (draws, d); ``covariance`` may be a diagonal, shape (d,)."""
    if covariance.ndim == 1:
        return mean + covariance**0.5 * rng.normal(size=(draws, len(mean)))
    # in units of the latents, which may be of any size, rounding makes no eigenvalue negative
    unit = np.sqrt(np.diag(covariance))
    correlation = Spectrum.of(covariance / np.outer(unit, unit)).floored(LEAST_EIGENVALUE)
    root = unit[:, None] * np.linalg.cholesky(correlation)
    return np.asarray(mean + rng.normal(size=(draws, len(mean))) @ root.T)
