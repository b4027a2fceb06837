"""One unit with all its records moves a sum by at most the clip norm.

Guards 2 and 3 of the tests of a guarantee, where the unit holds several records. Soundness, rule 5:
the norm is that of the summed contribution.
"""

from functools import partial

import numpy as np
import pytest
from hypothesis import strategies as st
from scipy.stats import chi2

import pymc_dp.privacy.clipping
from pymc_dp.accounting.plan import Poisson
from pymc_dp.privacy.contribution import FactoredContribution
from pymc_dp.privacy.norms import row_norms
from pymc_dp.testing import deterministic_noise
from tests.guarantees import toys
from tests.guarantees.test_sensitivity import check_neighbours, number
from tests.guarantees.toys import before_noise, vectors, wall_of

C = 1.5

# --- neighbours ----------------------------------------------------------------------------------

UNIT = st.lists(st.tuples(number, number, number), max_size=5)


def by_unit(persons, kind=vectors):
    """Sum persons, each a list of vectors, over the bound that the noise covers."""
    rows = np.array([v for person in persons for v in person]).reshape(-1, 3)
    codes = np.repeat(np.arange(len(persons)), list(map(len, persons)))
    wall = wall_of(rows, kind(3), clip_norm=C, codes=codes)
    total, sd = before_noise(wall, None)
    return total / sd


@pytest.mark.parametrize("kind", [vectors, toys.rows])
def test_no_person_moves_a_sum_beyond_the_clip_norm(kind):
    check_neighbours(partial(by_unit, kind=kind), UNIT, 60, most=4)


def finite(person):
    rows = np.array(person).reshape(-1, 3)
    return rows[np.isfinite(row_norms(rows))] if len(rows) else rows


def clipped(rows):
    return np.fmin(1, C / np.maximum(row_norms(rows), 1e-300))[:, None] * rows / C


def clip_every_record(persons):
    return sum((clipped(finite(person)).sum(axis=0) for person in persons), np.zeros(3))


def clip_after_the_sum_over_persons(persons):
    rows = np.concatenate([finite(person) for person in persons] or [np.zeros((0, 3))])
    return clipped(rows.sum(axis=0, keepdims=True))[0]


@pytest.mark.parametrize("fault", [clip_every_record, clip_after_the_sum_over_persons])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_faulty_sum_is_caught(fault):
    with pytest.raises(AssertionError):
        check_neighbours(fault, UNIT, 300, most=4)


# --- odd persons ---------------------------------------------------------------------------------

LONG = np.array([30.0, -40.0, 0.0])
SHORT = np.array([0.3, 0.0, 0.0])


def total_of(*persons):
    rows = np.concatenate([np.reshape(person, (-1, 3)) for person in persons])
    codes = np.repeat(np.arange(len(persons)), [len(np.reshape(p, (-1, 3))) for p in persons])
    return before_noise(wall_of(rows, vectors(3), clip_norm=C, codes=codes)).total[:3]


def test_records_are_not_clipped_before_their_sum():
    np.testing.assert_allclose(total_of([LONG, SHORT - LONG]), SHORT, atol=1e-8)
    np.testing.assert_array_equal(total_of([LONG, -LONG]), 0)
    assert 0.99 * C <= np.linalg.norm(total_of([LONG] * 1000)) <= C


def test_bad_records_are_left_out_of_their_persons_sum():
    bad = [np.nan, 1.0, 1.0]
    np.testing.assert_allclose(total_of([SHORT, bad], [bad]), SHORT)
    np.testing.assert_array_equal(total_of([bad], [bad, bad]), 0)
    huge = [1e308, 0.0, 0.0]  # a person's sum overflows
    np.testing.assert_allclose(total_of([huge] * 3, [SHORT]), SHORT)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_person_spoils_the_sum_of_another():
    x = np.array([[1e280, 0.0, 0.0], [3e-200, 4e-200, 0.0]])
    overflowing = lambda batch, context, weights: weights @ (batch["x"] * 1e200)  # noqa: E731
    # zero times infinity spoils a whole sum
    assert np.isnan(overflowing({"x": x}, None, np.array([0.0, 1.0]))).any()
    contribution = vectors(3)._replace(weighted_sum=overflowing)
    wall = wall_of(x, contribution, clip_norm=10.0, codes=[0, 1])
    np.testing.assert_allclose(before_noise(wall).total[:3], [3.0, 4.0, 0.0])


@pytest.mark.parametrize("part_size", [1, 40])
def test_a_person_of_many_records_is_summed_in_parts_and_clipped_once(monkeypatch, part_size):
    rng = np.random.default_rng(3)
    persons = [rng.normal(size=(rows, 3)) for rows in (40, 1, 3, 90)]
    whole = total_of(*persons)
    monkeypatch.setattr(pymc_dp.privacy.clipping, "PART_SIZE", part_size)
    seen = []
    small = vectors(3)

    def norms(batch, context):
        seen.append(len(batch["x"]))
        return small.norms(batch, context)

    codes = np.repeat(np.arange(4), list(map(len, persons)))
    wall = wall_of(np.concatenate(persons), small._replace(norms=norms), clip_norm=C, codes=codes)
    np.testing.assert_allclose(before_noise(wall).total[:3], whole, rtol=1e-12)
    assert max(seen) <= 2 * max(1, part_size // 6)


def test_an_empty_batch_is_a_sum_of_nothing():
    empty = wall_of(np.ones((0, 3)), FactoredContribution(3, 3, None, None), codes=[])
    np.testing.assert_array_equal(before_noise(empty).total, 0)


# --- batches: units are drawn whole, each by a coin of its own ------------------------------------

SIZES = np.array([1, 2, 3, 10])
RATE = 0.3
DRAWS = 2000


def inclusions(codes):
    """Draw batches; tell which rows were in each."""
    settings = {"sampling": "poisson", "sample_rate": RATE, "clip_norm": 10.0, "count": DRAWS}
    wall = wall_of(np.eye(SIZES.sum()), codes=codes, **settings)
    return np.array([before_noise(wall).total for _ in range(DRAWS)])


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
    monkeypatch.setattr(
        pymc_dp.privacy.clipping, "subset", lambda rng, number, size: np.array(drawn, int)
    )
    with pytest.raises(AssertionError):
        check_sampling(inclusions(CODES), CODES)
