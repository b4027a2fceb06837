"""Scores that are averaged over a posterior, and what else methods make of them, stay in bounds.

Guard 2 of the tests of a guarantee. Soundness, rule 37: a record's vector is its own, to the last
bit, whatever q is.
"""

from functools import cache

import numpy as np
import pymc as pm
import pytest

from pymc_dp.contributions import whitened
from pymc_dp.contributions.estimating import AVERAGED, POLYA_GAMMA, SITES, ratio
from pymc_dp.contributions.scores import drawn_scores
from pymc_dp.contributions.whitened import At, whitened_scores
from tests import zoo
from tests.guarantees.test_whitened_norms import rows_of, unit_vector


def counts():
    a, b = pm.Normal("a"), pm.Normal("b", shape=zoo.X.shape[1])
    pm.Poisson("y", pm.math.exp(a + pm.Data("X", zoo.X) @ b), observed=zoo.COUNT)


def two_predictors():
    a, b = pm.Normal("a"), pm.Normal("b", shape=zoo.X.shape[1])
    X = pm.Data("X", zoo.X)
    pm.NegativeBinomial("y", pm.math.exp(X @ b), alpha=pm.math.exp(X[:, 0] * a), observed=zoo.COUNT)


MODELS = zoo.ACCEPTED | {"counts": counts, "two_predictors": two_predictors}
CASES = [
    ("logistic", AVERAGED),
    ("logistic", POLYA_GAMMA),
    ("logistic", SITES),
    ("counts", AVERAGED),
    ("counts", SITES),
    ("two_predictors", AVERAGED),
    ("weibull", AVERAGED),
    ("zero_inflated", AVERAGED),
]
SPREADS = [1e-8, 0.1, 2.0]


@cache
def made(name, estimating):
    records, columns = zoo.separated(zoo.build(MODELS[name]))
    scores = drawn_scores(records, "python", estimating)
    return whitened_scores(scores), columns, records.size


def test_what_is_no_number_stays_none():
    found = ratio(np.array([np.nan, np.inf, 1.0, 3.0]), np.array([0.0, 0.0, 0.0, 2.0]))
    assert np.isnan(found[:2]).all()
    assert found[2:].tolist() == [1.0, 1.5]


def at(d, spread, bound=1.5, of_precision=False):
    rng = np.random.default_rng(1)
    W = np.eye(d) + rng.normal(0, 0.2, (d, d))
    root = spread**0.5 * (np.eye(d) + rng.normal(0, 0.2, (d, d)))
    point, along = rng.normal(0, 0.5, d), unit_vector(d)
    return At(
        point,
        W,
        bound,
        bound**2,
        direction=along,
        root=root,
        of_precision=of_precision,
    )


def longest(name, estimating, spread, bound, of_precision):
    contribution, columns, d = made(name, estimating)
    context = at(d, spread, bound, of_precision)
    with np.errstate(all="ignore"):  # as inside the wall, which drops what is not finite
        norms = np.linalg.norm(rows_of(contribution, columns, context), axis=1)
    return np.nanmax(norms) / context.clip_norm


@pytest.mark.parametrize(("name", "estimating"), CASES)
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("of_precision", [False, True])
def test_no_vector_is_longer_than_the_clip_norm(name, estimating, spread, of_precision):
    for bound in (1e-3, 1.5, 1e6):
        assert 0 < longest(name, estimating, spread, bound, of_precision) <= 1 + 1e-9


def test_a_precision_that_is_not_clipped_is_longer(monkeypatch):
    monkeypatch.setattr(
        whitened, "kept_of_curvature", lambda curvature, at: np.ones(len(curvature))
    )
    assert longest("logistic", POLYA_GAMMA, 0.1, 1e-3, True) > 1.1


@pytest.mark.parametrize(("name", "estimating"), CASES)
@pytest.mark.parametrize("of_precision", [False, True])
def test_one_record_more_changes_no_bit_of_the_others(name, estimating, of_precision):
    contribution, columns, d = made(name, estimating)
    context = at(d, 0.1, of_precision=of_precision)

    def first(n):
        return rows_of(contribution, columns, context, n)[0].tobytes()

    assert len({first(n) for n in range(1, 14)}) == 1
