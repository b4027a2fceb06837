"""Private stochastic expectation propagation."""

from pymc_dp.methods.sep.sep import METHODS, NOT_PRIVATE

__all__ = ["METHODS", "NOT_PRIVATE"]
