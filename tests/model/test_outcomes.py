"""Outcomes are drawn from the model's own distributions, for each record from the record alone."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

from pymc_dp.contributions.scores import UNDRAWN, compile_draws, drawn_name
from pymc_dp.driver.result import transform_draws
from pymc_dp.errors import NotSeparableError
from tests import zoo
from tests.distributions import MODELS
from tests.zoo import build as model_of

ROWS, COUNT = 400, 2
ALL = 16_000  # draws of all records
X = np.random.default_rng(0).normal(size=(ROWS, 2))
REAL = np.random.default_rng(1).exponential(size=ROWS)
COUNTS = np.random.default_rng(2).integers(0, 3, ROWS)


def predictor():
    return pm.Data("X", X) @ pm.Normal("b", shape=2)


def counts_in_data():
    pm.Poisson("y", pm.math.exp(predictor()), observed=pm.Data("counts", COUNTS))


def choices_in_data():
    answers = pm.Data("answers", (COUNTS > 0).astype(float))
    pm.Bernoulli("y", logit_p=predictor(), observed=answers)


def process_over_bands():
    # its covariance holds reshapes to one row and to one column
    gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.Gamma("ls", 5, 1)))
    f = gp.prior("f", X=np.arange(4.0)[:, None])
    pm.Normal("y", f[pm.Data("band", np.arange(ROWS) % 4)], 1.0, observed=REAL)


def mixture_of_vectors():
    centres = pm.Normal("m", np.array([[-4.0, 0.0], [4.0, 9.0]]), 1.0, shape=(2, 2))
    component = pm.MvNormal.dist(centres, np.eye(2), shape=(2, 2))
    pm.Mixture("y", pm.Dirichlet("w", [1.0, 2.0]), component, observed=X)


def choices_of_many():
    counts = np.column_stack([COUNTS, COUNTS[::-1], 4 + np.arange(ROWS) % 3])
    odds = pt.concatenate([pt.zeros((ROWS, 1)), pm.Data("X", X)], axis=1)
    weighted = odds * pm.Normal("b", shape=3)
    total = pm.Data("total", counts.sum(axis=1))
    pm.Multinomial("y", n=total, p=pm.math.softmax(weighted, axis=-1), observed=counts)


def potential():
    pm.Potential("y", pm.logp(pm.Normal.dist(pm.Normal("a"), 1), pm.Data("v", REAL)))


def two_or_more():
    counts = pm.Poisson.dist(pm.Gamma("mu", 1, 1))
    pm.Truncated("y", counts, lower=2, observed=COUNTS + 2)


def outcome_as_predictor():
    y = pm.Data("observed", REAL)
    pm.Normal("y", pm.Normal("a") * y**2, 1.0, observed=y)


def density_alone():
    def logp(value, mu):
        return -((value - mu) ** 2) / 2

    pm.CustomDist("y", pm.Normal("a"), logp=logp, observed=REAL)


OF_DISTRIBUTIONS = "Censored Truncated OrderedLogistic NormalMixture Mixture ZeroInflatedPoisson"
OF_DISTRIBUTIONS += " Weibull BetaBinomial HurdleGamma MvStudentT DirichletMultinomial"
DRAWN = {name: MODELS[name] for name in OF_DISTRIBUTIONS.split()}
DRAWN |= {
    build.__name__: build
    for build in (
        *(zoo.two_observed, zoo.hierarchical, zoo.hsgp, zoo.zero_sum, zoo.categorical),
        *(counts_in_data, choices_in_data, process_over_bands, mixture_of_vectors),
        choices_of_many,
    )
}


@cache
def separated(build):
    return zoo.separated(model_of(build))


def drawn(build, z=None):
    """Draw some thousand outcomes, as many of each record."""
    records, columns = separated(build)
    rows = next(iter(columns.values())).rows
    batch = {name: column.take(np.arange(rows)) for name, column in columns.items()}
    point = records.start if z is None else np.asarray(z, float)
    compute = compile_draws(records, ALL // rows)
    draws = compute(batch, point, np.random.default_rng(0))
    assert not draws.pop(UNDRAWN).any()
    leaves = [leaf for stage in records.outcomes for leaf in stage.drawn]
    assert draws.keys() == {drawn_name(leaf) for leaf in leaves}
    return {leaf: draws[drawn_name(leaf)] for leaf in leaves}, batch


# counts of two or more are drawn by rejection, which PyMC writes as a loop
@pytest.mark.parametrize("build", [potential, two_or_more, density_alone])
def test_a_model_that_does_not_say_how_to_draw_has_no_outcomes(build):
    assert separated(build)[0].outcomes is None


def test_outcomes_that_predict_themselves_are_refused():
    with pytest.raises(NotSeparableError, match="One of the outcomes of `y` is also among"):
        separated(outcome_as_predictor)


@pytest.mark.filterwarnings("ignore:Detected variables likely created by GP objects")
@pytest.mark.parametrize("build", DRAWN.values(), ids=DRAWN)
def test_outcomes_are_drawn_as_pymc_draws_them(build):
    records, _ = separated(build)
    each = dict(zip(records.latents, records.split(records.start[None]), strict=True))
    latents, model = transform_draws(records, each), model_of(build)
    model.rvs_to_initial_values = dict.fromkeys(model.rvs_to_initial_values)  # pm.do takes none
    fixed = pm.do(model, {rv: latents[rv.name][0] for rv in model.free_RVs})
    draws, batch = drawn(build)
    for stage in records.outcomes:
        for leaf, name in stage.variables.items():
            ours, observed = draws[leaf], batch[leaf]
            count = ALL // len(observed)
            assert ours.shape == (len(observed), count, *observed.shape[1:])
            assert ours.dtype == observed.dtype
            theirs = pm.draw(fixed[name], count, random_seed=1).ravel()
            shift = 0.3 * ours.std() if ours.dtype.kind == "f" else 1
            assert stats.ks_2samp(ours.ravel(), theirs).pvalue > 1e-6
            assert stats.ks_2samp(ours.ravel() + shift, theirs).pvalue < 1e-6  # the planted fault


def test_multinomials_are_drawn_of_as_many_trials_as_were_observed():
    draws, batch = drawn(choices_of_many)
    assert (draws["y"].sum(axis=-1) == batch["y"].sum(axis=-1)[:, None]).all()


def test_draws_follow_each_records_own_predictors():
    b = np.array([1.5, -1.0])
    draws = drawn(choices_in_data, b)[0]["answers"]
    expected, sd = 1 / (1 + np.exp(-X @ b)), 0.5 / np.sqrt(draws.shape[1])
    assert abs(draws.mean(axis=1) - expected).max() < 6 * sd
    assert abs(draws.mean(axis=1) - expected[::-1]).max() > 6 * sd


ALONE = {
    "normal": lambda mu, rng, size: rng.normal(mu, size=size),
    # what it draws second begins where the first left the generator, which depends on all records
    "mixture": lambda mu, rng, size: rng.normal(mu, rng.gamma(1 + np.abs(mu), size=size)),
}
TOGETHER = {
    "of the largest": lambda mu, rng, size: rng.normal(mu, np.abs(mu).max() + 0 * mu, size=size),
    "in order": lambda mu, rng, size: np.sort(rng.normal(mu, size=size), axis=-1),
    "of their number": lambda mu, rng, size: rng.normal(size=size) * size[-1],
    "nan": lambda mu, rng, size: rng.normal(mu, size=size) + (np.nan if size[-1] > 1 else 0),
}


def by_author(draw):
    with pm.Model() as model:
        density = {"logp": lambda y, mu: -((y - mu) ** 2) / 2}
        random = {"random": lambda mu, rng=None, size=None: draw(np.asarray(mu), rng, size)}
        pm.CustomDist("y", predictor(), observed=REAL, **density, **(random if draw else {}))
    return compile_draws(zoo.separated(model, public=["CustomDist_y"])[0], COUNT)


@pytest.mark.parametrize("kind", ALONE)
def test_a_function_of_an_author_that_draws_each_record_alone_is_used(kind):
    assert by_author(ALONE[kind]) is not None


@pytest.mark.parametrize("kind", TOGETHER)
def test_a_function_of_an_author_whose_draws_read_other_records_is_refused(kind):
    with pytest.raises(ValueError, match="random= of `y` draws otherwise for a made-up record"):
        by_author(TOGETHER[kind])
    assert by_author(None) is None  # what the refusal says to do


POSITIVE_COUNTS = {
    "rare": (lambda: pm.Poisson.dist(pm.HalfNormal("mu")), [np.log(0.1)], stats.poisson(0.1)),
    "spread": (
        lambda: pm.NegativeBinomial.dist(mu=pm.HalfNormal("mu"), alpha=0.5),
        [np.log(2.0)],
        stats.nbinom(0.5, 0.2),
    ),
}


@pytest.mark.parametrize("kind", POSITIVE_COUNTS)
def test_counts_above_zero_follow_the_conditional_distribution(kind):
    build, z, whole = POSITIVE_COUNTS[kind]
    with pm.Model() as model:
        pm.Truncated("y", build(), lower=1, observed=COUNTS + 1)
    records, columns = zoo.separated(model)
    batch = {name: column.take(np.arange(ROWS)) for name, column in columns.items()}
    draws = compile_draws(records, 100)(batch, np.array(z), np.random.default_rng(0))[
        drawn_name("y")
    ]
    bins = np.arange(1, 8)
    seen = np.bincount(np.minimum(draws.ravel(), 7), minlength=8)[1:]

    def likely(whole):
        shares = np.append(whole.pmf(bins[:-1]), whole.sf(6)) / whole.sf(0)
        return stats.chisquare(seen, seen.sum() * shares).pvalue > 1e-6

    assert draws.min() == 1
    assert likely(whole)
    *others, last = whole.args
    assert not likely(whole.dist(*others, 0.9 * last))
