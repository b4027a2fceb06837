"""VIPS for topic models is stochastic variational Bayes; with noise it finds topics.

The reference is the algorithm of Hoffman, Blei and Bach (2010), written out for dense arrays.
"""

import functools
import math

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.sparse import csr_matrix
from scipy.special import digamma

import pymc_dp
from pymc_dp.errors import NotSeparableError
from pymc_dp.methods.conjugate import DIRICHLET
from pymc_dp.privacy import clipping
from pymc_dp.testing import deterministic_noise

K, V, D = 3, 12, 40
RNG = np.random.default_rng(1)
ALPHA, ETA = np.array([0.1, 0.2, 0.3]), RNG.uniform(0.2, 0.8, V)
W = RNG.poisson(RNG.gamma(0.3, size=(D, V)) * 3)
W[7] = 0
QUICK = {"method": "vips", "random_seed": 1, "progressbar": False, "backend": "python", "draws": 5}
NOISELESS = {**QUICK, "epsilon": math.inf, "clip_norm": math.inf}


def lda(w=W, *, alpha=ALPHA, eta=ETA, n=None):
    with pm.Model() as model:
        beta = pm.Dirichlet("beta", eta, shape=(len(alpha), w.shape[1]))
        theta = pm.Dirichlet("theta", alpha, shape=(len(w), len(alpha)))
        n = w.sum(axis=1) if n is None else n
        pm.Multinomial("w", n, pm.math.dot(theta, beta), observed=w)
    return model


def concentration(model=None, **settings):
    idata = pymc_dp.fit(model=model or lda(), **{**NOISELESS, **settings})
    return idata["fit"]["concentration"].values


def geometric_mean(rows):
    return np.exp(digamma(rows) - digamma(rows.sum(axis=-1, keepdims=True)))


def expected_counts(w, beta, iterations):
    gamma = ALPHA + w.sum() / K
    for _ in range(iterations):
        theta = geometric_mean(gamma)
        gamma = ALPHA + theta * (beta @ (w / (theta @ beta)))
    theta = geometric_mean(gamma)
    return theta[:, None] * beta * (w / (theta @ beta))


def stochastic_variational_bayes(batches, *, rate=1.0, tau0=1.0, kappa=0.7, iterations=20):
    lam = np.random.default_rng(QUICK["random_seed"]).gamma(100, 0.01, (K, V))
    for t, rows in enumerate(batches):
        beta, rho = geometric_mean(lam), (tau0 + t) ** -kappa
        counts = sum((expected_counts(w, beta, iterations) for w in W[rows]), np.zeros((K, V)))
        lam = (1 - rho) * lam + rho * (ETA + counts / rate)
    return lam


def result(beta, alpha, weight):
    """A tree with no more than topics."""
    coords = {"topic": np.arange(len(beta)), "word": [f"w{i}" for i in range(beta.shape[1])]}
    variables = {
        "concentration": (("topic", "word"), weight * beta),
        "document_concentration": ("topic", alpha),
    }
    return xr.DataTree.from_dict({"fit": xr.Dataset(variables, coords)})


@pytest.mark.parametrize(
    "options", [{}, {"kappa": 0.0}, {"tau0": 4.0, "kappa": 0.9}, {"iterations": 3}]
)
def test_full_batches_give_variational_bayes(options):
    got = concentration(form="absolute", n=15, **options)
    expected = stochastic_variational_bayes([slice(None)] * 15, **options)
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_poisson_batches_give_stochastic_variational_bayes(monkeypatch):
    batches, draw = [], clipping.subset

    def spied(*args):
        batches.append(draw(*args))
        return batches[-1]

    monkeypatch.setattr(clipping, "subset", spied)
    got = concentration(form="absolute", n=25, sample_rate=0.2, tau0=2.0)
    assert len({len(rows) for rows in batches}) > 3
    expected = stochastic_variational_bayes(batches, rate=0.2, tau0=2.0)
    np.testing.assert_allclose(got, expected, rtol=1e-9)


@functools.cache
def corpus():
    """Three thousand documents of four topics over 300 words, and 200 more; 60 words each."""
    rng = np.random.default_rng(3)
    beta = rng.dirichlet(0.1 * np.ones(300), size=4)
    theta = rng.dirichlet(np.full(4, 0.1), size=3200)
    w = rng.multinomial(60, theta @ beta)
    return w[:3000], w[3000:], beta


@functools.cache
def private(epsilon):
    training, _, _ = corpus()
    model = lda(training, alpha=np.full(4, 0.25), eta=np.full(300, 0.1), n=60)
    # one start in four, that of random_seed=1, ends with two topics in one, also without noise
    with deterministic_noise(5):
        return pymc_dp.fit(model=model, **{**QUICK, "random_seed": 0}, epsilon=epsilon, delta=1e-4)


def test_private_topics_predict_new_documents_better_than_the_unigram():
    training, new, beta = corpus()
    words = training.sum(axis=0) + 0.1
    unigram = np.exp(-new.sum(axis=0) @ np.log(words / words.sum()) / new.sum())
    best = pymc_dp.perplexity(result(beta, np.full(4, 0.1), 1e9), new)
    found = pymc_dp.perplexity(private(5.0), new)
    assert best < found < best + 0.1 * (unigram - best)


def test_private_topics_are_those_of_the_corpus():
    _, _, beta = corpus()
    lam = private(5.0)["fit"]["concentration"].values
    apart = np.abs(lam[:, None] / lam.sum(axis=1)[:, None, None] - beta).sum(axis=2) / 2
    assert sorted(apart.argmin(axis=1)) == [0, 1, 2, 3]
    assert apart.min(axis=1).max() < 0.15


def test_the_result_shows_how_noisy_the_released_sums_are():
    fit, stats = private(5.0)["fit"], private(5.0)["fit_stats"]
    training, _, _ = corpus()
    kept = np.fmin(1, 7 / np.linalg.norm(training, axis=1)) @ training
    z = (fit["totals"].values - kept) / fit["totals_noise_sd"].item()
    assert abs(z.std() - 1) < 0.2
    assert 0 < fit["noise_sd"] < fit["totals_noise_sd"] * 5
    np.testing.assert_allclose(stats["topic_share"].sum("beta_dim_0"), 1)


# --- draws ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tiny", [1e-2, 1e-5, 1e-12])
def test_draws_of_tiny_concentrations_are_probabilities(tiny):
    draws = DIRICHLET.sample((np.array([[tiny, 3 * tiny]]) - 1,), 4000, np.random.default_rng(1))
    assert np.isfinite(draws).all()
    np.testing.assert_allclose(draws.sum(axis=-1), 1)
    if tiny > 1e-10:  # below, 1 - tiny has no room for it
        np.testing.assert_allclose(draws[:, 0, 1].mean(), 0.75, atol=0.05)


def with_n_computed():
    def likelihood(p):
        w = pm.Data("w_data", W)
        pm.Multinomial("w", w.sum(axis=1), p, observed=w)

    return lda_of(likelihood)


def by_columns():
    with pm.Model() as model:
        words = pm.Dirichlet("words", ETA, shape=(K, V))
        shares = pm.Dirichlet("shares", ALPHA, shape=(D, K))
        pm.Multinomial("y", W.sum(axis=1), (words.T @ shares.T).T, observed=W)
    return model


def summed_by_hand():
    with pm.Model() as model:
        a = pm.Dirichlet("a", ALPHA, shape=(D, K))
        b = pm.Dirichlet("b", np.tile(ETA, (K, 1)))
        pm.Multinomial("c", W.sum(axis=1), (a[:, :, None] * b).sum(axis=1), observed=W)
    return model


def lda_of(likelihood, shares=None):
    with pm.Model() as model:
        beta = pm.Dirichlet("beta", ETA, shape=(K, V))
        theta = shares() if shares else pm.Dirichlet("theta", ALPHA, shape=(D, K))
        likelihood(pm.math.dot(theta, beta))
    return model


@pytest.mark.parametrize(
    "build",
    [with_n_computed, by_columns, summed_by_hand],
)
def test_a_topic_model_is_recognised_however_it_is_written(build):
    assert "as a model of topic models" in str(pymc_dp.explain(build()))
    got = concentration(build(), form="absolute", n=2)
    np.testing.assert_allclose(got, stochastic_variational_bayes([slice(None)] * 2), rtol=1e-8)


def test_uneven_concentrations_of_shares_are_data_declared_public():
    uneven = np.array([0.1, 0.7, 0.3])
    with pytest.raises(NotSeparableError, match=r"name it in public=\[...\]"):
        concentration(lda(alpha=uneven))
    model = lda_of(
        multinomial, shares=lambda: pm.Dirichlet("theta", pm.Data("alpha", uneven), shape=(D, K))
    )
    fit = pymc_dp.fit(model=model, public=["alpha"], **NOISELESS)["fit"]
    np.testing.assert_allclose(fit["document_concentration"], uneven)


def multinomial(p):
    pm.Multinomial("w", W.sum(axis=1), p, observed=W)


def twice(p):
    multinomial(p)
    pm.Multinomial("w2", W.sum(axis=1), p, observed=W)


REFUSED = [
    (
        lambda: lda_of(multinomial, shares=lambda: pm.Gamma("theta", 1, 1, shape=(D, K))),
        "`theta` has a prior that is not Dirichlet",
    ),
    (
        lambda: lda_of(multinomial, shares=lambda: pm.Dirichlet("theta", np.full((D, K), 0.1))),
        "give the concentration of `theta` by topic",
    ),
    (lambda: lda_of(twice), "it reads `w`, `w2` of every document"),
    (
        lambda: lda_of(lambda p: pm.Poisson("w", 20 * p, observed=W)),
        "not a multinomial over a mixture of topics",
    ),
    (
        lambda: lda_of(
            multinomial,
            shares=lambda: pm.Dirichlet("theta", pm.Gamma("a", 1, 1) * np.ones(K), shape=(D, K)),
        ),
        "there are 1 and 2",
    ),
]


@pytest.mark.parametrize(("build", "reason"), REFUSED)
def test_what_is_no_topic_model_is_refused_with_the_reason(build, reason):
    with pytest.raises(NotSeparableError, match=f"topic models: .*{reason}"):
        pymc_dp.fit(model=build(), **NOISELESS)


# --- data of every kind --------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["shrunk", "absolute"])
def test_a_sparse_matrix_in_place_of_a_template_gives_the_same(form):
    template = lda(np.ones((2, V), int))
    got = concentration(template, form=form, n=3, data={"w": csr_matrix(W)})
    np.testing.assert_allclose(got, concentration(form=form, n=3), rtol=1e-12)


BAD = {
    "negative": -1.0,
    "fractional": 1.5,
    "nan": math.nan,
    "infinite": math.inf,
    "beyond doubles": 1e200,
}


def of_real_numbers():
    """A template whose counts are real numbers: arrays that are not counts fit its type."""
    with pm.Model() as model:
        beta = pm.Dirichlet("beta", ETA, shape=(K, V))
        theta = pm.Dirichlet("theta", ALPHA, shape=(2, K))
        counts = pm.Data("counts", np.ones((2, V)))
        pm.Multinomial("w", V, pm.math.dot(theta, beta), observed=counts)
    return model


@functools.cache
def without_the_fourth(form):
    template = lda(np.ones((2, V), int))
    return concentration(template, form=form, n=3, data={"w": np.delete(W, 3, axis=0)})


@pytest.mark.parametrize(
    ("bad", "form"), [*((bad, "shrunk") for bad in BAD.values()), (math.nan, "absolute")]
)
def test_a_document_that_is_not_made_of_counts_is_left_out(form, bad):
    w = W.astype(float)
    w[3, 5] = bad
    got = concentration(of_real_numbers(), form=form, n=3, data={"counts": w})
    np.testing.assert_allclose(got, without_the_fourth(form), rtol=1e-12)


@pytest.mark.parametrize("form", ["shrunk", "absolute"])
def test_documents_without_words_leave_the_prior(form):
    template = lda(np.ones((2, V), int))
    got = concentration(template, form=form, n=3, data={"w": np.zeros((9, V), int)})
    np.testing.assert_allclose(got, np.tile(ETA, (K, 1)), rtol=1e-12)


@pytest.mark.parametrize("form", ["shrunk", "absolute"])
def test_noise_alone_gives_finite_topics(form):
    settings = {**QUICK, "form": form, "epsilon": 0.05, "delta": 1e-5}
    idata = pymc_dp.fit(model=lda(np.zeros((2, V), int), n=5), **settings)
    assert (idata["fit"]["concentration"] > 0).all()
    np.testing.assert_allclose(idata["posterior"]["beta"].sum(axis=-1), 1)
