"""Units are drawn whole, each by a coin of its own.

Guard 3 of the tests of a guarantee, where the privacy unit holds several records.
"""

import numpy as np
import pytest
from scipy.stats import chi2

from pymc_dp.privacy import clipping
from pymc_dp.sampling.samplers import Poisson
from pymc_dp.testing import deterministic_noise
from tests.guarantees.toys import before_noise, wall_of

SIZES = np.array([1, 2, 3, 10])
RATE = 0.3
DRAWS = 2000


def inclusions(codes, count=DRAWS):
    """Draw batches; tell which rows were in each."""
    rows = np.eye(SIZES.sum())
    wall = wall_of(
        rows, sampling="poisson", sample_rate=RATE, clip_norm=10.0, count=count, codes=codes
    )
    return np.array([before_noise(wall).total for _ in range(count)])


def check_sampling(seen, codes):
    """Rows of a unit come together, and units come as independent coins of the rate do."""
    order = np.argsort(codes, kind="stable")
    persons = np.split(seen[:, order], np.cumsum(SIZES)[:-1], axis=1)
    assert all((person == person[:, :1]).all() for person in persons)
    came = np.column_stack([person[:, 0] for person in persons]).astype(int)
    cells = np.bincount(came @ 2 ** np.arange(4), minlength=16)
    ones = np.array([bin(cell).count("1") for cell in range(16)])
    expected = len(seen) * RATE**ones * (1 - RATE) ** (4 - ones)
    assert ((cells - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 15)


CODES = np.random.default_rng(0).permutation(np.repeat([7, 2, 30, 4], SIZES[[2, 0, 3, 1]]))


@pytest.fixture
def repeatable():
    with deterministic_noise(1):
        yield


def test_persons_are_drawn_whole_at_the_sample_rate(repeatable):
    assert (np.unique(CODES, return_counts=True)[1] == [1, 2, 3, 10]).all()
    check_sampling(inclusions(CODES), CODES)


def test_drawing_records_is_caught(repeatable):
    with pytest.raises(AssertionError):
        check_sampling(inclusions(codes=None), CODES)


def test_drawing_persons_by_their_records_is_caught(repeatable, monkeypatch):
    """A person of ten records must not come more often than one of one record."""
    drawn = []

    def by_record(sampler, rng, numbers):
        records = rng.random(int(SIZES.sum())) < RATE
        drawn[:] = np.unique(np.repeat(np.arange(4), SIZES)[records])
        return np.array([len(drawn)])

    monkeypatch.setattr(Poisson, "sizes", by_record)
    monkeypatch.setattr(clipping, "subset", lambda rng, number, size: np.array(drawn, int))
    with pytest.raises(AssertionError):
        check_sampling(inclusions(CODES), CODES)
