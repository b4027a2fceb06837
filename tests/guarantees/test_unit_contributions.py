"""Every method's records, summed by unit: a thousand of them move a sum by at most the clip norm.

Guard 2 of the tests of a guarantee, where the unit holds several records. Soundness, rule 5.
"""

from functools import cache

import numpy as np
import pytest
from hypothesis import strategies as st

from pymc_dp.contributions.gradients import gradient, padded, plain_gradient
from pymc_dp.privacy.contribution import unit_sums, unit_vector
from tests.guarantees import test_sensitivity, vips_toys
from tests.guarantees.test_sensitivity import RECORDS
from tests.guarantees.test_units import check_neighbours
from tests.guarantees.toys import before_noise, columns_of_rows, wall_of
from tests.zoo import separated

C = 1.5
MANY = 1000


@cache
def made(build, method):
    if method == "dp_advi":
        records, columns = separated(build())
        return gradient(records, "python"), columns, np.full((1, records.size), 0.3)
    found = vips_toys.toy(build, method=method)
    return found.contribution, found.columns, found.contexts[1]


CASES = [
    (test_sensitivity.logistic, "dp_advi"),
    (test_sensitivity.two_outcomes, "dp_advi"),
    (vips_toys.gaussian_with_precision, "vips"),
    (vips_toys.categorical, "vips"),
    (vips_toys.mixture, "vips"),
    (vips_toys.log_link, "dp_sep"),
    (vips_toys.unknown_shares, "dp_sep"),
]


def summed(case, rows, codes):
    """Sum some rows of the toy's data, possibly repeated, by unit; in clip norms."""
    contribution, columns, context = made(*case)
    held = {
        name: column._replace(values=np.take(column.values, rows, axis=column.axis))
        for name, column in columns.items()
    }
    wall = wall_of(held, contribution, clip_norm=C, codes=codes)
    return before_noise(wall, context).total / C


OTHERS = np.arange(12)
THEIR_CODES = OTHERS // 3


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__}-{case[1]}")
def test_a_unit_of_a_thousand_records_moves_a_sum_by_at_most_the_clip_norm(case):
    without = summed(case, OTHERS, THEIR_CODES)
    for records in (np.arange(MANY) % 20, np.full(MANY, 5)):  # all sorts; one record repeated
        rows = np.concatenate([records, OTHERS])
        codes = np.concatenate([np.full(MANY, 9), THEIR_CODES])
        shuffled = np.random.default_rng(0).permutation(len(rows))
        moved = np.linalg.norm(summed(case, rows[shuffled], codes[shuffled]) - without)
        assert 0.01 < moved <= 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__}-{case[1]}")
def test_clipping_records_in_place_of_units_is_caught(case):
    rows = np.concatenate([np.full(MANY, 5), OTHERS])
    assert np.linalg.norm(summed(case, rows, None) - summed(case, OTHERS, None)) > 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__}-{case[1]}")
def test_units_of_one_record_are_records(case):
    rows = np.arange(20)
    by_unit, by_record = summed(case, rows, rows), summed(case, rows, None)
    np.testing.assert_allclose(by_unit, by_record, rtol=0, atol=3e-8)  # some grid steps


# --- neighbours, with whatever values ------------------------------------------------------------


def by_model(build):
    contribution, columns, context = made(build, "dp_advi")

    def covered(persons):
        rows = [record for person in persons for record in person]
        codes = np.repeat(np.arange(len(persons)), list(map(len, persons)))
        held = columns_of_rows(columns, rows)
        total, sd = before_noise(wall_of(held, contribution, clip_norm=C, codes=codes), context)
        return total / sd

    return covered


@pytest.mark.parametrize("build", [test_sensitivity.logistic, test_sensitivity.two_outcomes])
def test_no_person_moves_a_models_sum_beyond_the_clip_norm(build):
    unit = st.lists(RECORDS[build.__name__], max_size=4)
    check_neighbours(by_model(build), unit, examples=60)


# --- the records' own vectors --------------------------------------------------------------------

POINTS = np.random.default_rng(2).normal(size=(2, 8))


def test_rows_are_the_vectors_that_a_weighted_sum_adds_up():
    records, columns = separated(test_sensitivity.logistic())
    axes = {name: column.axis for name, column in columns.items()}
    points = POINTS[:, : records.size]
    several = gradient(records, "python", draws=2)
    check_rows(columns, gradient(records, "python"), points[:1])
    check_rows(columns, several, points)
    check_rows(columns, padded(several, axes), points)
    of_paper = plain_gradient(records, "python", 2)
    check_rows(columns, of_paper, (points, points + 1))


def check_rows(columns, contribution, context):
    at = contribution.prepare({n: c.take(np.arange(20)) for n, c in columns.items()}, context)
    owner, good = np.repeat([0, 1, 3], [5, 1, 14]), np.arange(20) % 7 > 0
    unit = unit_vector(contribution)
    by_rows = unit_sums(unit, at, context, owner, good)
    by_weights = unit_sums(unit._replace(rows=None), at, context, owner, good)
    assert by_rows.shape == (4, contribution.size)
    np.testing.assert_allclose(by_rows, by_weights, rtol=1e-9, atol=1e-12)
