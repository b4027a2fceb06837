"""What the updates of a conjugate model share, and where a fit stands."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.layout import Layout
from pymc_dp.methods.conjugate.expectation import rules_of
from pymc_dp.methods.conjugate.exponential import NORMAL, ExponentialFamily
from pymc_dp.methods.conjugate.noise_aware import within_bounds
from pymc_dp.methods.conjugate.probe_points import probe_rows
from pymc_dp.methods.normal import NoisyAverage
from pymc_dp.methods.vips.conjugate.model import Context, Posterior, Statistics, Structure
from pymc_dp.methods.vips.settings import Settings
from pymc_dp.model import Records

SMALLEST_UNIT = 1e-12


class State(NamedTuple):
    """Where a fit stands: released values and what follows from them."""

    t: int
    # the likelihood's part of natural parameters, averaged over releases
    likelihood: NoisyAverage[Posterior]
    context: Context  # the posterior, at which the next batch is evaluated


class Fit(NamedTuple):
    """What the updates of one fit share; public values and compiled graphs."""

    records: Records
    structure: Structure
    layout: Layout
    probe: Statistics
    settings: Settings

    @property
    def families(self) -> Mapping[str, ExponentialFamily]:
        """The family of every block."""
        return self.structure.families

    @property
    def gaussian(self) -> list[str]:
        """Names of the Gaussian latents."""
        return [name for name, family in self.families.items() if family is NORMAL]

    def starts_distinct(self, name: str) -> bool:
        """Whether the author's initial values of a latent differ."""
        return np.unique(self.records.point[name]).size > 1

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a latent."""
        return self.records.point[name].shape

    def zeros(self) -> Posterior:
        """Natural parameters of a likelihood without records."""
        return {
            name: (np.zeros(self.shape(name)),) * len(family.parameters)
            for name, family in self.families.items()
        }

    def within_bounds(self, likelihood: NoisyAverage[Posterior]) -> Posterior:
        """Raise released natural parameters to their lower bounds."""
        value, variance = likelihood
        return {
            name: within_bounds(family, value[name], variance[name])
            for name, family in self.families.items()
        }


def context_at(fit: Fit, posterior: Posterior) -> Context:
    """Take the units of the next release from a probe row that belongs to all components."""
    batch = probe_rows(fit.records, np.random.default_rng(0), [1])
    rules = rules_of(fit.families, posterior)
    weights = [np.ones_like(x) for x in fit.probe.responsibilities(batch, rules)]
    units = {name: np.ones(fit.shape(name)) for name in fit.structure.in_likelihood}
    for name, family in fit.structure.in_likelihood.items():
        if family is NORMAL:
            _, precision = fit.probe.expected(name, batch, weights, posterior)
            units[name] = np.maximum(np.abs(precision[0]), SMALLEST_UNIT)
    return Context(posterior, units)
