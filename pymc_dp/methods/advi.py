"""DP-ADVI (Jälkö, Dikmen and Honkela 2017), with aligned gradients (Jälkö et al. 2022).

A record's contribution is d log p(record | z) / dz, d numbers; all else is post-processing.
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.contributions import Directions, gradient, plain_gradient
from pymc_dp.methods.defaults import default_clip_norm, default_sample_rate
from pymc_dp.methods.families import FULL_RANK, MEAN_FIELD, Family, Params, mean_field_slopes
from pymc_dp.methods.method import Compiled, Method, runs
from pymc_dp.methods.newton import Believed, steps_before, with_last_steps
from pymc_dp.methods.optimizers import Optimizer, decaying_adam, from_pymc
from pymc_dp.methods.prior import prior_gradient
from pymc_dp.methods.refusal import require_shared_latents
from pymc_dp.methods.settings import aware_of
from pymc_dp.query import Noisy, Query
from pymc_dp.records import Records
from pymc_dp.release import Release, check_count

DEFAULT_RELEASES = 200
LEARNING_RATE = 0.08
START_SD = 0.1
# weights of the average grow like t^4: half of it comes from the last eighth of the steps
AVERAGE_POWER = 4
# change of log clip_norm a step, with quantile=
CLIP_STEP = 0.1

Schedule = float | Callable[[int], float]


class State(NamedTuple):
    """Where a fit stands: released values and public draws alone."""

    t: int
    params: Params
    average: Params
    optimizer: Any
    clip_factor: float
    noise_to_signal: float


def dp_advi(
    records: Records,
    *,
    family: Family,
    sampling: str,
    num_records: int | None,
    noise: float,
    n: int | None = None,
    clip_norm: Schedule | None = None,
    sample_rate: Schedule | None = None,
    obj_optimizer: Callable | None = None,
    obj_n_mc: int = 1,
    aligned: bool = True,
    adaptive_clip: float | None = None,
    noise_aware: bool = True,
) -> Method:
    """Build private ADVI for one model.

    Parameters
    ----------
    records : Records
    family : Family
    sampling, num_records
        As in `pymc_dp.fit`.
    noise : float
        Relative noise multiplier: 1, or 0 for a fit without noise.
    n : int, default 200
        Releases: gradients, and the last four if ``noise_aware``.
    clip_norm : float or callable of the step, optional
        Bound on the norm of a record's contribution.
    sample_rate : float or callable of the step, optional
    obj_optimizer : callable, optional
        An optimizer of PyMC, ``pm.adam(learning_rate=0.05)`` say, in place of a decaying Adam.
    obj_n_mc : int
        Draws of z a step; their gradients are clipped as one vector.
    aligned : bool
        False for the paper's own form, which clips and noises all 2d coordinates.
    adaptive_clip : float in (0, 1), optional
        Move the clip norm, from ``clip_norm`` on, towards this quantile of the records' norms;
        .8 is a good one, while the median clips enough to bias the posterior.
    noise_aware : bool
        End with a few Newton steps, for a share of the budget, and a posterior as wide as records
        and privacy noise together make it.

    Returns
    -------
    Method

    Raises
    ------
    NotSeparableError
        A latent belongs to single records.
    ValueError, TypeError
        A setting is out of its range.

    Notes
    -----
    **Privacy.** ``n`` releases of the sum of the records' gradients, each clipped to ``clip_norm``
    in L2 norm, which is the sensitivity (twice that under replace-one neighbours). Prior, entropy,
    steps, averages and draws are post-processing.

    Source: equations 1 and 2 of Jälkö et al. (2017); aligned gradients: Jälkö et al. (2022).
    """
    require_shared_latents(records)
    if not aligned and family is FULL_RANK:
        raise ValueError("aligned=False is the paper's mean-field form: use method='dp_advi'.")
    check_count("obj_n_mc", obj_n_mc)
    clip = default_clip_norm(records.size, obj_n_mc) if clip_norm is None else clip_norm
    rate = default_sample_rate(sampling, num_records) if sample_rate is None else sample_rate
    aware = aware_of(noise_aware, noise)
    count = DEFAULT_RELEASES if n is None else n
    count = steps_before(count) if aware else count
    steps = [(_at(rate, t), _at(clip, t)) for t in range(count)]
    releases = runs(steps, lambda q, c, count: Release("score", sampling, q, c, noise, count))
    _check_adaptive(adaptive_clip, releases)
    rates = {name: pace * LEARNING_RATE for name, pace in family.pace.items()}
    optimizer = from_pymc(obj_optimizer) if obj_optimizer else decaying_adam(rates, len(steps))
    contribute = gradient if aligned else plain_gradient
    prior = cache(partial(prior_gradient, records))  # the last steps take the same function
    ask = _Ask(family, obj_n_mc, aligned, adaptive_clip, tuple(clip for _, clip in steps))

    def compile_parts(backend: str) -> Compiled:
        return Compiled(
            contributions={"score": contribute(records, backend, obj_n_mc)},
            update=partial(_update, family, optimizer, prior(backend), aligned),
        )

    fitted = Method(
        size=records.size * obj_n_mc * (1 if aligned else 2),
        releases=releases,
        compile=compile_parts,
        init=lambda rng: _init(records, family, optimizer),
        query=partial(_query, ask),
        posterior=partial(_posterior, records, family),
        describe=lambda state: family.describe(state.average, records.labels),
        trace=_trace,
        settings={"aligned": str(aligned), "obj_n_mc": obj_n_mc},
    )
    if not aware:
        return fitted
    return with_last_steps(
        fitted,
        records,
        prior=prior,
        believed=lambda state: Believed(state.average["mu"], family.covariance(state.average)),
        typical=steps[-1][1] / obj_n_mc**0.5,
    )


METHODS = {
    "dp_advi": partial(dp_advi, family=MEAN_FIELD),
    "dp_fullrank_advi": partial(dp_advi, family=FULL_RANK),
}


class _Ask(NamedTuple):
    """What a query is made of beside the state."""

    family: Family
    draws: int
    aligned: bool
    quantile: float | None
    clip_norms: tuple[float, ...]


def _check_adaptive(quantile: float | None, releases: tuple[Release, ...]) -> None:
    if quantile is not None and not 0 < quantile < 1:
        raise ValueError(f"adaptive_clip={quantile!r} must be a quantile, between 0 and 1.")
    if quantile is not None and any(math.isinf(release.clip_norm) for release in releases):
        raise ValueError("adaptive_clip= needs a finite clip_norm= to start from.")


def _at(schedule: Schedule, t: int) -> float:
    return float(schedule(t) if callable(schedule) else schedule)


def _init(records: Records, family: Family, optimizer: Optimizer) -> State:
    params = family.init(records.start, START_SD)
    return State(0, params, params, optimizer.init(params), 1.0, np.nan)


def _query(ask: _Ask, state: State, rng: np.random.Generator) -> Query:
    eps = rng.standard_normal((ask.draws, state.params["mu"].size))
    points = ask.family.sample(state.params, eps)
    context = points if ask.aligned else Directions(points, mean_field_slopes(state.params, eps))
    clip_norm = ask.clip_norms[state.t] * state.clip_factor
    return Query("score", context, clip_norm, ask.quantile, (points, eps))


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
    weight = (AVERAGE_POWER + 1) / (state.t + AVERAGE_POWER + 1)
    average = {k: a + weight * (params[k] - a) for k, a in state.average.items()}
    return State(
        state.t + 1,
        params,
        average,
        optimizer_state,
        state.clip_factor * _clip_change(noisy),
        noisy.noise_to_signal,
    )


def _clip_change(noisy: Noisy) -> float:
    if noisy.many_clipped is None:
        return 1.0
    return float(np.exp(CLIP_STEP if noisy.many_clipped else -CLIP_STEP))


def _posterior(
    records: Records, family: Family, state: State, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    eps = rng.standard_normal((draws, records.size))
    values = records.split(family.sample(state.average, eps))
    return dict(zip(records.point, values, strict=True))


def _trace(state: State) -> dict[str, tuple[tuple[str, ...], Any]]:
    return {
        "mean_path": (("rows",), state.params["mu"]),
        "noise_to_signal": ((), state.noise_to_signal),
        "clip_factor": ((), state.clip_factor),
    }
