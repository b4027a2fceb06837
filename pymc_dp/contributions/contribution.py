"""The interface between a method and the wall: compiled functions that hold no data."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

Batch = dict[str, np.ndarray]


def as_it_is(batch: Batch, context: Any) -> Any:
    """Prepare nothing."""
    return batch


class OfSum(NamedTuple):
    """A unit's vector as a function of a sum over its records.

    Attributes
    ----------
    size : int
        The length of the sum.
    weighted_sum : (prepared, context, weights) -> (size,)
    vectors : (units, size) -> (units, size of the contribution)
        Not finite where the sum is not.
    """

    size: int
    weighted_sum: Callable[[Any, Any, np.ndarray], np.ndarray]
    vectors: Callable[[np.ndarray], np.ndarray]


class Contribution(NamedTuple):
    """One record's vector, given public context, as functions of a batch.

    Attributes
    ----------
    size : int
        The length of the vector.
    width : int
        How many numbers the functions hold for a row beside the row itself; the wall cuts large
        batches accordingly.
    norms : (prepared, context) -> (rows,)
        The L2 norm of each record's vector. Not finite where the record must not contribute.
    weighted_sum : (prepared, context, weights) -> (size,)
        The sum of the vectors, each times its weight.
    prepare : (batch, context) -> prepared
        What both share, record by record; the batch itself by default. It stays behind the wall.
    rows : (prepared, context) -> (rows, size), optional
        The records' vectors themselves, where units of several records are summed faster from
        them than by a weighted sum for each unit.
    unit : OfSum, optional
        How vectors of units of several records are made, if not as the sums of their records'.
    """

    size: int
    width: int
    norms: Callable[[Any, Any], np.ndarray]
    weighted_sum: Callable[[Any, Any, np.ndarray], np.ndarray]
    prepare: Callable[[Batch, Any], Any] = as_it_is
    rows: Callable[[Any, Any], np.ndarray] | None = None
    unit: OfSum | None = None

    @property
    def unit_size(self) -> int:
        """The length of what is summed over the records of a unit."""
        return (self.unit or self).size

    def rehearse(self, batch: Batch, context: Any) -> np.ndarray:
        """Run every function once, and return a vector like those that a release hands out."""
        at = self.prepare(batch, context)
        norms = self.norms(at, context)
        return self.weighted_sum(at, context, np.zeros(len(norms)))

    def unit_sums(
        self, prepared: Any, context: Any, owner: np.ndarray, good: np.ndarray
    ) -> np.ndarray:
        """Sum the good records of each unit, shape (owner's last + 1, unit_size).

        ``owner`` is the unit of every record, in order.
        """
        sums = np.zeros((owner[-1] + 1, self.unit_size))
        if self.rows is not None:
            rows = np.where(good[:, None], self.rows(prepared, context), 0.0)
            starts = np.flatnonzero(np.diff(owner, prepend=-1))
            sums[owner[starts]] = np.add.reduceat(rows, starts)
            return sums
        for i in np.unique(owner[good]):
            weights = np.where(good & (owner == i), 1.0, 0.0)
            sums[i] = (self.unit or self).weighted_sum(prepared, context, weights)
        return sums

    def unit_vectors(self, sums: np.ndarray) -> np.ndarray:
        """Turn sums over the records of units into the units' vectors, shape (units, size)."""
        return sums if self.unit is None else self.unit.vectors(sums)


def row_norms(rows: np.ndarray) -> np.ndarray:
    """L2 norm of every row, scaled where squares would leave the range of doubles.

    >>> import numpy as np
    >>> row_norms(np.array([[3.0, 4.0], [3e-200, 4e-200]]))
    array([5.e+000, 5.e-200])
    """
    # whole numbers overflow, and a sum of squared booleans is one of them
    rows = np.asarray(rows, "float64")
    rows = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(np.vecdot(rows, rows))
    if not (norms.min(initial=1.0) > 1e-140 and norms.max(initial=1.0) < 1e140):
        unsafe = ~((norms > 1e-140) & (norms < 1e140))
        largest = np.abs(rows[unsafe]).max(axis=1, initial=0.0)
        safe = np.where(largest > 0, largest, 1.0)
        with np.errstate(invalid="ignore"):
            norms[unsafe] = safe * np.sqrt(((rows[unsafe] / safe[:, None]) ** 2).sum(axis=1))
    return norms


def graph_norms(rows: Variable) -> Variable:
    """`row_norms` as a graph: L2 norm over all axes but the first, by scaling with the maximum."""
    rows = rows.astype("float64")
    if rows.ndim == 1:
        return pt.abs(rows)
    axes = tuple(range(1, rows.ndim))
    largest = pt.abs(rows).max(axis=axes, keepdims=True)
    safe = pt.switch(pt.eq(largest, 0), 1.0, largest)
    return safe.squeeze(axes) * pt.sqrt(pt.sqr(rows / safe).sum(axis=axes))
