"""Sums of scores over the records of a unit, also where survey weights let some count less."""

from typing import NamedTuple

import numpy as np


class UnitSums(NamedTuple):
    """The layout of a unit's sums: its scores at all outcomes.

    With survey weights they are weighted scores, the scores themselves, and the sums of what of
    each record counts and of its square.
    """

    outcomes: int
    d: int
    is_weighted: bool

    @property
    def size(self) -> int:
        """The length of a unit's sums."""
        own = self.outcomes * self.d
        return 2 * own + 2 if self.is_weighted else own

    def rows(self, scores: np.ndarray, counting: np.ndarray | None) -> np.ndarray:
        """Return what records add, (rows, size), from scores (rows, outcomes, d)."""
        flat = scores.reshape(-1, self.outcomes * self.d)
        if counting is None:
            return flat
        share = counting[:, None]
        return np.concatenate([share * flat, flat, share, share**2], axis=1)

    def split(self, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return units' scores, the same without weights, and what of each unit counts, (units,).

        That is the average of its records' shares, weighted by themselves: the share of all, where
        they have one. The unit's scores times it are the sum of the weighted ones.

        >>> sums = UnitSums(1, 1, True)
        >>> each = sums.rows(np.array([[[4.0]], [[2.0]]]), np.array([0.5, 0.5]))
        >>> [part.ravel().tolist() for part in sums.split(each.sum(axis=0)[None])]
        [[6.0], [6.0], [0.5]]
        """
        shape = (len(sums), self.outcomes, self.d)
        if not self.is_weighted:
            scores = sums.reshape(shape)
            return scores, scores, None
        own = self.outcomes * self.d
        total, squares = sums[:, -2], sums[:, -1]
        counting = np.divide(squares, total, out=np.zeros_like(total), where=total != 0)
        counting = np.minimum(counting, 1.0)  # it is no larger, but for rounding
        each = np.where(counting == 0, 1.0, counting)[:, None]
        return (sums[:, :own] / each).reshape(shape), sums[:, own:-2].reshape(shape), counting
