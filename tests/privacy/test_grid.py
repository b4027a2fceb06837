"""Sums on a grid: their sensitivity holds in exact arithmetic, with all that rounding does."""

from fractions import Fraction
from functools import reduce

import numpy as np
import pytest

from pymc_dp.privacy.clipping import _sum_of_clipped
from pymc_dp.privacy.randomness import FLOATING_SUM_MARGIN, MOST_UNITS, Grid, Total

SIZES = [1, 3, 40]


def exact_norm_squared(steps, grid):
    return sum(Fraction(int(x)) ** 2 for x in steps) * Fraction(grid.step) ** 2


def grid_for(size, clip_norm=1.7, noise=3.0):
    return Grid.of(clip_norm, noise * clip_norm, size, in_floating_point=False)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e9])
def test_a_record_moves_an_exact_sum_by_at_most_the_clip_norm(size, scale):
    grid, rng = grid_for(size), np.random.default_rng(size)
    vectors = rng.normal(size=(50, size)) * scale
    before = _sum_of_clipped(vectors[1:], grid).whole
    moved = _sum_of_clipped(vectors, grid).whole - before
    assert exact_norm_squared(moved, grid) <= Fraction(grid.clip_norm) ** 2


def test_without_the_margin_some_record_would_move_it_by_more():
    grid = grid_for(40)
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(100, 1, 40))
    vectors *= grid.clip_norm / np.linalg.norm(vectors, axis=2, keepdims=True)
    rounded = [grid.sum_of(vector).whole for vector in vectors]
    assert max(exact_norm_squared(x, grid) for x in rounded) > Fraction(grid.clip_norm) ** 2


def test_a_sum_does_not_depend_on_the_order_of_its_vectors():
    grid, rng = grid_for(3), np.random.default_rng(1)
    vectors = rng.normal(size=(1000, 3)) * 10.0 ** rng.integers(-8, 8, (1000, 1))
    total = _sum_of_clipped(vectors, grid).whole
    for _ in range(5):
        assert (_sum_of_clipped(rng.permutation(vectors), grid).whole == total).all()
    # those of floating point do
    sums = {rng.permutation(vectors).sum(axis=0).tobytes() for _ in range(5)}
    assert len(sums) > 1


@pytest.mark.parametrize(("noise", "size"), [(0.3, 1), (3.0, 10**4), (1e4, 10**6)])
def test_a_grid_is_a_fine_power_of_two_whose_sums_fit_into_whole_numbers(noise, size):
    exact, floating = (Grid.of(1.3, noise * 1.3, size, kind) for kind in (False, True))
    assert np.frexp(exact.step)[0] == 0.5
    assert exact.step <= noise * 1.3 / 2**20  # rounding adds less than 1e-13 of the variance
    assert MOST_UNITS * 1.3 / exact.step < 2**63
    assert exact.largest_norm > 0.999 * 1.3
    assert floating.largest_norm > 0.997 * 1.3


def test_parts_of_floating_point_sums_are_added_without_an_error():
    grid, rng = grid_for(2), np.random.default_rng(2)
    parts = [rng.normal(size=2) * 1e6 for _ in range(300)]
    total = reduce(Total.plus, map(grid.parted, parts))
    exact = [sum(Fraction(float(part[k])) for part in parts) / Fraction(grid.step) for k in (0, 1)]
    found = [Fraction(int(w)) + Fraction(float(r)) for w, r in zip(*total, strict=True)]
    assert max(abs(float(a - b)) for a, b in zip(found, exact, strict=True)) < 1e-9
    assert abs(float(exact[0]) - grid.rounded(total)[0]) <= 0.5


def test_the_margin_of_floating_point_sums_covers_what_rounding_does():
    rng, worst = np.random.default_rng(3), 0.0
    for _ in range(20):
        vectors = rng.normal(size=(4096, 2)) * [1.0, 1e-3]
        exact = [sum(map(Fraction, column.tolist())) for column in vectors.T]
        error = [
            abs(float(Fraction(float(s)) - e)) for s, e in zip(vectors.sum(0), exact, strict=True)
        ]
        worst = max(worst, np.linalg.norm(error) / np.linalg.norm(vectors, axis=1).sum())
    assert 0 < 2 * MOST_UNITS * worst < FLOATING_SUM_MARGIN


def test_without_noise_there_is_no_grid():
    grid = Grid.of(np.inf, 0.0, 3, in_floating_point=True)
    assert grid.step == 0
    assert grid.largest_norm == np.inf
    assert grid.value(np.array([0.1])) == [0.1]
