"""VIPS for conjugate models: release expected sufficient statistics, update in closed form."""

from functools import partial

import numpy as np
from pytensor.graph.traversal import ancestors

from pymc_dp.methods.algorithm import NEWTON, VARIATIONAL_BAYES, Algorithm
from pymc_dp.methods.conjugate.blocks import describe, flat_moments
from pymc_dp.methods.conjugate.exponential import NoisyBlock, draw
from pymc_dp.methods.doubts import BY_ROUNDS, Doubt, Kind, quoted, uncentred
from pymc_dp.methods.method import Compiled, Draws, Method, OnRealLine, beside
from pymc_dp.methods.mixture.sketch import SketchedStart
from pymc_dp.methods.vips.conjugate.defaults import DEFAULTS
from pymc_dp.methods.vips.conjugate.fit import Fit, State, context_at
from pymc_dp.methods.vips.conjugate.model import (
    Context,
    Posterior,
    Statistics,
    Structure,
    common_norm,
    contribution,
    layout_of,
)
from pymc_dp.methods.vips.conjugate.start import initial_state, start_of_rounds, state_at
from pymc_dp.methods.vips.settings import Settings
from pymc_dp.model import Records
from pymc_dp.privacy.query import Noisy, Query


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
    rounds = settings.rounds_from()
    if norm is None and not structure.mixtures and rounds:
        return rounds
    families, layout = structure.families, layout_of(records, structure)
    once = _depend_on_records_alone(records, structure)
    fit = Fit(records, structure, layout, probe, settings)
    exact = norm is not None or (bool(structure.mixtures) and structure.has_probabilities_alone)
    doubtful = settings.noisy and not exact
    clipped = (uncentred(records.term_names, BY_ROUNDS),) if doubtful else ()
    doubts = (*clipped, *(_too_narrow(structure) if settings.noisy else ()))
    count = DEFAULTS.releases if settings.noisy else DEFAULTS.noiseless_releases

    def plain(state: State, draws: int, rng: np.random.Generator) -> Draws:
        posterior = state.context.posterior
        return {name: f.sample(posterior[name], draws, rng) for name, f in families.items()}

    method = Method(
        size=layout.size,
        releases=(settings.release_spec(1 if once else count, norm or DEFAULTS.clip_norm),),
        compile=lambda backend: Compiled(
            {"statistics": contribution(records, structure, backend)}, partial(_update, fit)
        ),
        init=partial(initial_state, fit),
        query=lambda state, rng: Query("statistics", state.context),
        posterior=plain,
        noise_aware=beside(plain, partial(_noise_aware, fit)),
        describe=lambda state: describe(
            records, families, state.context.posterior, state.likelihood.variance
        ),
        trace=lambda state: {
            "mean_path": (("rows",), flat_moments(families, state.context.posterior)[0])
        },
        settings={"form": "absolute"},
        algorithms=(VARIATIONAL_BAYES,),
        doubts=lambda state: doubts,
        defaults=(DEFAULTS,),
    )
    if not structure.mixtures:
        return method
    rounds = settings.rounds_from(partial(start_of_rounds, fit, method))
    if rounds:
        return rounds
    sketched = SketchedStart.recognised(records)
    if sketched is None:
        return method
    return sketched.before(method, partial(state_at, fit, sketched.model), settings.records_in_sums)


def algorithm(records: Records, structure: Structure) -> Algorithm:
    """Return what fits a model by default."""
    if structure.mixtures:
        return NEWTON
    norm = common_norm(records, structure, Statistics(records, structure, "python"))
    return NEWTON if norm is None else VARIATIONAL_BAYES


def _too_narrow(structure: Structure) -> tuple[Doubt, ...]:
    if not structure.mixtures:
        return ()
    text = (
        f"Intervals of {quoted(structure.in_likelihood)} are too narrow where components overlap: "
        "closed-form updates count records as if it were known to which component they belong."
    )
    return (Doubt(Kind.TOO_NARROW, tuple(structure.in_likelihood), text),)


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


def _update(fit: Fit, state: State, query: Query, noisy: Noisy) -> State:
    """Average the statistics with step rho_t, then update every block in closed form."""
    latest, variance = _restored(fit, state.context, noisy)
    likelihood = state.likelihood.add(latest, variance, fit.settings.rate(state.t))
    posterior = fit.structure.prior.coordinate_ascent(
        fit.families, fit.within_bounds(likelihood), state.context.posterior
    )
    return State(state.t + 1, likelihood, context_at(fit, posterior))


def _restored(fit: Fit, context: Context, noisy: Noisy) -> tuple[Posterior, Posterior]:
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
    fit: Fit, state: State, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draw every block, with the noise of the releases on the likelihood's part."""
    posterior, (value, variance) = state.context.posterior, state.likelihood
    bounded, values = fit.within_bounds(state.likelihood), {}
    for name, family in fit.families.items():
        prior = tuple(a - b for a, b in zip(posterior[name], bounded[name], strict=True))
        values[name] = draw(family, NoisyBlock(prior, value[name], variance[name]), draws, rng)
    return values
