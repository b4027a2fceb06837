"""What the updates of a conjugate model share, and where they start; what comes before rounds."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.contributions.layout import Layout
from pymc_dp.methods.conjugate.expectation import Point, rules_of
from pymc_dp.methods.conjugate.exponential import NORMAL, ExponentialFamily
from pymc_dp.methods.conjugate.noise_aware import within_bounds
from pymc_dp.methods.conjugate.probe_points import nearly_equal, probe_point, probe_rows
from pymc_dp.methods.gaussian.averaging import NoisyAverage
from pymc_dp.methods.gaussian.private_start import PrivateStart, Values, reported_as
from pymc_dp.methods.method import Method
from pymc_dp.methods.mixture.model import MixtureModel
from pymc_dp.methods.mixture.start import SketchedStart
from pymc_dp.methods.vips.conjugate.defaults import DEFAULTS
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


def initial_state(fit: Fit, rng: np.random.Generator) -> State:
    """Start at the prior; components of a mixture start apart, at public points."""
    # these are the author's initial values where they differ, else draws from the prior
    posterior = _prior(fit, rng)
    points = {}
    for name in fit.gaussian or _of_components(fit) if fit.structure.mixtures else ():
        family, eta = fit.families[name], posterior[name]
        drawn = family.sample(family.around(eta, family.reference(eta), 1.0), 1, rng)[0]
        points[name] = fit.records.point[name] if fit.starts_distinct(name) else drawn
    return _start(fit, posterior, points)


def _of_components(fit: Fit) -> list[str]:
    """Names of the latents that components tell outcomes apart by: not those of their weights."""
    rng = np.random.default_rng(0)
    batch = probe_rows(fit.records, rng, (0, 1, 1))
    first, second = (probe_point(fit.records, fit.families, rng) for _ in range(2))

    def differences(point: Point) -> tuple[np.ndarray, ...]:
        return tuple(np.diff(joint, axis=0) for joint in fit.probe.joint(batch, point))

    return [
        name
        for name in fit.structure.in_likelihood
        if not all(map(nearly_equal, differences(first), differences(first | {name: second[name]})))
    ]


def start_of_rounds(fit: Fit, sums: Method) -> PrivateStart | None:
    """Find components that start alike: by a sketch where one can show them, else by sums."""
    sketched = SketchedStart.recognised(fit.records)
    if sketched:
        return sketched.of_rounds(fit.settings.records_in_sums)
    if any(map(fit.starts_distinct, fit.gaussian or _of_components(fit))):
        return None  # the author's initial values tell the components apart
    return PrivateStart(DEFAULTS.share_of_start, partial(_sums_before, fit, sums))


def _sums_before(
    fit: Fit, sums: Method, method: Method, begin: Callable[[Values], Any]
) -> tuple[Method, Callable[[State], Any]]:
    """Let closed-form updates find where another method begins."""

    def found(state: State) -> Any:
        posterior = state.context.posterior
        return begin({name: f.reference(posterior[name]) for name, f in fit.families.items()})

    [release] = sums.releases
    few = dataclasses.replace(
        release, count=DEFAULTS.releases_of_start, share=DEFAULTS.share_of_start
    )
    return reported_as(sums._replace(releases=(few,)), method, found), found


def state_at(fit: Fit, model: MixtureModel, v: np.ndarray) -> State:
    """Start with these Gaussian latents, (d,)."""
    return _start(fit, _prior(fit, np.random.default_rng(0)), model.prior.point(v))


def _prior(fit: Fit, rng: np.random.Generator) -> Posterior:
    posterior = {
        name: family.random_parameters(fit.shape(name), rng)
        for name, family in fit.families.items()
    }
    return fit.structure.prior.coordinate_ascent(fit.families, {}, posterior)


def _start(fit: Fit, posterior: Posterior, points: dict[str, np.ndarray]) -> State:
    """Start from the prior, with some latents near given points."""
    posterior = posterior | {
        name: fit.families[name].around(posterior[name], point, DEFAULTS.start_precision)
        for name, point in points.items()
    }
    return State(0, NoisyAverage(fit.zeros(), fit.zeros()), context_at(fit, posterior))
