"""The interface of releases that are not noisy sums: a mechanism that a method defines."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from pymc_dp.accounting.release import Release
from pymc_dp.privacy.contribution import Batch, Contribution
from pymc_dp.privacy.private_data import Partition
from pymc_dp.privacy.query import Noisy, Query
from pymc_dp.privacy.randomness import SecretRandom


class Mechanism(Protocol):
    """Releases something else than a noisy sum; each must state its own proof of privacy."""

    @property
    def width(self) -> int:
        """The number of values that it holds for a row beside the row itself."""

    def release(
        self, data: Partition, release: Release, query: Query, random: SecretRandom
    ) -> Noisy:
        """Make one release, which is already booked, from all the data.

        Raises ReleaseError where the plan accounts the release otherwise, or where it fails.
        Nothing is released then, and the error text contains no data.
        """

    def rehearse(self, batch: Batch, context: Any) -> np.ndarray:
        """Run every function once, and return a vector of a release's shape."""


Contributions = Mapping[str, Contribution | Mechanism]  # by the name of the release
