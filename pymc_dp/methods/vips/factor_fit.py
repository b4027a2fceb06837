"""Where the fit of a factor model stands, and where it starts."""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.blocks.expectation import in_turn, prior_says
from pymc_dp.methods.blocks.exponential import NORMAL
from pymc_dp.methods.vips.factor_blocks import Posterior, blocks_of
from pymc_dp.methods.vips.factor_model import FactorModel
from pymc_dp.methods.vips.settings import Settings
from pymc_dp.records import Records

# loadings start this far apart, unless the author's own initial values differ
START = 0.1
# rounds over blocks that follow from others: the next release gives them more
ROUNDS = 3


class State(NamedTuple):
    """Where a fit stands: released values and what follows from them.

    Attributes
    ----------
    t : int
    curvature : (K + 1, K + 1)
        Average of the released curvatures.
    energy : float
        Average of the released energies.
    posterior : {latent: natural parameters}
    noise : (K + 1,)
        Variance of the privacy noise on an entry of each column of the means.
    noise_of_psi : float
        Predicted standard deviation of one full step's noise in a predictor, relative to its own
        scale.
    """

    t: int
    curvature: np.ndarray
    energy: float
    posterior: Posterior
    noise: np.ndarray
    noise_of_psi: float


class Fit(NamedTuple):
    """What the updates of one fit share; public values and compiled priors."""

    records: Records
    structure: FactorModel
    settings: Settings

    @property
    def moved(self) -> list[str]:
        """The blocks that releases move; the others follow from them in closed form."""
        log_odds = self.structure.latent.log_odds
        return [*blocks_of(self.structure), *([log_odds] if log_odds else [])]

    @property
    def following(self) -> list[str]:
        """The blocks that follow from others in closed form."""
        return [name for name in self.structure.families if name not in self.moved]

    def prior_says(self, name: str, posterior: Posterior) -> tuple[np.ndarray, np.ndarray]:
        """Return what the prior says about one Gaussian block: its linear term and precision."""
        structure = self.structure
        linear, precision = prior_says(name, structure.messages, structure.families, posterior)
        return linear, precision

    def in_turn(self, posterior: Posterior, says: Posterior) -> Posterior:
        """Update the blocks that no release moves, given what the likelihood says about them."""
        structure = self.structure
        return in_turn(
            self.following, structure.messages, structure.families, says, posterior, ROUNDS
        )


def start(fit: Fit, rng: np.random.Generator) -> State:
    """Start with small random loadings; precisions start as if loadings were of unit scale."""
    structure, point = fit.structure, fit.records.point
    posterior = {
        name: (np.zeros(point[name].shape), np.ones(point[name].shape))
        if family is NORMAL
        else family.spread(point[name].shape, rng)
        for name, family in structure.families.items()
    }
    posterior = fit.in_turn(posterior, {})
    for name in fit.moved:
        mean = point[name]
        if name == structure.loadings and np.unique(mean).size == 1:
            mean = START * rng.normal(size=mean.shape)
        posterior[name] = (mean / START**2, np.full(mean.shape, START**-2))
    n = structure.shape[1] + 1
    return State(0, np.eye(n), 0.0, posterior, np.zeros(n), 0.0)
