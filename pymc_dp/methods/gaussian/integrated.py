"""Latents that are normal given the others, integrated out of a posterior.

Means and coefficients of groups, and values of Gaussian processes, are normal given the spreads and
length scales in their priors. The log prior is quadratic in them, and so is what the releases say
of the likelihood: what is left is a density of the spreads alone, which Markov chains can explore.
Given a spread that is almost 0 its groups are all but fixed, and chains of both hardly move.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_dp.methods.gaussian.arrow import Conditional
from pymc_dp.methods.gaussian.hamiltonian import LogDensity

ROUNDING = 1e-6  # as a share of a precision, of differences of gradients


class NormalLikelihood(NamedTuple):
    """The likelihood exp(h'x - x' Lambda x / 2)."""

    linear: np.ndarray  # h, (d,)
    precision: np.ndarray  # Lambda, (d, d)

    def among(self, places: np.ndarray, size: int) -> "NormalLikelihood":
        """Return it as a function of ``size`` coordinates, of which x has these places."""
        h, Lambda = np.zeros(size), np.zeros((size, size))
        h[places], Lambda[np.ix_(places, places)] = self
        return NormalLikelihood(h, Lambda)


class Entries(NamedTuple):
    """Where the precision of u, (k, k), is not 0, and which difference of gradients shows it."""

    rows: np.ndarray
    columns: np.ndarray
    difference: np.ndarray

    @property
    def differences(self) -> int:
        """The number of differences that show all entries."""
        return 1 + int(self.difference.max(initial=-1))


class Integrated(NamedTuple):
    """A log prior, log p(theta, u), that is quadratic in u."""

    u: np.ndarray  # (k,) coordinates of the latents that are integrated out
    theta: np.ndarray  # (D - k,) those of the others
    near: np.ndarray  # (k,) a point u_0
    steps: np.ndarray  # (k,) of u, after which gradients show the precision
    entries: Entries
    dense: int  # r: behind the first r of u the precision is a factor times I
    # theta (n, D - k) and u (n, m, k) -> gradients of the log prior in u, (n, m, k)
    gradients: Callable[[np.ndarray, np.ndarray], np.ndarray]
    # the same and weights (n, m) -> log prior at the first u, (n,), and the slope in theta,
    # (n, D - k), of the weighted sum
    slope: Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

    def log_density(self, likelihood: NormalLikelihood) -> LogDensity:
        """Return the log posterior of theta, up to a constant, and its gradient.

        It is log p + h'z - z' Lambda z / 2 - log|A| / 2 at the conditional mode of u, where A is
        the curvature in u; rounding that misses the mode makes it smaller. The gradient is the
        mean over u of that in theta (Fisher's identity).
        """
        axes = self._axes(likelihood)

        def density(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            found = self._given(theta, likelihood, axes)
            value, slope = self.slope(theta, *self._average(found))
            z = self._joined(theta, found.mean)
            score = likelihood.linear - z @ likelihood.precision
            value = value + (z * (likelihood.linear + score)).sum(axis=1) / 2
            return value - found.log_determinant / 2, slope + score[:, self.theta]

        return density

    def conditional(self, theta: np.ndarray, likelihood: NormalLikelihood) -> Conditional:
        """Return the posterior of u given theta, (n, D - k)."""
        return self._given(theta, likelihood, self._axes(likelihood))

    def _axes(self, likelihood: NormalLikelihood) -> tuple[np.ndarray, np.ndarray]:
        """Return eigenvalues and eigenvectors of the likelihood's precision of the last of u."""
        last = self.u[self.dense :]
        values, vectors = np.linalg.eigh(likelihood.precision[np.ix_(last, last)])
        return values, vectors

    def _given(
        self,
        theta: np.ndarray,
        likelihood: NormalLikelihood,
        axes: tuple[np.ndarray, np.ndarray],
    ) -> Conditional:
        """Return the posterior of u given theta."""
        r, (values, vectors) = self.dense, axes
        near = np.broadcast_to(self.near, (len(theta), len(self.u)))
        slope, P = self._of_prior(theta, near)
        if not _is_one_factor(P[:, r:, r]):
            whole = self._replace(dense=len(self.u))
            return whole._given(theta, likelihood, whole._axes(likelihood))
        A = P[:, :, :r] + likelihood.precision[np.ix_(self.u, self.u[:r])]
        score = likelihood.linear - self._joined(theta, near) @ likelihood.precision
        found = Conditional.of(slope + score[:, self.u], A, values + P[:, r : r + 1, r], vectors)
        return found._replace(mean=near + found.mean)

    def _of_prior(self, theta: np.ndarray, near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradient in u, and of the precision the first columns and the diagonal."""
        (rows, columns, difference), r = self.entries, self.dense
        gradients = self.gradients(
            theta, np.concatenate([near[:, None], near[:, None] + self._moves()], axis=1)
        )
        change = gradients[:, 0, rows] - gradients[:, 1 + difference, rows]
        P = np.zeros((*near.shape, r + 1))  # the diagonal is the last column, behind the first rows
        for one, other in (rows, columns), (columns, rows):
            P[:, one, np.minimum(other, r)] = change / self.steps[columns]
        return gradients[:, 0], P

    def _moves(self) -> np.ndarray:
        """Return the steps of each difference, (1, m, k)."""
        moves = np.zeros((1, self.entries.differences, len(self.u)))
        moves[0, self.entries.difference, self.entries.columns] = self.steps[self.entries.columns]
        return moves

    def _average(self, found: Conditional) -> tuple[np.ndarray, np.ndarray]:
        """Return points, (n, m, k), and weights, at which a quadratic function has its mean.

        It is f - tr(C P) / 2, with f and the precision P at the mode. The trace is a sum of q' P v
        over differences with steps v, and q' P v = f(q) + f(v) - f(q + v) - f about the mode.
        """
        (rows, columns, difference), v = self.entries, self._moves()
        mode = found.mean[:, None]
        q = np.zeros((len(mode), *v.shape[1:]))
        twice = np.where(rows == columns, 1.0, 2.0)  # an entry beside the diagonal is there twice
        covariance = found.covariances(rows, columns)
        q[:, difference, rows] = covariance * twice / self.steps[columns]
        tiny = np.finfo(float).tiny
        longer = np.sqrt(
            (abs(v).max(axis=2, initial=0.0) + tiny) / (abs(q).max(axis=2, initial=0.0) + tiny)
        )[..., None]
        q, v = q * longer, v / longer  # equally long, against rounding
        points = np.concatenate([mode, mode + q + v, mode + q, mode + v], axis=1)
        m = self.entries.differences
        weights = np.repeat([1 + m / 2, 0.5, -0.5, -0.5], [1, m, m, m])
        return points, np.broadcast_to(weights, points.shape[:2])

    def _joined(self, theta: np.ndarray, u: np.ndarray) -> np.ndarray:
        z = np.empty((len(theta), len(self.theta) + len(self.u)))
        z[:, self.theta], z[:, self.u] = theta, u
        return z


def differ(precisions: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Find where precisions are unequal, and not by the rounding of differences of gradients."""
    return np.asarray(~(abs(precisions - others) <= ROUNDING * abs(others)))


def _is_one_factor(diagonal: np.ndarray) -> bool:
    """Whether all precisions in each row, (n, m), are equal: no draw of the prior may show it."""
    return not differ(diagonal, diagonal[:, :1]).any()
