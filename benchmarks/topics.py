"""Private topics of news, blogs and a large generated corpus: ``python -m benchmarks.topics``.

Perplexities of held-out documents: of all their words by the evidence lower bound, and of half of
their words given the other half. They read public or generated data: they are not private.
"""

import argparse
import resource
import time
import warnings
from typing import Any

import numpy as np
import pymc as pm
from scipy.sparse import csr_matrix, vstack

import pymc_dp
from benchmarks.data import add_data_dir, load
from pymc_dp.methods.vips.topic_forms import CLIP_NORM
from pymc_dp.methods.vips.topic_shrinkage import denoised

DELTA = 1e-4
EPSILONS = (1.0, 2.44, 5.0, np.inf)
CORPORA = {"kos": "bow_kos.npz", "ap": "bow_ap.npz"}
GENERATED_CORPUS = "generated"
# a template's documents, and the priors' concentrations: of words, and of topics in total
TEMPLATE, ETA, ALPHA = 3, 0.1, 1.0
GENERATED = {"topics": 20, "words": 7000, "length": 100}


def corpus(arrays: dict[str, np.ndarray]) -> csr_matrix:
    shape = len(arrays["indptr"]) - 1, int(arrays["n_vocab"])
    return csr_matrix((arrays["counts"].astype(int), arrays["indices"], arrays["indptr"]), shape)


def generated(documents: int, rng: np.random.Generator) -> csr_matrix:
    """Draw documents from latent Dirichlet allocation; words are as frequent as in a language."""
    topics, words, length = GENERATED.values()
    beta = 1 / (np.arange(words) + 10) * rng.gamma(0.3, size=(topics, words))
    of_words = np.cumsum(beta, axis=1) / beta.sum(axis=1, keepdims=True)

    def part(rows: int) -> csr_matrix:
        shares = np.cumsum(rng.dirichlet(np.full(topics, 0.1), rows), axis=1)
        document = np.repeat(np.arange(rows), np.maximum(rng.poisson(length, rows), 1))
        topic = (rng.random((document.size, 1)) > shares[document, :-1]).sum(axis=1)
        word = np.empty_like(topic)
        for k in range(topics):
            of_topic = topic == k
            word[of_topic] = np.searchsorted(of_words[k], rng.random(of_topic.sum()))
        word = np.minimum(word, words - 1)
        return csr_matrix((np.ones_like(word), (document, word)), (rows, words))

    return vstack([part(min(20_000, documents - k)) for k in range(0, documents, 20_000)]).tocsr()


def template(topics: int, words: int) -> pm.Model:
    """The model, on a few made-up documents."""
    w = np.random.default_rng(0).poisson(0.1, (TEMPLATE, words))
    with pm.Model() as model:
        beta = pm.Dirichlet("beta", np.full(words, ETA), shape=(topics, words))
        theta = pm.Dirichlet("theta", np.full(topics, ALPHA / topics), shape=(TEMPLATE, topics))
        pm.Multinomial("w", n=w.sum(axis=1), p=pm.math.dot(theta, beta), observed=w)
    return model


def private_words(w: csr_matrix, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Words' frequencies for the whole budget: one release of clipped counts, denoised."""
    noise = pymc_dp.calibrate(epsilon=epsilon, delta=DELTA, sample_rate=1, n=1)
    norms = np.sqrt(w.multiply(w).sum(axis=1).A1)
    weights = np.fmin(1, CLIP_NORM / norms) if noise else np.ones(len(norms))
    sd = CLIP_NORM * noise
    counts = denoised(weights @ w + rng.normal(0, sd, w.shape[1]), sd)
    return (counts + ETA) / (counts + ETA).sum()


def halves(w: csr_matrix, rng: np.random.Generator) -> tuple[csr_matrix, csr_matrix]:
    """Put every word of a document into one of two halves."""
    first = w.copy()
    first.data = rng.binomial(w.data, 0.5)
    return first, w - first


def of_words(w: csr_matrix, frequencies: np.ndarray) -> float:
    """Perplexity of the words of all documents together."""
    counts = w.sum(axis=0).A1
    return float(np.exp(-counts @ np.log(frequencies) / counts.sum()))


def scores(
    training: csr_matrix, held_out: csr_matrix, seed: int, topics: int, **settings: Any
) -> tuple[float, float, float, float]:
    """Fit once; return the unigram's two perplexities, and the topics' two."""
    rng = np.random.default_rng(seed)
    known, asked = halves(held_out, rng)
    unigram = private_words(training, settings["epsilon"], rng)
    if np.isinf(settings["epsilon"]):
        settings["clip_norm"] = np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pymc_dp.PrivacyWarning)
        idata = pymc_dp.fit(
            model=template(topics, training.shape[1]),
            method="vips",
            delta=DELTA,
            data={"w": training},
            random_seed=seed,
            progressbar=False,
            **settings,
        )
    return (
        of_words(held_out, unigram),
        of_words(asked, unigram),
        pymc_dp.perplexity(idata, held_out),
        pymc_dp.perplexity(idata, asked, given=known),
    )


def table_of(title: str, w: csr_matrix, seeds: int) -> None:
    """Print the medians over splits of a corpus, a tenth of it held out, for ten topics."""
    print(f"\n{title}: {w.shape[0]} documents, {w.shape[1]} words, medians of {seeds} splits\n")
    head()
    for epsilon in EPSILONS:
        found = []
        for seed in range(seeds):
            rows = np.random.default_rng(seed).permutation(w.shape[0])
            cut = w.shape[0] // 10
            found.append(scores(w[rows[cut:]], w[rows[:cut]], seed, 10, epsilon=epsilon, draws=1))
        line(f"{epsilon:g}", np.median(found, axis=0))


def head(*more: str) -> None:
    scored = [f"{who}, {how}" for who in ("unigram", "topics") for how in ("bound", "half")]
    names = ["epsilon", *scored, *more]
    print("| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|", flush=True)


def line(label: str, numbers: np.ndarray, *more: str) -> None:
    print("| " + " | ".join([label, *(f"{x:.0f}" for x in numbers), *more]) + " |", flush=True)


def large(documents: int) -> None:
    """Fit a generated corpus as a sparse matrix; print time and peak memory."""
    rng = np.random.default_rng(0)
    w = generated(documents + 2000, rng)
    training, held_out = w[:-2000], w[-2000:]
    size = (w.data.nbytes + w.indices.nbytes + w.indptr.nbytes) / 1e6
    print(f"\nGenerated: {documents} documents, {w.shape[1]} words, {size:.0f} MB sparse\n")
    head("time", "peak memory")
    for epsilon in EPSILONS:
        start, before = time.perf_counter(), peak()
        found = scores(
            training, held_out, 0, GENERATED["topics"], epsilon=epsilon, num_records=documents
        )
        took = time.perf_counter() - start
        line(f"{epsilon:g}", np.array(found), f"{took:.0f} s", f"{before:.0f} to {peak():.0f} MB")


def peak() -> float:
    """Peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = [GENERATED_CORPUS, *CORPORA]
    parser.add_argument("corpora", nargs="*", help=f"any of {known}; all by default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--documents", type=int, default=200_000)
    add_data_dir(parser)
    arguments = parser.parse_args()
    for name in arguments.corpora or known:
        if name == GENERATED_CORPUS:
            large(arguments.documents)
        else:
            words = corpus(load(arguments.data_dir, CORPORA[name]))
            table_of(name.upper(), words, arguments.seeds)


if __name__ == "__main__":
    main()
