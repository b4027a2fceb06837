"""Features of records for a linear predictor, which do not depend on the latents."""

import math
from collections.abc import Callable
from itertools import batched
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace

from pymc_dp.methods.conjugate.exponential import flat_gradient, two_derivatives
from pymc_dp.methods.conjugate.families import gaussian_latents, precision_family
from pymc_dp.methods.conjugate.probe_points import for_each_row, ones
from pymc_dp.methods.linear.predictor import Predictor
from pymc_dp.model import Records
from pymc_dp.model.graph_types import Tensor
from pymc_dp.privacy.contribution import Batch


class Features(NamedTuple):
    """Features of records for one predictor, or their graphs; none depends on the latents."""

    design: Any  # derivatives of psi with respect to the Gaussian latents
    offset: Any  # psi where all Gaussian latents are 0
    # slope, curvature: kappa and omega of the log likelihood kappa psi - omega psi^2 / 2 + const,
    # at a noise precision of 1; the curvature of an augmented likelihood is the one at psi = 0
    slope: Any
    curvature: Any
    # shape, energy: the statistics (a, b) of the noise precision where psi = 0; zero where it has
    # none
    shape: Any
    energy: Any


def features(
    records: Records, predictors: tuple[Predictor, ...], backend: str
) -> Callable[[Batch], list[Features]]:
    """Compile the features of a batch, one value for each predictor."""
    graphs = [graph for predictor in predictors for graph in feature_graphs(records, predictor)]
    evaluate = for_each_row(records, graphs, backend)
    zeros = {name: np.zeros(records.point[name].shape) for name in gaussian_latents(records)}
    point, many = ones(records) | zeros, len(Features._fields)

    def compute(batch: Batch) -> list[Features]:
        found = []
        for design, *by_entry, shape, energy in batched(evaluate(batch, point), many):
            offset, slope, curvature = (x.reshape(len(design), -1) for x in by_entry)
            found.append(Features(design, offset, slope, curvature, shape, energy))
        return found

    return compute


def feature_graphs(records: Records, predictor: Predictor) -> Features:
    """Return the graphs of one record's features; none depends on the latents."""
    log_likelihood, precision = predictor.log_likelihood, predictor.precision
    derivatives: tuple[Tensor, ...] = two_derivatives(log_likelihood, predictor.cut)
    slope, minus_curvature = derivatives
    statistics: tuple[Tensor, ...] = (pt.constant(0.0), pt.constant(0.0))
    if precision:
        family = precision_family(records, precision)
        statistics = family.statistics(log_likelihood, records.latents[precision])
    # a record outside the likelihood's support must not contribute
    shape, rate = (pt.switch(pt.isinf(log_likelihood), np.nan, x.sum()) for x in statistics)
    gaussian = [records.latents[name] for name in gaussian_latents(records)]
    # one entry of psi at a time, which keeps shapes static
    entries = np.eye(math.prod(predictor.shape)).reshape(-1, *predictor.shape)
    design = [flat_gradient((predictor.psi * one).sum(), gaussian) for one in entries]
    graphs = [pt.stack(design), predictor.psi, slope, -minus_curvature, shape, rate]
    zeros = {predictor.cut: predictor.psi.zeros_like()}
    return Features(*clone_replace(graphs, zeros, rebuild_strict=False))
