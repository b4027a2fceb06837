"""Where the updates of a conjugate model start, and what comes before rounds."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pymc_dp.methods.conjugate.expectation import Point
from pymc_dp.methods.conjugate.probe_points import nearly_equal, probe_point, probe_rows
from pymc_dp.methods.method import Method
from pymc_dp.methods.mixture.model import MixtureModel
from pymc_dp.methods.mixture.start import SketchedStart
from pymc_dp.methods.normal import NoisyAverage
from pymc_dp.methods.private_start import PrivateStart, Values, reported_as
from pymc_dp.methods.vips.conjugate.defaults import DEFAULTS
from pymc_dp.methods.vips.conjugate.fit import Fit, State, context_at
from pymc_dp.methods.vips.conjugate.model import Posterior


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
