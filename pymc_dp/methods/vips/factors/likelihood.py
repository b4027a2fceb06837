"""The likelihood of a factor model around psi = 0: its curvature, its noise and its scores."""

from collections.abc import Callable

import numpy as np

from pymc_dp.methods.conjugate.families import is_variance
from pymc_dp.methods.conjugate.probe_points import for_each_row, nearly_equal, ones, probe_rows
from pymc_dp.methods.linear.features import feature_graphs, features
from pymc_dp.methods.linear.predictor import Predictor
from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.methods.vips.factors.local_latents import LatentPrior
from pymc_dp.model import Records
from pymc_dp.model.graph_types import pt
from pymc_dp.privacy.contribution import Batch


def curvature_at_zero(records: Records, predictor: Predictor) -> np.ndarray:
    """Find the curvature at psi = 0, and prove that it is the same for every record.

    Prove also that the noise's precision has statistics J / 2 and half of the squared residuals.
    """
    rows = probe_rows(records, np.random.default_rng(0), [0, 1, 1])
    [probe] = features(records, (predictor,), "python")(rows)
    first, *others = probe.curvature
    if not all(nearly_equal(first, other) for other in others) or not (first > 0).all():
        raise NotConjugateError("the curvature of the likelihood differs from record to record")
    name, energy = predictor.precision, np.sum(probe.slope**2 / first, axis=1)
    half = np.full_like(energy, len(first) / 2)
    known = nearly_equal(probe.shape, half) and nearly_equal(probe.energy, energy / 2)
    if name and (is_variance(records, name) or not known):
        raise NotConjugateError(f"`{name}` is not the precision of the outcomes")
    return np.asarray(first)


def scores_at_zero(
    records: Records, predictor: Predictor, latent: LatentPrior, backend: str
) -> Callable[[Batch], np.ndarray]:
    """Compile the slope of each record's log likelihood at psi = 0, shape (rows, J)."""
    graphs = feature_graphs(records, predictor)
    # a record outside the likelihood's support must not contribute
    slope = pt.switch(pt.isnan(graphs.shape), np.nan, graphs.slope.ravel())
    evaluate, inputs = for_each_row(records, [slope], backend), records.batch.inputs

    def compute(batch: Batch) -> np.ndarray:
        count = next(value.shape[records.batch.axis[inputs[name]]] for name, value in batch.items())
        leaves = {**batch, latent.name: latent.at_zero(count, inputs[latent.name].type.dtype)}
        return evaluate(leaves, ones(records))[0]

    return compute
