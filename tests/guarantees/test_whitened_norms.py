"""Rounds in whitened coordinates: no record, and no unit, adds more than the clip norm.

Guards 1 and 2 of the tests of a guarantee. Soundness, rule 12: score, curvatures and traces are
one vector, clipped jointly. The wall computes all norms itself, from the vectors.
"""

from functools import cache

import numpy as np
import pytest

import pymc_dp.privacy.clipping
from pymc_dp.contributions import scores, whitened
from pymc_dp.contributions.layout import svec
from pymc_dp.contributions.scores import (
    BOTH,
    DRAWS,
    UNDRAWN,
    compile_draws,
    drawn_name,
    drawn_scores,
    score_scales,
    size_of_scales,
)
from pymc_dp.contributions.whitened import (
    ALONG_BOUND,
    BINS,
    COUNTS_NORM,
    At,
    Dispersion,
    vectors,
    whitened_scores,
)
from pymc_dp.privacy.contribution import for_units, with_draws
from pymc_dp.privacy.norms import row_norms
from tests import zoo
from tests.guarantees import test_sensitivity
from tests.guarantees.test_sensitivity import RECORDS, check_neighbours, covered_by
from tests.guarantees.toys import before_noise, wall_of

MODELS = {
    "logistic": test_sensitivity.logistic,
    "two_outcomes": test_sensitivity.two_outcomes,
    **{
        name: lambda name=name: zoo.build(zoo.ACCEPTED[name])
        for name in ("hierarchical", "normal_mixture", "categorical", "weibull")
    },
}


# one latent of four, whose scores may be many times as long as those of others
DISPERSION = Dispersion(np.array([False, False, True, False]), bound=40.0, share=0.3)


@cache
def made(name):
    records, columns = zoo.separated(MODELS[name]())
    scores = drawn_scores(records, "python")
    return whitened_scores(scores), score_scales(scores), records, columns


def at(name, score=1.5, curvature=2.0):
    d = made(name)[2].size
    rng = np.random.default_rng(1)
    W = np.eye(d) + rng.normal(0, 0.2, (d, d))
    return At(rng.normal(0, 0.5, d), W, score, curvature, direction=unit_vector(d))


def unit_vector(d):
    return np.linspace(1, 2, d) / np.linalg.norm(np.linspace(1, 2, d))


def rows_of(contribution, columns, context, count=13):
    batch = {name: column.take(np.arange(count)) for name, column in columns.items()}
    return rows_of_batch(contribution, batch, context)


def rows_of_batch(contribution, batch, context):
    batch = with_draws(contribution, batch, context, np.random.default_rng(0))
    held = contribution.prepare(batch, context)
    ones = np.eye(len(contribution.norms(held, context)))
    return np.array([contribution.weighted_sum(held, context, one) for one in ones])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("score", [1e-3, 1.5, 1e6])
def test_no_vector_is_longer_than_the_clip_norm(name, score):
    contribution, _, _, columns = made(name)
    context = at(name, score, score**2)
    norms = np.linalg.norm(rows_of(contribution, columns, context), axis=1)
    assert norms.max() <= context.clip_norm * (1 + 1e-9)
    assert norms.min() > 0


@pytest.mark.parametrize("many", [1, 1 + len(BOTH), 1 + DRAWS])
@pytest.mark.parametrize("coordinates", ["matrix", "diagonal"])
@pytest.mark.parametrize("dispersion", [None, DISPERSION])
def test_scores_of_any_length_stay_within_the_bounds_of_their_parts(many, coordinates, dispersion):
    check_parts(many, coordinates, dispersion)


def check_parts(many, coordinates, dispersion):
    rng, d = np.random.default_rng(2), 4
    lengths = 10.0 ** rng.uniform(-200, 200, (500, many, 1))
    lengths[:100] = 10.0 ** rng.uniform(-1, 2, (100, many, 1))
    W = np.ones(d) if coordinates == "diagonal" else np.eye(d)
    # the curvature's bound is above that along a direction, which is seen by itself
    context = At(np.zeros(d), W, 1.5, 9.0, unit_vector(d), dispersion)
    own = context.is_dispersion
    with np.errstate(all="ignore"):  # as inside the wall
        rows = vectors(lengths * rng.normal(size=(500, many, d)), context)
        counts = -3 - BINS * context.parts
        parts = (
            rows[:, :d][:, ~own],
            rows[:, :d][:, own],
            rows[:, d:counts],
            rows[:, counts:-3],
            rows[:, -3:-2],
            rows[:, -2:-1],
            rows[:, -1:],
            rows,
        )
        norms = [row_norms(part) for part in parts]
    limits = (
        1.5,
        context.score_norm * (dispersion.share if dispersion else 0.0) ** 0.5,
        9.0 * context.curvature_scale,
        COUNTS_NORM * context.parts**0.5 * context.counts_scale,
        ALONG_BOUND * context.along_scale,
        9.0 * context.trace_scale,
        9.0 * context.trace_scale,
        context.clip_norm,
    )
    assert np.linalg.norm(limits[:-1]) == pytest.approx(context.clip_norm)
    for found, limit in zip(norms, limits, strict=True):
        assert found.max() <= limit * (1 + 1e-9)


@pytest.mark.parametrize("latents", [4, 151])
def test_products_of_weighted_scores_stay_within_their_bound(latents):
    check_products(latents)


def check_products(latents):
    """Products of one part and of two have the norm of their share, whatever the scores are."""
    rng = np.random.default_rng(5)
    context = At(np.zeros(latents), np.ones(latents), 1.5, 2.0, products=0.5)
    lengths = 10.0 ** rng.uniform(-200, 200, (500, 3, 1))
    lengths[:250] = 10.0 ** rng.uniform(-1, 2, (250, 3, 1))
    with np.errstate(all="ignore"):
        scores = lengths * rng.normal(size=(500, 3, latents))
        rows = vectors(scores, context, rng.choice([0.0, 0.3, 1.0], 500))
    first = 2 * latents
    own = row_norms(rows[:, first : -3 - BINS])
    assert own.max() == pytest.approx(0.5 * context.score_norm)
    assert row_norms(rows).max() <= context.clip_norm * (1 + 1e-9)


@pytest.mark.parametrize("latents", [4, 151])
def test_products_of_longer_scores_than_are_clipped_are_longer(latents, monkeypatch):
    """The planted fault."""
    products = whitened._products
    longer = lambda score, *of_round: products(1.1 * score, *of_round)  # noqa: E731
    monkeypatch.setattr(whitened, "_products", longer)
    with pytest.raises(AssertionError):
        check_products(latents)


def curvatures_as_they_are(monkeypatch):
    monkeypatch.setattr(
        whitened, "kept_of_curvature", lambda curvature, at: np.ones(len(curvature))
    )


def scores_after_the_shift(monkeypatch):
    """The shift is added after clipping, where nothing bounds it."""
    clip = whitened.clip_consistently
    monkeypatch.setattr(
        whitened, "clip_consistently", lambda s, c: clip(s, c) - s.mean(axis=1, keepdims=True)
    )


def dispersion_in_its_own_units(monkeypatch):
    monkeypatch.setattr(At, "dispersion_scale", 1.0)


def curvature_along_a_direction_as_it_is(monkeypatch):
    monkeypatch.setattr(At, "along_bound", np.inf)


def two_counts_for_each_length(monkeypatch):
    share = whitened.shared
    monkeypatch.setattr(whitened, "shared", lambda norms, chances: 2 * share(norms, chances))


FAULTS = [
    curvatures_as_they_are,
    scores_after_the_shift,
    dispersion_in_its_own_units,
    curvature_along_a_direction_as_it_is,
    two_counts_for_each_length,
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_part_that_is_not_bounded_is_seen(fault, monkeypatch):
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        check_parts(1 + DRAWS, "matrix", DISPERSION)


def with_equal_draws(contribution):
    """Draw the observed outcomes themselves: random draws are new at every release."""

    def draw(batch, context, generator):
        drawn = {drawn_name(leaf): np.stack([x] * DRAWS, axis=1) for leaf, x in batch.items()}
        return drawn | {UNDRAWN: np.zeros(len(next(iter(batch.values()))), bool)}

    return contribution._replace(draw=draw, unit=contribution.unit._replace(draw=draw))


def check_scales(name, observed, large=1.0):
    """Return the largest norm of a record's vector over the one that is claimed."""
    _, _, records, columns = made(name)
    scales = score_scales(drawn_scores(records, "python"), observed)
    point = np.random.default_rng(3).normal(0, large, records.size)
    with np.errstate(all="ignore"):  # as inside the wall, which drops what is not finite
        rows = rows_of(scales, columns, point)
    rows = rows[np.isfinite(rows).all(axis=1)]
    assert len(rows)
    assert rows.shape[1] == size_of_scales(records.size, len(observed))
    assert abs(rows).max() <= 1
    assert (rows[:, 0] == 1).all()
    return np.linalg.norm(rows, axis=1).max() / size_of_scales(records.size, len(observed)) ** 0.5


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("large", [0.5, 5.0])
def test_no_vector_of_scales_is_longer_than_its_norm(name, large):
    for observed in ((), (0,), (0, 1)):
        assert 0 < check_scales(name, observed, large) <= 1


def test_magnitudes_that_are_not_clipped_are_seen(monkeypatch):
    monkeypatch.setattr(scores, "BITS", 0.01)
    assert check_scales("hierarchical", (0,)) <= 1
    monkeypatch.setattr(scores.np, "clip", lambda x, low, high: x)
    with pytest.raises(AssertionError):
        check_scales("hierarchical", (0,))


@pytest.mark.parametrize("name", ["logistic", "two_outcomes"])
def test_no_record_moves_a_round_beyond_the_clip_norm(name):
    contribution, _, _, columns = made(name)
    covered = covered_by(
        with_equal_draws(contribution), columns, at(name), clip_norm=at(name).clip_norm
    )
    check_neighbours(covered, RECORDS[name], examples=60)


@pytest.mark.parametrize("name", ["logistic", "two_outcomes"])
def test_no_record_moves_the_scales_by_more_than_their_norm(name):
    _, scales, records, columns = made(name)
    covered = covered_by(
        with_equal_draws(scales),
        columns,
        at(name).point,
        clip_norm=size_of_scales(records.size, 0) ** 0.5,
    )
    check_neighbours(covered, RECORDS[name], examples=60)


@pytest.mark.parametrize("count", [1, 50, 500])
def test_a_unit_of_many_records_moves_both_releases_by_at_most_their_norms(count):
    contribution, scales, records, columns = made("two_outcomes")
    context = at("two_outcomes")
    rows = np.arange(count + 6) % 20
    held = {leaf: c._replace(values=c.values[rows]) for leaf, c in columns.items()}
    others = np.arange(6) // 2
    codes = np.concatenate([np.full(count, 3), others])
    without = {leaf: c._replace(values=c.values[rows[count:]]) for leaf, c in columns.items()}
    for part, ask, clip in (
        (with_equal_draws(contribution), context, context.clip_norm),
        (with_equal_draws(scales), context.point, size_of_scales(records.size, 0) ** 0.5),
    ):
        big = wall_of(held, part, clip_norm=clip, codes=codes)
        small = wall_of(without, part, clip_norm=clip, codes=others)
        moved = before_noise(big, ask).total - before_noise(small, ask).total
        assert 0 < np.linalg.norm(moved) <= clip


@pytest.mark.parametrize("part_size", [1, 60])
def test_where_parts_begin_does_not_change_what_units_add(part_size, monkeypatch):
    contribution, _, _, columns = made("two_outcomes")
    plain, codes = with_equal_draws(contribution), np.arange(20) // 7
    columns = {leaf: c._replace(values=c.values[:20]) for leaf, c in columns.items()}
    whole = before_noise(wall_of(columns, plain, codes=codes), at("two_outcomes")).total
    monkeypatch.setattr(pymc_dp.privacy.clipping, "PART_SIZE", part_size)
    parts = before_noise(wall_of(columns, plain, codes=codes), at("two_outcomes")).total
    np.testing.assert_allclose(parts, whole, rtol=1e-9, atol=1e-12)


def test_a_records_draws_are_those_of_its_own_values():
    """Other records' values do not move them, given the random numbers."""
    _, _, records, columns = made("logistic")
    draw = compile_draws(records, 1)
    batch = {name: column.take(np.arange(20)) for name, column in columns.items()}
    changed = {name: np.concatenate([x[:1], x[:0:-1]]) for name, x in batch.items()}
    point = at("logistic").point
    one, other = (
        [draw(b, point, np.random.default_rng(k))[drawn_name("y")][0, 0] for k in range(200)]
        for b in (batch, changed)
    )
    assert one == other
    assert 0 < np.mean(one) < 1


def test_a_record_whose_outcome_cannot_be_drawn_leaves_the_others_theirs():
    _, scales, records, columns = made("logistic")
    scales = for_units(scales)  # draws, where a record alone has both outcomes
    batch = {name: column.take(np.arange(20)) for name, column in columns.items()}
    batch["X"][3] = np.nan
    batch = with_draws(scales, batch, np.zeros(records.size), np.random.default_rng(0))
    assert np.flatnonzero(batch[UNDRAWN]).tolist() == [3]
    norms = scales.norms(scales.prepare(batch, np.zeros(records.size)), np.zeros(records.size))
    assert np.flatnonzero(~np.isfinite(norms)).tolist() == [3]


def test_a_matrix_and_its_vector_have_one_norm():
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    matrix = matrix + matrix.T
    assert np.linalg.norm(svec(matrix)) == pytest.approx(np.linalg.norm(matrix))
