"""The vector of a record: a score of loadings and intercept, and one curvature for all its rows.

With z~ = (z, 1) the score is E[(y - psi) z~'] and the curvature E[z~ z~'], whose last entry counts
the records. Both have factors, so the norm of a record's vector needs neither of them. The
posterior of Gaussian latents z is exact, and its covariance is public. Binary ones take a damped
mean-field update behind the wall, where Pólya-Gamma variables make the likelihood quadratic.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from pymc_dp.contributions.layout import Layout, Part
from pymc_dp.methods.linear.predictor import pg_weight
from pymc_dp.methods.vips.factors.defaults import DEFAULTS
from pymc_dp.privacy.contribution import Batch, FactoredContribution
from pymc_dp.privacy.norms import row_norms

ARRAYS = 6  # arrays of length J and of length K + 1 of a record


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


def layout_of(shape: tuple[int, int], energy: bool) -> Layout:
    """Lay out a record's vector for J outcomes and K latents."""
    j, n = shape[0], shape[1] + 1
    parts = {
        "score": Part((j, n)),
        "curvature": Part((n, n), DEFAULTS.curvature_scale, symmetric=True),
    }
    return Layout(parts | {"energy": Part((), DEFAULTS.energy_scale)} if energy else parts)


class NormalMoments(NamedTuple):
    """One row a record."""

    residual: np.ndarray  # y - psi at the expected latents
    features: np.ndarray  # the expected latents, and a one
    energy: np.ndarray  # the expected squared residual

    def norms(self, context: Context) -> Sums:
        """Norms of r z~' - W V, of z~ z~' + V and of the energy.

        Vectors are shortened to at most 1 first, so that no square leaves the range of doubles.
        """
        covariance, loaded = _covariance(context)
        long, wide = row_norms(self.residual), row_norms(self.features)
        long = np.where(long < 1, 1.0, long)  # nan stays
        r, z = self.residual / long[:, None], self.features / wide[:, None]
        unit = 1 / (long * wide)
        straight = np.vecdot(r, r) * np.vecdot(z, z)
        correction = np.vdot(loaded, loaded) * unit**2
        crossed = 2 * unit * np.vecdot(r @ loaded, z)
        score = _norms(straight, crossed, correction)
        spread = 2 * np.vecdot(z @ covariance, z) / wide**2
        own = np.vdot(covariance, covariance) / wide**4
        curvature = wide**2 * np.sqrt(np.vecdot(z, z) ** 2 + np.maximum(spread, 0.0) + own)
        return Sums(long * wide * score, curvature, self.energy)

    def sums(self, context: Context, weights: np.ndarray) -> Sums:
        """Weighted sums over records."""
        covariance, loaded = _covariance(context)
        total = weights.sum()
        features = weights[:, None] * self.features
        return Sums(
            (weights[:, None] * self.residual).T @ self.features - total * loaded,
            features.T @ self.features + total * covariance,
            weights @ self.energy,
        )


def _covariance(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Return the covariance V of a record's latents, and W V, with zeros for the intercept.

    The same for every record, so that it is public.
    """
    loadings = context.mean[:, :-1]
    second = loadings.T @ loadings + np.diag(context.variance[:, :-1].sum(axis=0))
    covariance = np.linalg.inv(np.diag(context.parameter) + context.precision * second)
    covariance = np.pad((covariance + covariance.T) / 2, (0, 1))
    return covariance, context.mean @ covariance


def infer_normal(gain: np.ndarray, slopes: np.ndarray, context: Context) -> NormalMoments:
    """E-step: E z = tau V W'(y - c); ``gain`` holds square roots of the outcomes' curvatures."""
    _, loaded = _covariance(context)
    centred = slopes / gain - context.mean[:, -1]
    z = context.precision * centred @ loaded[:, :-1]
    residual = centred - z @ context.mean[:, :-1].T
    energy = np.vecdot(residual, residual) + np.vdot(loaded, context.mean)
    return NormalMoments(residual, _with_one(z), energy)


class BinaryMoments(NamedTuple):
    """One row a record."""

    residual: np.ndarray  # kappa - omega E psi
    features: np.ndarray  # probabilities p that latents are 1, and a one
    weight: np.ndarray  # omega

    @property
    def spread(self) -> np.ndarray:
        """Variances p (1 - p) of (z, 1)."""
        return np.asarray(self.features * (1 - self.features))

    def norms(self, context: Context) -> Sums:
        """Norms of r z~' - omega u' o W and of p~ p~' + diag(u)."""
        p, u = self.features, self.spread
        straight = np.vecdot(self.residual, self.residual) * np.vecdot(p, p)
        correction = np.vecdot(u**2, self.weight**2 @ context.mean**2)
        crossed = 2 * np.vecdot(p * u, (self.residual * self.weight) @ context.mean)
        curvature = np.vecdot(p, p) ** 2 + np.vecdot(u, u + 2 * p**2)
        return Sums(_norms(straight, crossed, correction), np.sqrt(curvature))

    def sums(self, context: Context, weights: np.ndarray) -> Sums:
        """Weighted sums over records."""
        p, u = self.features, self.spread
        residual, weight = (weights[:, None] * x for x in (self.residual, self.weight))
        return Sums(
            residual.T @ p - context.mean * (weight.T @ u),
            (weights[:, None] * p).T @ p + np.diag(weights @ u),
        )


def infer_binary(
    curvature: np.ndarray, sweeps: int, slopes: np.ndarray, context: Context
) -> BinaryMoments:
    """E-step: start at the prior, update all latents at once, ``sweeps`` times.

    ``curvature`` is the largest of each outcome, 1/4 for a yes or no.
    """
    loadings, intercept = context.mean[:, :-1], context.mean[:, -1]
    squares, second = loadings**2, loadings**2 + context.variance[:, :-1]
    transposed = (np.ascontiguousarray(x.T) for x in (loadings, squares, second))
    across, across_squares, across_second = transposed
    log_odds = np.tile(context.parameter, (len(slopes), 1))

    def weigh(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        psi = p @ across + intercept
        spread = p @ across_second - p**2 @ across_squares + context.variance[:, -1]
        return psi, curvature * pg_weight(np.sqrt(psi**2 + np.maximum(spread, 0.0)))

    for _ in range(sweeps):
        p = expit(log_odds)
        psi, omega = weigh(p)
        fresh = (slopes - omega * psi) @ loadings + p * (omega @ squares) - omega @ second / 2
        log_odds += DEFAULTS.damping * (context.parameter + fresh - log_odds)
    p = expit(log_odds)
    psi, omega = weigh(p)
    return BinaryMoments(slopes - omega * psi, _with_one(p), omega)


def _with_one(z: np.ndarray) -> np.ndarray:
    return np.concatenate([z, np.ones((len(z), 1))], axis=1)


def _norms(straight: np.ndarray, crossed: np.ndarray, correction: np.ndarray) -> np.ndarray:
    """Root of a difference of squares, raised by its rounding error: no norm may be short."""
    squares = np.maximum(straight - crossed + correction, 0.0) + 1e-12 * (straight + correction)
    return np.asarray(np.sqrt(squares))


# (slopes at psi = 0, (rows, J), Context) -> moments of the latents of a batch, one row a record
Infer = Callable[[np.ndarray, Context], NormalMoments | BinaryMoments]


def contribution(
    layout: Layout, slopes: Callable[[Batch], np.ndarray], infer: Infer
) -> FactoredContribution:
    """Contribute score, curvature and energy; the context is a `Context`."""

    def parts(sums: Sums) -> dict[str, np.ndarray]:
        return {name: getattr(sums, name) for name in layout.parts}

    return FactoredContribution(
        layout.size,
        ARRAYS * sum(layout.parts["score"].shape),
        norms=lambda at, context: layout.norms(parts(at.norms(context))),
        weighted_sum=lambda at, context, weights: layout.pack(parts(at.sums(context, weights))),
        prepare=lambda batch, context: infer(slopes(batch), context),
        parts_norm=np.inf,  # the parts of a score may cancel within a record
    )
