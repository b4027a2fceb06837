"""Records that no arithmetic can take neither poison the sum nor escape the clip norm.

Guard 2 of the tests of a guarantee. Soundness, rule 1: bad rows are replaced before the graph,
and a sum that is not finite is handed out by nobody; rule 2: double precision throughout, and
norms that survive where squares do not. An empty batch is released like any other.
"""

import math
import traceback

import numpy as np
import pymc as pm
import pytest

import pymc_dp.privacy.clipping
from pymc_dp import ReleaseError
from pymc_dp.contributions.gradients import gradient
from pymc_dp.model import Column
from pymc_dp.privacy.contribution import FactoredContribution, Query, RowContribution
from pymc_dp.privacy.norms import row_norms
from pymc_dp.privacy.randomness import FLOATING_SUM_MARGIN
from tests import zoo
from tests.guarantees.toys import before_noise, vectors, wall_of
from tests.zoo import separated

GOOD = np.random.default_rng(0).normal(size=(6, 2))
BAD = [np.nan, np.inf, -np.inf, 1e300]


@pytest.fixture(scope="module")
def compiled():
    records, columns = separated(zoo.line(GOOD, np.zeros(6), x="x"))
    return gradient(records, "python"), columns


def covered(compiled, x, y, **settings):
    contribution, columns = compiled
    held = {
        "x": columns["x"]._replace(values=np.asarray(x)),
        "y": columns["y"]._replace(values=np.asarray(y)),
    }
    return before_noise(wall_of(held, contribution, **settings), np.ones((1, 2))).total


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_record_leaves_the_sum_as_it_was(compiled, bad):
    alone = covered(compiled, GOOD, np.zeros(6))
    assert np.isfinite(alone).all()
    for place in (0, 3, 6):
        x = np.insert(GOOD, place, [bad, -bad], axis=0)
        np.testing.assert_array_equal(covered(compiled, x, np.zeros(7)), alone)
    assert not covered(compiled, np.full((3, 2), bad), np.zeros(3)).any()
    x, y = np.vstack([GOOD, [[1.0, 1.0]]]), np.append(np.zeros(6), bad)
    if not np.isfinite(bad):
        np.testing.assert_array_equal(covered(compiled, x, y), alone)


def test_an_index_outside_its_groups_is_a_bad_record():
    with pm.Model() as model:
        g = pm.Normal("g", shape=3)
        index = pm.Data("index", np.repeat([0, 1, 2], 5))
        pm.Normal("y", g[index], 1.0, observed=np.ones(15))
    records, columns = separated(model)
    contribution = gradient(records, "python")

    def total(index):
        held = {
            "index": columns["index"]._replace(values=np.array(index)),
            "y": columns["y"]._replace(values=np.ones(len(index))),
        }
        return before_noise(wall_of(held, contribution), np.zeros((1, 3))).total

    np.testing.assert_array_equal(total([0, 1, 3, -4, 2**30]), total([0, 1]))


def fails(batch, context, *weights):
    raise ValueError(f"the value was {batch['x'][0, 0]}")


def returns_infinity(batch, context, weights):
    return np.full(2, np.inf)


BROKEN = [
    FactoredContribution(2, 2, fails, vectors(2).weighted_sum),
    FactoredContribution(2, 2, vectors(2).norms, fails),
    FactoredContribution(2, 2, vectors(2).norms, returns_infinity),
    vectors(2)._replace(prepare=fails),
    RowContribution(2, 2, fails),
    RowContribution(2, 2, lambda batch, context: batch["x"][:1]),
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_release_that_fails_hands_nothing_out_and_says_no_value(broken, capfd):
    wall = wall_of(np.full((4, 2), 123456.78125), broken, count=2)
    with pytest.raises(ReleaseError) as caught:
        wall.release(Query("score", None))
    said = [*traceback.format_exception(caught.value), *capfd.readouterr()]
    assert "123456" not in "".join(said)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert len(wall.made) == 1  # paid for all the same


def test_records_in_single_precision_are_added_in_double():
    records = np.full((2**17, 1), 0.7, dtype=np.float32)
    one_more = np.vstack([np.full((1, 1), 0.9, np.float32), records])
    exact = 2**17 * float(np.float32(0.7))

    def total(x):
        return before_noise(wall_of({"x": Column(x, 0, "float64")}, vectors(1))).total[0]

    assert total(records) == pytest.approx(exact, rel=1e-12)
    assert total(one_more) - total(records) == pytest.approx(0.9, rel=1e-6)
    in_single = np.cumsum(records, dtype=np.float32)[-1]
    assert abs(in_single - exact) > 50  # the fault that this test can see, in clip norms


@pytest.mark.parametrize(
    ("x", "residual", "dtype"), [(1e-23, 1e25, np.float32), (1e-200, 1e202, np.float64)]
)
def test_a_record_whose_squares_vanish_is_clipped(compiled, x, residual, dtype):
    # its contribution is 100; a norm from squares says 0, and it would pass unclipped
    total = covered(compiled, np.array([[x, 0.0]], dtype), np.array([residual], dtype))
    assert np.square(dtype(x)) == 0
    assert total[0] == pytest.approx(1 - FLOATING_SUM_MARGIN, rel=2e-6)
    assert total[0] < 1


WHOLE = [np.ones((5, 9), bool), np.full((5, 3), 2**32 + 1), np.full((5, 2), -128, "int8")]


@pytest.mark.parametrize("rows", WHOLE, ids=["booleans", "large integers", "small integers"])
def test_norms_of_whole_numbers_are_those_of_real_numbers(rows):
    np.testing.assert_allclose(row_norms(rows), np.linalg.norm(rows.astype(float), axis=1))


@pytest.mark.parametrize("sampling", ["poisson", "full"])
def test_an_empty_batch_is_noise_and_calls_no_graph(sampling):
    unused = FactoredContribution(3, 3, fails, fails)
    rows, rate = (50, 1e-12) if sampling == "poisson" else (0, 1.0)
    wall = wall_of(np.ones((rows, 3)), unused, sampling=sampling, sample_rate=rate)
    noisy = wall.release(Query("score", None))
    assert noisy.value.all()
    assert noisy.sd == 1.0


@pytest.mark.parametrize("part_size", [1, 40])
def test_a_sum_in_parts_is_the_sum(monkeypatch, part_size):
    x = np.random.default_rng(3).normal(size=(101, 3))
    x[[0, 5, 6, 7, 8, 100]] = np.nan
    whole = before_noise(wall_of(x))
    monkeypatch.setattr(pymc_dp.privacy.clipping, "PART_SIZE", part_size)
    parts = before_noise(wall_of(x))
    np.testing.assert_allclose(parts.total, whole.total, rtol=1e-12)
    assert parts.sd == whole.sd


def test_clipping_leaves_a_margin_for_rounding_and_a_short_record_as_it_is():
    norm = np.linalg.norm(before_noise(wall_of(np.array([[3.0, 4.0]]), clip_norm=2.0)).total)
    assert 2 * (1 - FLOATING_SUM_MARGIN - 2e-6) < norm < 2
    short = before_noise(wall_of(np.array([[0.3, 0.4]])))
    assert short.total.tolist() == pytest.approx([0.3, 0.4], abs=short.sd * 2.0**-28)


def test_a_fit_without_noise_may_leave_records_unclipped():
    wall = wall_of(np.array([[30.0, 40.0]]), clip_norm=math.inf, noise_multiplier=0.0)
    assert wall.release(Query("score", None)).value.tolist() == [30.0, 40.0]
