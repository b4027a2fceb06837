"""Units whose latents are integrated out: no unit moves a sum by more than the clip norm.

Guard 2 of the tests of a guarantee: a unit's records are computed together, and no unit's vector
depends on which other units stand before it, or on how a batch is cut.
"""

import numpy as np
import pytest

import pymc_dp.privacy.clipping
from pymc_dp.contributions.gradients import gradient
from pymc_dp.model import Column
from pymc_dp.privacy.contribution import OWNER
from pymc_dp.privacy.norms import clip_factors, row_norms
from tests.contributions import test_local_latents as toy
from tests.guarantees.toys import before_noise, wall_of

C = 0.8
RECORDS, SCORES = toy.scored(poisson=True)
ADVI = gradient(RECORDS, "python")


def columns_of(rows):
    X, y = toy.X[rows], toy.COUNTS[rows].astype("int64")
    return {"X": Column(X, 0, "float64"), "y": Column(y, 0, "int64")}


def total_of(rows, codes, contribution=ADVI):
    wall = wall_of(columns_of(rows), contribution, clip_norm=C, codes=codes)
    return before_noise(wall, toy.Z[None]).total


def alone(rows):
    """Compute the score of one person, and clip it."""
    score = SCORES(toy.batch_of(True, rows) | {OWNER: np.zeros(len(rows), int)}, toy.Z)
    vector = score.sum(axis=0)
    return vector * clip_factors(row_norms(vector[None]), C)


# a person of many records among persons of few
CODES = np.repeat(np.arange(9), [1, 2, 30, 1, 3, 1, 5, 4, 1])
PERSONS = {k: np.flatnonzero(CODES == k) for k in range(9)}
EVERY = np.arange(CODES.size)


@pytest.mark.parametrize("part_size", [1, 30, 2**23])
def test_however_a_batch_is_cut_a_persons_records_are_computed_together(monkeypatch, part_size):
    monkeypatch.setattr(pymc_dp.privacy.clipping, "PART_SIZE", part_size)
    expected = sum(alone(rows) for rows in PERSONS.values())
    np.testing.assert_allclose(total_of(EVERY, CODES), expected, rtol=1e-5, atol=1e-5)


def test_persons_cut_apart_are_caught(monkeypatch):
    monkeypatch.setattr(pymc_dp.privacy.clipping, "PART_SIZE", 30)
    found = total_of(EVERY, CODES, ADVI._replace(together=False))
    assert abs(found - sum(alone(rows) for rows in PERSONS.values())).max() > 0.05


@pytest.mark.parametrize("k", [0, 2, 6])
def test_a_person_moves_a_sum_by_the_own_clipped_vector_alone(k):
    left = CODES != k
    moved = total_of(EVERY, CODES) - total_of(EVERY[left], CODES[left])
    np.testing.assert_allclose(moved, alone(PERSONS[k]), rtol=1e-4, atol=1e-6)
    assert np.linalg.norm(moved) <= C


def test_a_unit_that_is_searched_for_long_moves_no_other_unit():
    X, y = toy.X[:3] * np.array([[1e3], [1.0], [1.0]]), np.array([0, 3, 2])
    beside = SCORES({"X": X, "y": y, OWNER: np.array([0, 1, 1])}, toy.Z)
    alone = SCORES({"X": X[1:], "y": y[1:], OWNER: np.array([0, 0])}, toy.Z)
    np.testing.assert_array_equal(beside[1:], alone)
