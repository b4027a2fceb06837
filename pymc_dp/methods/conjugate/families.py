"""The family of a block, by the distribution of its prior."""

from collections.abc import Collection

from pytensor.tensor.random.basic import (
    BetaRV,
    DirichletRV,
    ExponentialRV,
    GammaRV,
    InvGammaRV,
    MvNormalRV,
    NormalRV,
)

from pymc_dp.methods.conjugate.exponential import BETA, DIRICHLET, GAMMA, NORMAL, ExponentialFamily
from pymc_dp.methods.conjugate.inverse_gamma import INVERSE_GAMMA
from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.model import Records

# the prior's random variable decides the family of a block; the graph must then prove it conjugate
FAMILY_OF = {
    NormalRV: NORMAL,
    GammaRV: GAMMA,
    ExponentialRV: GAMMA,
    InvGammaRV: INVERSE_GAMMA,
    BetaRV: BETA,
    DirichletRV: DIRICHLET,
}


def families_of(records: Records, apart: Collection[str] = ()) -> dict[str, ExponentialFamily]:
    """Find the family of every shared latent that is not in ``apart``."""
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


def is_variance(records: Records, name: str) -> bool:
    """Whether a latent stands for one over a precision, by its prior."""
    return isinstance(records.distributions[name], InvGammaRV)


def precision_family(records: Records, name: str) -> ExponentialFamily:
    """Find the family whose statistics are those of a precision: (a, b) of a log tau - b tau."""
    return INVERSE_GAMMA if is_variance(records, name) else GAMMA
