"""Batches are drawn as the accountants assume; a sampler that is not is caught."""

import itertools

import numpy as np
import pytest
from scipy import stats

from pymc_dp.accounting.plan import SAMPLERS, Poisson
from pymc_dp.privacy.clipping import subset
from tests.plans import batch_of

ALPHA = 1e-6
STEPS, RATE = 2000, 0.1
NUM_ROWS = 1000


def two_sided(lower_tail):
    return 2 * min(lower_tail, 1 - lower_tail)


def p_values(batches, num_rows, rate):
    """How likely independent coins would make batches this odd, seen in four ways."""
    steps = len(batches)
    sizes = np.array([len(batch) for batch in batches])
    spread = rate * (1 - rate)
    per_row = np.bincount(np.concatenate(batches), minlength=num_rows)
    repeats = sum(
        len(np.intersect1d(now, then, assume_unique=True))
        for now, then in itertools.pairwise(batches)
    )
    # Variance of sum_t b_t b_(t+1): its own terms, and the neighbouring ones that share a coin.
    own = (steps - 1) * (rate**2 - rate**4)
    shared = 2 * (steps - 2) * (rate**3 - rate**4)
    excess = sizes.sum() - steps * num_rows * rate
    size_spread = ((sizes - num_rows * rate) ** 2).sum() / (num_rows * spread)
    row_spread = ((per_row - per_row.mean()) ** 2).sum() / (steps * spread)
    surplus = repeats - (steps - 1) * num_rows * rate**2
    return {
        "rate": two_sided(stats.norm.cdf(excess / np.sqrt(steps * num_rows * spread))),
        "batch size": two_sided(stats.chi2.cdf(size_spread, steps)),
        "row counts": two_sided(stats.chi2.cdf(row_spread, num_rows - 1)),
        "repeats": two_sided(stats.norm.cdf(surplus / np.sqrt(num_rows * (own + shared)))),
    }


def poisson(seed, num_rows=NUM_ROWS, rate=RATE):
    rng = np.random.default_rng(seed)
    return [batch_of(Poisson(rate), rng, num_rows) for _ in range(STEPS)]


def over_partitions(rng):
    """Draw from partitions as if they were one."""
    starts = np.cumsum((0, *PARTS))
    drawn = zip(starts, PARTS, Poisson(RATE).sizes(rng, PARTS), strict=False)
    return np.concatenate([start + subset(rng, n, int(size)) for start, n, size in drawn])


@pytest.mark.parametrize(("num_rows", "rate"), [(NUM_ROWS, RATE), (20_000, 0.002), (40, 0.9)])
def test_poisson_batches_are_independent_coins(num_rows, rate):
    found = p_values(poisson(1, num_rows, rate), num_rows, rate)
    assert min(found.values()) > ALPHA


def test_poisson_batches_over_partitions_are_independent_coins():
    rng = np.random.default_rng(11)
    found = p_values([over_partitions(rng) for _ in range(STEPS)], NUM_ROWS, RATE)
    assert min(found.values()) > ALPHA


def fixed_size_batches(rng):
    return [subset(rng, NUM_ROWS, round(RATE * NUM_ROWS)) for _ in range(STEPS)]


def shuffled_epochs(rng):
    per_epoch = round(1 / RATE)
    epochs = [rng.permutation(NUM_ROWS) for _ in range(STEPS // per_epoch)]
    return [np.sort(batch) for epoch in epochs for batch in np.split(epoch, per_epoch)]


def batches_used_twice(rng):
    return [batch for batch in poisson(2)[: STEPS // 2] for _ in range(2)]


def favoured_rows(rng):
    rates = RATE * np.where(np.arange(NUM_ROWS) < NUM_ROWS / 2, 1.1, 0.9)
    return [np.flatnonzero(rng.random(NUM_ROWS) < rates) for _ in range(STEPS)]


PARTS = (100, 0, 650, 250)


def share_of_each_partition(rng):
    starts = np.cumsum((0, *PARTS))
    shares = [(start, n, round(RATE * n)) for start, n in zip(starts, PARTS, strict=False)]
    return [
        np.concatenate([start + subset(rng, n, size) for start, n, size in shares])
        for _ in range(STEPS)
    ]


@pytest.mark.parametrize(
    ("fault", "shows_in"),
    [
        (fixed_size_batches, {"batch size"}),
        (share_of_each_partition, {"batch size"}),
        (shuffled_epochs, {"batch size", "row counts", "repeats"}),
        (lambda rng: poisson(rng, rate=1.02 * RATE), {"rate"}),
        (batches_used_twice, {"repeats"}),
        (favoured_rows, {"row counts"}),
    ],
)
def test_a_faulty_sampler_is_caught(fault, shows_in):
    found = p_values(fault(np.random.default_rng(3)), NUM_ROWS, RATE)
    assert {name for name, p in found.items() if p < ALPHA} >= shows_in


@pytest.mark.parametrize("sampling", ["poisson", "full"])
def test_batches_are_sorted_distinct_rows(sampling):
    sampler = SAMPLERS[sampling](1.0 if sampling == "full" else 0.3)
    rows = batch_of(sampler, np.random.default_rng(4), 500)
    assert rows.dtype == np.int64
    assert np.all(np.diff(rows) > 0)
    assert 0 <= rows[0] <= rows[-1] < 500


def test_a_subset_picks_every_row_alike():
    per_row = np.bincount(np.concatenate(fixed_size_batches(np.random.default_rng(8))))
    # Counts within a batch share its size, which shrinks their spread by (N - 1) / N.
    spread = STEPS * RATE * (1 - RATE) * NUM_ROWS / (NUM_ROWS - 1)
    statistic = ((per_row - STEPS * RATE) ** 2).sum() / spread
    assert two_sided(stats.chi2.cdf(statistic, NUM_ROWS - 1)) > ALPHA
