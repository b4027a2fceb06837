"""The vector of a record: a score of loadings and intercept, and one curvature for all its rows.

With z~ = (z, 1) the score is E[(y - psi) z~'] and the curvature E[z~ z~'], whose last entry counts
the records. Both have factors, so the norm of a record's vector needs neither of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

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


class Moments(Protocol):
    """The posterior of the latents of a batch: one row a record."""

    @property
    def features(self) -> np.ndarray:
        """The expected latents, and a one."""

    def norms(self, context: Context) -> Sums:
        """Norms of each record's score, curvature and energy; none may be short."""

    def sums(self, context: Context, weights: np.ndarray) -> Sums:
        """Sum over records, each times its weight."""


# (slopes at psi = 0, (rows, J), Context) -> Moments
Infer = Callable[[np.ndarray, Context], Moments]


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
    layout: Layout, slopes: Callable[[Batch], np.ndarray], infer: Infer
) -> FactoredContribution:
    """Contribute score, curvature and energy; the context is a `Context`."""

    def parts(sums: Sums) -> dict[str, np.ndarray]:
        return {name: getattr(sums, name) for name in layout.parts}

    return FactoredContribution(
        layout.size,
        HELD * sum(layout.parts["score"].shape),
        norms=lambda at, context: layout.norms(parts(at.norms(context))),
        weighted_sum=lambda at, context, weights: layout.pack(parts(at.sums(context, weights))),
        prepare=lambda batch, context: infer(slopes(batch), context),
    )
