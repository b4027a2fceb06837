"""Trust regions: steps of bounded length."""

import numpy as np


def within_trust_region(move: np.ndarray, precision: np.ndarray, radius: float) -> np.ndarray:
    """Shorten a step to ``radius`` standard deviations, as a root mean square over coordinates.

    ``precision``, shape (d,), has one over the variance of each coordinate.

    >>> within_trust_region(np.array([6.0, -2.0]), np.array([1.0, 9.0]), radius=1.0)
    array([ 1.        , -0.33333333])
    """
    length = np.sqrt(np.mean(precision * move**2))
    return np.asarray(move * min(1.0, radius / max(length, 1e-300)))
