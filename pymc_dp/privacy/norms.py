"""Norms of vectors of any magnitude, factors that shorten vectors to a bound, and products of rows.

Squares leave the range of doubles long before the numbers do, so vectors are first scaled by one of
three powers of two, which is exact on every backend. Dividing by the largest entry is not: compiled
code multiplies by its reciprocal, which beyond 4.5e307 is subnormal and counts as zero.

In products of records with public matrices no record changes the rounding of another. The kernels
of a matrix product depend on how many rows there are: with one record more, the last bit of every
record's product may change. Then the vector of a record is not its own, and a release with a jump,
such as a histogram, can move for all records at once.
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
    """L2 norm of vectors from the norms of parts, (rows,) or one number; as `row_norms`."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        norms = np.array(np.sqrt(sum(part * part for part in parts)))
    unsafe = ~((norms > SQUARES[0]) & (norms < SQUARES[1]))
    if unsafe.any():
        each = np.broadcast_arrays(*parts, norms)[:-1]
        norms[unsafe] = row_norms(np.stack([part[unsafe] for part in each], axis=1))
    return norms


def clip_factors(norms: np.ndarray, bound: float) -> np.ndarray:
    """Return the factor that brings each norm to at most ``bound``."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.fmin(1.0, bound / norms))


def graph_norms(rows: Any) -> Any:
    """`row_norms` as a graph: L2 norm over all axes but the first."""
    rows = rows.astype("float64")
    axes = tuple(range(1, rows.ndim))
    if all(length == 1 for length in rows.type.shape[1:]):  # a rewrite would undo the scaling
        norms = pt.abs(rows).squeeze(axes)
    else:
        largest = pt.abs(rows).max(axis=axes, keepdims=True)
        is_large, is_small = pt.gt(largest, _double(LARGE)), pt.lt(largest, _double(SMALL))
        scale = pt.switch(is_large, _double(DOWN), pt.switch(is_small, _double(UP), _double(1)))
        norms = pt.sqrt(pt.sqr(rows * scale).sum(axis=axes)) / scale.squeeze(axes)
    return pt.switch(pt.gt(norms, _double(LARGEST_NORM)), _double(np.inf), norms)


def _double(number: float) -> Any:
    return pt.constant(number, dtype="float64")


STEPS = 2.0**26


def product(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Multiply rows (..., k) by a matrix (k, m) or (..., k, m), or by a vector (k,).

    Every number of the result is a scalar product of its own, of contiguous vectors: a function of
    one row and one column alone, to the last bit.
    """
    rows = np.ascontiguousarray(rows, "float64")
    if matrix.ndim == 1:
        return np.asarray(np.vecdot(rows, np.ascontiguousarray(matrix, "float64")))
    columns = np.ascontiguousarray(np.swapaxes(matrix, -1, -2), "float64")
    return np.asarray(np.vecdot(rows[..., None, :], columns[..., None, :, :]))


def rounded_product(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Multiply rows (..., k) by a matrix (k, m), both rounded to 26 bits.

    Entries are whole numbers of a step, and rows and columns at most 2^26 steps long. So products
    and all their partial sums are whole numbers below 2^53, which doubles hold exactly, and every
    kernel of a matrix product returns the same. The error is about 1e-8 of what the row and the
    longest column could make.
    """
    of_terms = _powers(row_norms(matrix))  # entries of a row that add as much are as long
    scaled = rows * of_terms
    of_rows = _powers(row_norms(scaled.reshape(-1, len(matrix)))).reshape(*rows.shape[:-1], 1)
    scaled *= STEPS / of_rows
    matrix = matrix / of_terms[:, None]
    of_columns = _powers(row_norms(matrix.T))
    whole: np.ndarray = np.rint(scaled, out=scaled) @ np.rint(matrix * (STEPS / of_columns))
    whole *= of_columns / STEPS**2
    whole *= of_rows
    return whole


def _powers(norms: np.ndarray) -> np.ndarray:
    """Return powers of two that exceed positive norms, by a factor of at most two."""
    return np.where(norms > 0, np.ldexp(1.0, np.frexp(norms)[1]), 1.0)


def each_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Multiply matrices (rows, i, k) and (rows, k, j) record by record, in one layout in memory."""
    return np.asarray(np.matmul(np.ascontiguousarray(left), np.ascontiguousarray(right)))
