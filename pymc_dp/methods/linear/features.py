"""Features of records for a linear predictor, which do not depend on the latents."""

import math
from collections.abc import Callable, Sequence
from itertools import batched
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace

from pymc_dp.methods.conjugate.blocks import for_each_row, gaussian_latents, ones, precision_family
from pymc_dp.methods.conjugate.exponential import flat_gradient, two_derivatives
from pymc_dp.methods.linear.predictor import Predictor
from pymc_dp.model import Records
from pymc_dp.model.graph_types import Tensor
from pymc_dp.privacy.contribution import Batch


class Expansion(NamedTuple):
    """The likelihood of records where all Gaussian latents are 0, or its graphs."""

    offset: Any  # psi
    # slope, curvature: kappa and omega of the log likelihood kappa psi - omega psi^2 / 2 + const,
    # at a noise precision of 1; the curvature of an augmented likelihood is the one at psi = 0
    slope: Any
    curvature: Any
    # shape, energy: the statistics (a, b) of the noise precision where psi = 0; zero where it has
    # none
    shape: Any
    energy: Any


class Features(NamedTuple):
    """Features of records for one predictor; none depends on the latents."""

    design: np.ndarray  # derivatives of psi with respect to the Gaussian latents
    # as in `Expansion`
    offset: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray
    shape: np.ndarray
    energy: np.ndarray


def features(
    records: Records, predictors: tuple[Predictor, ...], backend: str
) -> Callable[[Batch], list[Features]]:
    """Compile the features of a batch, one value for each predictor."""
    parts = [(design_graph(records, p), *expansion_graphs(records, p)) for p in predictors]
    evaluate = where_zero(records, [graph for part in parts for graph in part], backend)
    many = len(Features._fields)

    def compute(batch: Batch) -> list[Features]:
        values = batched(evaluate(batch), many)
        return [Features(design, *_by_entry(rest)) for design, *rest in values]

    return compute


def expansion(records: Records, predictor: Predictor, backend: str) -> Callable[[Batch], Expansion]:
    """Compile the expansion of a batch's likelihoods."""
    evaluate = where_zero(records, expansion_graphs(records, predictor), backend)
    return lambda batch: _by_entry(evaluate(batch))


def where_zero(
    records: Records, graphs: Sequence[Tensor], backend: str
) -> Callable[[Batch], tuple[np.ndarray, ...]]:
    """Compile graphs of one record, for every row, where all Gaussian latents are 0."""
    evaluate = for_each_row(records, graphs, backend)
    zeros = {name: np.zeros(records.point[name].shape) for name in gaussian_latents(records)}
    point = ones(records) | zeros
    return lambda batch: evaluate(batch, point)


def _by_entry(values: Sequence[np.ndarray]) -> Expansion:
    """Bring offset, slope and curvature to shape (rows, J)."""
    *by_entry, shape, energy = values
    offset, slope, curvature = (x.reshape(len(shape), -1) for x in by_entry)
    return Expansion(offset, slope, curvature, shape, energy)


def design_graph(records: Records, predictor: Predictor) -> Tensor:
    """Return derivatives of one record's psi in the Gaussian latents, shape (J, size)."""
    gaussian = [records.latents[name] for name in gaussian_latents(records)]
    # one entry of psi at a time, which keeps shapes static
    entries = np.eye(math.prod(predictor.shape)).reshape(-1, *predictor.shape)
    return pt.stack([flat_gradient((predictor.psi * one).sum(), gaussian) for one in entries])


def expansion_graphs(records: Records, predictor: Predictor) -> Expansion:
    """Return the graphs of one record's expansion; none depends on the latents."""
    log_likelihood, precision = predictor.log_likelihood, predictor.precision
    derivatives: tuple[Tensor, ...] = two_derivatives(log_likelihood, predictor.cut)
    slope, minus_curvature = derivatives
    statistics: tuple[Tensor, ...] = (pt.constant(0.0), pt.constant(0.0))
    if precision:
        family = precision_family(records, precision)
        statistics = family.statistics(log_likelihood, records.latents[precision])
    # a record outside the likelihood's support must not contribute
    shape, rate = (pt.switch(pt.isinf(log_likelihood), np.nan, x.sum()) for x in statistics)
    graphs = [predictor.psi, slope, -minus_curvature, shape, rate]
    zeros = {predictor.cut: predictor.psi.zeros_like()}
    return Expansion(*clone_replace(graphs, zeros, rebuild_strict=False))
