"""The family of a block, by the distribution of its prior."""

from collections.abc import Collection

from pytensor.tensor.random.basic import (
    BetaRV,
    DirichletRV,
    ExponentialRV,
    GammaRV,
    MvNormalRV,
    NormalRV,
)

from pymc_dp.methods.blocks.exponential import BETA, DIRICHLET, GAMMA, NORMAL, ExponentialFamily
from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.records import Records

# the prior's random variable decides the family of a block; the graph must then prove it conjugate
FAMILY_OF = {
    NormalRV: NORMAL,
    GammaRV: GAMMA,
    ExponentialRV: GAMMA,
    BetaRV: BETA,
    DirichletRV: DIRICHLET,
}


def families_of(records: Records, apart: Collection[str] = ()) -> dict[str, ExponentialFamily]:
    """Find the family of every shared latent that is not in ``apart``.

    Raises
    ------
    NotConjugateError
        With the latent whose prior has none.
    """
    families = {}
    for name in records.latents:
        if name in apart:
            continue
        op = type(records.distributions[name])
        if op not in FAMILY_OF:
            raise NotConjugateError(
                f"`{name}` has a prior ({op.__name__.removesuffix('RV')}) of no conjugate family"
            )
        families[name] = FAMILY_OF[op]
    return families


def gaussian_latents(records: Records) -> list[str]:
    """Names of the latents with Gaussian priors."""
    normal = (NormalRV, MvNormalRV)
    return [name for name in records.latents if isinstance(records.distributions[name], normal)]
