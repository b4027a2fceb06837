"""VIPS: variational Bayes from perturbed expected sufficient statistics."""

from pymc_dp.methods.vips.vips import METHODS

__all__ = ["METHODS"]
