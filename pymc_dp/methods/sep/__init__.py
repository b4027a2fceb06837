"""Private stochastic expectation propagation."""

from pymc_dp.methods.sep.sep import METHODS

__all__ = ["METHODS"]
