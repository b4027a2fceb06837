"""Means of Pólya-Gamma variables (Polson, Scott and Windle 2013)."""

import numpy as np

# below it tanh(c/2) / c is its limit
SMALL = 1e-6


def pg_weight(c: np.ndarray) -> np.ndarray:
    """Mean of a Pólya-Gamma variable PG(1, c) over its largest value 1/4, at c = 0.

    >>> import numpy as np
    >>> pg_weight(np.array([0.0, 2.0])).round(4)
    array([1.    , 0.7616])
    """
    c = np.maximum(np.abs(c), SMALL)
    weight: np.ndarray = 2 * np.tanh(c / 2) / c
    return weight
