"""Counts of lengths of scores: no record adds more than the norm that rounds allow for them.

Guards 1 and 2 of the tests of a guarantee; whole vectors of rounds are in test_whitened_norms.
"""

import numpy as np
import pytest

from pymc_dp.contributions import whitened
from pymc_dp.contributions.scores import BOTH, DRAWS
from pymc_dp.contributions.whitened import BINS, CENTRES, COUNTS_NORM, counts, shared

MANY = (0, len(BOTH), DRAWS)


def check_norms(drawn):
    rng = np.random.default_rng(drawn)
    norms = 10.0 ** rng.uniform(-300, 300, (2000, 1 + drawn))
    norms[:1000] = 2.0 ** rng.integers(-4, 12, (1000, 1 + drawn))
    norms[::7, 0] = 0.0
    chances = rng.dirichlet(np.full(drawn, 0.1), 2000) if drawn else np.zeros((2000, 0))
    with np.errstate(all="ignore"):
        rows = counts(norms, chances)
    found = np.linalg.norm(rows, axis=1)
    assert found.max() <= COUNTS_NORM * (1 + 1e-12)
    # of two outcomes, observed and drawn lengths in one bin leave nothing
    assert np.mean(found > 0) >= (0.9 if drawn == len(BOTH) else 1)


@pytest.mark.parametrize("drawn", MANY)
def test_counts_of_lengths_of_any_size_stay_within_their_norm(drawn):
    check_norms(drawn)


def whole_units(norms, chances):
    """Count a whole unit in both of a length's bins."""
    places = np.clip(np.log2(norms) - whitened.LEAST, 0, BINS - 1)
    each = (abs(places[..., None] - np.arange(BINS)) < 1).astype(float)
    return (each * chances[..., None]).sum(axis=1)


def test_a_record_that_counts_in_two_bins_is_seen(monkeypatch):
    monkeypatch.setattr(whitened, "shared", whole_units)
    with pytest.raises(AssertionError):
        check_norms(DRAWS)


def test_the_bound_is_reached():
    """A smaller bound would be wrong: observed and drawn lengths in two bins, alone there."""
    [row] = counts(np.array([[8.0, 1.0]]), np.ones((1, 1)))
    assert np.linalg.norm(row) == pytest.approx(COUNTS_NORM)


def test_a_length_that_is_a_little_off_moves_its_counts_a_little():
    """Computers differ in last digits; no such difference may move a record to another bin."""
    lengths = np.concatenate([CENTRES, 2.0 ** np.linspace(-6, 14, 2001)])
    near = lengths * (1 + 1e-12 * np.random.default_rng(0).normal(size=lengths.shape))
    each, moved = (shared(x[:, None], np.ones((len(x), 1))) for x in (lengths, near))
    assert abs(each - moved).max() < 1e-10
    hard = (each > 0.5) != (moved > 0.5)
    assert hard.any()  # of bins with edges some would


def test_under_the_model_observed_outcomes_are_as_long_as_drawn_ones():
    """However far out records' predictors are: on average no bin has an excess."""
    rng, rows = np.random.default_rng(0), 20_000
    leverage = np.exp(rng.normal(0, 2, (rows, 1)))
    norms = leverage * abs(rng.standard_t(3, (rows, 9)))
    chances = np.full((rows, 8), 1 / 8)
    each = counts(norms, chances)
    mean, sd = each.mean(axis=0), each.std(axis=0)
    assert abs(mean).max() < (5 * sd / rows**0.5).max()
    norms[:, 0] *= 1.2
    longer = counts(norms, chances).mean(axis=0)
    assert (abs(longer) > 5 * sd / rows**0.5).any()
