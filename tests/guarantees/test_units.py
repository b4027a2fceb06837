"""One unit with all its records moves a sum by at most the clip norm.

Guard 2 of the tests of a guarantee, where the unit holds several records. Soundness, rule 5: the
norm is that of the summed contribution.
"""

import numpy as np
import pytest
from hypothesis import strategies as st

import pymc_dp.privacy.clipping
import pymc_dp.privacy.private_data
from pymc_dp.privacy.contribution import FactoredContribution
from pymc_dp.privacy.norms import row_norms
from pymc_dp.privacy.private_data import units_of
from tests.guarantees import test_sensitivity, toys
from tests.guarantees.test_sensitivity import counted, number
from tests.guarantees.toys import before_noise, vectors, wall_of

C = 1.5
MANY = 1000
CODES = np.array([4, 30, 2, 7, 4, 30, 30, 7, 30, 30, 7, 30, 30, 30, 30, 30])


# --- neighbours ----------------------------------------------------------------------------------

vector = st.tuples(number, number, number)
unit = st.lists(vector, max_size=5)


def by_unit(persons, quantile=None, kind=vectors):
    """Sum persons, each a list of vectors, over the joint bound that the noise covers."""
    contribution, context, query = kind(3), None, {}
    if quantile is not None:
        contribution, context, query["clip_norm"] = counted(contribution, context, quantile)
    rows = np.array([v for person in persons for v in person]).reshape(-1, 3)
    codes = np.repeat(np.arange(len(persons)), list(map(len, persons)))
    wall = wall_of(rows, contribution, clip_norm=C, codes=codes)
    total, sd = before_noise(wall, context, **query)
    return total / sd


def check_neighbours(covered, unit=unit, examples=150):
    """Compare data with one person more, and with that person replaced by another."""
    test_sensitivity.check_neighbours(covered, unit, examples, most=4)


def test_no_person_moves_a_sum_beyond_the_clip_norm():
    check_neighbours(by_unit)
    check_neighbours(lambda persons: by_unit(persons, kind=toys.rows))


@pytest.mark.parametrize("quantile", [0.1, 0.5])
def test_the_count_of_clipped_persons_is_covered_together_with_the_sum(quantile):
    for kind in (vectors, toys.rows):
        check_neighbours(lambda persons: by_unit(persons, quantile, kind), examples=60)  # noqa: B023


def finite(person):
    rows = np.array(person).reshape(-1, 3)
    return rows[np.isfinite(row_norms(rows))] if len(rows) else rows


def clipped(rows):
    return np.fmin(1, C / np.maximum(row_norms(rows), 1e-300))[:, None] * rows / C


def clip_every_record(persons):
    return sum((clipped(finite(person)).sum(axis=0) for person in persons), np.zeros(3))


def clip_by_the_largest_record(persons):
    parts = [finite(person) for person in persons]
    shares = [np.fmin(1, C / row_norms(rows).max()) for rows in parts if len(rows)]
    return sum(
        (s * rows.sum(axis=0) / C for s, rows in zip(shares, filter(len, parts), strict=True)),
        np.zeros(3),
    )


def clip_after_the_sum_over_persons(persons):
    rows = np.concatenate([finite(person) for person in persons] or [np.zeros((0, 3))])
    return clipped(rows.sum(axis=0, keepdims=True))[0]


def clip_every_part(persons):
    return by_unit([part for person in persons for part in (person[:2], person[2:])])[:3]


@pytest.mark.parametrize(
    "fault",
    [
        clip_every_record,
        clip_by_the_largest_record,
        clip_after_the_sum_over_persons,
        clip_every_part,
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_faulty_sum_is_caught(fault):
    with pytest.raises(AssertionError):
        check_neighbours(fault, examples=300)


# --- odd persons ---------------------------------------------------------------------------------

LONG = np.array([30.0, -40.0, 0.0])
SHORT = np.array([0.3, 0.0, 0.0])


def total_of(*persons, clip_norm=C):
    rows = np.concatenate([np.reshape(person, (-1, 3)) for person in persons])
    codes = np.repeat(np.arange(len(persons)), [len(np.reshape(p, (-1, 3))) for p in persons])
    return before_noise(wall_of(rows, vectors(3), clip_norm=clip_norm, codes=codes)).total[:3]


def test_a_person_whose_records_all_point_one_way_reaches_the_clip_norm():
    assert 0.99 * C <= np.linalg.norm(total_of([LONG] * MANY)) <= C


def test_records_are_not_clipped_before_their_sum():
    np.testing.assert_allclose(total_of([LONG, SHORT - LONG]), SHORT, atol=1e-8)


def test_a_persons_records_may_cancel():
    np.testing.assert_array_equal(total_of([LONG, -LONG]), 0)


def test_bad_records_are_left_out_of_their_persons_sum():
    bad = [np.nan, 1.0, 1.0]
    np.testing.assert_allclose(total_of([SHORT, bad], [bad]), SHORT)
    np.testing.assert_array_equal(total_of([bad], [bad, bad]), 0)


def test_a_person_whose_sum_overflows_adds_nothing():
    huge = [1e308, 0.0, 0.0]
    np.testing.assert_allclose(total_of([huge] * 3, [SHORT]), SHORT)


def overflowing():
    """Overflow in the sum where the norm does not: zero times infinity spoils a whole sum."""
    return vectors(3)._replace(
        weighted_sum=lambda batch, context, weights: weights @ (batch["x"] * 1e200)
    )


def test_no_person_spoils_the_sum_of_another():
    x = np.array([[1e280, 0.0, 0.0], [3e-200, 4e-200, 0.0]])
    wall = wall_of(x, overflowing(), clip_norm=10.0, codes=[0, 1])
    np.testing.assert_allclose(before_noise(wall).total[:3], [3.0, 4.0, 0.0])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_spoilt_sum_would_be_seen():
    x = np.array([[1e280, 0.0, 0.0], [3e-200, 4e-200, 0.0]])
    assert np.isnan(overflowing().weighted_sum({"x": x}, None, np.array([0.0, 1.0]))).any()


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


def test_the_noise_is_that_of_the_plan():
    wall = wall_of(np.ones((6, 3)), clip_norm=C, noise_multiplier=0.7, codes=[0, 0, 0, 1, 1, 2])
    assert before_noise(wall).sd == pytest.approx(0.7 * C)


# --- the value -----------------------------------------------------------------------------------


def test_units_keep_every_row_once():
    units = units_of(CODES, "id")
    rows, owner = units.rows(np.array([3, 0]))
    np.testing.assert_array_equal(CODES[rows], np.where(owner == 0, 30, 2))
    np.testing.assert_array_equal(np.unique(units.codes), np.arange(4))
    np.testing.assert_array_equal(np.sort(units.rows(np.arange(4))[0]), np.arange(16))


@pytest.mark.parametrize("most", [1, 4, 2**20])
def test_cutting_keeps_every_person_once(most):
    units = units_of(CODES, "id")
    chosen = np.array([0, 2, 3])
    parts = units.cut(chosen, most)
    np.testing.assert_array_equal(np.concatenate(parts), chosen)
    assert units.cut(chosen[:0], most) == []


def test_an_empty_batch_is_a_sum_of_nothing():
    empty = wall_of(np.ones((0, 3)), FactoredContribution(3, 3, None, None), codes=[])
    np.testing.assert_array_equal(before_noise(empty).total, 0)
