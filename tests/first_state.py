"""A state of rounds from which nothing was released yet."""

import numpy as np

from pymc_dp.methods.gaussian.start import begin
from pymc_dp.methods.gaussian.state import State


def first_state(start, prior_gradient, number) -> State:
    """Start rounds of latents none of which is a spread, without averaging over q."""
    dispersion = np.zeros(len(start), bool)
    return begin(start, prior_gradient, number, dispersion, products=0.0, estimating=None)
