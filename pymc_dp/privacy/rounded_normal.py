"""Normal numbers rounded to whole ones, exactly as random bits decide.

For a whole number s and a normal number z, round(s + z) = s + round(z). So a sum of whole numbers
plus a rounded normal number is the Gaussian mechanism, followed by a rounding that reads no data.
A normal number in floating point is not normal: its gaps show what was added to it (Mironov 2012).
"""

from collections.abc import Callable

import mpmath
import numpy as np
from scipy.special import ndtri

Bits = Callable[[int], np.ndarray]  # the number of words -> as many random words of 64 bits

WORD = 64
SIGN = np.uint64(1 << (WORD - 1))
# granted errors of `ndtri`, with those of its argument: a share of the result, and a constant near
# 0, where an error of the argument is not a share of the result. Tests measure less than a tenth.
RELATIVE, ABSOLUTE = 2.0**-44, 2.0**-49
# quantiles of larger standard deviations, up to 2^62, would not be whole numbers of 64 bits
LARGEST_SD, FARTHEST = 2.0**50, 2.0**62


def rounded_normal(sd: float, size: int, bits: Bits) -> np.ndarray:
    """Draw whole numbers round(N(0, sd^2)), shape (size,).

    Random bits name an interval of tail probabilities, one bit more halving it, and a draw is the
    rounded normal quantile on which both ends agree. Where 64 bits leave the ends apart, more are
    drawn: starting over would favour numbers that are decided early.

    >>> rng = np.random.default_rng(0)
    >>> rounded_normal(3.0, 5, lambda n: rng.integers(0, 2**64, n, np.uint64)).dtype
    dtype('int64')
    """
    if not 0 < sd <= LARGEST_SD:
        raise ValueError("the standard deviation of rounded noise is in (0, 2^50]")
    words = bits(size)
    tails = words & ~SIGN
    least, most = _quantiles(tails, sd)
    for i in np.flatnonzero(least != most):
        bracket = int(least[i]), int(min(most[i], FARTHEST))
        least[i] = _decided(int(tails[i]), bracket, sd, bits)
    return np.where(words & SIGN, -least, least).astype(np.int64)


def _quantiles(tails: np.ndarray, sd: float) -> tuple[np.ndarray, np.ndarray]:
    """Bound the rounded quantiles of the tail probabilities from tails / 2^64 to the next."""
    low, high = tails.astype("float64"), (tails + np.uint64(1)).astype("float64")
    with np.errstate(divide="ignore"):  # of no probability the quantile is infinite
        smallest = -ndtri(high / 2.0**WORD) * (1 - RELATIVE) - ABSOLUTE
        largest = -ndtri(low / 2.0**WORD) * (1 + RELATIVE) + ABSOLUTE
    return np.floor(np.fmax(smallest, 0.0) * sd + 0.5), np.floor(largest * sd + 0.5)


def _decided(tail: int, bracket: tuple[int, int], sd: float, bits: Bits) -> int:
    """Draw more bits of a tail probability until both ends have the same rounded quantile."""
    length = WORD
    while True:
        tail, length = (tail << WORD) + int(bits(1)[0]), length + WORD
        least, most = (_quantile(end, length, bracket, sd) for end in (tail + 1, tail))
        if least == most:
            return least


def _quantile(tail: int, length: int, bracket: tuple[int, int], sd: float) -> int:
    """Return the rounded quantile of a tail probability ``tail / 2^length``, by bisection.

    It is at least k where the probability is at most that of the tail beyond k - 1/2.
    """
    least, most = bracket
    with mpmath.workprec(length + 2 * WORD):
        probability = mpmath.ldexp(tail, -length)
        while least < most:
            k = (least + most + 1) // 2
            z = (k - mpmath.mpf(0.5)) / mpmath.mpf(sd)
            if mpmath.erfc(z / mpmath.sqrt(2)) / 2 >= probability:
                least = k
            else:
                most = k - 1
    return least
