"""Where few vectors span a record's scores, what it adds is what formed scores would add."""

import warnings
from functools import cache

import numpy as np
import pytest

from pymc_dp.contributions import drawn_scores as module
from pymc_dp.contributions.drawn_scores import drawn_scores
from pymc_dp.contributions.frontier import NoFrontierRuleError
from pymc_dp.contributions.score_scales import score_scales
from pymc_dp.contributions.whitened import At, whitened_scores
from pymc_dp.errors import PrivacyWarning
from pymc_dp.privacy.contribution import FactoredContribution, rehearse, unit_sums, with_draws
from pymc_dp.privacy.probe import probe
from tests import zoo

FACTORED = {
    "logistic": 1,
    "minibatch": 1,
    "logistic_data": 1,
    "hierarchical": 3,
    "two_indices": 1,
    "zero_inflated": 2,
    "weibull": 2,
    "mv_normal": 5,
    "categorical": 3,
    "softmax": 3,
    "horseshoe": 1,
    "hsgp": 1,
    "neural_network": 6,
    "as_many_columns_as_records": 1,
    "transposed": 1,
}


@cache
def made(name):
    with warnings.catch_warnings(category=PrivacyWarning, action="ignore"):  # small groups
        records, columns = zoo.separated(zoo.build(zoo.ACCEPTED[name]))
    factored = drawn_scores(records, "python")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "record_channels", refuse)
        formed = drawn_scores(records, "python")
    return records, columns, factored, formed


def refuse(*args):
    raise NoFrontierRuleError


def context(d, bounds, diagonal=False):
    rng = np.random.default_rng(1)
    W = 1 + rng.random(d) if diagonal else np.eye(d) + rng.normal(0, 0.2, (d, d))
    return At(rng.normal(0, 0.3, d), W, *bounds, 0.7)


def batch_of(name, at):
    _, columns, factored, _ = made(name)
    batch = {leaf: column.take(np.arange(13)) for leaf, column in columns.items()}
    return with_draws(whitened_scores(factored), batch, at, np.random.default_rng(0))


def vectors(contribution, batch, at):
    held = contribution.prepare(batch, at)
    rows = len(contribution.norms(held, at))
    return np.stack([contribution.weighted_sum(held, at, one) for one in np.eye(rows)])


@pytest.mark.parametrize("name", FACTORED)
@pytest.mark.parametrize("diagonal", [False, True], ids=["matrix", "diagonal"])
@pytest.mark.parametrize("bounds", [(0.4, 1.0), (3.0, 9.0), (np.inf, np.inf)])
def test_vectors_and_norms_are_those_of_formed_scores(name, diagonal, bounds):
    records, _, factored, formed = made(name)
    at = context(records.size, bounds, diagonal)
    batch = batch_of(name, at)
    a, b = whitened_scores(factored), whitened_scores(formed)
    A, B = vectors(a, batch, at), vectors(b, batch, at)
    np.testing.assert_allclose(A, B, rtol=1e-10, atol=1e-10 * abs(B).max())
    na, nb = (c.norms(c.prepare(batch, at), at) for c in (a, b))
    np.testing.assert_allclose(na, nb, rtol=1e-10)
    
    x, y = (vectors(score_scales(s), batch, at.point) for s in (factored, formed))
    np.testing.assert_allclose(x, y, atol=1e-10)
