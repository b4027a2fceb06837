"""The family of a block, by the distribution of its prior, and a proof that it is conjugate."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

import numpy as np
from pytensor.tensor.random.basic import (
    BetaRV,
    DirichletRV,
    ExponentialRV,
    GammaRV,
    InvGammaRV,
    MvNormalRV,
    NormalRV,
)

from pymc_dp.methods.conjugate.expectation import ConjugatePrior, prior_messages
from pymc_dp.methods.conjugate.exponential import BETA, DIRICHLET, GAMMA, NORMAL, ExponentialFamily
from pymc_dp.methods.conjugate.inverse_gamma import INVERSE_GAMMA
from pymc_dp.methods.conjugate.probe_points import nearly_equal, probe_point
from pymc_dp.methods.options import NotConjugateError
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
        op = records.distributions[name]
        if op not in FAMILY_OF:
            raise NotConjugateError(
                f"`{name}` has a prior ({op.__name__.removesuffix('RV')}) of no conjugate family"
            )
        families[name] = FAMILY_OF[op]
    return families


def conjugate_prior(
    records: Records,
    families: Mapping[str, ExponentialFamily],
    rng: np.random.Generator,
    wider: Mapping[ExponentialFamily, ExponentialFamily] = MappingProxyType({}),
) -> ConjugatePrior:
    """Compile the prior's messages, and prove at random points that it is conjugate to each block.

    ``wider`` maps a family to one that contains it, for blocks to which their own does not do.
    """
    first, second = (probe_point(records, families, rng) for _ in range(2))
    found, messages = {}, {}
    for name, family in families.items():
        for candidate in (family, wider.get(family, family)):
            [message] = prior_messages(records, {name: candidate}).values()
            if all(map(nearly_equal, message(first), message(first | {name: second[name]}))):
                found[name], messages[name] = candidate, message
                break
        else:
            raise NotConjugateError(f"the prior of `{name}` is not conjugate")
    return ConjugatePrior(found, messages)


def gaussian_latents(records: Records) -> list[str]:
    """Names of the latents with Gaussian priors."""
    normal = (NormalRV, MvNormalRV)
    return [name for name in records.latents if issubclass(records.distributions[name], normal)]


def is_variance(records: Records, name: str) -> bool:
    """Whether a latent stands for one over a precision, by its prior."""
    return issubclass(records.distributions[name], InvGammaRV)


def precision_family(records: Records, name: str) -> ExponentialFamily:
    """Find the family whose statistics are those of a precision: (a, b) of a log tau - b tau."""
    return INVERSE_GAMMA if is_variance(records, name) else GAMMA
