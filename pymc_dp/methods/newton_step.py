"""A Newton step from noisy scores and curvatures, and how sure its end is.

The noise in a release is known, and so is what it does to the mean: V S V / J with S the covariance
of a score's noise. Where noise hides the curvature, steps are short, and the mean keeps a share of
its distance from the optimum: that is in the covariance, too.
"""

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np

from pymc_dp.contributions.curvature import At, bend, split
from pymc_dp.contributions.lengths import Histogram
from pymc_dp.contributions.symmetric import floored
from pymc_dp.methods.blocks.averaging import Average
from pymc_dp.query import Noisy

RELEASES = 3
# the share of the records whose curvatures may be shortened, and how much longer than the root of
# theirs the longest scores are: their bias would move the posterior, and no covariance covers it
STEEPER, LOOSE = 0.1, 1.6
# shares of the noise's spectral edge that eigenvalues of curvatures are raised to: in steps, which
# must not follow noise, and elsewhere, where what is likely is taken if noise hides them
FLOOR, LEAST = 0.5, 0.1
# a step moves by at most this many prior standard deviations, on average
TRUST = 1.0
# variance of the noise that the first method's end is taken to have, over that of all steps here:
# it had a sixth of their budget, and its own steps waste some
BEFORE = 30.0

Slope = Callable[[np.ndarray], np.ndarray]


class Left(NamedTuple):
    """Shares of the first distance from the optimum that are left, (d, d) each.

    Attributes
    ----------
    latest : (d, d)
        In the point where the next release is asked.
    average : (d, d)
        In the average of the points.
    """

    latest: np.ndarray
    average: np.ndarray

    def after(self, share: np.ndarray, weight: float) -> Self:
        """Take a step that leaves a share, and average with a weight."""
        latest = share @ self.latest
        return type(self)(latest, self.average + weight * (latest - self.average))


class State(NamedTuple):
    """Where the last steps stand: released values and what follows from them.

    Attributes
    ----------
    t : int
    at : At
        Where the next release is asked.
    average : Average
        Of the means that full steps ended at.
    left : Left
    curvature, variance : (d, d), float
        Average of released curvatures, and the noise's variance on an entry.
    covariance : (d, d)
        The posterior's, as the records alone make it.
    noise : (d, d)
        What the privacy noise adds to it.
    noise_to_signal : float
        Of the latest release.
    share : float
        Of the curvature that is left where the steepest records' are shortened.
    """

    t: int
    at: At
    average: Average
    left: Left
    curvature: np.ndarray
    variance: float
    covariance: np.ndarray
    noise: np.ndarray
    noise_to_signal: float
    share: float


def begin(
    mean: np.ndarray, covariance: np.ndarray, typical: float, noise_to_signal: float
) -> State:
    """Start where a first method ended; ``typical`` is a public guess at the norm of a score."""
    nothing = np.zeros_like(covariance)
    at = At(mean, typical, typical**2)
    left = Left(np.eye(mean.size), nothing)
    average = Average.start(mean)
    return State(0, at, average, left, nothing, 0.0, covariance, nothing, noise_to_signal, 1.0)


def measured(state: State, noisy: Noisy, unit: float) -> State:
    """Take how steep records are, and so how long scores may be, from the histogram."""
    roots = Histogram(noisy.value, noisy.sd, unit)
    root = roots.above(STEEPER)
    at = At(state.at.point, LOOSE * root, root**2)
    return state._replace(t=1, at=at, share=roots.kept(root), noise_to_signal=noisy.noise_to_signal)


def step(slope: Slope, state: State, noisy: Noisy) -> State:
    """Average the curvature and take a full step."""
    at, d = state.at, state.at.point.size
    latest, rho = split(noisy.value, at), 1 / state.t
    curvature = (1 - rho) * state.curvature + rho * latest.curvature / state.share
    fresh = (noisy.sd / at.scale / state.share) ** 2
    variance = (1 - rho) ** 2 * state.variance + rho**2 * fresh
    edge = (2 * d * variance) ** 0.5
    prior = floored(bend(slope, at.point), 0.0)
    H = visible(curvature, edge)
    V = np.linalg.inv(prior + floored(curvature, FLOOR * edge))
    mean = at.point + _within(prior, V @ (latest.score + slope(at.point)))
    average = state.average.add(mean, noisy.sd**2 * V @ V, 1.0, rho)
    left = state.left.after(np.eye(d) - V @ (prior + H), rho)
    before = _known_before(prior, H, BEFORE * noisy.sd**2 / RELEASES)
    return State(
        t=state.t + 1,
        at=at._replace(point=mean),
        average=average,
        left=left,
        curvature=curvature,
        variance=variance,
        covariance=np.linalg.inv(prior + floored(curvature, LEAST * edge)),
        noise=average.noise + left.average @ before @ left.average.T,
        noise_to_signal=noisy.noise_to_signal,
        share=state.share,
    )


def visible(curvature: np.ndarray, edge: float) -> np.ndarray:
    """Take the noise out of a curvature's eigenvalues, as far as it is known.

    Noise of spectral edge e lifts an eigenvalue h > e / 2 to h + e^2 / 4 h, and spreads the
    others over all of [-e, e], where they say nothing.

    Source: Benaych-Georges and Nadakuditi (2011).

    >>> visible(np.diag([5.0, 0.5]), edge=4.0).round(3)
    array([[4. , 0. ],
           [0. , 0.4]])
    """
    values, vectors = np.linalg.eigh(curvature)
    above = (values + np.sqrt(np.maximum(values**2 - edge**2, 0.0))) / 2
    return (vectors * np.where(values > edge, above, LEAST * edge)) @ vectors.T


def _known_before(prior: np.ndarray, H: np.ndarray, variance: float) -> np.ndarray:
    """Covariance of the first distance: scores were known up to noise of this variance."""
    gain = H @ np.linalg.pinv(H + variance * np.eye(len(H)), hermitian=True)
    return np.linalg.inv(prior + gain @ H)


def _within(prior: np.ndarray, move: np.ndarray) -> np.ndarray:
    size = np.sqrt(np.mean(np.diag(prior) * move**2))
    return move * min(1.0, TRUST / max(size, 1e-300))
