"""What one record contributes to a release: its norm, and the weighted sum over a batch."""

from pymc_dp.contributions.contribution import Contribution
from pymc_dp.contributions.gradients import gradient
from pymc_dp.contributions.plain import Directions, plain_gradient

__all__ = ["Contribution", "Directions", "gradient", "plain_gradient"]
