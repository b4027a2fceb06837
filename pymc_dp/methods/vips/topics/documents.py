"""Documents behind the wall: their expected topic-word counts, and their plain counts.

A document's statistics are a (topics, words) matrix that is zero outside its own words. Only the
columns of those words are ever held: entry by entry, one row of shares of topics each.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from pymc_dp.methods.conjugate.exponential import geometric_mean
from pymc_dp.methods.vips.topics.model import TopicModel
from pymc_dp.privacy.contribution import Batch, FactoredContribution

# probabilities below count as zero: they explain no word, and counts over them stay finite
TINY = 1e-200


class Documents(NamedTuple):
    """Counts of words, for the words that occur."""

    starts: np.ndarray  # shape (documents + 1,): where every document's entries start
    words: np.ndarray  # shape (entries,)
    counts: np.ndarray  # shape (entries,)
    # shape (documents,): whether all counts of a document are whole and not negative; else it has
    # no entries
    good: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """The document of every entry."""
        return np.repeat(np.arange(len(self.good)), np.diff(self.starts))

    def by_document(self, values: np.ndarray) -> np.ndarray:
        """Sum one number an entry over every document."""
        return np.bincount(self.rows, values, len(self.good))

    def matrix(self, values: np.ndarray, words: int) -> csr_matrix:
        """Put one number an entry into a sparse (documents, words) matrix."""
        return csr_matrix((values, self.words, self.starts), (len(self.good), words))


class Explained(NamedTuple):
    """Documents with their posterior over topics, given the topics' words."""

    documents: Documents
    gamma: np.ndarray  # shape (documents, topics): posterior concentration of a document's shares
    # shape (entries, topics): the share of every topic in every entry; rows sum to 1, or to 0
    # where no topic explains it
    shares: np.ndarray


def read_documents(dense: np.ndarray) -> Documents:
    """Keep the words that occur; drop the words of documents that are not counts."""
    good = (dense >= 0).all(axis=1)
    if dense.dtype.kind == "f":
        good &= np.isfinite(dense).all(axis=1) & (dense == np.floor(dense)).all(axis=1)
    if not good.all():
        dense = np.where(good[:, None], dense, 0)
    rows, words = np.divmod(np.flatnonzero(dense), dense.shape[1])
    starts = np.searchsorted(rows, np.arange(len(dense) + 1))
    return Documents(starts, words, dense[rows, words].astype("float64"), good)


def explain(
    documents: Documents, beta: np.ndarray, alpha: np.ndarray, iterations: int
) -> Explained:
    """E-step: fit every document's shares by a fixed number of steps (Blei et al., figure 6).

    ``beta``, shape (topics, words), holds probabilities or exp(E log) of them; ``alpha`` has shape
    (topics,).
    """
    beta = np.ascontiguousarray(beta.T)
    at, length = beta[documents.words], np.diff(documents.starts)
    gamma = alpha + documents.by_document(documents.counts)[:, None] / len(alpha)
    for _ in range(iterations):
        theta = geometric_mean(gamma)
        p = np.vecdot(np.repeat(theta, length, axis=0), at)
        ratio = documents.matrix(documents.counts / np.maximum(p, TINY), len(beta))
        gamma = alpha + theta * (ratio @ beta)
    joint = np.repeat(geometric_mean(gamma), length, axis=0) * at
    shares = joint / np.maximum(joint.sum(axis=1, keepdims=True), TINY)
    return Explained(documents, gamma, shares)


def topic_counts(model: TopicModel, iterations: int) -> FactoredContribution:
    """Contribute a document's expected counts of words by topic; the context is `beta`.

    Norms and sum read the same shares, so a record's norm is that of what it adds. A document
    that is not made of counts has no finite norm and is dropped by the wall; an empty one adds 0.
    """
    topics, words = model.eta.shape

    def prepare(batch: Batch, beta: np.ndarray) -> Explained:
        return explain(read_documents(batch[model.counts]), beta, model.alpha, iterations)

    def norms(at: Explained, beta: np.ndarray) -> np.ndarray:
        return _norms(at.documents, at.documents.counts**2 * np.vecdot(at.shares, at.shares))

    def weighted_sum(at: Explained, beta: np.ndarray, weights: np.ndarray) -> np.ndarray:
        documents, entries = at.documents, len(at.shares)
        values = weights[documents.rows] * documents.counts
        gather = csr_matrix((values, documents.words, np.arange(entries + 1)), (entries, words))
        counts: np.ndarray = gather.T @ at.shares
        return counts.T.ravel()

    return FactoredContribution(topics * words, width(topics, words), norms, weighted_sum, prepare)


def word_counts(model: TopicModel) -> FactoredContribution:
    """Contribute a document's counts of words, whatever the topics."""
    words = model.eta.shape[1]

    def weighted_sum(at: Documents, context: None, weights: np.ndarray) -> np.ndarray:
        return np.bincount(at.words, weights[at.rows] * at.counts, words)

    return FactoredContribution(
        words,
        width(0, words),
        norms=lambda at, context: _norms(at, at.counts**2),
        weighted_sum=weighted_sum,
        prepare=lambda batch, context: read_documents(batch[model.counts]),
    )


def width(topics: int, words: int) -> int:
    """Numbers that a document of a quarter of the vocabulary takes beside its dense row."""
    return words * (2 + topics // 4)


def _norms(documents: Documents, squares: np.ndarray) -> np.ndarray:
    """Norms of documents from the squared norms of their entries, which are far from underflow."""
    return np.where(documents.good, np.sqrt(documents.by_document(squares)), np.nan)
