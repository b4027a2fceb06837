"""The likelihood of a factor model around psi = 0: its curvature, its noise and its slopes."""

from collections.abc import Callable

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from pymc_dp.compile import function
from pymc_dp.contributions.contribution import Batch
from pymc_dp.contributions.gradients import by_record, checked
from pymc_dp.methods.blocks.exponential import GAMMA, slopes
from pymc_dp.methods.blocks.made_up import agree, made_up_rows
from pymc_dp.methods.linear.predictor import Predictor
from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.methods.vips.local_latents import LatentPrior
from pymc_dp.records import Records


def curvature_at_rest(records: Records, predictor: Predictor) -> np.ndarray:
    """Find the curvature at psi = 0, and prove that it is the same for every record."""
    graphs = _at_rest(records, predictor, [-slopes(predictor.log_likelihood, predictor.cut)[1]])
    inputs = list(records.single.inputs.values())
    fn = function(inputs, graphs, "python")
    rng = np.random.default_rng(0)
    seen = [fn(*made_up_rows(records, rng, [whole]).values())[0].ravel() for whole in (0, 1, 1)]
    if not all(agree(seen[0], other) for other in seen) or not (seen[0] > 0).all():
        raise NotConjugateError("the curvature of the likelihood differs from record to record")
    return seen[0]


def check_noise(records: Records, predictor: Predictor, curvature: np.ndarray) -> None:
    """Prove that the noise's precision sees J / 2 and half of the squared residuals."""
    if predictor.precision is None:
        return
    statistics = GAMMA.statistics(predictor.log_likelihood, records.latents[predictor.precision])
    slope, _ = slopes(predictor.log_likelihood, predictor.cut)
    fn = function(
        list(records.single.inputs.values()),
        _at_rest(records, predictor, [slope, *statistics]),
        "python",
    )
    slope, shape, rate = fn(*made_up_rows(records, np.random.default_rng(0), [1]).values())
    energy = np.sum(slope.ravel() ** 2 / curvature)
    found, expected = [shape.sum(), rate.sum()], [len(curvature) / 2, energy / 2]
    if not agree(np.array(found), np.array(expected)):
        raise NotConjugateError(f"`{predictor.precision}` is not the precision of the outcomes")


def slopes_of(
    records: Records, predictor: Predictor, latent: LatentPrior, backend: str
) -> Callable[[Batch], np.ndarray]:
    """Compile the slope of each record's log likelihood at psi = 0, shape (rows, J).

    A record outside the likelihood's support has nan.
    """
    slope, _ = slopes(predictor.log_likelihood, predictor.cut)
    outside = pt.isinf(predictor.log_likelihood)
    one = _at_rest(records, predictor, [pt.switch(outside, np.nan, slope.ravel())])
    [rows] = [checked(records, row) for row in by_record(records, one)]
    inputs = records.batch.inputs
    fn = function(list(inputs.values()), rows, backend)

    def compute(batch: Batch) -> np.ndarray:
        count = next(value.shape[records.batch.axis[inputs[name]]] for name, value in batch.items())
        nothing = latent.at_zero(count, inputs[latent.name].dtype)
        leaves = {**batch, latent.name: nothing}
        return fn(*[leaves[name] for name in inputs])

    return compute


def _at_rest(records: Records, predictor: Predictor, graphs: list[Variable]) -> list[Variable]:
    """Put zeros for psi and ones for a noise precision."""
    given = {predictor.cut: pt.zeros_like(predictor.psi)}
    graphs = clone_replace(graphs, given, rebuild_strict=False)
    constants = {x: pt.ones(records.point[name].shape) for name, x in records.latents.items()}
    return clone_replace(graphs, constants, rebuild_strict=False)
