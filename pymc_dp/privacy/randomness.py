"""Secret randomness, for batches and for noise.

It never depends on ``random_seed``: with equal noise in two fits, of clip norms 1 and 2, twice the
first release less the second is the exact sum, where no record is clipped.
"""

import os
from contextvars import ContextVar
from typing import NoReturn

import numpy as np
from randomgen import ChaCha

from pymc_dp.privacy.rounded_normal import rounded_normal

# set by pymc_dp.testing alone
TEST_SEED: ContextVar[int | None] = ContextVar("pymc_dp_test_seed", default=None)

KEY_BYTES = 32


def keyed(key: bytes) -> np.random.Generator:
    """Return the cryptographic generator of a key."""
    return np.random.Generator(ChaCha(key=int.from_bytes(key, "little")))


class SecretRandom:
    """A cryptographic generator, keyed by the operating system and keyed anew after a fork.

    It refuses to be pickled or copied. Inside `pymc_dp.testing.deterministic_noise` it is an
    ordinary seeded generator, and ``valid`` is false: there is no guarantee.
    """

    def __init__(self) -> None:
        self._test_seed = TEST_SEED.get()
        self._key()

    @property
    def valid(self) -> bool:
        """Whether the randomness is secret."""
        return self._test_seed is None

    @property
    def label(self) -> str:
        """The description of the source in results."""
        if self.valid:
            return "ChaCha20 keyed by the operating system; Gaussian noise rounded to a grid"
        return "deterministic test mode: the guarantee is void"

    @property
    def generator(self) -> np.random.Generator:
        """The generator of batches; a child process gets a key of its own."""
        return self._keyed()[1]

    def keys(self, number: int) -> list[bytes]:
        """Draw new keys, by which other processes make generators of their own (`keyed`)."""
        return [self.generator.bytes(KEY_BYTES) for _ in range(number)]

    def rounded_gaussian(self, sd: float, step: float, size: int) -> np.ndarray:
        """Draw N(0, sd^2) noise as whole numbers of steps, shape (size,), exactly rounded."""
        generator = self._keyed()[0]
        return rounded_normal(sd / step, size, lambda n: generator.integers(0, 2**64, n, np.uint64))

    def _keyed(self) -> tuple[np.random.Generator, np.random.Generator]:
        """The generators of noise, and of batches: noise is the same however rows are kept."""
        if self._process != os.getpid():
            self._key()
        return self._generators

    def _key(self) -> None:
        self._process = os.getpid()
        if self._test_seed is None:
            self._generators = keyed(os.urandom(KEY_BYTES)), keyed(os.urandom(KEY_BYTES))
        else:
            seed = self._test_seed
            self._generators = np.random.default_rng(seed), np.random.default_rng([seed, 1])

    def __reduce__(self) -> NoReturn:
        raise TypeError("Secret randomness must not be pickled or copied: make a new source.")
