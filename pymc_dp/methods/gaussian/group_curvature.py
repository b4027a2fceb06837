"""The curvature where arrays have groups, of which a record reads one: most of it is 0, or shared.

Let V have a column for each shift: that of all groups of an array together, or of a latent that
belongs to none. The likelihood has no curvature between two groups of an array, and what a group
shares with other latents is its part of what all groups share with them, unless its records are
unlike others.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from pymc_dp.methods.gaussian.belief import Curvature, positive_beside, symmetric
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.noise_floor import Spectrum, mean_if_positive

# noise is taken to be at least this share of a latent's own, where latents are all but the same
LEAST_NOISE = 1e-5


class Groups(NamedTuple):
    """Which latents are groups of arrays."""

    shifts: np.ndarray  # V, (d, m): every latent has a part in one of them
    # (d,) a number for the index by which records pick a latent, or for the latent if it has no
    # groups; and one for its group
    picked_by: np.ndarray
    group: np.ndarray

    @classmethod
    def of(cls, shifts: np.ndarray, sizes: Sequence[int], read: np.ndarray | None = None) -> Self:
        """Number the groups of arrays of these sizes.

        The places of an array that one shift moves are in the order of its groups. Arrays of which
        all records ``read`` the same place, (n, d), have one index.

        >>> lines = np.tile(np.eye(2), (3, 1))  # three groups of an intercept and a slope
        >>> Groups.of(lines, [6]).group
        array([0, 0, 1, 1, 2, 2])
        """
        rows, shift = np.arange(len(shifts)), shifts.argmax(axis=1)
        group = np.cumsum(shifts, axis=0)[rows, shift].astype(int) - 1
        array = np.repeat(np.arange(len(sizes)), sizes)
        has_groups = shifts.sum(axis=0)[shift] > 1
        index = np.where(has_groups, array, len(sizes) + rows)
        if read is not None:
            index = _joined(index, group, read, np.unique(array[has_groups]))
        return cls(shifts, index, group)

    @property
    def apart(self) -> np.ndarray:
        """Which pairs of latents are of two groups of one index, (d, d): no record reads both."""
        return np.asarray(self._same(self.picked_by) & ~self._same(self.group))

    @property
    def mates(self) -> np.ndarray:
        """Which pairs of latents are of one group of one index, (d, d), or the same."""
        return np.asarray(self._same(self.picked_by) & self._same(self.group))

    @staticmethod
    def _same(number: np.ndarray) -> np.ndarray:
        return np.asarray(number[:, None] == number)

    @property
    def grouped(self) -> np.ndarray:
        """Which latents are groups of some array, (d,)."""
        return np.asarray(self.shifts @ self.shifts.sum(axis=0) > 1)

    def squared_lengths(self, step: np.ndarray, curvature: np.ndarray) -> np.ndarray:
        """Return how long a step is for the records of each group, squared, (d,).

        The curvature of a group changes with its own latents. Their step is as long, by the
        ``curvature`` of all records, as it would be if all groups of the index made it; groups of
        other indices move by their mean step. It is 0 for latents that belong to no group.

        >>> groups = Groups.of(np.array([[1.0, 0], [0, 1], [0, 1]]), [1, 2])
        >>> groups.squared_lengths(np.array([0.5, 1.0, 3.0]), np.diag([8.0, 1.0, 3.0]))
        array([ 0.,  6., 38.])
        >>> lines = Groups.of(np.tile(np.eye(2), (3, 1)), [6])  # an intercept and a slope each
        >>> lines.squared_lengths(np.arange(6.0), np.eye(6))
        array([  3.,   3.,  39.,  39., 123., 123.])
        """
        V, mates = self.shifts, self.mates
        together, mean_step = V.T @ curvature @ V, step @ V / V.sum(axis=0)
        own_step = np.where(mates @ V > 0, mates @ (step[:, None] * V), mean_step)
        lengths = ((own_step @ together) * own_step).sum(axis=1)
        return np.asarray(np.where(self.grouped, lengths, 0.0))

    def without_pairs(self, found: Curvature) -> Curvature:
        """Estimate a curvature that is 0 between groups from one with noise, by least squares.

        What is found between groups is noise, and says what the noise beside it is: that of a group
        with what all groups share is correlated with it. Where so many entries are not 0 that least
        squares would take long, what is between groups is left out.

        >>> groups = Groups.of(np.array([[1.0], [1.0]]), [2])
        >>> noise = np.array([[1.0, -0.5], [-0.5, 1.0]])
        >>> groups.without_pairs(Curvature(np.array([[2.0, 0.5], [0.5, 3.0]]), noise)).estimate
        array([[2.4, 0. ],
               [0. , 3.4]])
        """
        rows, columns = np.nonzero(np.triu(~self.apart))
        if len(rows) > DEFAULTS.most_free_entries:
            return found._replace(estimate=np.where(self.apart, 0.0, found.estimate))
        unit = np.sqrt(np.diag(found.noise))
        least = LEAST_NOISE * np.eye(len(unit))
        P = np.linalg.inv(found.noise / np.outer(unit, unit) + least)
        twice = np.where(rows == columns, 1.0, 2.0)
        normal = P[np.ix_(rows, rows)] * P[np.ix_(columns, columns)]
        normal += P[np.ix_(rows, columns)] * P[np.ix_(columns, rows)]
        normal *= np.outer(twice, twice) / 2
        weighted = P @ (found.estimate / np.outer(unit, unit)) @ P
        scale = np.sqrt(np.diag(normal))
        right = twice * weighted[rows, columns] / scale
        entries = np.linalg.solve(normal / np.outer(scale, scale), right) / scale
        matrix = np.zeros_like(P)
        matrix[rows, columns] = matrix[columns, rows] = entries
        return found._replace(estimate=np.outer(unit, unit) * matrix)

    def positive(self, curvature: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Take out of a curvature what it holds between groups, then negative eigenvalues.

        ``noise`` is that of its estimate, both (d, d).
        """
        return Spectrum.of(self.without_pairs(Curvature(curvature, noise)).estimate).floored(0.0)

    def scaled_like(
        self, found: Curvature, other: Curvature, weakly_correlated: np.ndarray
    ) -> Curvature:
        """Bring every group to the scale of another estimate, made at another point.

        As `Curvature.scaled_like` does; but what a group shares with other latents grows as the
        group's own curvature does, and what others share as that of all groups together.

        >>> groups = Groups.of(np.array([[1.0, 0], [0, 1], [0, 1]]), [1, 2])
        >>> noise = 0.01 * np.eye(3)
        >>> before = np.array([[2.0, 1, 1], [1, 1, 0], [1, 0, 1]])
        >>> after = Curvature(np.array([[4.0, 3, 1], [3, 3, 0], [1, 0, 1]]), noise)
        >>> groups.scaled_like(Curvature(before, noise), after, np.full(3, True)).estimate
        array([[4., 3., 1.],
               [3., 3., 0.],
               [1., 0., 1.]])
        """
        own, new, noise = (np.diag(x) for x in (found.estimate, other.estimate, found.noise))
        visible = own > DEFAULTS.visible_scale * 2**0.5 * noise
        scaled = self.grouped & weakly_correlated & visible & found.has_other_scales(other)
        factors = np.divide(new, own, out=np.ones(len(own)), where=scaled)
        of_groups = np.where(self.grouped, np.maximum(own, 0.0), 0.0)
        all_groups = float(of_groups.sum())
        together = float(factors @ of_groups) / all_groups if all_groups > 0 else 1.0
        each = np.where(self.grouped, factors, together)
        both = np.outer(each, each)
        scale = np.where(self.mates, np.sqrt(both), both / together)
        return Curvature(scale * found.estimate, max(together, 1.0) * found.noise)

    def alike(self, together: np.ndarray, found: Curvature, guess: np.ndarray) -> np.ndarray:
        """Estimate the curvature, (d, d), as if the records of all groups were alike.

        ``together`` is V'HV, the curvature of shifts, (m, m). How it parts into groups follows from
        the diagonal of what was ``found``, and from a ``guess`` of it, (d,), of any scale.
        """
        estimate, noise = (np.diag(x) for x in found)
        guess = self._parted_diagonal(together, guess)
        doubt = DEFAULTS.doubt_of_shares * guess
        variance = 1 / (1 / noise**2 + 1 / doubt**2)
        mean = variance * (estimate / noise**2 + guess / doubt**2)
        return self.of_alike(together, mean_if_positive(mean, np.sqrt(variance)))

    def _shares(self, diagonal: np.ndarray) -> np.ndarray:
        """Return which share of an array's diagonal is each group's, (d,); they add up to 1."""
        some = np.maximum(diagonal, DEFAULTS.least_share * self._mean(diagonal))
        return np.asarray(some / (self.shifts @ (some @ self.shifts)))

    def _parted_diagonal(self, together: np.ndarray, guess: np.ndarray) -> np.ndarray:
        """Part the diagonal of the curvature of shifts, (m, m), as a ``guess``, (d,), does."""
        return np.asarray(self._shares(guess) * (self.shifts @ np.diag(together)))

    def _mean(self, diagonal: np.ndarray) -> np.ndarray:
        """Return the mean of all groups that one shift moves, (d,), or 1 if it is not positive."""
        mean = diagonal @ self.shifts / self.shifts.sum(axis=0)
        return np.asarray(self.shifts @ np.where(mean > 0, mean, 1.0))

    def _parted(self, together: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Part the curvature of shifts, (m, m), among groups by these shares, (d,)."""
        both = np.outer(shares, shares)
        both = np.where(self.apart, 0.0, np.where(self.mates, np.sqrt(both), both))
        return np.asarray(both * (self.shifts @ together @ self.shifts.T))

    def resized(self, together: np.ndarray, found: Curvature, guess: np.ndarray) -> np.ndarray:
        """Bring the curvature of shifts, (m, m), to the size of what was ``found`` of all latents.

        Shifts move many groups at once, and scores that are whitened for them are clipped more;
        and of many latents shifts were released before each group was, at another point. The size
        follows from the diagonals by least squares, beside a prior of 1; ``guess``, (d,), parts
        that of shifts. All groups of a shift weigh alike: their own noise is small where their
        curvature is.

        >>> groups = Groups.of(np.array([[1.0, 0], [0, 1], [0, 1]]), [1, 2])
        >>> found = Curvature(np.diag([8.0, 4, 4]), 0.01 * np.eye(3))
        >>> groups.resized(np.array([[4.0, 2], [2, 4]]), found, np.ones(3)).round(1)
        array([[6.1, 3. ],
               [3. , 6.1]])
        """
        parts = self._parted_diagonal(together, guess)
        # diagonal entries i and j have the covariance Q_ij^2
        errors = found.noise**2 + np.diag((DEFAULTS.doubt_of_shares * parts) ** 2)
        weights = parts / self._mean(np.diag(errors))
        information = float(weights @ parts)
        variance = float(weights @ errors @ weights) / information**2
        doubt = DEFAULTS.doubt_of_size**2
        found_size = float(weights @ np.diag(found.estimate)) / information
        size = (found_size * doubt + variance) / (doubt + variance)
        return np.asarray(max(size, DEFAULTS.least_size) * together)

    @property
    def numbers_if_alike(self) -> int:
        """How many numbers `of_alike` follows from."""
        d, m = self.shifts.shape
        return int(d + m * (m + 1) // 2)

    def of_alike(self, together: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
        """Return the curvature, (d, d), if the records of all groups are alike.

        ``together`` is V'HV, the curvature of shifts, (m, m), and the ``diagonal``, (d,), says how
        much of it is each group's. It is positive definite where that is.

        >>> groups = Groups.of(np.array([[1.0, 0], [0, 1], [0, 1]]), [1, 2])
        >>> groups.of_alike(np.array([[8.0, 4], [4, 8]]), np.array([1.0, 1, 3]))
        array([[8., 1., 3.],
               [1., 2., 0.],
               [3., 0., 6.]])
        """
        own, mates = self._shares(diagonal), self.mates
        shares = mates @ own / mates.sum(axis=1)  # one for all latents of a group
        unit = np.sqrt(own / shares)
        return symmetric(np.outer(unit, unit) * self._parted(together, shares))

    def unlike(self, found: Curvature, alike: np.ndarray) -> np.ndarray:
        """Add to a curvature of groups whose records are alike what was found to differ, (d, d).

        What groups share with other latents differs where a predictor does: one that is the same
        for all records of a group differs most. How much is estimated for each pair of shifts, from
        what all their groups differ by, where that is surely more than noise.
        """
        unit = np.sqrt(np.diag(alike))
        units, Q = np.outer(unit, unit), found.noise
        differs = (found.estimate - alike) / units
        noise = (np.outer(np.diag(Q), np.diag(Q)) + Q**2) / 2 / units**2
        # entries of two shifts; what single latents share is known from shifts themselves
        known = ~self.grouped[:, None] & ~self.grouped | np.eye(len(unit), dtype=bool)
        free = (~known & ~self.apart).astype(float)
        V = self.shifts
        number = np.maximum(V.T @ free @ V, 1.0)
        squared, of_noise, spread = (
            V.T @ (free * x) @ V / number for x in (differs**2, noise, noise**2)
        )
        surely = squared - of_noise > DEFAULTS.visible_scale * np.sqrt(2 * spread / number)
        scale = V @ np.where(surely, squared - of_noise, 0.0) @ V.T
        more = free * units * differs * scale / (scale + noise)
        # what all groups together share is known from shifts
        more -= free * self._parted(V.T @ more @ V, self._shares(unit**2))
        return positive_beside(alike, alike + more) if more.any() else alike


def _joined(
    index: np.ndarray, group: np.ndarray, read: np.ndarray, arrays: np.ndarray
) -> np.ndarray:
    """Give arrays one index where every record reads the same group of them, (d,)."""
    own = [np.flatnonzero(index == array) for array in arrays]
    reads = [read[:, places].any(axis=1) for places in own]
    picked = [group[places][read[:, places].argmax(axis=1)] for places in own]
    joined = index.copy()
    for one in range(len(arrays)):
        for other in range(one):
            both = reads[one] & reads[other]
            mine, its = picked[one][both], picked[other][both]
            if len(np.unique(mine)) > 1 and np.array_equal(mine, its):
                joined[own[one]] = joined[own[other][0]]
                break
    return joined
