"""The gradient and the curvature of the prior, which need no records."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytensor.tensor as pt

from pymc_dp.methods.conjugate.exponential import flat_gradient
from pymc_dp.model import Records
from pymc_dp.model.compile import function

# the step of central differences
STEP = 1e-4


def prior_gradient(records: Records, backend: str) -> Callable[[np.ndarray], np.ndarray]:
    """Compile the gradient of the log prior at a point z, shape (size,)."""
    latents = list(records.latents.values())
    fn = function(latents, pt.cast(flat_gradient(records.prior, latents), "float64"), backend)
    # a state holds NumPy's arrays, whatever the backend
    return lambda z: np.asarray(fn(*records.split(z)))


def prior_curvature(slope: Callable[[np.ndarray], np.ndarray], point: np.ndarray) -> np.ndarray:
    """Differentiate the prior's gradient numerically: minus its Jacobian, symmetric, (d, d).

    >>> prior_curvature(lambda z: -3 * z, np.zeros(1)).round(6)
    array([[3.]])
    """
    return _curvature(slope, np.asarray(point, "float64").tobytes()).copy()


@lru_cache(maxsize=8)  # a round asks for it several times at one point
def _curvature(slope: Callable[[np.ndarray], np.ndarray], point: bytes) -> np.ndarray:
    at = np.frombuffer(point)
    matrix = np.stack([slope(at - e) - slope(at + e) for e in STEP * np.eye(at.size)], axis=-1)
    return np.asarray((matrix + matrix.T) / (4 * STEP))
