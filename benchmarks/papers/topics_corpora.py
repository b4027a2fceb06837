"""Documents of blogs and news, and generated ones; some of them held out."""

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, vstack

from benchmarks.data import load

FILES = {"kos": "bow_kos.npz", "ap": "bow_ap.npz"}
GENERATED = "generated"
HELD_OUT_SHARE, HELD_OUT_GENERATED = 10, 2000
TOPICS, GENERATED_TOPICS = 10, 20
# of generated documents: the vocabulary, mean length, and how many are drawn at a time
WORDS, LENGTH, PART = 7000, 100, 20_000


class Split(NamedTuple):
    """Documents to fit and to score, by word; what a fit may know of them.

    Attributes
    ----------
    training, held_out : csr_matrix
    topics : int
    num_records : int, optional
        Of the training documents, where it is public.
    """

    training: csr_matrix
    held_out: csr_matrix
    topics: int
    num_records: int | None = None


@functools.cache
def split(folder: Path | None, name: str, seed: int, documents: int) -> Split:
    """Return one split of a corpus; generated ones have so many ``documents``, and no folder."""
    if name == GENERATED:
        w = generated(documents + HELD_OUT_GENERATED, np.random.default_rng(seed))
        return Split(w[:documents], w[documents:], GENERATED_TOPICS, documents)
    w = _counts(load(folder, FILES[name]))
    rows = np.random.default_rng(seed).permutation(w.shape[0])
    cut = w.shape[0] // HELD_OUT_SHARE
    return Split(w[rows[cut:]], w[rows[:cut]], TOPICS)


def vocabulary(folder: Path, name: str) -> list[str]:
    """Return the words in the order of the counts."""
    return bytes(load(folder, FILES[name])["vocab"]).decode().split("\n")


def halves(w: csr_matrix, rng: np.random.Generator) -> tuple[csr_matrix, csr_matrix]:
    """Put every word of a document into one of two halves."""
    first = w.copy()
    first.data = rng.binomial(w.data, 0.5)
    return first, w - first


def generated(documents: int, rng: np.random.Generator) -> csr_matrix:
    """Draw documents from latent Dirichlet allocation; words are as frequent as in a language."""
    beta = 1 / (np.arange(WORDS) + 10) * rng.gamma(0.3, size=(GENERATED_TOPICS, WORDS))
    of_words = np.cumsum(beta, axis=1) / beta.sum(axis=1, keepdims=True)
    sizes = [min(PART, documents - k) for k in range(0, documents, PART)]
    return vstack([_part(size, of_words, rng) for size in sizes]).tocsr()


def _part(documents: int, of_words: np.ndarray, rng: np.random.Generator) -> csr_matrix:
    """Draw some documents, given the topics' cumulative probabilities of words."""
    shares = np.cumsum(rng.dirichlet(np.full(len(of_words), 0.1), documents), axis=1)
    document = np.repeat(np.arange(documents), np.maximum(rng.poisson(LENGTH, documents), 1))
    topic = (rng.random((document.size, 1)) > shares[document, :-1]).sum(axis=1)
    word = np.empty_like(topic)
    for k, cumulative in enumerate(of_words):
        of_topic = topic == k
        word[of_topic] = np.searchsorted(cumulative, rng.random(of_topic.sum()))
    word = np.minimum(word, WORDS - 1)
    return csr_matrix((np.ones_like(word), (document, word)), (documents, WORDS))


def _counts(arrays: dict[str, np.ndarray]) -> csr_matrix:
    shape = len(arrays["indptr"]) - 1, int(arrays["n_vocab"])
    return csr_matrix((arrays["counts"].astype(int), arrays["indices"], arrays["indptr"]), shape)
