"""The likelihood of a factor model around psi = 0: its curvature, its noise and its scores."""

from collections.abc import Callable

import numpy as np
from pytensor.graph.replace import clone_replace

from pymc_dp.methods.conjugate.exponential import GAMMA, two_derivatives
from pymc_dp.methods.conjugate.probe_points import (
    at_point,
    for_each_row,
    nearly_equal,
    ones,
    probe_rows,
)
from pymc_dp.methods.linear.predictor import Predictor
from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.methods.vips.factors.local_latents import LatentPrior
from pymc_dp.model import Records
from pymc_dp.model.graph_types import AnyVariable, Tensor, pt
from pymc_dp.privacy.contribution import Batch


def curvature_at_zero(records: Records, predictor: Predictor) -> np.ndarray:
    """Find the curvature at psi = 0, and prove that it is the same for every record."""
    _, second = two_derivatives(predictor.log_likelihood, predictor.cut)
    evaluate = at_point(records, records.single, _at_zero(predictor, [-second]))
    rng, one = np.random.default_rng(0), ones(records)
    rows = [probe_rows(records, rng, [whole]) for whole in (0, 1, 1)]
    first, *others = (evaluate(row, one)[0].ravel() for row in rows)
    if not all(nearly_equal(first, other) for other in others) or not (first > 0).all():
        raise NotConjugateError("the curvature of the likelihood differs from record to record")
    return first


def check_noise(records: Records, predictor: Predictor, curvature: np.ndarray) -> None:
    """Prove that the noise's precision has statistics J / 2 and half of the squared residuals."""
    if predictor.precision is None:
        return
    statistics = GAMMA.statistics(predictor.log_likelihood, records.latents[predictor.precision])
    slope, _ = two_derivatives(predictor.log_likelihood, predictor.cut)
    evaluate = at_point(records, records.single, _at_zero(predictor, [slope, *statistics]))
    row = probe_rows(records, np.random.default_rng(0), [1])
    slope, shape, rate = evaluate(row, ones(records))
    energy = np.sum(slope.ravel() ** 2 / curvature)
    found, expected = [shape.sum(), rate.sum()], [len(curvature) / 2, energy / 2]
    if not nearly_equal(np.array(found), np.array(expected)):
        raise NotConjugateError(f"`{predictor.precision}` is not the precision of the outcomes")


def scores_at_zero(
    records: Records, predictor: Predictor, latent: LatentPrior, backend: str
) -> Callable[[Batch], np.ndarray]:
    """Compile the slope of each record's log likelihood at psi = 0, shape (rows, J)."""
    slope, _ = two_derivatives(predictor.log_likelihood, predictor.cut)
    outside = pt.isinf(predictor.log_likelihood)
    graphs = _at_zero(predictor, [pt.switch(outside, np.nan, slope.ravel())])
    evaluate, inputs = for_each_row(records, graphs, backend), records.batch.inputs

    def compute(batch: Batch) -> np.ndarray:
        count = next(value.shape[records.batch.axis[inputs[name]]] for name, value in batch.items())
        leaves = {**batch, latent.name: latent.at_zero(count, inputs[latent.name].type.dtype)}
        return evaluate(leaves, ones(records))[0]

    return compute


def _at_zero(predictor: Predictor, graphs: list[Tensor]) -> list[AnyVariable]:
    zeros = {predictor.cut: pt.zeros_like(predictor.psi)}
    found: list[AnyVariable] = clone_replace(graphs, zeros, rebuild_strict=False)
    return found
