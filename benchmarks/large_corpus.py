"""Time and memory of private topics of 200,000 documents: ``python -m benchmarks.large_corpus``.

A generated corpus as a sparse matrix, the defaults of the method, and perplexities of 2000
documents that were held out. The scores read generated data: they are not private.
"""

import argparse
import math
import resource
import time

from benchmarks.papers import topics_fits
from benchmarks.papers.topics_fits import GENERATED, Split, split

EPSILONS = (1.0, 2.44, 5.0, math.inf)
NAMES = (
    "epsilon",
    *(f"{who}, {how}" for who in ("unigram", "topics") for how in ("bound", "half")),
    "time",
    "peak memory",
)
SEED = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=200_000)
    arguments = parser.parse_args()
    data = split(None, GENERATED, SEED, arguments.documents)
    w = data.training
    size = (w.data.nbytes + w.indices.nbytes + w.indptr.nbytes) / 1e6
    print(f"\nGenerated: {w.shape[0]} documents, {w.shape[1]} words, {size:.0f} MB sparse\n")
    print("| " + " | ".join(NAMES) + " |\n" + "|---" * len(NAMES) + "|", flush=True)
    for epsilon in EPSILONS:
        print("| " + " | ".join(measured(data, epsilon)) + " |", flush=True)


def measured(data: Split, epsilon: float) -> list[str]:
    """Return the cells of a row."""
    start, before = time.perf_counter(), peak()
    unigram = topics_fits.unigram_scores(data, SEED, epsilon)
    topics = topics_fits.scores(topics_fits.by_defaults(data, SEED, epsilon), data.held_out, SEED)
    took = time.perf_counter() - start
    perplexities = [f"{perplexity:.0f}" for perplexity in (*unigram, *topics)]
    memory = f"{before:.0f} to {peak():.0f} MB"
    return [f"{epsilon:g}", *perplexities, f"{took:.0f} s", memory]


def peak() -> float:
    """Peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main()
