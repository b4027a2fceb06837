"""VIPS for conjugate models: release expected sufficient statistics, update in closed form."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.traversal import ancestors

from pymc_dp.contributions.layout import Layout
from pymc_dp.methods.conjugate.description import describe, flat_moments
from pymc_dp.methods.conjugate.expectation import Point, rules_of
from pymc_dp.methods.conjugate.exponential import NORMAL, ExponentialFamily
from pymc_dp.methods.conjugate.noise_aware import NoisyBlock, draw, within_bounds
from pymc_dp.methods.conjugate.probe_points import nearly_equal, probe_point, probe_rows
from pymc_dp.methods.doubts import BY_ROUNDS, quoted, uncentred
from pymc_dp.methods.gaussian.averaging import NoisyAverage
from pymc_dp.methods.gaussian.private_start import PrivateStart, Values, reported_as
from pymc_dp.methods.method import Compiled, Method, OnRealLine
from pymc_dp.methods.mixture.model import MixtureModel
from pymc_dp.methods.mixture.start import SketchedStart
from pymc_dp.methods.vips.conjugate.defaults import DEFAULTS
from pymc_dp.methods.vips.conjugate.model import (
    Context,
    Posterior,
    Statistics,
    Structure,
    common_norm,
    contribution,
    layout_of,
)
from pymc_dp.methods.vips.settings import Settings
from pymc_dp.model import Records
from pymc_dp.privacy.query import Noisy, Query

SMALLEST_UNIT = 1e-12


class State(NamedTuple):
    """Where a fit stands: released values and what follows from them."""

    t: int
    # the likelihood's part of natural parameters, averaged over releases
    likelihood: NoisyAverage[Posterior]
    context: Context  # the posterior, at which the next batch is evaluated


class _Fit(NamedTuple):
    """What the updates of one fit share; public values and compiled graphs."""

    records: Records
    structure: Structure
    layout: Layout
    probe: Statistics
    settings: Settings

    @property
    def families(self) -> Mapping[str, ExponentialFamily]:
        return self.structure.families

    @property
    def gaussian(self) -> list[str]:
        """Names of the Gaussian latents."""
        return [name for name, family in self.families.items() if family is NORMAL]

    def starts_apart(self, name: str) -> bool:
        """Whether the author's initial values of a latent differ."""
        return np.unique(self.records.point[name]).size > 1

    def shape(self, name: str) -> tuple[int, ...]:
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


def build(records: Records, structure: Structure, settings: Settings) -> Method | OnRealLine:
    """Build VIPS for a conjugate model: closed-form updates, or rounds.

    Statistics of one norm, such as counts of successes and categories, are released exactly but
    for noise. Clipping biases all others, so by default rounds fit their models, and mixtures.
    Options that rounds do not have take closed-form updates.

    **Privacy.** Each release of sums is one vector: the statistics of all blocks in the
    likelihood, clipped jointly. If nothing but the record enters them they are released once.
    Before these, or before rounds, Gaussian components of known covariance that start alike take
    one release of a sketch (`SketchedStart`); others that start alike a few sums before rounds.
    """
    probe = Statistics(records, structure, "python")
    norm = common_norm(records, structure, probe)
    if norm is None and not structure.mixtures and settings.rounds:
        return settings.rounds
    families, layout = structure.families, layout_of(records, structure)
    once = _depend_on_records_alone(records, structure)
    fit = _Fit(records, structure, layout, probe, settings)
    sketched = SketchedStart.recognised(records) if structure.mixtures else None
    exact = norm is not None or (bool(structure.mixtures) and structure.has_probabilities_alone)
    doubtful = settings.noisy and not exact
    clipped = (uncentred(records.term_names, BY_ROUNDS),) if doubtful else ()
    doubts = (*clipped, *(_too_narrow(structure) if settings.noisy else ()))
    count = DEFAULTS.releases if settings.noisy else DEFAULTS.noiseless_releases
    method = Method(
        size=layout.size,
        releases=(settings.release_spec(1 if once else count, norm or DEFAULTS.clip_norm),),
        compile=lambda backend: Compiled(
            {"statistics": contribution(records, structure, backend)}, partial(_update, fit)
        ),
        init=partial(_init, fit),
        query=lambda state, rng: Query("statistics", state.context),
        posterior=lambda state, draws, rng: {
            name: family.sample(state.context.posterior[name], draws, rng)
            for name, family in families.items()
        },
        noise_aware=partial(_noise_aware, fit),
        describe=lambda state: describe(
            records, families, state.context.posterior, state.likelihood.variance
        ),
        trace=lambda state: {
            "mean_path": (("rows",), flat_moments(families, state.context.posterior)[0])
        },
        settings={"form": "absolute"},
        doubts=lambda state: doubts,
        defaults=(DEFAULTS,),
    )
    if structure.mixtures:
        rounds = settings.rounds_from(_start_of_rounds(fit, sketched, method))
        if rounds:
            return rounds
    if sketched is None:
        return method
    begin = partial(_begin_at, fit, sketched.model)
    return sketched.before(method, begin, settings.records_in_sums)


def _too_narrow(structure: Structure) -> tuple[str, ...]:
    """Say what a variational posterior leaves out of mixtures."""
    if not structure.mixtures:
        return ()
    return (
        f"Intervals of {quoted(structure.in_likelihood)} are too narrow where components overlap: "
        "closed-form updates count records as if it were known to which component they belong.",
    )


def _depend_on_records_alone(records: Records, structure: Structure) -> bool:
    """Whether every block's statistics are functions of the record alone."""
    if structure.mixtures:
        return False
    for name, family in structure.families.items():
        x = records.latents[name]
        others = set(records.latents.values()) - {x}
        if others.intersection(ancestors(family.statistics(structure.completed, x))):
            return False
    return True


def _context(fit: _Fit, posterior: Posterior) -> Context:
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


def _init(fit: _Fit, rng: np.random.Generator) -> State:
    """Start at the prior; components of a mixture start apart, at public points."""
    # these are the author's initial values where they differ, else draws from the prior
    posterior = _prior(fit, rng)
    points = {}
    for name in fit.gaussian or _of_components(fit) if fit.structure.mixtures else ():
        family, eta = fit.families[name], posterior[name]
        drawn = family.sample(family.around(eta, family.reference(eta), 1.0), 1, rng)[0]
        points[name] = fit.records.point[name] if fit.starts_apart(name) else drawn
    return _start(fit, posterior, points)


def _of_components(fit: _Fit) -> list[str]:
    """Names of the latents that components tell outcomes apart by: not those of their weights."""
    rng = np.random.default_rng(0)
    batch = probe_rows(fit.records, rng, (0, 1, 1))
    first, second = (probe_point(fit.records, fit.families, rng) for _ in range(2))

    def apart(point: Point) -> tuple[np.ndarray, ...]:
        return tuple(np.diff(joint, axis=0) for joint in fit.probe.joint(batch, point))

    return [
        name
        for name in fit.structure.in_likelihood
        if not all(map(nearly_equal, apart(first), apart(first | {name: second[name]})))
    ]


def _start_of_rounds(
    fit: _Fit, sketched: SketchedStart | None, sums: Method
) -> PrivateStart | None:
    """Find components that start alike: by a sketch where one can show them, else by sums."""
    if sketched:
        return sketched.of_rounds(fit.settings.records_in_sums)
    if _starts_apart(fit):
        return None
    return PrivateStart(DEFAULTS.share_of_start, partial(_sums_before, fit, sums))


def _sums_before(
    fit: _Fit, sums: Method, method: Method, begin: Callable[[Values], Any]
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


def _starts_apart(fit: _Fit) -> bool:
    """Whether the author's initial values tell the components of a mixture apart."""
    return any(map(fit.starts_apart, fit.gaussian or _of_components(fit)))


def _begin_at(fit: _Fit, model: MixtureModel, v: np.ndarray) -> State:
    """Start with these Gaussian latents, (d,)."""
    return _start(fit, _prior(fit, np.random.default_rng(0)), model.prior.point(v))


def _prior(fit: _Fit, rng: np.random.Generator) -> Posterior:
    """The natural parameters of all blocks without records."""
    posterior = {
        name: family.random_parameters(fit.shape(name), rng)
        for name, family in fit.families.items()
    }
    return fit.structure.prior.coordinate_ascent(fit.families, {}, posterior)


def _start(fit: _Fit, posterior: Posterior, points: dict[str, np.ndarray]) -> State:
    """Start from the prior, with some latents near given points."""
    posterior = posterior | {
        name: fit.families[name].around(posterior[name], point, DEFAULTS.start_precision)
        for name, point in points.items()
    }
    return State(0, NoisyAverage(fit.zeros(), fit.zeros()), _context(fit, posterior))


def _update(fit: _Fit, state: State, query: Query, noisy: Noisy) -> State:
    """Average the statistics with step rho_t, then update every block in closed form."""
    latest, variance = _restored(fit, state.context, noisy)
    likelihood = state.likelihood.add(latest, variance, fit.settings.rate(state.t))
    posterior = fit.structure.prior.coordinate_ascent(
        fit.families, fit.within_bounds(likelihood), state.context.posterior
    )
    return State(state.t + 1, likelihood, _context(fit, posterior))


def _restored(fit: _Fit, context: Context, noisy: Noisy) -> tuple[Posterior, Posterior]:
    """Turn a released vector into natural parameters, and into the variances of their noise."""
    sums = fit.layout.unpack(noisy.value / noisy.sample_rate)
    sd = noisy.sd / noisy.sample_rate
    latest, variance = fit.zeros(), fit.zeros()
    for name, whitened in sums.items():
        family, unit = fit.families[name], context.units[name]
        at = family.reference(context.posterior[name])
        latest[name] = family.restore(tuple(whitened), at, unit)
        # restoring is linear: the noise of each parameter by itself, then the sum of the squares
        alone = np.multiply.outer(np.eye(len(whitened)), np.full(fit.shape(name), sd))
        restored = [family.restore(tuple(noise), at, unit) for noise in alone]
        variance[name] = tuple(sum(x**2 for x in each) for each in zip(*restored, strict=True))
    return latest, variance


def _noise_aware(
    fit: _Fit, state: State, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draw every block, with the noise of the releases on the likelihood's part."""
    posterior, (value, variance) = state.context.posterior, state.likelihood
    bounded, values = fit.within_bounds(state.likelihood), {}
    for name, family in fit.families.items():
        prior = tuple(a - b for a, b in zip(posterior[name], bounded[name], strict=True))
        values[name] = draw(family, NoisyBlock(prior, value[name], variance[name]), draws, rng)
    return values
