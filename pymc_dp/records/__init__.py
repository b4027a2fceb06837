"""From a PyMC model to a prior and one log likelihood per record."""

from pymc_dp.records.harden import constrained
from pymc_dp.records.separate import Column, Records, separate

__all__ = ["Column", "Records", "constrained", "separate"]
