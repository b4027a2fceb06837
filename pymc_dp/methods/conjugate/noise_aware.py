"""Draws of conjugate blocks that include the privacy noise.

A block's natural parameters are those of its prior, plus what was released about the records: the
true sums plus noise of a known size. Every draw first puts that much noise on the released part,
which is the posterior of the true sums where nothing else is known about them.
"""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.conjugate.exponential import NORMAL, ExponentialFamily, Natural


class NoisyBlock(NamedTuple):
    """Natural parameters of one block, with noise on the part that was released."""

    prior: Natural  # the prior's part
    likelihood: Natural  # the likelihood's part, as released
    variances: Natural  # of the noise on every entry of it


def within_bounds(family: ExponentialFamily, likelihood: Natural, variances: Natural) -> Natural:
    """Raise natural parameters of the likelihood to their lower bounds.

    A precision or a rate below the standard deviation of its noise is raised to that: at 0 its
    block would have an infinite variance.
    """
    return tuple(
        np.maximum(part, bound + raised * variance**0.5)
        for part, variance, bound, raised in zip(
            likelihood, variances, family.lower_bounds, family.raised_to_noise, strict=True
        )
    )


def draw(
    family: ExponentialFamily, block: NoisyBlock, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw a block, each draw with its own noise on what was released."""
    values = []
    for _ in range(draws):
        noise = tuple(v**0.5 * rng.standard_normal(v.shape) for v in block.variances)
        if family is NORMAL:
            noise = _noise_of_normal(block, noise[1], rng)
        likelihood = tuple(a + b for a, b in zip(block.likelihood, noise, strict=True))
        likelihood = within_bounds(family, likelihood, block.variances)
        eta = tuple(a + b for a, b in zip(block.prior, likelihood, strict=True))
        values.append(family.sample(eta, 1, rng)[0])
    return np.stack(values)


def _noise_of_normal(block: NoisyBlock, precision: np.ndarray, rng: np.random.Generator) -> Natural:
    """Noise of eta = score + mean * precision: the two parts are released with noise each."""
    bounded = within_bounds(NORMAL, block.likelihood, block.variances)
    mean = (block.prior[0] + bounded[0]) / (block.prior[1] + bounded[1])
    of_score = np.maximum(block.variances[0] - mean**2 * block.variances[1], 0.0)
    score = of_score**0.5 * rng.standard_normal(precision.shape)
    return score + mean * precision, precision
