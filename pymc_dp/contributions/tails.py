"""How long scores are: observed ones, less those of outcomes that the model draws.

Clipping is centred by drawn outcomes. Where observed scores are longer or shorter than these, what
it cuts off has a mean. Counts of lengths say how much that may be.
"""

import numpy as np

# bins are the powers of two from 2^LEAST, as norms of whitened scores, whose squares are about as
# large as the number of latents
LEAST, BINS = -3, 14
CENTRES = 2.0 ** (LEAST + np.arange(BINS))
# the largest norm of a record's counts
COUNTS_NORM = 2**0.5
SIZE = BINS


def memberships(norms: np.ndarray) -> np.ndarray:
    """Share each norm between the two bins beside its logarithm, shape (..., BINS).

    Shares are continuous in the norm, not negative, and sum to one. Norms beyond the last bin, or
    short of the first one, are in that.

    >>> memberships(np.array([0.0, 2.0**0.25, 2.0**30]))[:, [0, 3, 4, -1]]
    array([[1.  , 0.  , 0.  , 0.  ],
           [0.  , 0.75, 0.25, 0.  ],
           [0.  , 0.  , 0.  , 1.  ]])
    """
    each = np.reshape(norms, (-1, 1))
    return shared(each, np.ones_like(each)).reshape(*np.shape(norms), BINS)


def shared(norms: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Add up the memberships of a row's norms, (rows, k), each times its chance, (rows, k)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        places = np.clip(np.nan_to_num(np.log2(norms) - LEAST), 0, BINS - 1)
    low = np.minimum(places.astype(int), BINS - 2)
    above = chances * (places - low)
    total, rows = np.zeros((len(norms), BINS)), np.arange(len(norms))
    for k in range(norms.shape[1]):
        total[rows, low[:, k]] += chances[:, k] - above[:, k]
        total[rows, low[:, k] + 1] += above[:, k]
    return total


def counts(norms: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Return records' counts of observed lengths less those that are expected, (rows, BINS).

    The observed outcome's is the first of ``norms``, (rows, 1 + k); k others are drawn, and have
    these ``chances``, (rows, k).

    **Privacy.** A row's norm is at most COUNTS_NORM: memberships o and e are not negative and sum
    to one, so |o - e|^2 is convex in each of them, and largest where both are unit vectors. Without
    drawn outcomes e is zero.
    """
    observed = shared(norms[:, :1], np.ones((len(norms), 1)))
    return np.asarray(observed - shared(norms[:, 1:], chances))
