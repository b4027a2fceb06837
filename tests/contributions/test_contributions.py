"""What a record contributes: norms without gradients, and sums that weigh every record."""

import tracemalloc

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_dp.contributions import frontier, gradients
from pymc_dp.contributions.frontier import NoFrontierRuleError, cut_frontier
from pymc_dp.contributions.gradients import (
    SMALLEST_BATCH,
    each_gradient,
    gradient,
    on_batch,
    padded,
    plain_gradient,
)
from pymc_dp.model import separate
from pymc_dp.privacy.contribution import FactoredContribution
from pymc_dp.privacy.norms import row_norms
from tests import zoo
from tests.zoo import GROUP, REAL, D, N, X, separated

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")
ALL = list(range(N))


def contribute(contribution, batch, context, weights):
    """Return the norms and the weighted sum, as the wall asks for them."""
    prepared = contribution.prepare(batch, context)
    norms = contribution.norms(prepared, context)
    return norms, contribution.weighted_sum(prepared, context, weights)


def check(contribution, columns, context, rows):
    """Compare norms and the weighted sum of all records with vectors of theirs."""
    weights = np.linspace(0, 1, N)
    norms, total = contribute(contribution, zoo.take(columns, ALL), context, weights)
    np.testing.assert_allclose(norms, np.linalg.norm(rows, axis=1), rtol=1e-12)
    np.testing.assert_allclose(total, weights @ rows, rtol=1e-12)


def raise_no_frontier(*graph):
    raise NoFrontierRuleError


def regression(x, y):
    def describe():
        pm.Normal("y", pm.Data("x", x) @ pm.Normal("b", shape=x.shape[1]), 1.0, observed=y)

    return separated(zoo.build(describe))


def rows_by_second_index():
    alpha, s = pm.Normal("alpha", shape=(3, 2)), pm.HalfNormal("s")
    pm.Normal("y", alpha[:, GROUP].sum(axis=0) + X[:, 0] * alpha[0, 0], s, observed=REAL)


def test_a_model_without_a_frontier_still_has_norms_and_sums():
    records, columns = separated(zoo.build(rows_by_second_index))
    with pytest.raises(NoFrontierRuleError):
        cut_frontier(records.batch, list(records.latents.values()))
    z = np.random.default_rng(0).normal(size=(1, records.size))
    alpha, s = z[0, :6].reshape(3, 2), np.exp(z[0, 6])
    off = REAL - alpha.sum(axis=0)[GROUP] - X[:, 0] * alpha[0, 0]
    rows = np.zeros((N, 7))
    for i, g in enumerate(GROUP):
        rows[i, [g, 2 + g, 4 + g]] = off[i] / s**2
    rows[:, 0] += X[:, 0] * off / s**2
    rows[:, 6] = (off / s) ** 2 - 1
    check(gradient(records, "python"), columns, z, rows)


@pytest.mark.parametrize("name", ["logistic", "hierarchical", "two_indices", "neural_network"])
def test_the_frontier_and_formed_gradients_agree(name, monkeypatch):
    records, columns = separated(zoo.build(zoo.ACCEPTED[name]))
    z = np.random.default_rng(1).normal(size=(1, records.size))
    at = zoo.take(columns, ALL), z, np.linspace(0, 1, N)
    ghost = gradient(records, "python")
    monkeypatch.setattr(gradients, "record_sums", raise_no_frontier)
    formed = gradient(records, "python")
    assert ghost.width == (name == "hierarchical")  # the scale's logarithm alone needs its rows
    assert formed.width == records.size
    for one, other in zip(contribute(ghost, *at), contribute(formed, *at), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_a_step_in_a_latent_adds_nothing_to_its_gradient():
    def describe():
        b = pm.Normal("b", shape=D)
        step = pt.switch(pt.gt(b, 0), 1.0, -1.0)
        pm.Normal("y", (pm.Data("x", X) * b * step + step).sum(axis=1), 1.0, observed=REAL)

    records, columns = separated(zoo.build(describe))
    z = np.array([[0.7, -0.4, 1.2]])
    signs = np.sign(z[0])
    off = REAL - X @ np.abs(z[0]) - signs.sum()
    check(gradient(records, "python"), columns, z, off[:, None] * X * signs)


def in_row_zero(gather, cotangent):
    """The planted fault: as many places as the first index has, which may be one for all rows."""
    empty = pt.zeros((cotangent.shape[0], *gather.operand.shape), dtype=cotangent.dtype)
    places = pt.cumsum(pt.ones_like(gather.indices[0], dtype="int64")) - 1
    rows = pt.set_subtensor(empty[(places, *gather.indices)], cotangent)
    return rows.reshape((cotangent.shape[0], -1))


@pytest.mark.parametrize("is_sound", [True, False])
def test_an_index_that_all_records_share_leaves_each_its_own_gradient(is_sound, monkeypatch):
    if not is_sound:
        monkeypatch.setattr(frontier.Gather, "rows", in_row_zero)

    def describe():
        level = pm.Normal("t", shape=(2, 2))[np.array([1]), pm.Data("group", GROUP)]
        pm.Normal("y", pt.sinh(pm.Normal("a")) * level, 1.0, observed=REAL)

    records, columns = separated(zoo.build(describe))
    batch, z = zoo.take(columns, ALL), np.linspace(0.5, 1.5, records.size)
    one_by_one = on_batch(records, [], gradients.gradient_rows(records), "python")(batch, z)
    rows = each_gradient(records, "python")(batch, z)
    assert np.allclose(rows, one_by_one) == is_sound


@pytest.mark.parametrize("copied", [True, False])
def test_a_record_far_from_what_the_model_expects_keeps_its_score(copied, monkeypatch):
    """A rewrite of what is stable would turn x times a residual of -1 into 0."""
    if not copied:  # the planted fault
        monkeypatch.setattr(frontier, "deep_copy_op", lambda x: x)

    def describe():
        mean = pm.Normal("a") + pm.Data("x", X[:, :2]) @ pm.Normal("b", shape=2)
        effects = pm.HalfNormal("sd") * pm.Normal("g", shape=4)[pm.Data("group", GROUP)]
        pm.Bernoulli("y", logit_p=mean + effects, observed=zoo.BINARY)

    records, columns = separated(zoo.build(describe))
    one = {name: x.copy() for name, x in zoo.take(columns, ALL[:1]).items()}
    one["x"][:], one["group"][:], one["y"][:] = (900.0, -400.0), 2, 0
    [score] = each_gradient(records, "python")(one, np.full(records.size, 0.3))
    of_b = dict(zip(records.latents, records.split(score), strict=True))["b"]
    assert np.array_equal(of_b, [-900.0, 400.0]) == copied


@pytest.mark.parametrize("fits", [True, False], ids=["ghost norms", "planted: gradients formed"])
def test_no_gradient_of_a_record_is_formed(fits, monkeypatch):
    rows, width = 20_000, 200
    rng = np.random.default_rng(0)
    batch = {"x": rng.normal(size=(rows, width)), "y": rng.integers(0, 2, rows)}

    def describe():
        logits = pm.Normal("a") + pm.Data("x", X[:, [0] * width]) @ pm.Normal("b", shape=width)
        pm.Bernoulli("y", logit_p=logits, observed=zoo.BINARY)

    if not fits:
        monkeypatch.setattr(gradients, "record_sums", raise_no_frontier)
    contribution = gradient(separate(zoo.build(describe))[0], "python")
    at = batch, np.zeros((1, width + 1)), np.ones(rows)
    tracemalloc.start()
    contribute(contribution, *at)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (peak < rows * width * 8 / 4) == fits


@pytest.mark.parametrize(("x", "r"), [(1e-23, 1e25), (1e-200, 1e202), (1e200, 1e-198)])
def test_a_product_of_tiny_and_huge_keeps_its_norm(x, r):
    rows = np.array([[x, 0.0], [0.0, x], [x, 0.0], [0.0, 0.0]])
    records, columns = regression(rows, np.array([r, -r, r, r]))
    batch = zoo.take(columns, [0, 1, 2])
    norms, total = contribute(gradient(records, "python"), batch, np.zeros((1, 2)), np.ones(3))
    np.testing.assert_allclose(norms, 100.0, rtol=1e-12)
    np.testing.assert_allclose(total, [200.0, -100.0], rtol=1e-12)


@pytest.mark.parametrize("own_form", [False, True])
def test_several_draws_are_one_long_vector(own_form):
    """The papers' own form has a half for each parameter."""
    records, columns = regression(X, REAL)
    z, slopes = np.random.default_rng(2).normal(size=(2, 3, D))
    rows = []
    for b, slope in zip(z, slopes, strict=True):
        g = X * (REAL - X @ b)[:, None]
        rows += [g, g * slope] if own_form else [g]
    make, context = (plain_gradient, (z, slopes)) if own_form else (gradient, z)
    check(make(records, "python", 3), columns, context, np.concatenate(rows, axis=1))


def test_padding_changes_shapes_and_nothing_else():
    """A contribution of two leaves, one of which has its records along axis 1."""
    sizes = set()

    def norms(batch, context):
        assert batch["w"].shape == (2, len(batch["x"]))
        sizes.add(len(batch["x"]))
        return row_norms(batch["x"]) * batch["w"][1]

    def weighted_sum(batch, context, weights):
        return (weights * batch["w"][0]) @ batch["x"]

    plain = FactoredContribution(3, 0, norms, weighted_sum)
    wide = padded(plain, {"x": 0, "w": 1})
    rng = np.random.default_rng(5)
    for rows in (*range(1, 131), *range(132, 2049, 51)):
        batch = {"x": rng.normal(size=(rows, 3)), "w": rng.random((2, rows))}
        weights = rng.random(rows)
        found, total = contribute(wide, batch, None, weights)
        np.testing.assert_array_equal(found, row_norms(batch["x"]) * batch["w"][1])
        expected = weighted_sum(batch, None, weights)
        np.testing.assert_allclose(total, expected, rtol=1e-13, atol=1e-13)
    assert min(sizes) == SMALLEST_BATCH
    assert max(sizes) <= 2048
    assert len(sizes) <= 48
