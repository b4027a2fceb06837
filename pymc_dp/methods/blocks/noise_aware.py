"""Draws of conjugate blocks that include the privacy noise.

A block's natural parameters are those of its prior, plus what was released about the records: the
true sums plus noise of a known size. Every draw first puts that much noise on the released part,
which is the posterior of the true sums where nothing else is known about them.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.methods.blocks.exponential import NORMAL, ExponentialFamily, Natural


class Told(NamedTuple):
    """What releases say about one block.

    Attributes
    ----------
    prior : natural parameters
        What the prior says.
    says, variances : natural parameters
        What the records say, and the variance of the noise on every entry.
    """

    prior: Natural
    says: Natural
    variances: Natural


def told_apart(eta: Natural, says: Iterable[Any], variances: Iterable[Any]) -> Told:
    """Take what records say off natural parameters: the rest is the prior's.

    >>> told_apart((np.array(5.0),), says=[3.0], variances=[0.5]).prior
    (array(2.),)
    """
    of_records = tuple(np.full_like(a, b) for a, b in zip(eta, says, strict=True))
    return Told(
        prior=tuple(np.asarray(a - b) for a, b in zip(eta, of_records, strict=True)),
        says=of_records,
        variances=tuple(np.full_like(a, v) for a, v in zip(eta, variances, strict=True)),
    )


def floored(family: ExponentialFamily, says: Natural, variances: Natural) -> Natural:
    """Keep what cannot be below a limit above it.

    A precision or a rate that the noise has swallowed is put at the noise's own scale: at 0 its
    block would explode.
    """
    return tuple(
        np.maximum(part, limit + above * variance**0.5)
        for part, variance, limit, above in zip(
            says, variances, family.limits, family.floored, strict=True
        )
    )


def draw(family: ExponentialFamily, told: Told, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a block, each draw with its own noise on what was released."""
    values = []
    for _ in range(draws):
        says = floored(family, _perturbed(family, told, rng), told.variances)
        eta = tuple(a + b for a, b in zip(told.prior, says, strict=True))
        values.append(family.sample(eta, 1, rng)[0])
    return np.stack(values)


def _perturbed(family: ExponentialFamily, told: Told, rng: np.random.Generator) -> Natural:
    noise = tuple(v**0.5 * rng.standard_normal(v.shape) for v in told.variances)
    if family is NORMAL:
        noise = _around_mean(told, noise[1], rng)
    return tuple(a + b for a, b in zip(told.says, noise, strict=True))


def _around_mean(told: Told, precision: np.ndarray, rng: np.random.Generator) -> Natural:
    """Noise of eta = score + mean * precision: the two parts are released with noise each."""
    says = floored(NORMAL, told.says, told.variances)
    mean = (told.prior[0] + says[0]) / (told.prior[1] + says[1])
    of_score = np.maximum(told.variances[0] - mean**2 * told.variances[1], 0.0)
    score = of_score**0.5 * rng.standard_normal(precision.shape)
    return score + mean * precision, precision
