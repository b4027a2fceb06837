"""Comparing outcomes with those of the model: no record, and no unit, adds more than the clip norm.

Guards 1 and 2 of the tests of a guarantee. One count is added, and shares of counts that sum to one
are taken away. The wall computes all norms itself, from the vectors.
"""

import warnings
from functools import cache

import numpy as np
import pymc as pm
import pytest

from pymc_dp.contributions import goodness_of_fit as module
from pymc_dp.contributions.drawn_scores import DRAWS, drawn_scores
from pymc_dp.contributions.goodness_of_fit import (
    BINS,
    CLIP_NORM,
    OUTCOMES,
    compares_outcomes,
    goodness_of_fit,
)
from pymc_dp.contributions.joint_vector import At
from pymc_dp.contributions.outcomes import drawn_name
from pymc_dp.privacy.contribution import unit_sums, with_draws
from pymc_dp.privacy.norms import row_norms
from tests import zoo
from tests.guarantees import test_sensitivity
from tests.guarantees.test_sensitivity import RECORDS, check_neighbours
from tests.guarantees.test_whitened_norms import MODELS, covered_by, with_equal_draws
from tests.guarantees.toys import before_noise, wall_of

AT = At(np.zeros(1), np.eye(1), 1.5, 2.0, 0.7)


@cache
def made(name):
    records, columns = zoo.separated(MODELS[name]())
    return goodness_of_fit(records, drawn_scores(records, "python")), records, columns


def at(name, score=1.5):
    d = made(name)[1].size
    rng = np.random.default_rng(1)
    W = np.eye(d) + rng.normal(0, 0.2, (d, d))
    return At(rng.normal(0, 0.5, d), W, score, 2.0, 0.7)


def of_any_record():
    """Vectors of records whose observed and drawn outcomes have any norms, and are anywhere."""
    rng = np.random.default_rng(2)
    norms = 10.0 ** rng.uniform(-300, 300, (2000, 1 + DRAWS))
    norms[:1000] = 10.0 ** rng.uniform(-2, 2, (1000, 1 + DRAWS))
    norms[:500, 1:] = 10.0 ** rng.uniform(-2, 2, (500, 1))  # all drawn ones in one bin
    balance = rng.integers(-1, 2, (2000, OUTCOMES))
    with np.errstate(all="ignore"):  # as inside the wall
        return module._vectors(norms, balance, AT)


def check_any_record():
    longest = row_norms(of_any_record()).max()
    assert CLIP_NORM * (1 - 1e-9) <= longest <= CLIP_NORM * (1 + 1e-9)


def test_no_vector_is_longer_than_the_clip_norm_and_some_are_as_long():
    check_any_record()


def expected_counts_in_full(monkeypatch):
    monkeypatch.setattr(module, "EXPECTED", 1.0)


def one_count_for_each_draw(monkeypatch):
    """Drawn outcomes are counted, not their shares."""
    vectors = module._vectors

    def summed(norms, balance, context):
        found = vectors(norms, balance, context)
        found[:, BINS:] *= OUTCOMES - 1
        return found

    monkeypatch.setattr(module, "_vectors", summed)


@pytest.mark.parametrize("fault", [expected_counts_in_full, one_count_for_each_draw])
def test_counts_beyond_the_clip_norm_are_seen(fault, monkeypatch):
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        check_any_record()


@pytest.mark.parametrize("name", ["hierarchical", "normal_mixture", "categorical", "weibull"])
def test_the_counts_of_a_record_sum_to_nothing_and_the_expected_ones_to_one(name):
    contribution, _, columns = made(name)
    batch = {leaf: column.take(np.arange(13)) for leaf, column in columns.items()}
    batch = with_draws(contribution, batch, at(name), np.random.default_rng(0))
    rows = contribution.rows(contribution.prepare(batch, at(name)), at(name))
    np.testing.assert_allclose(rows[:, :BINS].sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(module.compared(rows.T).expected.sum(axis=0), 1)


@pytest.mark.parametrize("name", ["logistic", "two_outcomes"])
def test_no_record_moves_the_counts_beyond_their_norm(name):
    contribution, _, columns = made(name)
    if name == "logistic":  # a record alone has both outcomes, and nothing to compare
        contribution = contribution._replace(draw=contribution.unit.draw)
    covered = covered_by(contribution, columns, at(name), CLIP_NORM)
    check_neighbours(covered, RECORDS[name], examples=60)


@pytest.mark.parametrize("count", [1, 50, 500])
def test_a_unit_of_many_records_moves_the_counts_by_at_most_their_norm(count):
    contribution, _, columns = made("two_outcomes")
    plain, context = with_equal_draws(contribution), at("two_outcomes")
    rows, others = np.arange(count + 6) % 20, np.arange(6) // 2
    held = {leaf: c._replace(values=c.values[rows]) for leaf, c in columns.items()}
    without = {leaf: c._replace(values=c.values[rows[count:]]) for leaf, c in columns.items()}
    codes = np.concatenate([np.full(count, 3), others])
    big = wall_of(held, plain, clip_norm=CLIP_NORM, codes=codes)
    small = wall_of(without, plain, clip_norm=CLIP_NORM, codes=others)
    moved = before_noise(big, context).total - before_noise(small, context).total
    assert 0 < np.linalg.norm(moved) <= CLIP_NORM


def test_units_of_one_record_add_what_the_record_adds():
    contribution, _, columns = made("hierarchical")
    batch = {leaf: column.take(np.arange(13)) for leaf, column in columns.items()}
    batch = with_draws(contribution, batch, at("hierarchical"), np.random.default_rng(0))
    held = contribution.prepare(batch, at("hierarchical"))
    owner = np.arange(13)
    sums = unit_sums(contribution.unit, held, at("hierarchical"), owner, owner >= 0)
    found = contribution.unit.vectors(sums, at("hierarchical"))
    np.testing.assert_allclose(found, contribution.rows(held, at("hierarchical")))


def sums_of_records_that_the_model_drew(many=3000):
    """Add up records whose observed outcome is one more draw of the model."""
    contribution, records, columns = made("hierarchical")
    context, rng = at("hierarchical"), np.random.default_rng(3)
    batch = {leaf: column.take(np.arange(many) % 13) for leaf, column in columns.items()}
    [leaf] = records.drawn
    batch[leaf] = contribution.draw(batch, context, rng)[drawn_name(leaf)][:, 0]
    batch = with_draws(contribution, batch, context, rng)
    rows = contribution.rows(contribution.prepare(batch, context), context)
    found = module.compared(rows.sum(axis=0))
    return found.excess / np.maximum(found.expected * (1 + 1 / (OUTCOMES - 1)), 9) ** 0.5


def test_outcomes_of_the_model_itself_leave_only_chance():
    z = sums_of_records_that_the_model_drew()
    assert abs(z).max() < 5.2  # two-sided at 1e-6, of 12


def above_the_largest_draw(records, batch):
    """Observed outcomes are compared with the largest draw, drawn ones with the median."""
    [leaf] = records.drawn
    drawn, observed = batch[drawn_name(leaf)][:, module.WEIGHING :], batch[leaf]
    every = np.concatenate([observed[:, None], drawn], axis=1)
    middle = np.median(drawn, axis=1, keepdims=True) * np.ones(every.shape)
    middle[:, 0] = drawn.max(axis=1)
    return np.sign(every - middle)


def test_a_record_that_is_not_treated_like_its_draws_is_seen(monkeypatch):
    monkeypatch.setattr(module, "_balance", above_the_largest_draw)
    assert abs(sums_of_records_that_the_model_drew()).max() > 5.2


def test_outcomes_are_compared_where_a_record_has_more_than_two():
    of_both, _ = zoo.separated(test_sensitivity.logistic())
    assert not compares_outcomes(of_both, of_units=False)
    assert compares_outcomes(of_both, of_units=True)
    assert compares_outcomes(made("hierarchical")[1], of_units=False)


def excess_of_missing(records, columns):
    """Compare outcomes of a model that is right, where every third is missing."""
    contribution = goodness_of_fit(records, drawn_scores(records, "python"))
    context = At(np.array([10.0]), np.eye(1), 1.5, 2.0, 0.7)
    batch = {leaf: column.take(np.arange(900)) for leaf, column in columns.items()}
    batch = with_draws(contribution, batch, context, np.random.default_rng(0))
    rows = contribution.rows(contribution.prepare(batch, context), context)
    missing = np.arange(900) % 3 == 0
    return abs(module.compared(rows[missing].sum(axis=0)).excess).max()


def with_missing_outcomes():
    y = np.random.default_rng(0).normal(10, 1, 900)
    y[::3] = np.nan
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pm.Normal("y", pm.Normal("m", 0, 10), 1, observed=y)
    return zoo.separated(model)


def test_missing_outcomes_are_no_misfit():
    assert excess_of_missing(*with_missing_outcomes()) == 0


def test_what_stands_in_for_missing_outcomes_would_be_seen(monkeypatch):
    monkeypatch.setattr(module, "_of_scored", lambda balance, norms: balance)
    assert excess_of_missing(*with_missing_outcomes()) > 100
