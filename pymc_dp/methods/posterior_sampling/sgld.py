"""Private stochastic gradient Langevin dynamics (Wang, Fienberg and Smola 2015, algorithm 2).

A Langevin step needs noise anyway. The wall's noise, times half the step over the sample rate, is
that noise where the step is long enough; where it is shorter, public noise makes up the rest.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_dp.contributions import gradient
from pymc_dp.methods.defaults import default_clip_norm, default_sample_rate
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.prior import prior_gradient
from pymc_dp.methods.refusal import require_shared_latents
from pymc_dp.query import Noisy, Query
from pymc_dp.records import Records
from pymc_dp.release import Release

DEFAULT_RELEASES = 1000
# records that an undeclared data set is taken to have: a step too short mixes slowly, one too long
# diverges
NOMINAL_RECORDS = 10_000
# steps fall like t^(-1/3), the rate of least error (Teh, Thiery and Vollmer 2016), at this pace
DECAY_POWER, DECAY_PHASES = 1 / 3, 10
BURN_IN = 0.5


class State(NamedTuple):
    """Where a chain stands; ``earlier`` are the states that led here."""

    t: int
    z: np.ndarray
    step: float
    noise_to_signal: float
    earlier: "State | None"


def dp_sgld(
    records: Records,
    *,
    sampling: str,
    num_records: int | None,
    noise: float,
    n: int | None = None,
    clip_norm: float | None = None,
    sample_rate: float | None = None,
    step: float | None = None,
) -> Method:
    """Build private Langevin dynamics for one model.

    Parameters
    ----------
    records : Records
    sampling, num_records
        As in `pymc_dp.fit`.
    noise : float
        Relative noise multiplier: 1, or 0 for a fit without noise.
    n : int, default 1000
        Releases, one a step; the second half of the iterates is the posterior.
    clip_norm : float, optional
        Bound on the norm of a record's score.
    sample_rate : float, optional
    step : float, optional
        The first step size, in squared units of the unconstrained latents; by default twice the
        sample rate, at most a half, over the nominal number of records times ``clip_norm``
        squared. No step is longer than the wall's noise allows.

    Returns
    -------
    Method

    Raises
    ------
    NotSeparableError
        A latent belongs to single records.
    ValueError
        A setting is out of its range.

    Notes
    -----
    **Privacy.** ``n`` releases of the sum of the records' scores, each clipped to ``clip_norm``
    in L2 norm, which is the sensitivity (twice that under replace-one neighbours). Only the
    wall's noise is accounted, at its own ratio to the clip norm; the public noise that fills a
    step up protects no one and is not counted.
    """
    require_shared_latents(records)
    clip = float(default_clip_norm(records.size) if clip_norm is None else clip_norm)
    rate = default_sample_rate(sampling, num_records) if sample_rate is None else float(sample_rate)
    count = DEFAULT_RELEASES if n is None else n
    if step is None:
        step = _default_step(records, clip, rate, num_records)
    if not 0 < step < math.inf:
        raise ValueError(f"step={step!r} must be above 0 and finite.")
    steps = step * (1 + DECAY_PHASES * np.arange(count) / count) ** -DECAY_POWER

    def compile_parts(backend: str) -> Compiled:
        update = partial(_update, steps, prior_gradient(records, backend))
        return Compiled({"score": gradient(records, backend)}, update)

    return Method(
        size=records.size,
        releases=(Release("score", sampling, rate, clip, noise, count),),
        compile=compile_parts,
        init=lambda rng: State(0, records.start, float(steps[0]), math.nan, None),
        query=_query,
        posterior=partial(_posterior, records),
        describe=partial(_describe, records),
        trace=_trace,
        settings={"step": float(step)},
        most_draws=count - int(BURN_IN * count),
    )


def _default_step(records: Records, clip: float, rate: float, num_records: int | None) -> float:
    """Short enough that batches add little to the Langevin noise, and whole data do not diverge."""
    # without clipping there is no bound on the curvature to go by
    scale = clip if math.isfinite(clip) else default_clip_norm(records.size)
    return min(2 * rate, 0.5) / ((num_records or NOMINAL_RECORDS) * scale**2)


def _query(state: State, rng: np.random.Generator) -> Query:
    return Query("score", state.z[None], draw=rng.standard_normal(state.z.size))


def _update(
    steps: np.ndarray,
    prior: Callable[[np.ndarray], np.ndarray],
    state: State,
    query: Query,
    noisy: Noisy,
) -> State:
    step = langevin_step(steps[state.t], noisy)
    drift = prior(state.z) + noisy.value / noisy.sample_rate
    z = state.z + step / 2 * drift + filling_sd(step, noisy) * query.draw
    return State(state.t + 1, z, step, noisy.noise_to_signal, state)


def langevin_step(step: float, noisy: Noisy) -> float:
    """Cut a step to the longest whose Langevin noise the wall's noise does not exceed.

    A step eta turns the wall's noise into one of standard deviation ``eta / 2 * sd / q``, which
    is the square root of eta at ``(2 q / sd)^2``.

    >>> langevin_step(1.0, Noisy(np.zeros(1), sd=4.0, sample_rate=0.5))
    0.0625
    """
    return float(min(step, (2 * noisy.sample_rate / noisy.sd) ** 2) if noisy.sd else step)


def filling_sd(step: float, noisy: Noisy) -> float:
    """Standard deviation of the public noise that a step needs beside the wall's.

    >>> filling_sd(0.0625, Noisy(np.zeros(1), sd=4.0, sample_rate=0.5))
    0.0
    """
    present = (step / 2 * noisy.sd / noisy.sample_rate) ** 2
    return math.sqrt(max(0.0, step - present))


def _kept(state: State) -> np.ndarray:
    """The iterates after burn-in, shape (kept, size); the start alone if there is none."""
    path = [state.z]
    while state.earlier is not None:
        state = state.earlier
        path.append(state.z)
    made = path[:-1] or path
    return np.array(made[: len(made) - int(BURN_IN * len(made))][::-1])


def _posterior(
    records: Records, state: State, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    kept = _kept(state)
    chosen = np.linspace(0, len(kept) - 1, min(draws, len(kept))).round().astype(int)
    return dict(zip(records.point, records.split(kept[chosen]), strict=True))


def _describe(records: Records, state: State) -> xr.Dataset:
    draws = _kept(state)
    moments = {"mean_vector": draws.mean(axis=0), "standard_deviation": draws.std(axis=0)}
    return xr.Dataset({k: ("rows", v) for k, v in moments.items()}, {"rows": records.labels})


def _trace(state: State) -> dict[str, tuple[tuple[str, ...], Any]]:
    return {
        "sample_path": (("rows",), state.z),
        "step": ((), state.step),
        "noise_to_signal": ((), state.noise_to_signal),
    }
