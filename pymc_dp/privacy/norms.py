"""Norms of vectors of any magnitude, and the factors that shorten vectors to a bound.

Squares leave the range of doubles long before the numbers do, so vectors are first scaled by one of
three powers of two, which is exact on every backend. Dividing by the largest entry is not: compiled
code multiplies by its reciprocal, which beyond 4.5e307 is subnormal and counts as zero.
"""

import math
from typing import Any

import numpy as np
import pytensor.tensor as pt

# a longer vector counts as not finite: beyond, products of norms and their reciprocals round to 0
LARGEST_NORM = 1e290
# norms between these have squares, and reciprocals of squares, of full precision
SQUARES = (1e-140, 1e140)
# squares of numbers between these neither overflow nor vanish, nor do sums of many
LARGE, SMALL = 2.0**400, 2.0**-400
DOWN, UP = 2.0**-600, 2.0**600


def row_norms(rows: np.ndarray) -> np.ndarray:
    """L2 norm of every row; infinite above `LARGEST_NORM`, nan where an entry is.

    >>> import numpy as np
    >>> row_norms(np.array([[3.0, 4.0], [3e-200, 4e-200], [1e300, 0.0]]))
    array([5.e+000, 5.e-200,     inf])
    """
    # whole numbers overflow, and a sum of squared booleans is one of them
    rows = np.asarray(rows, "float64")
    rows = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        norms = np.sqrt(np.vecdot(rows, rows))
        unsafe = ~((norms > SQUARES[0]) & (norms < SQUARES[1]))
        if unsafe.any():  # norms of other rows stay, to the last bit
            largest = np.abs(rows[unsafe]).max(axis=1, initial=0.0)
            scale = np.where(largest > LARGE, DOWN, np.where(largest < SMALL, UP, 1.0))
            scaled = rows[unsafe] * scale[:, None]
            found = np.sqrt(np.vecdot(scaled, scaled)) / scale
            norms[unsafe] = np.where(found > LARGEST_NORM, np.inf, found)
    return np.asarray(norms)


def joint_norms(*parts: Any) -> np.ndarray:
    """L2 norm of vectors from the norms of their parts, each (rows,) or one number; as `row_norms`.

    >>> joint_norms(np.array([3.0, 0.0]), 4.0)
    array([5., 4.])
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        norms = np.array(np.sqrt(sum(part * part for part in parts)))
    unsafe = ~((norms > SQUARES[0]) & (norms < SQUARES[1]))
    if unsafe.any():
        each = np.broadcast_arrays(*parts, norms)[:-1]
        norms[unsafe] = row_norms(np.stack([part[unsafe] for part in each], axis=1))
    return norms


def clip_factors(norms: np.ndarray, bound: float) -> np.ndarray:
    """Return the factor that brings each norm to at most ``bound``.

    >>> clip_factors(np.array([0.0, 1.0, 4.0]), 2.0)
    array([1. , 1. , 0.5])
    """
    with np.errstate(divide="ignore"):
        return np.asarray(np.fmin(1.0, bound / norms))


def graph_norms(rows: Any) -> Any:
    """`row_norms` as a graph: L2 norm over all axes but the first.

    Graphs are typed as Any: PyTensor annotates them as Variables, without the methods of tensors.
    """
    rows = rows.astype("float64")
    axes = tuple(range(1, rows.ndim))
    if all(length == 1 for length in rows.type.shape[1:]):  # a rewrite would undo the scaling
        norms = pt.abs(rows).squeeze(axes)
    else:
        largest = pt.abs(rows).max(axis=axes, keepdims=True)
        is_large, is_small = pt.gt(largest, _double(LARGE)), pt.lt(largest, _double(SMALL))
        scale = pt.switch(is_large, _double(DOWN), pt.switch(is_small, _double(UP), _double(1)))
        undo = pt.switch(is_large, _double(UP), pt.switch(is_small, _double(DOWN), _double(1)))
        norms = undo.squeeze(axes) * pt.sqrt(pt.sqr(rows * scale).sum(axis=axes))
    return pt.switch(pt.gt(norms, _double(LARGEST_NORM)), _double(np.inf), norms)


def _double(number: float) -> Any:
    return pt.constant(number, dtype="float64")
