"""Posterior means of released topics, and how well they predict new documents."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from scipy.sparse import csr_matrix
from scipy.special import digamma, gammaln

from pymc_dp.methods.vips.topics import TINY, Documents, explain

ITERATIONS = 100  # steps that fit the shares of a new document's topics
PART = 1000  # documents in memory at a time


def perplexity(idata: xr.DataTree, documents: Any, given: Any = None) -> float:
    """Measure how well released topics predict new documents: the lower, the better.

    It is one over the geometric mean of the words' probabilities: topics no better than chance
    score the size of the vocabulary.

    Parameters
    ----------
    idata : DataTree
        A topic model's result of `pymc_dp.fit` with ``method="vips"``.
    documents : array_like or sparse matrix, shape (documents, words)
        How often every word occurs in every new document.
    given : array_like or sparse matrix, shape (documents, words), optional
        Other words of the same documents. The shares of a document's topics are fitted to them,
        and the score is for ``documents`` alone (document completion). Without it the shares are
        fitted to ``documents``, and the score is an upper bound: the evidence lower bound of
        Hoffman et al. (2010), at the topics' posterior means.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        The result holds no topics, or an array does not hold counts of its words.

    Notes
    -----
    **Privacy.** Post-processing, for documents that were not fitted. The perplexity of fitted
    documents is computed from these documents again, and the guarantee does not cover it.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> rng = np.random.default_rng(0)
    >>> beta = rng.dirichlet(np.full(30, 0.1), size=2)
    >>> new, *old = rng.multinomial(40, rng.dirichlet([0.1, 0.1], size=500) @ beta)
    >>> with pm.Model() as model:
    ...     topics = pm.Dirichlet("topics", np.full((2, 30), 0.1))
    ...     shares = pm.Dirichlet("shares", np.full(2, 0.1), shape=(499, 2))
    ...     w = pm.Multinomial("w", 40, shares @ topics, observed=old)
    >>> idata = pymc_dp.fit(model=model, method="vips", epsilon=2, delta=1e-4, progressbar=False)
    >>> pymc_dp.perplexity(idata, new[None]) < 30
    True
    """
    fit = idata["fit"].to_dataset() if "fit" in idata.children else xr.Dataset()
    if "document_concentration" not in fit:
        raise ValueError(
            "This result holds no topics: fit a topic model by pymc_dp.fit(method='vips')."
        )
    concentration = fit["concentration"].values
    beta = concentration / concentration.sum(axis=1, keepdims=True)
    alpha = fit["document_concentration"].values
    scored = _counts("documents", documents, beta.shape[1])
    if scored.sum() == 0:
        raise ValueError("documents= holds no words.")
    known = scored if given is None else _counts("given", given, beta.shape[1])
    if known.shape != scored.shape:
        raise ValueError(f"given= holds {known.shape[0]} documents, documents= {scored.shape[0]}.")
    total = 0.0
    for part, seen in zip(_in_parts(scored), _in_parts(known), strict=True):
        gamma = explain(seen, beta, alpha, ITERATIONS).gamma
        if given is None:
            total += _bound(part, gamma, beta, alpha)
        else:
            shares = gamma / gamma.sum(axis=1, keepdims=True)
            total += part.counts @ _log_probabilities(part, shares, beta)
    return float(np.exp(-total / scored.sum()))


def _counts(name: str, values: Any, words: int) -> csr_matrix:
    counts = csr_matrix(values)
    if counts.shape[1] != words:
        raise ValueError(f"{name}= has {counts.shape[1]} words, the topics have {words}.")
    if not ((counts.data >= 0) & (counts.data == np.floor(counts.data))).all():
        raise ValueError(f"{name}= holds values that are not counts: 0, 1, 2 and so on.")
    counts.sum_duplicates()
    return counts.astype("float64")


def _in_parts(counts: csr_matrix) -> Iterator[Documents]:
    """Cut new documents into parts, in the form in which they are explained."""
    for start in range(0, counts.shape[0], PART):
        part = counts[start : start + PART]
        yield Documents(part.indptr, part.indices, part.data, np.ones(part.shape[0], bool))


def _bound(documents: Documents, gamma: np.ndarray, beta: np.ndarray, alpha: np.ndarray) -> float:
    """Evidence lower bound of documents, as sequences of words, at one point of the topics."""
    total = gamma.sum(axis=1, keepdims=True)
    log_shares = digamma(gamma) - digamma(total)
    of_words = documents.counts @ _log_probabilities(documents, np.exp(log_shares), beta)
    prior = gammaln(alpha.sum()) - gammaln(alpha).sum() + log_shares @ (alpha - 1)
    posterior = gammaln(total[:, 0]) - gammaln(gamma).sum(axis=1)
    posterior += ((gamma - 1) * log_shares).sum(axis=1)
    return float(of_words + (prior - posterior).sum())


def _log_probabilities(documents: Documents, shares: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Log probability of every word that occurs, entry by entry."""
    p = np.vecdot(shares[documents.rows], beta.T[documents.words])
    return np.asarray(np.log(np.maximum(p, TINY)))
