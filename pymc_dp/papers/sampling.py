"""Methods whose releases are draws (Wang, Fienberg and Smola 2015).

`dp_sgld` is private stochastic gradient Langevin dynamics, algorithm 2. A Langevin step needs noise
anyway. The wall's noise, times half the step over the sample rate, is that noise where the step is
long enough; where it is shorter, public noise makes up the rest.

`dp_ops` draws from the posterior itself, algorithm 1: the exponential mechanism. A posterior whose
log likelihoods are bounded is private by itself, as far as its draws are exact. A draw is a
`Mechanism` beside the wall's noisy sums, and has no proof of epsilon: a Markov chain is not exact.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import dp_accounting as dp
import numpy as np
import pymc as pm
import xarray as xr

from pymc_dp.accounting.plan import Full, Mechanism, Release, ReleaseSpec
from pymc_dp.contributions.gradients import checked, gradient, on_batch
from pymc_dp.errors import NotSeparableError, ReleaseError
from pymc_dp.methods.method import POSTERIOR_SAMPLING, SGLD, Compiled, Draws, Method
from pymc_dp.methods.options import DEFAULTS as OF_GRADIENTS
from pymc_dp.methods.options import require_integrable, require_shared_latents
from pymc_dp.methods.prior import prior_gradient
from pymc_dp.methods.registry import OpsOptions, SgldOptions
from pymc_dp.model import Records
from pymc_dp.model.graphs import pt
from pymc_dp.papers.elbo_gradient_steps import default_clip_norm, default_sample_rate
from pymc_dp.privacy.contribution import Batch, Noisy, Query
from pymc_dp.privacy.private_data import Partition
from pymc_dp.privacy.randomness import NORM_MARGIN, SecretRandom


class Defaults(NamedTuple):
    """Public numbers; none of them is fitted to data."""

    # dp_sgld
    releases: int = 1000
    # number of records where it is not declared: a step too short mixes slowly, one too long
    # diverges
    nominal_records: int = 10_000
    # steps fall like t^(-1/3), the rate of least error (Teh, Thiery and Vollmer 2016), at this pace
    decay_power: float = 1 / 3
    decay_phases: int = 10
    burn_in: float = 0.5
    # dp_ops: log densities of about unit scale; a normal outcome reaches -5 at three standard
    # deviations
    bound_per_outcome: float = 5.0


DEFAULTS = Defaults()


# --- Langevin dynamics -------------------------------------------------------------------------


class Iterates(NamedTuple):
    """A chain: its start and all iterates, and how the last was made."""

    path: tuple[np.ndarray, ...]
    step: float
    noise_to_signal: float


def build_sgld(records: Records, options: SgldOptions) -> Method:
    """Build private Langevin dynamics for one model.

    The second half of the iterates is the posterior.

    **Privacy.** ``n`` releases of the sum of the records' scores, each clipped to ``clip_norm``
    in L2 norm, which is the sensitivity (twice that under replace-one neighbours). Only the
    wall's noise is accounted, at its own ratio to the clip norm; the public noise that is added
    to reach a step's Langevin noise is not counted.
    """
    require_integrable(records)
    release = options.release_spec(
        DEFAULTS.releases,
        default_clip_norm(records.size),
        default_sample_rate(options),
    )
    count = release.count
    step = _first_step(records, release, options)
    steps = step * (1 + DEFAULTS.decay_phases * np.arange(count) / count) ** -DEFAULTS.decay_power

    def compile_parts(backend: str) -> Compiled:
        prior = prior_gradient(records, backend)

        def update(state: Iterates, query: Query, noisy: Noisy) -> Iterates:
            step, z = langevin_step(steps[len(state.path) - 1], noisy), state.path[-1]
            drift = prior(z) + noisy.value / noisy.sample_rate
            z = z + step / 2 * drift + filling_sd(step, noisy) * query.draw
            return Iterates((*state.path, _fixed(z)), step, noisy.noise_to_signal)

        return Compiled({"score": gradient(records, backend)}, update)

    return Method(
        size=records.size,
        releases=(release,),
        compile=compile_parts,
        init=lambda rng: Iterates((_fixed(records.start),), float(steps[0]), math.nan),
        query=lambda state, rng: Query(
            "score", state.path[-1][None], draw=rng.standard_normal(records.size)
        ),
        posterior=partial(_posterior, records),
        describe=partial(_describe, records),
        trace=lambda state: {
            "sample_path": (("rows",), state.path[-1]),
            "step": ((), state.step),
            "noise_to_signal": ((), state.noise_to_signal),
        },
        settings={"step": float(step)},
        algorithms=(SGLD,),
        defaults=(DEFAULTS, OF_GRADIENTS),
        most_draws=count - int(DEFAULTS.burn_in * count),
    )


def _first_step(records: Records, release: ReleaseSpec, options: SgldOptions) -> float:
    """Short enough that batches add little to the Langevin noise, and whole data do not diverge."""
    if options.step is not None:
        return options.step
    # without clipping there is no bound on the curvature to go by
    clip = release.clip_norm
    scale = clip if math.isfinite(clip) else default_clip_norm(records.size)
    number = options.num_records or DEFAULTS.nominal_records
    return min(2 * release.sampler.rate, 0.5) / (number * scale**2)


def _fixed(z: np.ndarray) -> np.ndarray:
    """Return a view that cannot be written to: later states hold it."""
    view = z.view()
    view.flags.writeable = False
    return view


def langevin_step(step: float, noisy: Noisy) -> float:
    """Cut a step to (2 q / sd)^2, whose Langevin noise is as large as the wall's noise."""
    return float(min(step, (2 * noisy.sample_rate / noisy.sd) ** 2) if noisy.sd else step)


def filling_sd(step: float, noisy: Noisy) -> float:
    """Standard deviation of the public noise that a step needs beside the wall's."""
    present = (step / 2 * noisy.sd / noisy.sample_rate) ** 2
    return math.sqrt(max(0.0, step - present))


def _kept(state: Iterates) -> np.ndarray:
    """The iterates after burn-in, shape (kept, size); the start alone if there is none."""
    made = state.path[1:] or state.path
    return np.array(made[int(DEFAULTS.burn_in * len(made)) :])


def _posterior(records: Records, state: Iterates, draws: int, rng: np.random.Generator) -> Draws:
    kept = _kept(state)
    chosen = np.linspace(0, len(kept) - 1, min(draws, len(kept))).round().astype(int)
    return dict(zip(records.point, records.split(kept[chosen]), strict=True))


def _describe(records: Records, state: Iterates) -> xr.Dataset:
    draws = _kept(state)
    moments = {"mean_vector": draws.mean(axis=0), "standard_deviation": draws.std(axis=0)}
    return xr.Dataset({k: ("rows", v) for k, v in moments.items()}, {"rows": records.labels})


# --- posterior sampling ------------------------------------------------------------------------


def build_ops(records: Records, options: OpsOptions) -> Method:
    """Build private posterior sampling for one model.

    Its ``n`` draws share the budget, epsilon / n each, and each has a chain of its own.

    **Privacy.** ``n`` draws from the posterior whose log likelihoods, clipped to B, are divided
    by a temperature. One costs 2 B / temperature, and 4 B / temperature under replace-one
    neighbours, *if it is exact*. A chain is not, and how far it is off is unknown; so a result
    states ``epsilon_if_exact``, and no epsilon.
    """
    require_shared_latents(records)
    _refuse_improper(records)
    given, transitions = options.loglik_bound, options.transitions
    # for each outcome of a record, of which there may be several
    outcomes = sum(math.prod(n or 1 for n in t.type.shape[1:]) for t in records.batch.terms)
    bound = options.default_clip_norm(float(DEFAULTS.bound_per_outcome * outcomes))
    bound = bound if given is None else float(given)
    count = 1 if options.n is None else options.n

    def released(state: tuple[np.ndarray, ...]) -> np.ndarray:
        return np.array(state or [records.start])

    def posterior(state: tuple[np.ndarray, ...], draws: int, rng: np.random.Generator) -> Draws:
        return dict(zip(records.point, records.split(released(state)[:draws]), strict=True))

    def describe(state: tuple[np.ndarray, ...]) -> xr.Dataset:
        draws = {"released_draws": (("draws", "rows"), released(state))}
        return xr.Dataset(draws, {"rows": records.labels})

    return Method(
        size=records.size,
        releases=(ReleaseSpec("draw", Full(), bound, count, mechanism=EXPONENTIAL),),
        compile=lambda backend: Compiled(
            {"draw": posterior_draw(records, backend, transitions)},
            lambda state, query, noisy: (*state, noisy.value),
        ),
        init=lambda rng: (),
        query=lambda state, rng: Query("draw", records.start),
        posterior=posterior,
        describe=describe,
        trace=lambda state: {"sample_path": (("rows",), released(state)[-1])},
        settings={"loglik_bound": bound, "transitions": transitions},
        algorithms=(POSTERIOR_SAMPLING,),
        defaults=(DEFAULTS,),
        most_draws=count,
    )


def _refuse_improper(records: Records) -> None:
    """A bounded likelihood cannot make up for a prior without a total."""
    for name, op in records.distributions.items():
        if issubclass(op, (pm.Flat.rv_type, pm.HalfFlat.rv_type)):
            raise NotSeparableError(
                f"`{name}` has a flat prior: with bounded likelihoods there is then no posterior "
                "to draw from. Give it a proper prior."
            )


# --- a draw ------------------------------------------------------------------------------------

ValueAndGradient = tuple[np.ndarray, np.ndarray]
Density = Callable[[np.ndarray], ValueAndGradient]


def exact_draw(noise: float) -> float:
    """Epsilon of one exact draw from a posterior of clipped, tempered log likelihoods.

    **Privacy.** Private without delta (McSherry and Talwar 2007), as far as its draws are exact: a
    record moves density and normaliser by ``clip_norm / temperature`` each in log, and by twice
    that under replace-one.
    """
    return 2 / noise if noise else math.inf


def _draw_event(noise: float) -> dp.DpEvent:
    """Describe one release: no pure mechanism says more than randomised response."""
    share = 2 / (1 + math.exp(min(exact_draw(noise), 700.0)))
    return dp.RandomizedResponseDpEvent(share, 2)


def temperature_of(release: Release) -> float:
    """Return what a draw divides log likelihoods by; below 1 it would sharpen."""
    noise = release.noise_multiplier
    return max(1.0, noise * release.clip_norm) if noise else 1.0


BY_CHAIN = "draws by a Markov chain from a posterior of clipped, tempered log likelihoods"
EXPONENTIAL = Mechanism(
    "exponential",
    _draw_event,
    exact_draw,
    lambda release: {"mechanism": BY_CHAIN, "temperature": temperature_of(release)},
)


class PosteriorDraw(NamedTuple):
    """Draw from a posterior given a batch of records; no data are stored."""

    size: int  # the number of unconstrained coordinates
    # (batch, z (size,)) -> (rows,): each record's log likelihood; nan where the record must not
    # contribute
    log_likelihoods: Callable[[Batch, np.ndarray], np.ndarray]
    # (batch, z, bound, temperature) -> (value, gradient (size,)): log prior plus the records' log
    # likelihoods, each clipped to ``[-bound, bound]``, over the temperature
    density: Callable[[Batch, np.ndarray, float, float], ValueAndGradient]
    transitions: int  # steps of the sampler behind a draw; it adapts in the first half

    def rehearse(self, batch: Batch, z: np.ndarray) -> np.ndarray:
        """Run every function once, and return a vector of a release's shape."""
        self.log_likelihoods(batch, z)
        self.density(batch, z, 1.0, 1.0)
        return z

    def release(
        self, data: Partition, release: Release, query: Query, random: SecretRandom
    ) -> Noisy:
        """Draw once from the posterior of all good records at the release's temperature.

        **Privacy.** The exponential mechanism, as far as the draw is exact: a record moves the log
        density by at most ``clip_norm / temperature``, whatever its values. Nothing else of the
        chain is handed out.
        """
        if release.mechanism != EXPONENTIAL or data.units is not None:
            raise ReleaseError(f"The plan does not account {release.name!r} as a posterior draw.")
        bound = release.clip_norm * (1 - NORM_MARGIN)
        rng = np.random.default_rng(random.generator.integers(2**32, size=8))
        try:
            with np.errstate(all="ignore"):
                batch = data.take(np.arange(data.number))
                good = np.flatnonzero(~np.isnan(self.log_likelihoods(batch, query.context)))
                batch = data.take(good)
                heat = temperature_of(release)
                z = self._drawn(lambda z: self.density(batch, z, bound, heat), query.context, rng)
        except Exception as error:  # its text may quote data
            raise ReleaseError(f"The sampler failed with {type(error).__name__}.") from None
        if not np.isfinite(z).all():
            raise ReleaseError(f"Release {release.name!r} is not finite; nothing is handed out.")
        return Noisy(z, 0.0, 1.0)

    def _drawn(self, density: Density, start: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Run PyMC's sampler on the density and return where it ends; shape (size,)."""
        target = _Target(density)
        with pm.Model() as model:
            pm.Flat("z", shape=self.size)
        point = {"z": start}
        step = pm.NUTS(model=model, logp_dlogp_func=target, initial_point=point, rng=rng)
        for i in range(self.transitions):
            if i == self.transitions // 2:
                step.stop_tuning()
            point, _ = step.step(point)
        return point["z"]


class _Target:
    """A density with the attributes that PyMC's samplers expect of a compiled function."""

    _raveled_inputs = True
    dtype = "float64"

    def __init__(self, density: Density) -> None:
        self._pytensor_function = density
        self._extra_vars_shared: dict[str, Any] = {}


def posterior_draw(records: Records, backend: str, transitions: int) -> PosteriorDraw:
    """Compile the tempered density of a model's records."""
    latents = list(records.latents.values())
    each = checked(records, records.batch.log_likelihood())
    bound, temperature = pt.dscalar("bound"), pt.dscalar("temperature")
    clipped = pt.switch(pt.isnan(each), 0.0, pt.clip(each, -bound, bound))
    value = (records.prior + clipped.sum() / temperature).astype("float64")
    parts = pt.grad(value, latents, disconnected_inputs="ignore")
    slope = pt.concatenate([part.ravel() for part in parts]).astype("float64")
    # it only shapes the sampler's proposals: their acceptance depends on the density alone
    slope = pt.switch(pt.isnan(slope), 0.0, slope)
    log_likelihoods = on_batch(records, [], each, backend)
    evaluate = on_batch(records, [bound, temperature], [value, slope], backend)

    def density(batch: Batch, z: np.ndarray, bound: float, temperature: float) -> ValueAndGradient:
        value, slope = evaluate(batch, z, np.asarray(bound), np.asarray(temperature))
        return value, slope

    return PosteriorDraw(records.size, log_likelihoods, density, transitions)
