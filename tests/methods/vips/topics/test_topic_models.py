"""Which models are topic models, and what they make of data of every kind."""

import functools
import math

import numpy as np
import pymc as pm
import pytest
from scipy.sparse import csr_matrix

import pymc_dp
from pymc_dp.errors import NotSeparableError
from pymc_dp.model import Column
from tests.methods.vips.topics.topic_fits import (
    ALPHA,
    ETA,
    NOISELESS,
    QUICK,
    RNG,
    D,
    K,
    V,
    W,
    concentration,
    lda,
    stochastic_variational_bayes,
)


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


def lda_of(likelihood, topics=None, shares=None):
    with pm.Model() as model:
        beta = topics() if topics else pm.Dirichlet("beta", ETA, shape=(K, V))
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
        lambda: lda_of(
            lambda p: multinomial(pm.math.softmax(p, axis=1)),
            topics=lambda: pm.Normal("beta", shape=(K, V)),
        ),
        "`beta` has a prior that is not Dirichlet",
    ),
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
        lambda: lda_of(lambda p: multinomial(0.9 * p + 0.1 / V)),
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


def test_few_documents_are_dense_at_a_time(monkeypatch):
    held, take = [], Column.take

    def spied(column, rows):
        held.append(len(rows))
        return take(column, rows)

    monkeypatch.setattr(Column, "take", spied)
    words = 7000
    w = csr_matrix((np.ones(2000, int), (np.arange(2000), RNG.integers(0, words, 2000))))
    w.resize(2000, words)
    template = lda(np.ones((2, words), int), eta=np.ones(words))
    concentration(template, n=1, data={"w": w})
    assert sum(held) == 4000  # once for the totals, once for the topics
    assert max(held) <= 400


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
