"""From a PyMC model to a prior and one log likelihood per record."""

from pymc_dp.model.harden import constrained
from pymc_dp.model.separate import Records, separate, separate_unread
from pymc_dp.privacy.private_data import Column, PrivateData

__all__ = ["Column", "PrivateData", "Records", "constrained", "separate", "separate_unread"]
