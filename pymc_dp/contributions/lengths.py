"""How steep records are: a histogram of their curvatures, from which clip norms follow."""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.contribution import Contribution, OfSum, row_norms
from pymc_dp.contributions.curvature import Bent, Curves
from pymc_dp.contributions.symmetric import svec
from pymc_dp.records import Records

# edges of the bins, in units of a public guess
EDGES = 2 ** np.arange(-3, 3.5, 0.5)
BINS = len(EDGES) + 1
# a tail is taken to be empty up to this many standard deviations of its noise
SURE = 2.5


def lengths(records: Records, bent: Curves, unit: float) -> Contribution:
    """Contribute a one in the bin of the root of the curvature's norm; the context is a point.

    Scores at the truth are about as long (Fisher's identity), but some of them are long by chance.

    Notes
    -----
    **Privacy.** The norm of a record's vector is 1; that of a unit's, too, whatever its number of
    records.
    """

    def norms(part: Bent, point: np.ndarray) -> np.ndarray:
        finite = np.isfinite(row_norms(part.score)) & np.isfinite(part.norms)
        return np.where(finite, 1.0, np.nan)

    def weighted_sum(part: Bent, point: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.bincount(_bins(part.norms, unit), weights, BINS)

    def vectors(curvatures: np.ndarray) -> np.ndarray:
        norms = row_norms(curvatures)
        ones = np.eye(BINS)[_bins(norms, unit)]
        return np.where(np.isfinite(norms)[:, None], ones, np.nan)

    return Contribution(
        size=BINS,
        width=2 * records.size**2,
        norms=norms,
        weighted_sum=weighted_sum,
        prepare=bent,
        unit=OfSum(
            records.size * (records.size + 1) // 2,
            lambda part, point, weights: svec(part.add_up(weights)),
            vectors,
        ),
    )


def _bins(norms: np.ndarray, unit: float) -> np.ndarray:
    return np.searchsorted(EDGES, np.sqrt(norms) / unit)


class Histogram(NamedTuple):
    """Noisy counts of records by a norm; ``unit`` is that of the edges, ``sd`` that of the noise.

    >>> counts = np.zeros(BINS)
    >>> counts[8:12] = 25.0
    >>> histogram = Histogram(counts, sd=0.0, unit=1.0)
    >>> histogram.above(share=0.25)
    4.0
    """

    counts: np.ndarray
    sd: float
    unit: float

    def above(self, share: float) -> float:
        """Return a norm above which there is at most a share of the records, as noise tells."""
        tails = np.cumsum(self.counts[::-1])[::-1][1:]
        doubt = SURE * self.sd * np.sqrt(np.arange(len(tails), 0, -1))
        full = np.flatnonzero(tails > np.maximum(share * self.counts.sum(), doubt))
        first = min(full[-1] + 1, len(EDGES) - 1) if full.size else 0
        return self.unit * float(EDGES[first])

    def kept(self, norm: float) -> float:
        """Return the share of the squared norms that is left when they are shortened."""
        edges = EDGES * self.unit
        squares = np.maximum(self.counts[:-1], 0.0) * edges**2
        squares[edges > self.above(0.0)] = 0.0  # noise alone
        short = squares * np.minimum(1.0, (norm / edges) ** 2)
        return float(short.sum() / squares.sum()) if squares.any() else 1.0
