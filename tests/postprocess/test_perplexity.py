"""Held-out perplexity of released topics."""

import numpy as np
import pytest
import xarray as xr
from scipy.sparse import csr_matrix

import pymc_dp
from tests.methods.vips.test_topics import result

TWO = np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
NEW = np.array([[3, 1, 0], [0, 0, 2], [0, 0, 0], [5, 1, 9]])


def exact_log_probability(w, alpha):
    """By quadrature over the share of the first topic, for alpha of at least 1."""
    at = (np.arange(20_000) + 0.5) / 20_000
    shares = np.stack([at, 1 - at], axis=1)
    prior = np.prod(shares ** (alpha - 1), axis=1)
    return np.log((np.exp(np.log(shares @ TWO) @ w) * prior).sum() / prior.sum())


def test_perplexity_is_a_tight_upper_bound():
    alpha = np.array([1.5, 2.5])
    exact = np.exp(-sum(exact_log_probability(w, alpha) for w in NEW) / NEW.sum())
    assert exact < pymc_dp.perplexity(result(TWO, alpha, 10.0), NEW) < 1.05 * exact


def test_words_that_tell_a_documents_topics_predict_its_other_words():
    apart = result(np.array([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]) + 1e-9, np.full(2, 0.1), 1.0)
    asked = np.array([[0, 9, 0, 0], [0, 0, 0, 9]])
    told, wrong = np.array([[99, 0, 0, 0], [0, 0, 99, 0]]), np.array([[0, 0, 99, 0], [99, 0, 0, 0]])
    np.testing.assert_allclose(pymc_dp.perplexity(apart, asked, given=told), 2, rtol=0.01)
    np.testing.assert_allclose(pymc_dp.perplexity(apart, asked, given=0 * told), 4, rtol=1e-6)
    assert pymc_dp.perplexity(apart, asked, given=wrong) > 100


def test_perplexity_takes_sparse_documents_in_parts(monkeypatch):
    tree = result(TWO, np.array([0.3, 0.4]), 10.0)
    expected = pymc_dp.perplexity(tree, NEW)
    monkeypatch.setattr("pymc_dp.postprocess.vips.PART", 3)
    np.testing.assert_allclose(pymc_dp.perplexity(tree, csr_matrix(NEW)), expected)


@pytest.mark.parametrize(
    ("documents", "given", "reason"),
    [
        (NEW[:, :2], None, "documents= has 2 words, the topics have 3"),
        (NEW - 1, None, "not counts"),
        (NEW + 0.5, None, "not counts"),
        (0 * NEW, None, "documents= holds no words"),
        (NEW, NEW[:2], "given= holds 2 documents, documents= 4"),
    ],
)
def test_what_perplexity_cannot_take_is_refused(documents, given, reason):
    with pytest.raises(ValueError, match=reason):
        pymc_dp.perplexity(result(TWO, np.ones(2), 1.0), documents, given)


def test_a_result_without_topics_is_refused():
    with pytest.raises(ValueError, match="holds no topics"):
        pymc_dp.perplexity(xr.DataTree(), NEW)
