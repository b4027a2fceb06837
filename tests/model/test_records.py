"""A model is split into records: each record's gradient is that of the author's own model."""

from functools import cache, partial
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors

from pymc_dp.accounting.plan import Poisson
from pymc_dp.contributions.gradients import gradient, gradient_rows, on_batch
from pymc_dp.errors import NotSeparableError
from pymc_dp.methods.advi import AdviOptions, build
from pymc_dp.model import separate
from pymc_dp.papers.elbo_gradient_steps import MEAN_FIELD, by_steps
from tests import zoo
from tests.zoo import separated

REPEATED = [0, 3, 5, 5, 7, 3, 12]
FIVE = [12, 0, 1, 2, 11]
BY_STEPS = partial(by_steps, MEAN_FIELD)
OPTIONS = AdviOptions(sampling=Poisson, num_records=None, noisy=True)
close = {"rtol": 1e-9, "atol": 1e-11}
# few records make small groups; the warning has a test of its own
pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")


@cache
def split(name):
    """Separate a model of the zoo; compile each function on first use."""
    model = zoo.build(zoo.ACCEPTED[name])
    records, columns = separated(model)
    start = np.concatenate([value.ravel() for value in records.point.values()])
    z = start + 0.1 * np.random.default_rng(3).normal(size=len(start))
    return SimpleNamespace(
        model=model,
        records=records,
        columns=columns,
        z=z,
        rows=cache(lambda: on_batch(records, [], gradient_rows(records), "python")),
        contribution=cache(lambda: gradient(records, "python")),
        logp=cache(lambda: on_batch(records, [], records.batch.log_likelihood(), "python")),
    )


@cache
def slow_gradients(name):
    """Differentiate the author's model on its full data, one record at a time."""
    model = zoo.build(zoo.STANDS_FOR.get(name, zoo.ACCEPTED[name]))
    terms = model.logp(vars=model.observed_RVs + model.potentials, sum=False, jacobian=False)
    total = sum(term.reshape((zoo.N, -1)).sum(axis=1) for term in terms)
    i, latents = pt.lscalar("i"), model.value_vars
    parts = pt.grad(total[i], latents, disconnected_inputs="ignore")
    flat = pt.concatenate([part.ravel() for part in parts])
    fn = pytensor.function([i, *latents], flat, mode="FAST_COMPILE", on_unused_input="ignore")
    point, z, at = [], split(name).z, 0
    for value in model.initial_point().values():
        point.append(z[at : at + value.size].reshape(value.shape))
        at += value.size
    assert at == len(z)
    return np.stack([fn(row, *point) for row in range(zoo.N)])


def contribute(it, batch, weights):
    """Return the norms and the weighted sum, as the wall asks for them."""
    contribution, context = it.contribution(), it.z[None]
    prepared = contribution.prepare(batch, context)
    norms = contribution.norms(prepared, context)
    return norms, contribution.weighted_sum(prepared, context, weights)


every_model = pytest.mark.parametrize("name", zoo.ACCEPTED)
every_batch = pytest.mark.parametrize("rows", [REPEATED, [9]], ids=["repeated", "1"])


@every_model
def test_latents_keep_the_authors_names_and_order_and_columns_hold_all_records(name):
    it = split(name)
    assert list(it.records.latents) == [v.name for v in it.model.value_vars]
    point = it.model.initial_point()
    assert list(it.records.point) == list(point)
    for latent, value in point.items():
        np.testing.assert_allclose(it.records.point[latent], value, rtol=0, atol=1e-15)
    assert {column.rows for column in it.columns.values()} == {zoo.N}
    assert set(it.columns) == set(it.records.batch.inputs)


@every_model
@every_batch
def test_gradients_norms_and_weighted_sums_are_those_of_the_authors_model(name, rows):
    it, expected = split(name), slow_gradients(name)[rows]
    assert np.linalg.norm(expected, axis=1).min() > 1e-8  # there is something to compare
    batch, weights = zoo.take(it.columns, rows), np.random.default_rng(1).random(len(rows))
    np.testing.assert_allclose(it.rows()(batch, it.z), expected, **close)
    norms, total = contribute(it, batch, weights)
    np.testing.assert_allclose(norms, np.linalg.norm(expected, axis=1), **close)
    np.testing.assert_allclose(total, weights @ expected, **close)


@pytest.mark.parametrize("name", zoo.ACCEPTED)
@settings(max_examples=5)
@given(j=st.integers(0, len(FIVE) - 1), seed=st.integers(0, 2**32 - 1))
def test_no_record_moves_the_likelihood_of_another(name, j, seed):
    it, rng = split(name), np.random.default_rng(seed)
    before = zoo.take(it.columns, FIVE)
    after = {}
    for leaf, column in it.columns.items():
        rows = np.moveaxis(before[leaf], column.axis, 0).copy()
        rows[j] = rng.permutation(np.asarray(column.values).ravel())[: rows[j].size].reshape(
            rows[j].shape
        )
        if rows.dtype.kind == "f":
            rows[j] *= rng.choice([1.0, 1e-3, 50.0])
        after[leaf] = np.moveaxis(rows, 0, column.axis)
    others = [i for i in range(len(FIVE)) if i != j]
    for compute in (it.logp(), it.rows()):
        moved, kept = compute(after, it.z), compute(before, it.z)
        np.testing.assert_allclose(moved[others], kept[others], rtol=1e-13, atol=1e-13)
    without_j = np.where(np.arange(len(FIVE)) == j, 0.0, 1.0)
    moved, kept = contribute(it, after, without_j), contribute(it, before, without_j)
    np.testing.assert_allclose(moved[0][others], kept[0][others], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(moved[1], kept[1], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["weibull", "neural_network", "mv_normal", "hierarchical"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_numbers_stay_in_their_record_in_every_model(name, bad):
    it, each = split(name), np.ones(zoo.N)
    batch = zoo.take(it.columns, range(zoo.N))
    spoiled = {leaf: values.copy() for leaf, values in batch.items()}
    for leaf, column in it.columns.items():
        if column.dtype == "float64":
            spoiled[leaf][3] = bad
    with np.errstate(all="ignore"):  # as inside the wall
        kept, seen = (contribute(it, values, each)[0] for values in (batch, spoiled))
    assert not np.isfinite(seen[3])
    np.testing.assert_allclose(np.delete(seen, 3), np.delete(kept, 3), rtol=1e-12)


@pytest.mark.parametrize(
    ("describe", "words"), zoo.REFUSED.items(), ids=[f.__name__ for f in zoo.REFUSED]
)
def test_models_that_couple_records_are_refused_by_name(describe, words):
    with pytest.raises(NotSeparableError) as error:
        separate(zoo.build(describe))
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("describe", "name"), zoo.LOCAL.items(), ids=[f.__name__ for f in zoo.LOCAL]
)
def test_local_latents_are_found_and_are_no_result(describe, name):
    records, columns = separated(zoo.build(describe))
    assert records.local_latents == {name: 0}
    assert name not in columns
    assert not records.of_units
    assert not any(name == label.split("[")[0] for label in records.labels)
    if not records.latents:
        with pytest.raises(NotSeparableError, match=f"`{name}`.*nothing that a fit may release"):
            build(BY_STEPS, records, OPTIONS)


def test_too_many_local_latents_are_refused():
    def describe():
        e = pm.Normal("e", 0, pm.HalfNormal("s"), shape=(zoo.N, 6))
        pm.Normal("y", e.sum(axis=1), 1.0, observed=zoo.REAL)

    with pytest.raises(NotSeparableError, match="has 6 latents of its own, `e`"):
        build(BY_STEPS, separated(zoo.build(describe))[0], OPTIONS)


def test_separate_hands_out_no_data_but_the_columns():
    records, _ = separate(zoo.build(zoo.logistic_data))
    graphs = [records.prior, *records.batch.terms, *records.single.terms]
    graphs += records.outputs.graphs.values()
    assert not [v for v in ancestors(graphs) if isinstance(v, SharedVariable)]


def test_models_without_latents_or_observations_are_refused():
    with pm.Model() as nothing_to_infer:
        pm.Normal("y", observed=zoo.REAL)
    with pytest.raises(ValueError, match="no latent"):
        separate(nothing_to_infer)
    with pm.Model() as nothing_seen:
        pm.Normal("a")
    with pytest.raises(NotSeparableError, match="no observed data"):
        separate(nothing_seen)
    with pm.Model() as discrete:
        pm.Normal("y", pm.Bernoulli("k", 0.5), observed=zoo.REAL)
    with pytest.raises(NotSeparableError, match="`k` is a discrete latent"):
        separate(discrete)


def changing(cut, later):
    t = np.arange(float(len(zoo.REAL)))
    with pm.Model() as model:
        tau, slope = pm.Uniform("tau", 0, 9), pm.Normal("slope")
        pm.Normal("y", pt.switch(cut(t, tau), 0.0, later(slope, t, tau)), observed=zoo.REAL)
    return separate(model)[0]


@pytest.mark.parametrize("cut", [lambda t, tau: t < tau, lambda t, tau: pt.cast(tau, "int64") * t])
def test_latents_that_change_the_likelihood_in_steps_are_refused(cut):
    with pytest.raises(NotSeparableError, match="`tau` in comparisons .* pm.math.sigmoid"):
        changing(cut, lambda slope, t, tau: slope)
    bend = changing(lambda t, tau: t < tau, lambda slope, t, tau: slope * (t - tau))
    assert set(bend.latents) == {"tau_interval__", "slope"}


def test_potentials_that_order_latents_by_a_step_are_refused_and_by_a_slope_taken():
    def in_order(worst):
        m = pm.Normal("m", 0, 3, shape=2)
        pm.Potential("order", pm.math.switch(m[1] < m[0], worst(m[1] - m[0]), 0.0))
        pm.NormalMixture("y", [0.5, 0.5], m, sigma=1.0, observed=zoo.REAL)

    with pytest.raises(NotSeparableError, match="`order` reads latents .*transforms.ordered"):
        separate(zoo.build(lambda: in_order(lambda gap: -np.inf)))
    slope, _ = separate(zoo.build(lambda: in_order(lambda gap: 9 * gap)))
    assert set(slope.latents) == {"m"}
