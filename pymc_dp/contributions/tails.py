"""How long scores are: observed ones, those of drawn outcomes, and predictors' leverages.

Clipping is centred by outcomes that the model draws. Where observed scores are longer or shorter
than these, what it cuts off has a mean; and where a weight shortens records that lie far out, all
rests on the model there. Counts of lengths say how much that may be.
"""

import numpy as np

# bins are the powers of two from 2^LEAST, as norms of whitened scores, whose squares are about as
# large as the number of latents
LEAST, BINS = -3, 14
CENTRES = 2.0 ** (LEAST + np.arange(BINS))
# factors of the expected counts and of leverages: they need to be known less exactly
EXPECTED = 0.5
# the largest norm of a record's counts
COUNTS_NORM = (2 + 2 * EXPECTED**2) ** 0.5
SIZE = 3 * BINS


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


def counts(norms: np.ndarray, usual: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Return records' counts: observed less expected, expected, and leverages, (rows, 3 BINS).

    The observed outcome's is the first of ``norms``, (rows, 1 + k); k others are drawn, and have
    these ``chances``, (rows, k). The ``usual`` length of a record, (rows,), is its leverage.

    **Privacy.** A row's norm is at most COUNTS_NORM. With o, e and l the memberships, which are not
    negative and sum to one, |o - e|^2 + EXPECTED^2 (|e|^2 + |l|^2) is convex in each of them, and
    so largest where each is a unit vector: there it is at most 2 + 2 EXPECTED^2. Without drawn
    outcomes e is zero, and it is smaller.
    """
    one = np.ones((len(norms), 1))
    observed, expected = shared(norms[:, :1], one), shared(norms[:, 1:], chances)
    of_leverage = shared(usual[:, None], one)
    return np.concatenate(
        [observed - expected, EXPECTED * expected, EXPECTED * of_leverage], axis=1
    )


def split_counts(value: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split sums of counts into excess, expected counts and leverages, without their factors."""
    excess, expected, leverage = value.reshape(3, BINS)
    return excess, expected / EXPECTED, leverage / EXPECTED
