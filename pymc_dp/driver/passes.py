"""How many times a fit reads all records."""

from collections.abc import Iterable

from pymc_dp.accounting.release import Release, ReleaseSpec
from pymc_dp.accounting.samplers import Poisson
from pymc_dp.methods.method import OnRealLine
from pymc_dp.methods.registry import METHODS
from pymc_dp.model import Records

# records in chunks are taken to be so many where a method's default releases depend on it
MANY_RECORDS = 1_000_000


def passes(releases: Iterable[Release | ReleaseSpec], *, in_chunks: bool) -> float:
    """Add up the shares of all records that releases read; of chunks, each reads all."""
    return sum(release.count * (1.0 if in_chunks else release.sampler.rate) for release in releases)


def default_passes(records: Records) -> dict[str, float]:
    """Return the passes over chunks that each method makes by default, where it fits the model."""
    found = {}
    for name, spec in METHODS.items():
        try:
            options = spec.options(sampling=Poisson, num_records=MANY_RECORDS, noisy=True, n=None)
            built = spec.build(records, options)
        except ValueError:  # the method does not fit, and its reason is given elsewhere
            continue
        # how many releases there are does not depend on the scales of latents
        method = built.build(records) if isinstance(built, OnRealLine) else built
        found[name] = passes(method.releases, in_chunks=True)
    return found
