"""How long a fit will take, and how many times it reads all records.

Releases are timed on made-up rows, and the backend is chosen by it. No number of records is read
for either, beside the public one.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import process_time
from timeit import timeit
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.accounting.plan import Plan
from pymc_dp.accounting.release import Release, ReleaseSpec
from pymc_dp.methods.method import Method
from pymc_dp.methods.registry import METHODS
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch, Contribution, take_rows, with_draws
from pymc_dp.privacy.partitions import number_of_records
from pymc_dp.privacy.private_data import ColumnSpec, PrivateData
from pymc_dp.privacy.probe import ALIKE, made_up_column
from pymc_dp.sampling.samplers import Poisson

# rows that an undeclared data set is taken to have where only speed depends on it
NOMINAL_RECORDS = 10_000
# records in chunks are taken to be so many where a method's default releases depend on it
MANY_RECORDS = 1_000_000
# rows that are timed: so many, and more, up to those that take so many seconds or are such a share
# of a batch
FEWEST_ROWS, TIMED_SECONDS, SHARE_OF_BATCH = 32, 0.1, 0.25
DISTINCT = 64  # moderate records that differ
UNSEEN_SECONDS = 1e-4  # what a release is taken to last that a coarse clock does not see
ANNOUNCED_SECONDS = 180  # seconds from which on a fit is announced


class ReleaseTime(NamedTuple):
    """Seconds of a processor that a release takes."""

    once: float  # whatever the number of records
    each: float  # more for each record of the batch
    update: float = 0.0  # what follows it, which has no part in the choice of a backend


def moderate_records(spec: Mapping[str, ColumnSpec], rows: int) -> Batch:
    """Generate records of moderate size, most of them in the support of most likelihoods.

    >>> moderate_records({"x": ColumnSpec((None, 2), "float64")}, 100)["x"].shape
    (100, 2)
    """
    rng, kinds = np.random.default_rng(0), np.arange(DISTINCT) % ALIKE
    few = {name: made_up_column(column, kinds, rng) for name, column in spec.items()}
    return take_rows(few, spec, np.arange(rows) % DISTINCT)


def timed(contribution: Contribution, data: PrivateData, context: Any, batch: float) -> ReleaseTime:
    """Time a release of few and of many made-up rows."""

    def one_sum(rows: int) -> float:
        batch, ones = moderate_records(data.spec, rows), np.ones(rows)

        def call() -> None:
            drawn = with_draws(contribution, batch, context, np.random.default_rng(0))
            prepared = contribution.prepare(drawn, context)
            contribution.norms(prepared, context)
            contribution.weighted_sum(prepared, context, ones)

        return seconds_of(call)

    few = max(one_sum(FEWEST_ROWS), UNSEEN_SECONDS)
    if few > TIMED_SECONDS:  # what many rows add is not waited for
        return ReleaseTime(0.0, few / FEWEST_ROWS)
    rows = 4 * FEWEST_ROWS
    many = one_sum(rows)
    while many < TIMED_SECONDS / 2 and 4 * rows <= SHARE_OF_BATCH * batch:
        rows *= 4
        many = one_sum(rows)
    each = max(0.0, many - few) / (rows - FEWEST_ROWS)
    return ReleaseTime(max(0.0, few - FEWEST_ROWS * each), each)


def seconds_of(call: Callable[[], object]) -> float:
    """Take the shorter of two times of a processor: the first call may compile for a new shape."""
    once = partial(timeit, call, timer=process_time, number=1)
    first = once()
    return min(first, once()) if first < 10 * TIMED_SECONDS else first


class RunTime(NamedTuple):
    """The seconds of a processor that the releases of a plan take."""

    records: float  # rows; of a plan with units one for each, whose true number is private
    seconds_of: dict[str, float]  # by the name of the release
    unit: str | None = None

    @property
    def seconds(self) -> float:
        """Those of all releases."""
        return sum(self.seconds_of.values())

    def __str__(self) -> str:
        rows = "records" if self.unit is None else f"rows, one for each `{self.unit}`"
        return self.words(f" for {self.records:,.0f} {rows}")

    def words(self, records: str) -> str:
        """Say the time, for which ``records``, and which release takes most of it."""
        if not self.seconds_of:
            return "a time that cannot be foretold"
        slowest = max(self.seconds_of, key=self.seconds_of.__getitem__)
        if self.seconds < 1:
            return f"less than a second of one processor{records}"
        return (
            f"about {in_words(self.seconds)} of one processor{records}, "
            f"{in_words(self.seconds_of[slowest])} of it for {slowest!r}"
        )


def public_number(plan: Plan) -> float:
    """Return the public number of records, or a nominal one."""
    return plan.num_records or NOMINAL_RECORDS


def expected_batch(plan: Plan, name: str) -> float:
    """Return how many of the public number of records a release reads."""
    rates = [release.sampler.rate for release in plan.releases if release.name == name]
    return max(rates, default=0.0) * public_number(plan)


def run_time(plan: Plan, times: Mapping[str, ReleaseTime], records: float | None = None) -> RunTime:
    """Predict the time of a plan's releases, for the public number of ``records`` by default."""
    number = records or public_number(plan)
    seconds = dict.fromkeys(times, 0.0)
    for release in plan.releases:
        if release.name in times:
            once, each, update = times[release.name]
            whole = once + each * release.sampler.rate * number + update
            seconds[release.name] += release.count * whole
    return RunTime(number, seconds, plan.unit)


def in_words(seconds: float) -> str:
    """Round a time to a unit that reads well.

    >>> in_words(0.2), in_words(41.7), in_words(563), in_words(9000)
    ('less than a second', '42 s', '9 minutes', '2.5 hours')
    """
    if seconds < 1:
        return "less than a second"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def announce(plan: Plan, data: PrivateData, times: Mapping[str, ReleaseTime]) -> None:
    """Warn where the releases will take minutes.

    **Privacy.** Counts the records, whose number may be private: the warning is for whoever holds
    the data, and nothing comes back.
    """
    expected = run_time(plan, times, number_of_records(data))
    if expected.seconds > ANNOUNCED_SECONDS:
        # without the number of records, which the curator may not want on a screen
        warnings.warn(
            f"The {plan.total} releases take {expected.words('')}. Fewer of them (n=), or a "
            "smaller sample_rate= where the method has one, take less; pymc_dp.plan says how long "
            "before a fit starts.",
            UserWarning,
            stacklevel=3,
        )


def passes(releases: Iterable[Release | ReleaseSpec], *, in_chunks: bool) -> float:
    """Add up the shares of all records that releases read; of chunks, each reads all."""
    return sum(release.count * (1.0 if in_chunks else release.sampler.rate) for release in releases)


def default_passes(records: Records) -> dict[str, float]:
    """Return the passes over chunks that each method makes by default, where it fits the model."""
    found = {}
    for name, spec in METHODS.items():
        try:
            options = spec.options(sampling=Poisson, num_records=MANY_RECORDS, noise=1.0, n=None)
            built = spec.build(records, options)
        except ValueError:  # the method does not fit, and its reason is given elsewhere
            continue
        # how many releases there are does not depend on the scales of latents
        while not isinstance(built, Method):
            built = built.build(records)
        found[name] = passes(built.releases, in_chunks=True)
    return found
