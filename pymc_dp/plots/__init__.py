"""Pictures of a result, by the conventions of arviz-plots."""

from pymc_dp.plots.noise import plot_noise
from pymc_dp.plots.privacy import plot_privacy
from pymc_dp.plots.topics import plot_topics

__all__ = ["plot_noise", "plot_privacy", "plot_topics"]
