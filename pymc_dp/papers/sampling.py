"""Methods whose releases are draws (Wang, Fienberg and Smola 2015).

`dp_sgld` is private stochastic gradient Langevin dynamics, algorithm 2. A Langevin step needs noise
anyway. The wall's noise, times half the step over the sample rate, is that noise where the step is
long enough; where it is shorter, public noise makes up the rest.

`dp_ops` draws from the posterior itself, algorithm 1: the exponential mechanism. A posterior whose
log likelihoods are bounded is private by itself, as far as its draws are exact.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dp.accounting.plan import ReleaseSpec
from pymc_dp.contributions.gradients import gradient
from pymc_dp.errors import NotSeparableError
from pymc_dp.methods.method import POSTERIOR_SAMPLING, SGLD, Compiled, Draws, Method
from pymc_dp.methods.options import DEFAULTS as OF_GRADIENTS
from pymc_dp.methods.options import require_integrable, require_shared_latents
from pymc_dp.methods.prior import prior_gradient
from pymc_dp.methods.registry import OpsOptions, SgldOptions
from pymc_dp.model import Records
from pymc_dp.papers.gradient_steps import default_clip_norm, default_sample_rate
from pymc_dp.papers.posterior_draw import EXPONENTIAL, posterior_draw
from pymc_dp.privacy.query import Noisy, Query
from pymc_dp.sampling.samplers import Full


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

    def compile_parts(backend: str) -> Compiled:
        contributions = {"draw": posterior_draw(records, backend, transitions)}
        return Compiled(contributions, lambda state, query, noisy: (*state, noisy.value))

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
        compile=compile_parts,
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
