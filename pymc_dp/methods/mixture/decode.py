"""From the sketch of a mixture to the places of its components.

The waves of a normal component are known, so the places are those whose waves, with the noise
and the prior taken into account, are nearest to what was released. All of this is post-processing:
components are placed one after the other, then each is tried elsewhere, at no cost in privacy.

Source: Keriven et al. (2018), Sketching for large-scale learning of mixture models.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment, minimize
from scipy.special import log_softmax, softmax

from pymc_dp.methods.conjugate.blocks import nearly_equal
from pymc_dp.methods.mixture.defaults import DEFAULTS
from pymc_dp.methods.mixture.places import Places
from pymc_dp.methods.mixture.sketch import Sketch

LEAST_SHARE = 1e-3  # of a component, as a share of all records


class Placed(NamedTuple):
    """Components with places (k, d) and shares (k,), and how badly they explain the sketch."""

    means: np.ndarray
    shares: np.ndarray
    loss: float = np.inf


class Decoder:
    """Explains one sketch by components at places."""

    def __init__(self, places: Places, sketch: Sketch, number: float) -> None:
        self.places, self.sketch, self.number = places, sketch, number
        w = sketch.frequencies
        # the characteristic functions of the components around their means, (K, m)
        self.damping = np.exp(-np.einsum("mi,kij,mj->km", w, places.covariances, w) / 2)
        # a wave varies by 1/2 between records that lie anywhere
        self.variance = sketch.wave_variance + number / 2
        self.known = places.concentration is None

    def waves(self, k: int, means: np.ndarray) -> np.ndarray:
        """Waves of component k where it is at each of the places ``means``, (..., 2 m)."""
        phases = means @ self.sketch.frequencies.T
        both = self.damping[k] * np.stack([np.cos(phases), np.sin(phases)], axis=-2)
        return np.asarray(both.reshape(*means.shape[:-1], -1))

    def left(self, placed: Placed, without: int | None = None) -> np.ndarray:
        """What of the released waves the components do not explain."""
        explained = np.zeros_like(self.sketch.waves)
        for k in range(len(placed.means)):
            if k != without:
                explained += placed.shares[k] * self.waves(k, placed.means[k])
        return self.sketch.waves - self.number * explained

    def place(self, k: int, left: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, float]:
        """Find where component k explains most of what is left, from coarse to fine.

        Waves are first smoothed over the whole prior. The best places become the centres of
        smaller clouds of places, until nothing is smoothed.
        """
        d = self.places.mean.shape[1]
        block = slice(k * d, (k + 1) * d)
        spread = np.linalg.cholesky(np.linalg.inv(self.places.precision)[block, block])
        count = DEFAULTS.places * (d + 1)
        tried = self.places.mean[k] + rng.normal(size=(count, d)) @ spread.T
        width = self.places.largest_sd
        length = np.tile((self.sketch.frequencies**2).sum(axis=1), 2)
        while True:
            smooth = np.exp(-length * width**2 / 2) if width > 0.1 else np.ones_like(length)
            shares, gains = self._gains(k, self.waves(k, tried) * smooth, left * smooth)
            off = np.linalg.solve(spread, (tried - self.places.mean[k]).T)
            gains = gains - (off**2).sum(axis=0) / 2
            if width <= 0.1:
                best = int(np.argmax(gains))
                return tried[best], float(shares[best])
            kept = tried[np.argsort(-gains)[: count // 8]]
            width = width / 2
            moved = np.repeat(kept, 7, axis=0)
            tried = np.vstack([kept, moved + width * rng.normal(size=moved.shape)])

    def _gains(self, k: int, waves: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The share at each place, and by how much the loss falls there."""
        along = self.number * waves @ left / self.variance
        squares = self.number**2 * (waves**2).sum(axis=1) / self.variance
        shares = np.full(len(waves), self.places.shares[k])
        if not self.known:
            shares = np.clip(along / np.maximum(squares, 1e-300), LEAST_SHARE, 1.0)
        return shares, shares * along - shares**2 * squares / 2

    def refine(self, placed: Placed) -> Placed:
        """Move all components downhill together, and their shares if these are unknown."""
        shape = placed.means.shape
        start = placed.means.ravel()
        if not self.known:
            start = np.append(start, np.log(placed.shares / placed.shares.sum()))
        found = minimize(self.loss, start, (shape,), jac=True, method="L-BFGS-B")
        means = found.x[: placed.means.size].reshape(shape)
        return Placed(means, self._shares(found.x[placed.means.size :]), float(found.fun))

    def _shares(self, logits: np.ndarray) -> np.ndarray:
        return self.places.shares if self.known else np.asarray(softmax(logits))

    def loss(self, x: np.ndarray, shape: tuple[int, int]) -> tuple[float, np.ndarray]:
        """Minus the log posterior of places and shares, and its slope."""
        means, logits = x[: shape[0] * shape[1]].reshape(shape), x[shape[0] * shape[1] :]
        shares, m = self._shares(logits), len(self.sketch.frequencies)
        waves = np.stack([self.waves(k, mean) for k, mean in enumerate(means)])
        off = self.number * shares @ waves - self.sketch.waves
        slope = off / self.variance
        from_prior = (means - self.places.mean).ravel()
        pull = self.places.precision @ from_prior
        loss = off @ slope / 2 + from_prior @ pull / 2
        turned = waves[:, :m] * slope[m:] - waves[:, m:] * slope[:m]
        down = self.number * shares[:, None] * (turned @ self.sketch.frequencies)
        slopes = down.ravel() + pull
        if self.places.concentration is None:
            return loss, slopes
        concentration = self.places.concentration
        along = self.number * waves @ slope
        of_logits = shares * (along - shares @ along + concentration.sum()) - concentration
        return loss - concentration @ log_softmax(logits), np.append(slopes, of_logits)


def decode(places: Places, sketch: Sketch, number: float) -> Placed:
    """Find places and shares of all components.

    Where components have different known shares, these are first taken as unknown, so that every
    component may be placed anywhere, and then given to the components whose own are nearest.
    """
    if places.concentration is not None or nearly_equal(places.shares.min(), places.shares.max()):
        return _descend(places, sketch, number)
    free = places._replace(concentration=np.ones(len(places.shares)))
    found = _descend(free, sketch, number)
    _, order = linear_sum_assignment(np.abs(places.shares[:, None] - found.shares))
    ordered = Placed(found.means[order], places.shares)
    return _improve(Decoder(places, sketch, number), ordered)


def _descend(places: Places, sketch: Sketch, number: float) -> Placed:
    decoder, rng = Decoder(places, sketch, number), np.random.default_rng(0)
    count, d = places.mean.shape
    placed = Placed(np.zeros((0, d)), np.zeros(0))
    for k in range(count):
        mean, share = decoder.place(k, decoder.left(placed), rng)
        placed = Placed(np.vstack([placed.means, mean]), np.append(placed.shares, share))
    return _improve(decoder, placed)


def _improve(decoder: Decoder, placed: Placed) -> Placed:
    places, rng = decoder.places, np.random.default_rng(1)
    count = len(placed.means)
    placed = decoder.refine(placed)
    pairs = [] if places.exchangeable else list(combinations(range(count), 2))
    for _ in range(DEFAULTS.sweeps):
        before = placed.loss
        for k in range(count):
            placed = min(placed, _elsewhere(decoder, placed, k, rng), key=lambda found: found.loss)
        for j, k in pairs:
            placed = min(placed, _exchanged(decoder, placed, j, k), key=lambda found: found.loss)
        if placed.loss > before - 1e-3:
            break
    return placed


def _elsewhere(decoder: Decoder, placed: Placed, k: int, rng: np.random.Generator) -> Placed:
    mean, share = decoder.place(k, decoder.left(placed, without=k), rng)
    means, shares = placed.means.copy(), placed.shares.copy()
    means[k], shares[k] = mean, share
    return decoder.refine(Placed(means, shares))


def _exchanged(decoder: Decoder, placed: Placed, j: int, k: int) -> Placed:
    """Let two components change places; this matters where weights or covariances differ."""
    order = np.arange(len(placed.means))
    order[[j, k]] = k, j
    return decoder.refine(Placed(placed.means[order], placed.shares[order]))
