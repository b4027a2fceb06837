"""Releases and plans of tests, from the words of a caller."""

from dataclasses import replace

from pymc_dp.accounting.accountants import accountant_named
from pymc_dp.accounting.plan import GAUSSIAN, Neighbours, Plan, Release
from pymc_dp.papers.sampling import EXPONENTIAL
from pymc_dp.privacy.clipping import subset

MECHANISMS = {each.name: each for each in (GAUSSIAN, EXPONENTIAL)}


def release_from(
    name, sampling, sample_rate, clip_norm, noise_multiplier, count, mechanism="gaussian"
):
    fields = locals() | {"mechanism": GAUSSIAN.name}
    return replace(Release.from_dict(fields), mechanism=MECHANISMS[mechanism])


def plan_from(releases, neighbours, delta, accountant, num_records=None, unit=None):
    terms = (Neighbours(neighbours), delta, accountant_named(accountant))
    return Plan(tuple(releases), *terms, num_records, unit)


def batch_of(sampler, rng, number):
    """Draw the rows of one batch as the wall and a partition of all rows do."""
    [size] = sampler.sizes(rng, [number])
    return subset(rng, number, int(size))
