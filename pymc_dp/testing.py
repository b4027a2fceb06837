"""For tests of code that uses pymc_dp: noise that can be repeated, and results that say so."""

from collections.abc import Iterator
from contextlib import contextmanager

from pymc_dp.privacy.randomness import TEST_SEED


@contextmanager
def deterministic_noise(seed: int) -> Iterator[None]:
    """Make sampling and noise repeatable for fits inside the block.

    Parameters
    ----------
    seed : int

    Notes
    -----
    **Privacy.** None. A result made here has ``epsilon`` nan and says that its guarantee is void.

    Examples
    --------
    >>> from pymc_dp.privacy.randomness import SecretRandom
    >>> with deterministic_noise(1):
    ...     a, b = (SecretRandom().rounded_gaussian(1.0, 2**-20, 2) for _ in range(2))
    >>> (a == b).all()
    np.True_
    """
    token = TEST_SEED.set(seed)
    try:
        yield
    finally:
        TEST_SEED.reset(token)
