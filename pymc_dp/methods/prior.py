"""The gradient of the prior, which needs no records."""

from collections.abc import Callable

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import grad

from pymc_dp.compile import function
from pymc_dp.records import Records


def prior_gradient(records: Records, backend: str) -> Callable[[np.ndarray], np.ndarray]:
    """Compile the gradient of the log prior at a point z, shape (size,)."""
    latents = list(records.latents.values())
    parts = grad(records.prior, latents, disconnected_inputs="ignore")
    flat = pt.concatenate([part.ravel() for part in parts]).astype("float64")
    fn = function(latents, flat, backend)
    # a state holds NumPy's arrays, whatever the backend
    return lambda z: np.asarray(fn(*records.split(z)))
