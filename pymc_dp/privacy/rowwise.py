"""Products of records with public matrices, in which no record changes the rounding of another.

The kernels of a matrix product depend on how many rows there are: with one record more, the last
bit of every record's product may change. Then the vector of a record is not its own, and a release
with a jump, such as a histogram, can move for all records at once.
"""

import numpy as np


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


def each_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Multiply two matrices of each record, (rows, i, k) and (rows, k, j).

    They are multiplied record by record, with a layout in memory that is the same for any number.
    """
    return np.asarray(np.matmul(np.ascontiguousarray(left), np.ascontiguousarray(right)))
