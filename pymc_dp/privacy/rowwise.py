"""Products of records with public matrices, in which no record changes the rounding of another.

The kernels of a matrix product depend on how many rows there are: with one record more, the last
bit of every record's product may change. Then the vector of a record is not its own, and a release
with a jump, such as a histogram, can move for all records at once.
"""

import numpy as np

from pymc_dp.privacy.norms import row_norms

STEPS = 2.0**26


def product(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Multiply rows (..., k) by a matrix (k, m) or (..., k, m), or by a vector (k,).

    Every number of the result is a scalar product of its own, of contiguous vectors: a function of
    one row and one column alone, to the last bit.

    >>> product(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
    array([[11.]])
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

    >>> rounded_product(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
    array([[11.]])
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
    """Multiply two matrices of each record, (rows, i, k) and (rows, k, j).

    They are multiplied record by record, with a layout in memory that is the same for any number.
    """
    return np.asarray(np.matmul(np.ascontiguousarray(left), np.ascontiguousarray(right)))
