"""Topics to the letter of VIPS (Park et al. 2020): negative counts by topic become 0."""

from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from pymc_dp.accounting.plan import ReleaseSpec
from pymc_dp.methods.conjugate import geometric_mean
from pymc_dp.methods.linear import VipsOptions
from pymc_dp.methods.normal import NoisyAverage
from pymc_dp.methods.vips.topics import build, counts_of, counts_spec
from pymc_dp.privacy.query import Noisy, Query


class _Counting(NamedTuple):
    """Concentrations, averaged over releases."""

    eta: np.ndarray  # the prior's concentration, (topics, words)
    t: int
    average: NoisyAverage[np.ndarray]  # of concentrations, with one variance

    @classmethod
    def begin(cls, eta: np.ndarray, rng: np.random.Generator) -> Self:
        start = rng.gamma(100.0, 0.01, eta.shape)  # as in Hoffman et al. (2010)
        return cls(eta, 0, NoisyAverage(start, np.zeros(())))

    @staticmethod
    def releases(settings: VipsOptions) -> tuple[ReleaseSpec, ...]:
        return (counts_spec(settings),)

    def query(self) -> Query:
        return Query("statistics", geometric_mean(self.average.value))

    def update(self, settings: VipsOptions, noisy: Noisy) -> Self:
        counts, variance = counts_of(noisy, self.eta.shape)
        latest, rho = self.eta + np.maximum(counts, 0.0), settings.rate(self.t)
        return self._replace(t=self.t + 1, average=self.average.add(latest, variance, rho))

    def concentration(self) -> np.ndarray:
        return self.average.value

    def mass(self) -> np.ndarray:
        return np.asarray(np.maximum((self.average.value - self.eta).sum(axis=1), 0.0))

    def noise_variance(self) -> np.ndarray:
        return np.full(self.eta.shape, self.average.variance)

    def details(self) -> dict[str, Any]:
        return {"noise_sd": ((), float(self.average.variance) ** 0.5)}


absolute = partial(build, form=_Counting)
