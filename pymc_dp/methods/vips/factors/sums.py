"""The vector of a record: a score of loadings and intercept, and one curvature for all its rows.

With z~ = (z, 1) the score is E[(y - psi) z~'] and the curvature E[z~ z~'], whose last entry counts
the records. Both have factors, so the norm of a record's vector needs neither of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.contributions import FactoredContribution
from pymc_dp.contributions.layout import Layout, Part
from pymc_dp.methods.vips.factors.defaults import DEFAULTS
from pymc_dp.privacy.contribution import Batch

# arrays of length J and of length K + 1 that are held for a record
HELD = 6


class Context(NamedTuple):
    """The posterior under which statistics are expected: public values.

    Loadings and intercept stand side by side, shape (J, K + 1), in units in which a record's
    noise has precision ``precision``.
    """

    mean: np.ndarray
    variance: np.ndarray
    parameter: np.ndarray  # of the latents' prior, as in `LatentPrior`
    precision: float


class Sums(NamedTuple):
    """Weighted sums over records, or the norms of their parts for every record, (rows,)."""

    score: Any
    curvature: Any
    energy: Any = 0.0  # squared residuals, in expectation


class Inference(NamedTuple):
    """How latents of one kind are inferred, and what their factors are."""

    # (slopes at psi = 0, Context) -> moments: record by record
    infer: Callable[[np.ndarray, Context], Any]
    # (moments, Context) -> Sums: norms of each record's score, curvature and energy
    norms: Callable[[Any, Context], Sums]
    sums: Callable[[Any, Context, np.ndarray], Sums]  # (moments, Context, weights) -> Sums


def with_one(z: np.ndarray) -> np.ndarray:
    """Append a column of ones: (z, 1)."""
    return np.concatenate([z, np.ones((len(z), 1))], axis=1)


def layout_of(shape: tuple[int, int], energy: bool) -> Layout:
    """Lay out a record's vector for J outcomes and K latents."""
    j, n = shape[0], shape[1] + 1
    parts = {
        "score": Part((j, n)),
        "curvature": Part((n, n), DEFAULTS.curvature_scale, symmetric=True),
    }
    return Layout(parts | {"energy": Part((), DEFAULTS.energy_scale)} if energy else parts)


def contribution(
    layout: Layout, slopes: Callable[[Batch], np.ndarray], inference: Inference
) -> FactoredContribution:
    """Contribute score, curvature and energy; the context is a `Context`."""

    def prepare(batch: Batch, context: Context) -> Any:
        return inference.infer(slopes(batch), context)

    def norms(moments: Any, context: Context) -> np.ndarray:
        return layout.norms(released(inference.norms(moments, context)))

    def weighted_sum(moments: Any, context: Context, weights: np.ndarray) -> np.ndarray:
        return layout.pack(released(inference.sums(moments, context, weights)))

    def released(sums: Sums) -> dict[str, np.ndarray]:
        return {name: getattr(sums, name) for name in layout.parts}

    held = HELD * sum(layout.parts["score"].shape)
    return FactoredContribution(layout.size, held, norms, weighted_sum, prepare)
