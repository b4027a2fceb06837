"""The last steps' releases: a record's norm is that of what it adds, and no record adds more.

Guards 1 and 2 of the tests of a guarantee, for scores with curvatures and for the histogram of
curvatures. Soundness, rule 12: score and curvature are one vector, clipped jointly.
"""

from functools import cache

import numpy as np
import pymc as pm
import pytest

import pymc_dp.clipped_sum
from pymc_dp.contributions import curvature, gradient
from pymc_dp.contributions.curvature import At, curves, score_and_curvature, split
from pymc_dp.contributions.lengths import BINS, EDGES, lengths
from pymc_dp.contributions.symmetric import smat, svec
from pymc_dp.records import separate
from tests import zoo
from tests.privacy import test_sensitivity
from tests.privacy.test_sensitivity import RECORDS, check_neighbours
from tests.privacy.toys import before_noise, wall_of


def straight():
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        x = pm.Data("x", rng.normal(size=(20, 2)))
        pm.Normal("y", x @ pm.Normal("b", shape=2), 1.0, observed=rng.normal(size=20))
    return model


MODELS = {
    "straight": straight,
    "logistic": test_sensitivity.logistic,
    "two_outcomes": test_sensitivity.two_outcomes,
    **{
        name: lambda name=name: zoo.build(zoo.ACCEPTED[name])
        for name in ("hierarchical", "normal_mixture", "categorical", "weibull")
    },
}


@cache
def separated(name):
    return separate(MODELS[name]())


@cache
def made(name, many=curvature.MANY):
    """Compile both contributions; beyond ``many`` latents curvatures are outer products."""
    records, columns = separated(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curvature, "MANY", many)
        bent = curves(records, "python")
        return score_and_curvature(records, bent), lengths(records, bent, 1.0), columns


def at(name, longest=1.5, steepest=0.7, seed=1):
    size = separated(name)[0].size
    return At(np.random.default_rng(seed).normal(0, 0.5, size), longest, steepest)


def first_rows(columns, count=13):
    return {name: column.take(np.arange(count)) for name, column in columns.items()}


def one_by_one(contribution, batch, context):
    """Every record's vector: a weighted sum in which it alone has a weight."""
    prepared = contribution.prepare(batch, context)
    vectors = [contribution.weighted_sum(prepared, context, one) for one in np.eye(13)]
    return np.array(vectors), contribution.norms(prepared, context)


BOTH_WAYS = pytest.mark.parametrize("many", [curvature.MANY, 0], ids=["differences", "products"])


@BOTH_WAYS
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("longest", [1e-3, 1.5, 1e6])
def test_norms_are_those_of_the_vectors_that_are_summed(name, many, longest):
    contribution, _, columns = made(name, many)
    context = at(name, longest, longest**2)
    vectors, norms = one_by_one(contribution, first_rows(columns), context)
    assert vectors.shape == (13, contribution.size)
    np.testing.assert_allclose(norms, np.linalg.norm(vectors, axis=1), rtol=1e-9)
    assert norms.max() <= context.clip_norm * (1 + 1e-12)


@BOTH_WAYS
@pytest.mark.parametrize("name", MODELS)
def test_the_sum_is_that_of_its_records(name, many):
    contribution, _, columns = made(name, many)
    vectors, _ = one_by_one(contribution, first_rows(columns), at(name))
    weights = np.random.default_rng(3).uniform(size=13)
    prepared = contribution.prepare(first_rows(columns), at(name))
    together = contribution.weighted_sum(prepared, at(name), weights)
    np.testing.assert_allclose(together, weights @ vectors, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_a_records_vector_holds_its_score_its_curvature_and_a_one(name):
    contribution, _, columns = made(name)
    records, _ = separated(name)
    context = at(name, longest=1e9, steepest=1e9)  # shortens nothing
    vectors, _ = one_by_one(contribution, first_rows(columns), context)
    score = gradient(records, "python")

    def slope(point):
        points = point[None]
        prepared = score.prepare(first_rows(columns), points)
        return np.array([score.weighted_sum(prepared, points, one) for one in np.eye(13)])

    for vector, of_score in zip(vectors, slope(context.point), strict=True):
        sums = split(vector, context)
        np.testing.assert_allclose(sums.score, of_score, rtol=1e-9, atol=1e-9)
    step = 1e-5 * np.eye(records.size)
    hessian = -np.stack(
        [(slope(context.point + e) - slope(context.point - e)) / 2e-5 for e in step], axis=2
    )
    found = np.array([split(vector, context).curvature for vector in vectors])
    np.testing.assert_allclose(found, hessian, rtol=1e-3, atol=2e-5 * np.abs(hessian).max() + 1e-6)


def test_beyond_many_latents_a_curvature_is_the_scores_outer_product():
    contribution, _, columns = made("logistic", 0)
    context = at("logistic", longest=1e9, steepest=1e9)
    vectors, _ = one_by_one(contribution, first_rows(columns), context)
    for vector in vectors:
        sums = split(vector, context)
        np.testing.assert_allclose(sums.curvature, np.outer(sums.score, sums.score), atol=1e-8)


# --- neighbours, with whatever values ------------------------------------------------------------


def covered_by(contribution, columns, context, clip_norm):
    """Map records to the vector that a full release adds noise to, in clip norms."""

    def covered(rows):
        held = {
            leaf: column._replace(
                values=np.array([row[leaf] for row in rows], column.values.dtype).reshape(
                    len(rows), *column.values.shape[1:]
                )
            )
            for leaf, column in columns.items()
        }
        wall = wall_of(held, contribution, clip_norm=clip_norm)
        return before_noise(wall, context).total[:-1] / clip_norm  # last: what was clipped

    return covered


@BOTH_WAYS
@pytest.mark.parametrize("name", ["logistic", "two_outcomes"])
def test_no_record_moves_scores_and_curvatures_beyond_the_clip_norm(name, many):
    contribution, _, columns = made(name, many)
    covered = covered_by(contribution, columns, at(name), at(name).clip_norm)
    check_neighbours(covered, RECORDS[name], examples=60)


@BOTH_WAYS
@pytest.mark.parametrize("name", ["logistic", "two_outcomes"])
def test_no_record_moves_the_histogram_by_more_than_one(name, many):
    _, histogram, columns = made(name, many)
    covered = covered_by(histogram, columns, at(name).point, 1.0)
    check_neighbours(covered, RECORDS[name], examples=60)


LOUD = {"x": 3.0, "cost": 1e4, "weight": -1e3}


@BOTH_WAYS
def test_some_record_reaches_the_bounds(many):
    contribution, histogram, columns = made("two_outcomes", many)
    context = at("two_outcomes")
    covered = covered_by(contribution, columns, context, context.clip_norm)
    assert 0.99 <= np.linalg.norm(covered([LOUD]) - covered([])) <= 1
    counted = covered_by(histogram, columns, context.point, 1.0)
    assert 0.99 <= np.linalg.norm(counted([LOUD]) - counted([])) <= 1


# --- extreme records -----------------------------------------------------------------------------


QUIET = {"x": (0.0, 0.0), "y": 0.0}
ORDINARY = {"x": (0.3, -0.2), "y": 1.0}
# scores of 1e200 and 1e-200, and what has none: not a number, infinite, overflowing
LONG = {"x": (1.0, 0.0), "y": 1e200}
SHORT = {"x": (1e-200, 0.0), "y": 1.0}
BAD = [
    {"x": (np.nan, 0.0), "y": 0.0},
    {"x": (1.0, 0.0), "y": np.nan},
    {"x": (np.inf, 0.0), "y": 0.0},
    {"x": (1.0, 0.0), "y": np.inf},
    {"x": (1e300, 1.0), "y": -1e300},
]


def everywhere():
    return At(np.array([0.4, -0.3]), 1.5, 0.7)


@BOTH_WAYS
@pytest.mark.parametrize("bad", BAD, ids=str)
def test_a_record_without_a_score_adds_nothing_and_spoils_nothing(bad, many):
    contribution, histogram, columns = made("straight", many)
    context = everywhere()
    for part, ask, clip in (
        (contribution, context, context.clip_norm),
        (histogram, context.point, 1.0),
    ):
        covered = covered_by(part, columns, ask, clip)
        for others in ([], [ORDINARY], [QUIET, ORDINARY, LONG]):
            np.testing.assert_array_equal(covered([*others, bad]), covered(others))


@BOTH_WAYS
@pytest.mark.parametrize("record", [QUIET, ORDINARY, SHORT], ids=["quiet", "ordinary", "short"])
def test_a_short_record_adds_no_more_than_it_is(record, many):
    contribution, _, columns = made("straight", many)
    context = everywhere()
    sums = split(
        covered_by(contribution, columns, context, context.clip_norm)([record]) * context.clip_norm,
        context,
    )
    x = np.array(record["x"])
    score = x * (record["y"] - x @ context.point)
    bend = np.outer(x, x) if many else np.outer(score, score)
    np.testing.assert_allclose(sums.score, score, rtol=1e-5)
    np.testing.assert_allclose(sums.curvature, bend, rtol=1e-5, atol=1e-8)


def test_a_score_of_1e200_adds_its_direction():
    contribution, _, columns = made("straight")
    context = everywhere()
    covered = covered_by(contribution, columns, context, context.clip_norm)
    sums = split(covered([LONG]) * context.clip_norm, context)
    np.testing.assert_allclose(sums.score, [context.longest, 0.0], rtol=1e-5)
    assert np.linalg.norm(covered([LONG])) <= 1


# --- the histogram -------------------------------------------------------------------------------


@BOTH_WAYS
@pytest.mark.parametrize("name", MODELS)
def test_every_record_is_counted_in_one_bin(name, many):
    _, histogram, columns = made(name, many)
    vectors, norms = one_by_one(histogram, first_rows(columns), at(name).point)
    np.testing.assert_array_equal(norms, 1.0)
    np.testing.assert_array_equal(vectors.sum(axis=1), 1.0)
    np.testing.assert_array_equal(np.linalg.norm(vectors, axis=1), 1.0)


def test_a_records_bin_is_that_of_the_root_of_its_curvature():
    _, histogram, columns = made("straight")
    covered = covered_by(histogram, columns, np.zeros(2), 1.0)
    for size in (0.0, 0.1, 0.5, 1.9, 5.0, 1e6):  # the curvature is x x'
        counts = covered([{"x": (0.6 * size, 0.8 * size), "y": 0.3}])
        place = int(np.sum(size > EDGES))
        assert np.flatnonzero(counts > 0.5).tolist() == [place]


@BOTH_WAYS
def test_a_unit_is_counted_once_however_many_records_it_has(many):
    _, histogram, columns = made("two_outcomes", many)
    owner = np.sort(np.random.default_rng(0).integers(0, 4, 20))
    batch = first_rows(columns, 20)
    prepared = histogram.prepare(batch, at("two_outcomes").point)
    good = np.ones(20, bool)
    good[owner == 2] = False
    sums = histogram.unit_sums(prepared, at("two_outcomes").point, owner, good)
    vectors = histogram.unit_vectors(sums)
    assert vectors.shape == (4, BINS)
    np.testing.assert_array_equal(vectors.sum(axis=1), 1)
    assert vectors[2, 0] == 1  # no good record: no curvature
    assert set(np.unique(vectors)) == {0.0, 1.0}


def test_a_units_bin_is_that_of_its_records_together():
    _, histogram, columns = made("straight")
    batch = {"x": np.full((4, 2), 0.5), "y": np.zeros(4)}
    batch = {name: batch.get(name, batch["y"]) for name in columns}
    prepared = histogram.prepare(batch, np.zeros(2))
    sums = histogram.unit_sums(prepared, np.zeros(2), np.zeros(4, int), np.ones(4, bool))
    vectors = histogram.unit_vectors(sums)
    root = (4 * 0.5) ** 0.5  # four times x x', of norm |x|^2
    assert np.flatnonzero(vectors[0]).tolist() == [int(np.sum(root > EDGES))]


@pytest.mark.parametrize("count", [1, 50, 2000])
def test_a_unit_of_many_records_moves_both_releases_by_at_most_their_norms(count):
    contribution, histogram, columns = made("two_outcomes")
    context = at("two_outcomes")
    rows = np.arange(count + 6) % 20
    held = {leaf: c._replace(values=c.values[rows]) for leaf, c in columns.items()}
    without = {leaf: c._replace(values=c.values[rows[count:]]) for leaf, c in columns.items()}
    others = np.arange(6) // 2
    codes = np.concatenate([np.full(count, 3), others])
    for part, ask, clip in (
        (contribution, context, context.clip_norm),
        (histogram, context.point, 1.0),
    ):
        big = wall_of(held, part, clip_norm=clip, codes=codes)
        small = wall_of(without, part, clip_norm=clip, codes=others)
        moved = before_noise(big, ask).total - before_noise(small, ask).total
        assert 0 < np.linalg.norm(moved) <= clip


# --- planted faults ------------------------------------------------------------------------------


def norm_without_shortening(monkeypatch):
    """Curvatures are summed as they are, their norms counted as shortened."""
    monkeypatch.setattr(
        curvature,
        "_shortening",
        lambda norms, longest: (
            np.ones_like(norms) if longest == 0.7 else np.minimum(1.0, longest / norms)
        ),
    )


def wrong_off_diagonals(monkeypatch):
    """The upper triangle without its factor: 2 in place of its root."""
    monkeypatch.setattr(
        curvature,
        "svec",
        lambda m: svec(np.where(np.eye(m.shape[-1], dtype=bool), m, 2**0.5 * m)),
    )


def whole_matrix_too_short(monkeypatch):
    """Off-diagonals as if each were there once."""
    monkeypatch.setattr(curvature, "svec", lambda m: m[..., *np.triu_indices(m.shape[-1])])


@pytest.mark.parametrize(
    "fault", [norm_without_shortening, wrong_off_diagonals, whole_matrix_too_short]
)
def test_a_fault_in_the_vector_is_seen_in_its_norm(fault, monkeypatch):
    fault(monkeypatch)
    contribution, _, columns = made("logistic")
    vectors, norms = one_by_one(contribution, first_rows(columns), at("logistic", 1.5, 0.7))
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(norms, np.linalg.norm(vectors, axis=1), rtol=1e-9)


@pytest.mark.parametrize("fault", [norm_without_shortening, wrong_off_diagonals])
def test_a_fault_lets_a_record_move_the_sum_too_far(fault, monkeypatch):
    fault(monkeypatch)
    contribution, _, columns = made("logistic")
    context = at("logistic")
    covered = covered_by(contribution, columns, context, context.clip_norm)
    loud = {"X": (900.0, -400.0), "group": 2, "y": 0}
    plain = {"X": (1.5, -2.5), "group": 2, "y": 0}
    moved = [np.linalg.norm(covered([record]) - covered([])) for record in (loud, plain)]
    seen = max(moved) > 1
    if not seen:
        with pytest.raises(AssertionError):
            check_neighbours(covered, RECORDS["logistic"], examples=100)


def test_counting_a_unit_by_records_is_seen():
    """Without its own sum of units, a unit's histogram has as many ones as records."""
    _, histogram, columns = made("two_outcomes")
    batch = first_rows(columns, 20)
    prepared = histogram.prepare(batch, at("two_outcomes").point)
    faulty = histogram._replace(unit=None)
    sums = faulty.unit_sums(
        prepared, at("two_outcomes").point, np.zeros(20, int), np.ones(20, bool)
    )
    vectors = faulty.unit_vectors(sums)
    assert np.linalg.norm(vectors[0]) > 1


@pytest.mark.parametrize("part_size", [1, 60, 2**23])
def test_where_parts_begin_does_not_change_what_units_add(part_size, monkeypatch):
    """Else one unit would move the vectors of others, by the rows that it takes before them."""
    contribution, histogram, columns = made("two_outcomes")
    context = at("two_outcomes")
    rows = next(iter(columns.values())).rows
    codes = np.arange(rows) // 7
    asked = [(contribution, context), (histogram, context.point)]
    whole = [totals(columns, *ask, codes) for ask in asked]
    monkeypatch.setattr(pymc_dp.clipped_sum, "PART_SIZE", part_size)
    for ask, expected in zip(asked, whole, strict=True):
        np.testing.assert_allclose(totals(columns, *ask, codes), expected, rtol=1e-9, atol=1e-12)


def totals(columns, contribution, context, codes):
    wall = wall_of(columns, contribution, codes=codes)
    return before_noise(wall, context).total


def test_a_matrix_and_its_vector_have_one_norm():
    rng = np.random.default_rng(0)
    for d in (1, 2, 5):
        matrix = rng.normal(size=(d, d))
        matrix = matrix + matrix.T
        assert np.linalg.norm(svec(matrix)) == pytest.approx(np.linalg.norm(matrix))
        np.testing.assert_allclose(smat(svec(matrix)), matrix)
