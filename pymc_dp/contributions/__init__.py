"""What one record contributes to a release: its norm, and the weighted sum over a batch."""

from pymc_dp.contributions.gradients import Directions, gradient, plain_gradient
from pymc_dp.privacy.contribution import Contribution, FactoredContribution, RowContribution

__all__ = [
    "Contribution",
    "Directions",
    "FactoredContribution",
    "RowContribution",
    "gradient",
    "plain_gradient",
]
