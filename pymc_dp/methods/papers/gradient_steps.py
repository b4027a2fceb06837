"""Gradient steps of DP-ADVI (Jälkö et al. 2017), with aligned gradients (Jälkö et al. 2022).

A record's contribution is d log p(record | z) / dz, d numbers; all else is post-processing.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.contributions import clipped_count
from pymc_dp.contributions.gradients import Directions, gradient, plain_gradient
from pymc_dp.contributions.local_latents import integrated
from pymc_dp.methods.advi.advi import Prior
from pymc_dp.methods.advi.options import AdviOptions
from pymc_dp.methods.algorithm import ADVI, PLAIN_ADVI
from pymc_dp.methods.defaults import DEFAULTS as OF_GRADIENTS
from pymc_dp.methods.doubts import uncentred
from pymc_dp.methods.method import Compiled, Draws, Method, Trace
from pymc_dp.methods.normal import describe_gaussian
from pymc_dp.methods.papers.families import FULL_RANK, Family, Params, mean_field_slopes
from pymc_dp.methods.papers.gradient_defaults import DEFAULTS
from pymc_dp.methods.papers.optimizers import Optimizer, decaying_adam, from_pymc
from pymc_dp.model import Records
from pymc_dp.privacy.query import Noisy, Query

BY_STEPS = (
    "Rounds, which noise_aware=False leaves out, centre them where outcomes have distributions, in "
    "place of potentials, and a CustomDist a random= that public= names; or a larger clip_norm= "
    "clips less."
)


class State(NamedTuple):
    """State of a fit: released values and public draws alone."""

    t: int
    params: Params
    average: Params
    optimizer: Any
    clip_factor: float
    noise_to_signal: float


Update = Callable[[State, Query, Noisy], State]


def by_steps(family: Family, records: Records, prior: Prior, options: AdviOptions) -> Method:
    """Release gradients, as the papers do; the releases of rounds are left for later.

    **Privacy.** Steps release the sum of the records' gradients, each clipped to ``clip_norm`` in
    L2 norm, which is the sensitivity (twice that under replace-one neighbours). Prior, entropy,
    steps, averages and draws are post-processing.

    Source: equations 1 and 2 of Jälkö et al. (2017); aligned gradients: Jälkö et al. (2022).
    """
    if not options.aligned and family is FULL_RANK:
        raise ValueError("aligned=False is the paper's mean-field form: use method='dp_advi'.")
    draws, aligned, rounds = options.obj_n_mc, options.aligned, options.releases_of_rounds
    count = (DEFAULTS.releases if options.n is None else options.n) - rounds
    steps = options.schedule(records.size, count)
    releases = options.releases(steps)
    if options.adaptive_clip is not None and any(math.isinf(r.clip_norm) for r in releases):
        raise ValueError("adaptive_clip= needs a finite clip_norm= to start from.")
    rates = {name: pace * DEFAULTS.learning_rate for name, pace in family.pace.items()}
    optimizer = (
        from_pymc(options.obj_optimizer)
        if options.obj_optimizer
        else decaying_adam(rates, len(steps))
    )
    params = family.init(records.start, DEFAULTS.start_sd)
    contribute = gradient if aligned else plain_gradient
    clip_norms = tuple(clip for _, clip in steps)
    clipped = not all(map(math.isinf, clip_norms))

    def compile_parts(backend: str) -> Compiled:
        score = contribute(records, backend, draws)
        update: Update = partial(_update, family, optimizer, prior(backend), aligned)
        if options.adaptive_clip is not None:
            score = clipped_count.with_clipped_count(score, options.adaptive_clip)
            update = _counted(update)
        return Compiled({"score": score}, update)

    return Method(
        size=records.size * draws * (1 if aligned else 2),
        releases=releases,
        compile=compile_parts,
        init=lambda rng: State(0, params, params, optimizer.init(params), 1.0, np.nan),
        query=partial(_query, family, options, clip_norms),
        posterior=partial(_posterior, records, family),
        describe=lambda state: describe_gaussian(
            state.average["mu"], family.covariance(state.average), records.labels
        ),
        trace=_trace,
        settings={"aligned": str(aligned), "obj_n_mc": draws} | integrated(records),
        algorithms=(ADVI if aligned else PLAIN_ADVI,),
        doubts=lambda state: (uncentred(records.term_names, BY_STEPS),) if clipped else (),
        defaults=(DEFAULTS, OF_GRADIENTS),
    )


def _query(
    family: Family,
    options: AdviOptions,
    clip_norms: tuple[float, ...],
    state: State,
    rng: np.random.Generator,
) -> Query:
    eps = rng.standard_normal((options.obj_n_mc, state.params["mu"].size))
    points = family.sample(state.params, eps)
    context: Any = points
    if not options.aligned:
        context = Directions(points, mean_field_slopes(state.params, eps))
    clip_norm = clip_norms[state.t] * state.clip_factor
    if options.adaptive_clip is not None:
        context = clipped_count.AtClipNorm(context, clip_norm)
        clip_norm = clip_norm * clipped_count.JOINT
    return Query("score", context, clip_norm, (points, eps))


def _update(
    family: Family,
    optimizer: Optimizer,
    prior: Callable[[np.ndarray], np.ndarray],
    aligned: bool,
    state: State,
    query: Query,
    noisy: Noisy,
) -> State:
    """One step uphill on E[log p(z)] + entropy; prior and entropy are exact."""
    points, eps = query.draw
    slopes = np.stack([prior(z) for z in points])
    scores = noisy.value.reshape(len(points), -1, points.shape[1]) / noisy.sample_rate
    if aligned:
        slopes += scores[:, 0]
    ascent = family.gradient(state.params, eps, slopes)
    if not aligned:
        mu, rho = scores.mean(axis=0)
        ascent = {"mu": ascent["mu"] + mu, "rho": ascent["rho"] + rho}
    optimizer_state, params = optimizer.step(state.optimizer, state.params, ascent, state.t)
    weight = (DEFAULTS.average_power + 1) / (state.t + DEFAULTS.average_power + 1)
    average = {k: a + weight * (params[k] - a) for k, a in state.average.items()}
    return State(
        state.t + 1, params, average, optimizer_state, state.clip_factor, noisy.noise_to_signal
    )


def _counted(update: Update) -> Update:
    """Update from the sum, and move the clip norm by the released count of clipped records."""

    def update_both(state: State, query: Query, noisy: Noisy) -> State:
        total, many_clipped = clipped_count.split(noisy.value)
        state = update(state, query, noisy._replace(value=total))
        change = float(np.exp(DEFAULTS.clip_step if many_clipped else -DEFAULTS.clip_step))
        return state._replace(clip_factor=state.clip_factor * change)

    return update_both


def _posterior(
    records: Records, family: Family, state: State, draws: int, rng: np.random.Generator
) -> Draws:
    eps = rng.standard_normal((draws, records.size))
    values = records.split(family.sample(state.average, eps))
    return dict(zip(records.point, values, strict=True))


def _trace(state: State) -> Trace:
    return {
        "mean_path": (("rows",), state.params["mu"]),
        "noise_to_signal": ((), state.noise_to_signal),
        "clip_factor": ((), state.clip_factor),
    }
