"""What releases say about a posterior's mode and curvature, and how uncertain that is.

The curvature of the log likelihood is H = H_hat + Q^(1/2) G Q^(1/2), with svec(G) ~ N(0, I): the
noise of a release in coordinates W has Q proportional to (W'W)^-1. The mode is N(m, C). Both follow
from released values alone.
"""

from typing import NamedTuple, Self

import numpy as np

from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.noise_floor import spectral_edge, without_noise

# eigenvalues are kept this far from 0, as a share of the largest
TINY = 1e-12


def symmetric(matrix: np.ndarray) -> np.ndarray:
    """Return the symmetric part."""
    part: np.ndarray = (matrix + matrix.T) / 2
    return part


class Curvature(NamedTuple):
    """An estimate of a curvature with Kronecker noise; (d, d) each."""

    estimate: np.ndarray  # H_hat
    noise: np.ndarray  # Q, positive definite

    def combined(self, other: "Curvature") -> "Curvature":
        """Weigh two independent estimates by their noise.

        In coordinates that make both noises diagonal, entry (i, j) of the other has n_i n_j times
        the variance. The noise of the combination is Kronecker again, to first order.

        >>> one = Curvature(np.eye(2), np.eye(2))
        >>> one.combined(Curvature(3 * np.eye(2), np.eye(2))).estimate
        array([[2., 0.],
               [0., 2.]])
        """
        root = np.linalg.cholesky(self.noise)
        inverse = np.linalg.inv(root)
        n, vectors = np.linalg.eigh(symmetric(inverse @ other.noise @ inverse.T))
        n = np.maximum(n, TINY * n[-1])
        to, back = vectors.T @ inverse, root @ vectors
        weight = 1 / (1 + np.outer(n, n))
        mixed = to @ self.estimate @ to.T
        mixed = mixed + weight * (to @ (other.estimate - self.estimate) @ to.T)
        noise = (back / np.sqrt(1 + 1 / n**2)) @ back.T
        return Curvature(symmetric(back @ mixed @ back.T), symmetric(noise))

    @property
    def least_scales(self) -> np.ndarray:
        """The diagonal, less two standard deviations of its noise."""
        return np.asarray(np.diag(self.estimate) - 8**0.5 * np.diag(self.noise))

    def scaled_like(self, other: "Curvature", weakly_correlated: np.ndarray) -> "Curvature":
        """Bring every latent to the scale of another estimate, which was made at another point.

        A latent's scale is its diagonal entry. It stays as it is where noise hides it, or hides
        that the two differ. So do those of latents that are not ``weakly_correlated``,
        (d,): of predictors that are nearly the same, scales one by one would break what they add up
        to.

        A size in all directions together that has grown shows through much more noise, and is
        taken over as well. One that has fallen is not: where a step went too far, outcomes are
        certain and curvatures small, and the next step would be longer.

        >>> there, both = Curvature(np.diag([9.0, 1.0]), 0.01 * np.eye(2)), np.full(2, True)
        >>> Curvature(np.eye(2) + 0.1, 0.01 * np.eye(2)).scaled_like(there, both).estimate.round(1)
        array([[9. , 0.3],
               [0.3, 1. ]])
        """
        own, new, noise = (np.diag(x) for x in (self.estimate, other.estimate, other.noise))
        least = DEFAULTS.visible_scale * 2**0.5 * noise
        seen = weakly_correlated & (own > 0) & (new > least) & (np.abs(new - own) > least)
        scale = np.ones(len(own))
        scale[seen] = (new[seen] / own[seen]) ** 0.5
        scaled = self.in_units(scale)
        growth = scaled.growth(other)
        return Curvature(growth * scaled.estimate, growth * scaled.noise)

    def in_units(self, units: np.ndarray) -> "Curvature":
        """Multiply rows and columns by these factors, (d,)."""
        both = np.outer(units, units)
        return Curvature(both * self.estimate, both * self.noise)

    def doubted_along(self, step: np.ndarray, later: "Curvature") -> "Curvature":
        """Doubt an estimate along a step by as much as a later one contradicts it.

        The later one was made at the end of the step. Where outcomes become certain along the way,
        the curvature falls, and one that is too large makes the mode seem nearer than it is.

        >>> before, after = Curvature(4 * np.eye(2), np.eye(2)), Curvature(np.eye(2), np.eye(2))
        >>> before.doubted_along(np.array([1.0, 0.0]), after).noise.round(2)
        array([[2.83, 0.  ],
               [0.  , 1.  ]])
        """
        own, its = float(step @ self.noise @ step), float(step @ later.noise @ step)
        change = float(step @ (later.estimate - self.estimate) @ step)
        doubt = max(change**2 - its**2, 0.0) ** 0.5  # what the later one's noise does not explain
        if doubt <= own:
            return self
        along = self.noise @ step
        more = (doubt / own - 1) * np.outer(along, along) / own
        return self._replace(noise=symmetric(self.noise + more))

    def growth(self, other: "Curvature") -> float:
        """Return how many times as large another estimate is in all directions together, or 1.

        In coordinates that make the other's noise alike in all directions the trace of its
        estimate has the noise variance d.

        >>> small = Curvature(np.eye(2), 0.1 * np.eye(2))
        >>> large = Curvature(3 * np.eye(2), np.eye(2))
        >>> small.growth(large), large.growth(small)
        (1.0, 1.0)
        >>> small.growth(large._replace(noise=0.1 * np.eye(2)))
        3.0
        """
        inverse = np.linalg.inv(np.linalg.cholesky(other.noise))

        def trace(matrix: np.ndarray) -> float:
            return float(np.trace(inverse @ matrix @ inverse.T))

        d, own, new = len(self.noise), trace(self.estimate), trace(other.estimate)
        # of the difference; that of the own trace as if its noise were alike in all directions
        noise_sd = (d + trace(self.noise) ** 2 / d) ** 0.5
        grown = new > own + DEFAULTS.visible_scale * noise_sd and own > 0
        return new / own if grown else 1.0

    def spectrum(self) -> "CurvatureSpectrum":
        """Decompose the estimate in units of its noise."""
        root = np.linalg.cholesky(self.noise)
        inverse = np.linalg.inv(root)
        values, vectors = np.linalg.eigh(symmetric(inverse @ self.estimate @ inverse.T))
        return CurvatureSpectrum(values, root @ vectors)

    def at_least(self, floor: float) -> np.ndarray:
        """Return the estimate with eigenvalues of a share of the noise's edge at least."""
        values, vectors = self.spectrum()
        least = floor * spectral_edge(1.0, len(values))
        return symmetric((vectors * np.maximum(values, least)) @ vectors.T)

    def moved(self, share: float, floor: float) -> "Curvature":
        """Let the curvature change by a share of itself, as it does where the point moves.

        The share is that of the largest eigenvalue of the change, squared.
        """
        spectrum = self.spectrum()
        values = 2 * spectrum.visible(floor) / spectrum.edge
        noise = (spectrum.vectors * np.sqrt(1 + share * values**2)) @ spectrum.vectors.T
        return self._replace(noise=symmetric(noise))


class CurvatureSpectrum(NamedTuple):
    """H_hat = L diag(values) L' where the noise is G in the same coordinates."""

    values: np.ndarray
    vectors: np.ndarray  # L

    @property
    def edge(self) -> float:
        """The largest eigenvalue that noise alone has: the edge of the semicircle."""
        return spectral_edge(1.0, len(self.values))

    @property
    def hidden(self) -> np.ndarray:
        """Which eigenvalues noise hides."""
        return self.values <= self.edge

    def visible(self, floor: float) -> np.ndarray:
        """Remove the noise's effect on eigenvalues.

        Hidden ones become a share of the edge, or their mean less its noise if that is more: the
        mean of many hidden directions is visible.
        """
        hidden = self.values[self.hidden]
        mean = float(hidden.mean() - self.edge / hidden.size**0.5) if hidden.size else 0.0
        return without_noise(self.values, self.edge, max(floor * self.edge, mean))

    def matrix(self, floor: float) -> np.ndarray:
        """Return the curvature without noise, with a value for what is hidden."""
        return symmetric((self.vectors * self.visible(floor)) @ self.vectors.T)

    def matrix_at_least(self, floor: float) -> np.ndarray:
        """Return the curvature with all eigenvalues raised to a share of the edge."""
        values = np.maximum(self.visible(0.0), floor * self.edge)
        return symmetric((self.vectors * values) @ self.vectors.T)


class Mode(NamedTuple):
    """What is known of the mode: N(mean, covariance)."""

    mean: np.ndarray
    covariance: np.ndarray

    def update(
        self, slope: np.ndarray, total: np.ndarray, cautious: np.ndarray, noise: np.ndarray
    ) -> "Update":
        """Learn from s = (H + P)(mode - mean) + noise.

        The step is what ``cautious``, H + P or more, says; what it leaves unknown follows from
        ``total``, which is H + P. ``noise`` is the covariance of all that is noise in s.
        """
        spread = symmetric(cautious @ self.covariance @ cautious + noise)
        gain = np.linalg.solve(spread, cautious @ self.covariance).T
        step = gain @ slope
        left = np.eye(len(slope)) - gain @ total
        covariance = symmetric(left @ self.covariance @ left.T + gain @ noise @ gain.T)
        surprise = float(slope @ np.linalg.solve(spread, slope)) / len(slope)
        return Update(step, covariance, surprise, gain)

    def without(self, before: "Mode") -> "Mode":
        """Return what was learnt since an earlier belief: next to nothing is infinitely wide.

        >>> before = Mode(np.zeros(1), np.full((1, 1), 4.0))
        >>> Mode(np.ones(1), np.full((1, 1), 2.0)).without(before)
        Mode(mean=array([2.]), covariance=array([[4.]]))
        """
        root = np.linalg.cholesky(symmetric(self.covariance))
        old = symmetric(root.T @ np.linalg.solve(before.covariance, root))
        values, vectors = np.linalg.eigh(np.eye(len(root)) - old)
        to, back = vectors.T @ np.linalg.inv(root), root @ vectors
        # the mean of what is next to nothing does not matter
        shrunken = np.where(values > DEFAULTS.much_learnt, values, 1.0)
        mean = before.mean + back @ (to @ (self.mean - before.mean) / shrunken)
        wide = back / np.maximum(values, DEFAULTS.least_learnt) ** 0.5
        return Mode(mean, symmetric(wide @ wide.T))

    def doubted(
        self,
        slope: np.ndarray,
        total: np.ndarray,
        noise: np.ndarray,
        prior: np.ndarray,
        surprise: float,
        most: float,
    ) -> Self:
        """Widen directions in which a slope is larger than was likely.

        Where the squared slope exceeds ``surprise`` times its expectation, the variance grows as
        far as it makes the slope likely, at most ``most`` times, and not beyond the prior's.
        """
        root = np.linalg.cholesky(symmetric(noise))
        inverse = np.linalg.inv(root)
        signal, vectors = np.linalg.eigh(
            symmetric(inverse @ total @ self.covariance @ total @ inverse.T)
        )
        squares = (vectors.T @ inverse @ slope) ** 2
        grown = np.where(
            squares > surprise * (1 + signal), np.minimum(squares - 1, most * signal), signal
        )
        if np.array_equal(grown, signal):
            return self
        back = np.linalg.solve(total, root @ vectors)
        covariance = symmetric((back * grown) @ back.T)
        return self._replace(covariance=no_wider(covariance, prior))


class Update(NamedTuple):
    """How a slope moves the mode."""

    step: np.ndarray
    covariance: np.ndarray
    surprise: float  # mean square of the slope over its expectation: about 1
    gain: np.ndarray  # (d, d): the step is this times the slope


def weakly_correlated(precision: np.ndarray) -> np.ndarray:
    """Return which latents are hardly correlated with the others, (d,).

    Their variance inflation factors are small.

    >>> weakly_correlated(np.array([[1.0, 0.99, 0.0], [0.99, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    array([False, False,  True])
    """
    inflation = np.diag(precision) * np.diag(np.linalg.inv(precision))
    return np.asarray(inflation <= DEFAULTS.most_inflation)


def no_wider(covariance: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Bring a covariance to at most that of a prior of this precision, in every direction.

    >>> no_wider(np.diag([4.0, 0.5]), np.eye(2))
    array([[1. , 0. ],
           [0. , 0.5]])
    """
    root = np.linalg.cholesky(prior)
    values, vectors = np.linalg.eigh(symmetric(root.T @ covariance @ root))
    inverse = np.linalg.inv(root)
    back = inverse.T @ vectors
    return symmetric((back * np.minimum(values, 1.0)) @ back.T)


def at_least_nothing(covariance: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Give directions in which rounding has made a covariance negative the width of the prior.

    >>> at_least_nothing(np.diag([0.5, -1e9]), np.diag([1.0, 4.0]))
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    root = np.linalg.cholesky(prior)
    values, vectors = np.linalg.eigh(symmetric(root.T @ covariance @ root))
    if values[0] > 0 and (np.diag(covariance) > 0).all():
        return covariance
    back = np.linalg.inv(root).T @ vectors
    return symmetric((back * np.where(values > 0, values, 1.0)) @ back.T)


def whitening_of(precision: np.ndarray, number: float) -> np.ndarray:
    """Return W with W precision W' = number I.

    >>> whitening_of(np.diag([4.0, 1.0]), number=4.0)
    array([[1., 0.],
           [0., 2.]])
    """
    root = np.linalg.cholesky(symmetric(precision))
    whitening: np.ndarray = np.sqrt(number) * np.linalg.inv(root)
    return whitening
