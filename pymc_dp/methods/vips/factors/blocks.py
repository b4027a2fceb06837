"""Loadings and intercept side by side: between latents as the model has them and one matrix."""

from collections.abc import Mapping

import numpy as np

from pymc_dp.methods.conjugate.exponential import NORMAL, Natural
from pymc_dp.methods.vips.factors.model import FactorModel
from pymc_dp.methods.vips.factors.sums import Context

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


def natural(structure: FactorModel, mean: np.ndarray, variance: np.ndarray) -> Posterior:
    """Undo `side_by_side`, for means and variances, as natural parameters."""
    blocks = {
        structure.loadings: (structure.matrix(mean[:, :-1]), structure.matrix(variance[:, :-1]))
    }
    if structure.intercept:
        shape = structure.intercept_shape
        blocks[structure.intercept] = (mean[:, -1].reshape(shape), variance[:, -1].reshape(shape))
    return {name: (m / v, 1 / v) for name, (m, v) in blocks.items()}


def blocks_of(structure: FactorModel) -> list[str]:
    """Name the blocks that stand side by side."""
    return [name for name in (structure.loadings, structure.intercept) if name]


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
    moments = {
        name: NORMAL.moments(posterior[name])
        for name in (*blocks_of(structure), structure.latent.log_odds)
        if name
    }
    name = structure.predictor.precision
    precision = structure.prior.families[name].reference(posterior[name]) if name else np.ones(())
    return context_at(structure, moments, float(precision.item()))
