"""Rounds in whitened coordinates: no record, and no unit, adds more than the clip norm.

Guards 1 and 2 of the tests of a guarantee. Soundness, rule 12: score, curvatures and traces are
one vector, clipped jointly; rule 37: a record's vector is its own, to the last bit, also where
scores are averaged over a posterior. The wall computes all norms itself, from the vectors.
"""

from functools import cache

import numpy as np
import pymc as pm
import pytest

from pymc_dp.contributions import scores, whitened
from pymc_dp.contributions.polya_gamma_and_sites import AVERAGED, POLYA_GAMMA, SITES, ratio
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
    CENTRES,
    COUNTS_NORM,
    At,
    Dispersion,
    counts,
    shared,
    vectors,
    whitened_scores,
)
from pymc_dp.privacy.contribution import for_units, with_draws
from pymc_dp.privacy.norms import row_norms
from tests import zoo
from tests.guarantees import test_sensitivity


def two_predictors():
    X = pm.Data("X", zoo.X)
    mean = pm.math.exp(X @ pm.Normal("b", shape=zoo.D))
    alpha = pm.math.exp(X[:, 0] * pm.Normal("a"))
    pm.NegativeBinomial("y", mean, alpha=alpha, observed=zoo.COUNT)


MODELS = zoo.ACCEPTED | {
    "two_predictors": two_predictors,
    "two_outcomes": test_sensitivity.two_outcomes,
    "groups": test_sensitivity.logistic,
}
AT_THE_POINT = [("groups", None), ("two_outcomes", None), ("hierarchical", None)]
AT_THE_POINT += [("normal_mixture", None), ("categorical", None), ("weibull", None)]
OVER_A_POSTERIOR = [("logistic", AVERAGED), ("logistic", POLYA_GAMMA), ("logistic", SITES)]
OVER_A_POSTERIOR += [("two_predictors", AVERAGED), ("weibull", AVERAGED)]
OVER_A_POSTERIOR += [("zero_inflated", AVERAGED)]
# one latent of four, whose scores may be many times as long as those of others
DISPERSION = Dispersion(np.array([False, False, True, False]), bound=40.0, share=0.3)


@cache
def made(name, estimating=None):
    records, columns = zoo.separated(zoo.build(MODELS[name]))
    found = drawn_scores(records, estimating)
    return whitened_scores(found), score_scales(found), records, columns


def at(d, bound=1.5, spread=None, of_precision=False):
    rng, along = np.random.default_rng(1), np.linspace(1, 2, d)
    W, root = (np.eye(d) + rng.normal(0, 0.2, (d, d)) for _ in range(2))
    root = None if spread is None else spread**0.5 * root
    direction, precise = along / np.linalg.norm(along), {"of_precision": of_precision}
    return At(rng.normal(0, 0.5, d), W, bound, bound**2, direction, root=root, **precise)


def rows_of(contribution, columns, context, count=13):
    """Return the vectors of some records, whose outcomes are drawn from a fixed key."""
    batch = {name: column.take(np.arange(count)) for name, column in columns.items()}
    batch = with_draws(contribution, batch, context, np.random.default_rng(0))
    with np.errstate(all="ignore"):  # as inside the wall, which drops what is not finite
        prepared = contribution.prepare(batch, context)
        ones = np.eye(len(contribution.norms(prepared, context)))
        return np.array([contribution.weighted_sum(prepared, context, one) for one in ones])


# --- one record's vector -------------------------------------------------------------------------


def longest(name, estimating, context):
    contribution, _, _, columns = made(name, estimating)
    return np.nanmax(row_norms(rows_of(contribution, columns, context))) / context.clip_norm


@pytest.mark.parametrize(("name", "estimating"), [*AT_THE_POINT, *OVER_A_POSTERIOR])
@pytest.mark.parametrize("bound", [1e-3, 1.5, 1e6])
def test_no_vector_is_longer_than_the_clip_norm(name, estimating, bound):
    d = made(name, estimating)[2].size
    spreads = [None] if estimating is None else [1e-8, 0.1, 2.0]
    for spread in spreads:
        for of_precision in {False, spread is not None}:
            context = at(d, bound, spread, of_precision)
            assert 0 < longest(name, estimating, context) <= 1 + 1e-9


def test_a_precision_that_is_not_clipped_is_longer(monkeypatch):
    curvatures_as_they_are(monkeypatch)
    assert longest("logistic", POLYA_GAMMA, at(zoo.D + 1, 1e-3, 0.1, True)) > 1.1


@pytest.mark.parametrize(("name", "estimating"), OVER_A_POSTERIOR)
def test_one_record_more_changes_no_bit_of_the_others(name, estimating):
    contribution, _, records, columns = made(name, estimating)
    context = at(records.size, spread=0.1)
    first = {rows_of(contribution, columns, context, n)[0].tobytes() for n in range(1, 14)}
    assert len(first) == 1


def test_a_ratio_that_is_no_number_stays_none():
    found = ratio(np.array([np.nan, np.inf, 1.0, 3.0]), np.array([0.0, 0.0, 0.0, 2.0]))
    assert np.isnan(found[:2]).all()
    assert found[2:].tolist() == [1.0, 1.5]


# --- the parts of a vector -----------------------------------------------------------------------


@pytest.mark.parametrize("many", [1, 1 + len(BOTH), 1 + DRAWS])
@pytest.mark.parametrize(
    ("diagonal", "dispersion"), [(False, None), (True, None), (False, DISPERSION)]
)
def test_scores_of_any_length_stay_within_the_bounds_of_their_parts(many, diagonal, dispersion):
    check_parts(many, diagonal, dispersion)


def check_parts(many, diagonal, dispersion):
    rng, d = np.random.default_rng(2), 4
    lengths = 10.0 ** rng.uniform(-200, 200, (500, many, 1))
    lengths[:100] = 10.0 ** rng.uniform(-1, 2, (100, many, 1))
    W = np.ones(d) if diagonal else np.eye(d)
    # the curvature's bound is above that along a direction, which is seen by itself
    context = At(np.zeros(d), W, 1.5, 9.0, at(d).direction, dispersion)
    own, share = context.is_dispersion, dispersion.share if dispersion else 0.0
    with np.errstate(all="ignore"):  # as inside the wall
        rows = vectors(lengths * rng.normal(size=(500, many, d)), context)
    last, scales = -3 - BINS * context.parts, context.scales()
    parts = [
        (rows[:, :d][:, ~own], 1.5),
        (rows[:, :d][:, own], context.score_norm * share**0.5),
        (rows[:, d:last], 9.0 * scales.curvature),
        (rows[:, last:-3], COUNTS_NORM * context.parts**0.5 * scales.counts),
        (rows[:, -3:-2], ALONG_BOUND * scales.along),
        *((rows[:, [k]], 9.0 * scales.traces) for k in (-2, -1)),
    ]
    assert np.linalg.norm([bound for _, bound in parts]) == pytest.approx(context.clip_norm)
    for part, bound in [*parts, (rows, context.clip_norm)]:
        assert row_norms(part).max() <= bound * (1 + 1e-9)


def curvatures_as_they_are(patch):
    patch.setattr(whitened, "kept_of_curvature", lambda curvature, at: np.ones(len(curvature)))


def scores_after_the_shift(patch):
    """The shift is added after clipping, where nothing bounds it."""
    clip = whitened.clip_consistently
    late = lambda s, c: clip(s, c) - s.mean(axis=1, keepdims=True)  # noqa: E731
    patch.setattr(whitened, "clip_consistently", late)


def two_counts_for_each_length(patch):
    share = whitened.shared
    patch.setattr(whitened, "shared", lambda norms, chances: 2 * share(norms, chances))


FAULTS = {
    "curvatures as they are": curvatures_as_they_are,
    "scores after the shift": scores_after_the_shift,
    "dispersion in its own units": lambda patch: patch.setattr(whitened.Scales, "score", 1.0),
    "curvature along a direction": lambda patch: patch.setattr(At, "along_bound", np.inf),
    "two counts for each length": two_counts_for_each_length,
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_part_that_is_not_bounded_is_seen(fault, monkeypatch):
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        check_parts(1 + DRAWS, False, DISPERSION)


def check_products(latents):
    """Products of one part and of two have the norm of their share, whatever the scores are."""
    rng = np.random.default_rng(5)
    context = At(np.zeros(latents), np.ones(latents), 1.5, 2.0, products=0.5)
    lengths = 10.0 ** rng.uniform(-200, 200, (500, 3, 1))
    lengths[:250] = 10.0 ** rng.uniform(-1, 2, (250, 3, 1))
    with np.errstate(all="ignore"):
        made_up = lengths * rng.normal(size=(500, 3, latents))
        rows = vectors(made_up, context, rng.choice([0.0, 0.3, 1.0], 500))
    own = row_norms(rows[:, 2 * latents : -3 - BINS])
    assert own.max() == pytest.approx(0.5 * context.score_norm)
    assert row_norms(rows).max() <= context.clip_norm * (1 + 1e-9)


@pytest.mark.parametrize("latents", [4, 151])
def test_products_of_weighted_scores_stay_within_their_bound(latents, monkeypatch):
    check_products(latents)
    products = whitened._products
    longer = lambda score, *of_round: products(1.1 * score, *of_round)  # noqa: E731
    monkeypatch.setattr(whitened, "_products", longer)
    with pytest.raises(AssertionError):  # the planted fault
        check_products(latents)


# --- counts of lengths ---------------------------------------------------------------------------


def check_counts(drawn):
    rng = np.random.default_rng(drawn)
    norms = 10.0 ** rng.uniform(-300, 300, (2000, 1 + drawn))
    norms[:1000] = 2.0 ** rng.integers(-4, 12, (1000, 1 + drawn))
    norms[::7, 0] = 0.0
    chances = rng.dirichlet(np.full(drawn, 0.1), 2000) if drawn else np.zeros((2000, 0))
    with np.errstate(all="ignore"):
        found = row_norms(counts(norms, chances))
    assert found.max() <= COUNTS_NORM * (1 + 1e-12)
    # of two outcomes, observed and drawn lengths in one bin leave nothing
    assert np.mean(found > 0) >= (0.9 if drawn == len(BOTH) else 1)


@pytest.mark.parametrize("drawn", [0, len(BOTH), DRAWS])
def test_counts_of_lengths_of_any_size_stay_within_their_norm_and_reach_it(drawn):
    check_counts(drawn)
    # observed and drawn lengths in two bins, alone there
    [row] = counts(np.array([[8.0, 1.0]]), np.ones((1, 1)))
    assert np.linalg.norm(row) == pytest.approx(COUNTS_NORM)


def test_a_record_that_counts_in_two_bins_is_seen(monkeypatch):
    def whole_units(norms, chances):
        places = np.clip(np.log2(norms) - whitened.LEAST, 0, BINS - 1)
        each = (abs(places[..., None] - np.arange(BINS)) < 1).astype(float)
        return (each * chances[..., None]).sum(axis=1)

    monkeypatch.setattr(whitened, "shared", whole_units)
    with pytest.raises(AssertionError):
        check_counts(DRAWS)


def test_a_length_that_is_a_little_off_moves_its_counts_a_little():
    """Computers differ in last digits; no such difference may move a record to another bin."""
    lengths = np.concatenate([CENTRES, 2.0 ** np.linspace(-6, 14, 2001)])
    near = lengths * (1 + 1e-12 * np.random.default_rng(0).normal(size=lengths.shape))
    each, moved = (shared(x[:, None], np.ones((len(x), 1))) for x in (lengths, near))
    assert abs(each - moved).max() < 1e-10
    assert ((each > 0.5) != (moved > 0.5)).any()  # of bins with edges some would


# --- scales of scores ----------------------------------------------------------------------------


def check_scales(name, observed, large=1.0):
    """Return the largest norm of a record's vector over the one that is claimed."""
    _, _, records, columns = made(name)
    scales = score_scales(drawn_scores(records), observed)
    rows = rows_of(scales, columns, np.random.default_rng(3).normal(0, large, records.size))
    rows = rows[np.isfinite(rows).all(axis=1)]
    assert abs(rows).max() <= 1
    return row_norms(rows).max() / size_of_scales(records.size, len(observed)) ** 0.5


@pytest.mark.parametrize("name", ["groups", "two_outcomes", "hierarchical"])
def test_no_vector_of_scales_is_longer_than_its_norm(name):
    for observed, large in (((), 0.5), ((0,), 5.0), ((0, 1), 5.0)):
        assert 0 < check_scales(name, observed, large) <= 1


def test_magnitudes_that_are_clipped_to_twice_as_much_are_seen(monkeypatch):
    monkeypatch.setattr(scores, "BITS", 0.01)
    assert check_scales("hierarchical", (0,)) <= 1
    clip = np.clip
    monkeypatch.setattr(scores.np, "clip", lambda x, low, high: clip(x, 2 * low, 2 * high))
    with pytest.raises(AssertionError):
        check_scales("hierarchical", (0,))


# --- draws ---------------------------------------------------------------------------------------


def test_a_records_draws_are_those_of_its_own_values():
    """Other records' values do not move them, given the random numbers."""
    _, _, records, columns = made("groups")
    draw, point = compile_draws(records, 1), at(records.size).point
    batch = {name: column.take(np.arange(20)) for name, column in columns.items()}
    changed = {name: np.concatenate([x[:1], x[:0:-1]]) for name, x in batch.items()}
    one, other = (
        [draw(b, point, np.random.default_rng(k))[drawn_name("y")][0, 0] for k in range(200)]
        for b in (batch, changed)
    )
    assert one == other
    assert 0 < np.mean(one) < 1


def test_a_record_whose_outcome_cannot_be_drawn_leaves_the_others_theirs():
    _, scales, records, columns = made("groups")
    scales = for_units(scales)  # draws, where a record alone has both outcomes
    batch = {name: column.take(np.arange(20)) for name, column in columns.items()}
    batch["X"][3] = np.nan
    batch = with_draws(scales, batch, np.zeros(records.size), np.random.default_rng(0))
    assert np.flatnonzero(batch[UNDRAWN]).tolist() == [3]
    norms = scales.norms(scales.prepare(batch, np.zeros(records.size)), np.zeros(records.size))
    assert np.flatnonzero(~np.isfinite(norms)).tolist() == [3]
