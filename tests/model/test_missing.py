"""Missing entries go by records: an outcome adds nothing, a predictor is a latent of its record."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.optimize import approx_fprime

import pymc_dp
from pymc_dp.contributions.gradients import each_gradient, on_batch
from pymc_dp.errors import NotSeparableError
from pymc_dp.model import separate
from pymc_dp.privacy.private_data import open_private

N = 34
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 2))
SIZE = RNG.normal(size=N)
COUNTS = RNG.poisson(2.0, N)
GONE = np.arange(N) % 2 == 0


# PyMC says that it imputes: it does not, here
pytestmark = pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")


def counts(observed):
    with pm.Model() as model:
        b = pm.Normal("b", shape=2)
        pm.Poisson("y", pm.math.exp(pm.Data("X", X) @ b), observed=observed)
    return model


def regression():
    """A predictor with gaps, and an outcome that depends on it."""
    with pm.Model() as model:
        size = pm.Normal("size", pm.Normal("mean"), 1.5, observed=np.where(GONE, np.nan, SIZE))
        pm.Normal("y", pm.Normal("slope") * size, 1.0, observed=2 * SIZE)
    return model


def batch_of(private):
    columns = open_private(private).columns
    return {name: column.take(np.arange(N)) for name, column in columns.items()}


def test_a_missing_outcome_adds_nothing_to_its_record():
    records, private = separate(counts(np.ma.masked_array(COUNTS, GONE)))
    whole, all_there = separate(counts(COUNTS))
    z = np.array([0.3, -0.2])
    each = on_batch(records, [], records.batch.log_likelihood(), "python")(batch_of(private), z)
    np.testing.assert_array_equal(each[GONE], 0)
    expected = on_batch(whole, [], whole.batch.log_likelihood(), "python")(batch_of(all_there), z)
    np.testing.assert_allclose(each[~GONE], expected[~GONE])
    scores = each_gradient(records, "python")(batch_of(private), z)
    np.testing.assert_array_equal(scores[GONE], 0)
    # how many are missing is no shape
    assert {n for shape in records.shapes.values() for n in shape} == {None, 2}


def test_a_missing_predictor_is_integrated_out():
    records, private = separate(regression())
    assert records.local_latents == {"size_unobserved": 0}
    # outcomes are drawn after the predictors that they read
    assert [set(x.drawn) for x in records.outcomes] == [{"size", "size_unobserved"}, {"y"}]
    z = np.array([0.4, 0.8])

    def marginal(z):
        mean, slope = z
        both = stats.norm(mean, 1.5).logpdf(SIZE) + stats.norm(slope * SIZE, 1).logpdf(2 * SIZE)
        sd = np.hypot(1, slope * 1.5)
        return np.where(GONE, stats.norm(slope * mean, sd).logpdf(2 * SIZE), both).sum()

    scores, batch = each_gradient(records, "python"), batch_of(private)
    expected = approx_fprime(z, marginal, 1e-6)
    np.testing.assert_allclose(scores(batch, z).sum(axis=0), expected, rtol=1e-4)
    filled = batch | {"missing in size": np.zeros(N, bool)}  # the planted fault
    assert abs(scores(filled, z) - scores(batch, z))[GONE].max() > 0.1


def test_a_fit_gives_back_neither_values_nor_their_number():
    with regression():
        idata = pymc_dp.fit(
            method="dp_advi", epsilon=5, delta=1e-5, draws=4, progressbar=False, random_seed=1
        )
    assert set(idata["posterior"].data_vars) == {"mean", "slope"}
    lengths = {n for group in idata.children.values() for n in group.sizes.values()}
    assert GONE.sum() not in lengths
    assert N not in lengths


def test_a_missing_category_adds_nothing_to_its_record():
    kinds = np.ma.masked_array(np.arange(N) % 3, GONE)
    with pm.Model() as model:
        pm.Categorical("kind", pm.Dirichlet("p", np.ones(3)), observed=kinds)
    free = {"epsilon": np.inf, "draws": 4000, "random_seed": 0, "progressbar": False}
    p = pymc_dp.fit(model=model, method="vips", clip_norm=np.inf, **free)["posterior"]["p"]
    counts = 1 + np.bincount(kinds.compressed(), minlength=3)  # of the Dirichlet posterior
    np.testing.assert_allclose(p.mean(("chain", "draw")), counts / counts.sum(), atol=0.01)


def test_a_missing_category_that_others_read_is_refused_with_a_way_out():
    kinds = np.ma.masked_array(np.arange(N) % 3, GONE)
    with pm.Model() as model:
        kind = pm.Categorical("kind", pm.Dirichlet("p", np.ones(3)), observed=kinds)
        pm.Normal("y", pm.Normal("a", shape=3)[kind], 1, observed=SIZE)
    with pytest.raises(NotSeparableError, match="discrete latent of single records"):
        pymc_dp.explain(model)


def test_gaps_within_vectors_are_refused():
    values = RNG.normal(size=(N, 2))
    values[3, 1] = np.nan
    with pm.Model() as model:
        pm.MvNormal("y", pm.Normal("m", shape=2), np.eye(2), observed=values)
    with pytest.raises(NotSeparableError, match="`y` has missing entries within its vectors"):
        separate(model)
