"""What releases say about a posterior's curvature, and how uncertain that is.

The curvature of the log likelihood is H = H_hat + Q^(1/2) G Q^(1/2), with svec(G) ~ N(0, I): the
noise of a release in coordinates W has Q proportional to (W'W)^-1. It follows from released values
alone.
"""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.noise_floor import Spectrum, spectral_edge, without_noise
from pymc_dp.methods.gaussian.path import Path

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

        >>> there, both = Curvature(np.diag([9.0, 1.0]), 0.01 * np.eye(2)), np.full(2, True)
        >>> Curvature(np.eye(2) + 0.1, 0.01 * np.eye(2)).scaled_like(there, both).estimate.round(1)
        array([[9. , 0.3],
               [0.3, 1. ]])
        """
        own, new = np.diag(self.estimate), np.diag(other.estimate)
        seen = weakly_correlated & self.has_other_scales(other)
        scale = np.ones(len(own))
        scale[seen] = (new[seen] / own[seen]) ** 0.5
        return self.in_units(scale)

    def has_other_scales(self, other: "Curvature") -> np.ndarray:
        """Which latents clearly have another scale in another estimate, (d,)."""
        own, new, noise = (np.diag(x) for x in (self.estimate, other.estimate, other.noise))
        least = DEFAULTS.visible_scale * 2**0.5 * noise
        return np.asarray((own > 0) & (new > least) & (np.abs(new - own) > least))

    def in_units(self, units: np.ndarray) -> "Curvature":
        """Multiply rows and columns by these factors, (d,)."""
        both = np.outer(units, units)
        return Curvature(both * self.estimate, both * self.noise)

    def spectrum(self, path: Path | None = None) -> "CurvatureSpectrum":
        """Decompose the estimate in units of its noise."""
        root = np.linalg.cholesky(self.noise)
        inverse = np.linalg.inv(root)
        values, vectors = np.linalg.eigh(symmetric(inverse @ self.estimate @ inverse.T))
        return CurvatureSpectrum(values, root @ vectors, path)

    def moved(self, share: float, floor: float) -> "Curvature":
        """Let the curvature change by a share of itself, as it does where the point moves.

        The share is that of the largest eigenvalue of the change, squared.
        """
        spectrum = self.spectrum()
        values = 2 * spectrum.visible(floor) / spectrum.edge
        noise = (spectrum.vectors * np.sqrt(1 + share * values**2)) @ spectrum.vectors.T
        return self._replace(noise=symmetric(noise))

    def with_changed_scales(self, shares: np.ndarray) -> "Curvature":
        """Widen the noise: rows and columns may have changed by shares of the diagonal.

        These ``shares``, (d,), are squared.

        >>> found = Curvature(np.diag([4.0, 4.0]), np.eye(2))
        >>> found.with_changed_scales(np.array([0, 0.5])).noise  # 9 = 1 + .5 * 4^2 is the variance
        array([[1., 0.],
               [0., 3.]])
        """
        own, noise = np.maximum(np.diag(self.estimate), 0.0), np.diag(self.noise)
        factors = (1 + shares * (own / noise) ** 2) ** 0.25
        return self._replace(noise=np.outer(factors, factors) * self.noise)


class CurvatureSpectrum(NamedTuple):
    """H_hat = L diag(values) L' where the noise is G in the same coordinates."""

    values: np.ndarray
    vectors: np.ndarray  # L
    path: Path | None = None  # along which H is known, whatever noise hides of it

    @property
    def noise(self) -> np.ndarray:
        """That of the curvature, (d, d)."""
        return np.asarray(self.vectors @ self.vectors.T)

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
        mean of many hidden directions is visible. A tiny share of the largest is left, which keeps
        the matrix regular.
        """
        hidden = self.values[self.hidden]
        mean = float(hidden.mean() - self.edge / hidden.size**0.5) if hidden.size else 0.0
        least = max(floor * self.edge, mean, TINY * float(self.values[-1]))
        return without_noise(self.values, self.edge, least)

    def matrix(self, floor: float) -> np.ndarray:
        """Return the curvature without noise, with a value for what is hidden."""
        return self._matrix(self.visible(floor))

    def matrix_at_least(self, floor: float) -> np.ndarray:
        """Return the curvature with all eigenvalues raised to a share of the edge."""
        return self._matrix(np.maximum(self.visible(0.0), floor * self.edge))

    def _matrix(self, values: np.ndarray) -> np.ndarray:
        H = symmetric((self.vectors * values) @ self.vectors.T)
        return H if self.path is None else H + self.path.rank_one_change(H)


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
    unit = sds_of(covariance, prior)  # rounding would hide latents whose own units are small
    own = Spectrum.of(symmetric(covariance / np.outer(unit, unit)))
    root = unit[:, None] * own.vectors * np.sqrt(np.maximum(own.values, 0.0))
    values, vectors = np.linalg.eigh(symmetric(root.T @ prior @ root))
    back = root @ vectors
    return symmetric((back / np.maximum(values, 1.0)) @ back.T)


def sds_of(covariance: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return the sd of each latent, (d,), or that of its prior where rounding leaves none.

    >>> sds_of(np.diag([9.0, -1e-9]), np.diag([1.0, 0.25]))
    array([3., 2.])
    """
    own = np.diag(covariance)
    return np.sqrt(np.where(own > 0, own, 1 / np.diag(prior)))


def positive_beside(reference: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Raise eigenvalues to a share of a reference's, which is positive definite.

    >>> positive_beside(np.diag([4.0, 1.0]), np.diag([-2.0, 3.0])).round(2)
    array([[0.04, 0.  ],
           [0.  , 3.  ]])
    """
    root = np.linalg.cholesky(reference)
    inverse = np.linalg.inv(root)
    within = Spectrum.of(symmetric(inverse @ matrix @ inverse.T))
    return symmetric(root @ within.floored(DEFAULTS.least_of_model) @ root.T)


def at_least_nothing(covariance: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Give directions in which rounding has made a covariance negative the width of the prior.

    >>> at_least_nothing(np.diag([0.5, -1e9]), np.diag([1.0, 4.0]))
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    unit = sds_of(covariance, prior)
    if np.linalg.eigvalsh(symmetric(covariance / np.outer(unit, unit)))[0] > 0:
        return covariance
    root = np.linalg.cholesky(prior)
    values, vectors = np.linalg.eigh(symmetric(root.T @ covariance @ root))
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
