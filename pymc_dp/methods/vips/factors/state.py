"""Where the fit of a factor model stands, and where it starts.

`side_by_side` and `split` turn loadings and intercept into one matrix, and back.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.layout import Layout
from pymc_dp.methods.conjugate.exponential import NORMAL, Natural
from pymc_dp.methods.vips.factors.defaults import DEFAULTS
from pymc_dp.methods.vips.factors.model import FactorModel
from pymc_dp.methods.vips.factors.sums import Context, layout_of
from pymc_dp.methods.vips.settings import Settings
from pymc_dp.model import Records

Posterior = dict[str, Natural]


def side_by_side(
    structure: FactorModel, values: Mapping[str, Natural]
) -> tuple[np.ndarray, np.ndarray]:
    """Arrange two values of every loading and of every intercept, each (J, K + 1); 0 for none."""
    nothing = (np.zeros(structure.shape[0]),) * 2
    intercept = values[structure.intercept] if structure.intercept else nothing
    first, second = (
        np.column_stack([structure.matrix(loadings), last.ravel()])
        for loadings, last in zip(values[structure.loadings], intercept, strict=True)
    )
    return first, second


def split(structure: FactorModel, values: np.ndarray) -> dict[str, np.ndarray]:
    """Undo `side_by_side`, for one value of each."""
    blocks = {structure.loadings: structure.matrix(values[:, :-1])}
    if structure.intercept:
        blocks[structure.intercept] = values[:, -1].reshape(structure.intercept_shape)
    return blocks


def context_at(structure: FactorModel, moments: Mapping[str, Natural], precision: float) -> Context:
    """Make the context of a batch from means and standard deviations of Gaussian blocks."""
    mean, sd = side_by_side(structure, moments)
    gain = structure.gain[:, None]
    parameter = structure.latent.parameter
    if structure.latent.log_odds:
        parameter = moments[structure.latent.log_odds][0].ravel()
    return Context(gain * mean, (gain * sd) ** 2, parameter, precision)


def context_of(structure: FactorModel, posterior: Posterior) -> Context:
    """Make the context of a batch from a posterior."""
    moments = {name: NORMAL.moments(posterior[name]) for name in structure.moved}
    name = structure.predictor.precision
    precision = structure.prior.families[name].reference(posterior[name]) if name else np.ones(())
    return context_at(structure, moments, float(precision.item()))


class State(NamedTuple):
    """Where a fit stands: released values and what follows from them."""

    t: int
    curvature: np.ndarray  # average of the released curvatures
    energy: float  # average of the released energies
    posterior: Posterior  # {latent: natural parameters}
    noise: np.ndarray  # variance of the privacy noise on an entry of each column of the means
    # predicted standard deviation of one full step's noise in a predictor, relative to its own
    # scale
    noise_of_psi: float
    noise_of_precision: float  # variance of the privacy noise on the outcomes' log precision


class Fit(NamedTuple):
    """What the updates of one fit share; public values and compiled priors."""

    records: Records
    structure: FactorModel
    settings: Settings

    @property
    def layout(self) -> Layout:
        """Of a record's vector."""
        return layout_of(self.structure.shape, self.structure.predictor.precision is not None)

    @property
    def following(self) -> list[str]:
        """The blocks that no release moves."""
        return [name for name in self.structure.prior.families if name not in self.structure.moved]

    def follow(self, posterior: Posterior, likelihood: Posterior) -> Posterior:
        """Update them, given the likelihood's natural parameters."""
        return self.structure.prior.coordinate_ascent(
            self.following, likelihood, posterior, DEFAULTS.prior_rounds
        )


def start(fit: Fit, rng: np.random.Generator) -> State:
    """Start with small random loadings; precisions start as if loadings were of unit scale."""
    structure, point, scale = fit.structure, fit.records.point, DEFAULTS.start_scale
    posterior = {
        name: (np.zeros(point[name].shape), np.ones(point[name].shape))
        if family is NORMAL
        else family.random_parameters(point[name].shape, rng)
        for name, family in structure.prior.families.items()
    }
    posterior = fit.follow(posterior, {})
    for name in structure.moved:
        mean = point[name]
        if name == structure.loadings and np.unique(mean).size == 1:
            mean = scale * rng.normal(size=mean.shape)
        posterior[name] = (mean / scale**2, np.full(mean.shape, scale**-2))
    n = structure.shape[1] + 1
    return State(0, np.eye(n), 0.0, posterior, np.zeros(n), 0.0, 0.0)
