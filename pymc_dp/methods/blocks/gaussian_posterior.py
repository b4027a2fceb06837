"""How a Gaussian posterior with full covariance is drawn from and shown."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import xarray as xr

from pymc_dp.methods.blocks.exponential import GAMMA
from pymc_dp.methods.blocks.gaussian_prior import Gammas, GaussianPrior
from pymc_dp.methods.blocks.noise_aware import Told, draw
from pymc_dp.methods.blocks.shown import labels_of, natural_parameters
from pymc_dp.records import Records


class GaussianPosterior(NamedTuple):
    """Gaussian latents v jointly, and the precisions behind them.

    Attributes
    ----------
    mean, covariance : (d,), (d, d)
    noise : (d, d)
        Covariance of the privacy noise on ``mean``.
    gammas : {latent: natural parameters}
    told : {latent: Told}
        Those of ``gammas`` that releases bear on.
    """

    mean: np.ndarray
    covariance: np.ndarray
    noise: np.ndarray
    gammas: Gammas
    told: Mapping[str, Told] = MappingProxyType({})

    def draw(
        self, prior: GaussianPrior, draws: int, rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """Draw all latents by name."""
        v = rng.multivariate_normal(self.mean, self.covariance, draws, method="cholesky")
        gammas = {name: GAMMA.sample(eta, draws, rng) for name, eta in self.gammas.items()}
        return prior.point(v) | gammas

    def draw_with_noise(
        self, prior: GaussianPrior, draws: int, rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """Draw all latents with the privacy noise on what they rest on."""
        widened = self._replace(covariance=self.covariance + self.noise)
        values = widened.draw(prior, draws, rng)
        return values | {name: draw(GAMMA, told, draws, rng) for name, told in self.told.items()}

    def describe(self, records: Records, prior: GaussianPrior) -> xr.Dataset:
        """Show moments, natural parameters, and the noise on the mean."""
        labels = labels_of(records, prior.shapes)
        precision = np.linalg.inv(self.covariance)
        square = ("gaussian", "gaussian_")
        variables = {
            "mean_vector": ("gaussian", self.mean),
            "standard_deviation": ("gaussian", np.sqrt(np.diag(self.covariance))),
            "covariance_matrix": (square, self.covariance),
            "noise_covariance": (square, self.noise),
            "precision_mean": ("gaussian", precision @ self.mean),
            "precision_matrix": (square, precision),
        }
        families = dict.fromkeys(self.gammas, GAMMA)
        variables |= natural_parameters(records, families, self.gammas)
        return xr.Dataset(variables, {"gaussian": labels, "gaussian_": labels})
