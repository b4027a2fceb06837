"""What records contribute to a linear predictor, whatever the latents are."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from pymc_dp.compile import function
from pymc_dp.contributions.contribution import Batch
from pymc_dp.contributions.gradients import by_record, checked
from pymc_dp.methods.blocks.exponential import GAMMA, flat_slopes, slopes
from pymc_dp.methods.blocks.families import gaussian_latents
from pymc_dp.methods.linear.predictor import Predictor
from pymc_dp.records import Records


class Features(NamedTuple):
    """What records contribute to one predictor; nothing here depends on the latents.

    Attributes
    ----------
    design : (rows, J, d)
        Derivatives of psi with respect to the Gaussian latents.
    offset : (rows, J)
        psi where all Gaussian latents are 0.
    slope, curvature : (rows, J)
        kappa and omega of the log likelihood kappa psi - omega psi^2 / 2 + const, at a noise
        precision of 1; the curvature of an augmented likelihood is the one at psi = 0.
    shape, energy : (rows,)
        The statistics (a, b) of the noise precision where psi = 0; zero where it has none.
    """

    design: np.ndarray
    offset: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray
    shape: np.ndarray
    energy: np.ndarray


def features(
    records: Records, predictors: tuple[Predictor, ...], backend: str
) -> Callable[[Batch], list[Features]]:
    """Compile the features of a batch, one value for each predictor."""
    graphs = [graph for predictor in predictors for graph in _feature_graphs(records, predictor)]
    rows = [checked(records, row) for row in by_record(records, graphs)]
    # also the check of indices asks for the latents' shapes
    rows = clone_replace(rows, _at_rest(records), rebuild_strict=False)
    fn = function(list(records.batch.inputs.values()), rows, backend)
    names, width = list(records.batch.inputs), len(Features._fields)

    def compute(batch: Batch) -> list[Features]:
        values = fn(*[batch[name] for name in names])
        return [_arranged(values[start : start + width]) for start in range(0, len(values), width)]

    return compute


def _at_rest(records: Records) -> dict[Variable, Variable]:
    """Where features are taken: Gaussian latents at 0, precisions at 1."""
    gaussian = gaussian_latents(records)
    return {
        v: pt.constant(np.full(records.point[name].shape, float(name not in gaussian)))
        for name, v in records.latents.items()
    }


def _feature_graphs(records: Records, predictor: Predictor) -> list[Variable]:
    """The graphs of `Features` for one record; nothing of them depends on the latents."""
    log_likelihood, precision = predictor.log_likelihood, predictor.precision
    slope, minus_curvature = slopes(log_likelihood, predictor.cut)
    energy = (pt.constant(0.0), pt.constant(0.0))
    if precision:
        energy = GAMMA.statistics(log_likelihood, records.latents[precision])
    # a record outside the likelihood's support must not contribute
    shape, rate = (pt.switch(pt.isinf(log_likelihood), np.nan, e.sum()) for e in energy)
    graphs = [_design(records, predictor), predictor.psi, slope, -minus_curvature, shape, rate]
    return clone_replace(
        graphs, {predictor.cut: pt.zeros_like(predictor.psi)}, rebuild_strict=False
    )


def _design(records: Records, predictor: Predictor) -> Variable:
    """Derivatives of psi, shape (J, d); one entry of psi at a time, which keeps shapes static."""
    gaussian = [records.latents[name] for name in gaussian_latents(records)]
    return pt.stack([flat_slopes(predictor.psi[i], gaussian) for i in np.ndindex(predictor.shape)])


def _arranged(values: list[np.ndarray]) -> Features:
    design, *by_entry, shape, energy = values
    offset, slope, curvature = (x.reshape(len(design), -1) for x in by_entry)
    return Features(design, offset, slope, curvature, shape, energy)
