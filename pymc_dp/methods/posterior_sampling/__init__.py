"""Posterior draws themselves as releases: dp_sgld and dp_ops."""

from collections.abc import Callable

from pymc_dp.methods.method import Method
from pymc_dp.methods.posterior_sampling.ops import dp_ops
from pymc_dp.methods.posterior_sampling.sgld import dp_sgld

METHODS: dict[str, Callable[..., Method]] = {"dp_sgld": dp_sgld, "dp_ops": dp_ops}

__all__ = ["METHODS"]
