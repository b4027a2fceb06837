"""Rounds in whitened coordinates as a method, or as stages of one."""

import dataclasses
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import xarray as xr

from pymc_dp.accounting.release import ReleaseSpec
from pymc_dp.accounting.samplers import Full
from pymc_dp.contributions.drawn_scores import drawn_scores
from pymc_dp.contributions.score_scales import score_scales
from pymc_dp.contributions.whitened import vector_size, whitened_scores
from pymc_dp.methods.chain import Stage, chain
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.doubts import doubts_of_chains, doubts_of_rounds, hidden_directions
from pymc_dp.methods.gaussian.hyperpriors import Hyperpriors, hyperpriors
from pymc_dp.methods.gaussian.outcome_scale import outcome_scale
from pymc_dp.methods.gaussian.posterior import describe_gaussian, draw_gaussian
from pymc_dp.methods.gaussian.rounds import likelihood, step
from pymc_dp.methods.gaussian.schedule import ROUNDS, schedule
from pymc_dp.methods.gaussian.start import begin, measured, near_prior_mode
from pymc_dp.methods.gaussian.state import Gradient, Known, State
from pymc_dp.methods.gaussian.unseen import unseen_directions
from pymc_dp.methods.method import Compiled, Draws, Method, OnRealLine, Trace
from pymc_dp.methods.prior import prior_gradient
from pymc_dp.model import Records
from pymc_dp.privacy.query import Query

# (how much of the privacy noise, state, draws, rng) -> draws
Draw = Callable[[float, State, int, np.random.Generator], Draws]

SCALES, SCORES = "score scales", "whitened scores"


def whitened_method(
    records: Records,
    prior: Callable[[str], Gradient],
    number: int | None,
    count: int = ROUNDS + 1,
) -> Method:
    """Fit by rounds alone, from the model's initial point; ``count`` releases in all.

    Latents that no record reads are drawn with the others, in the end.
    """
    hyper, draw = hyperpriors(records), None
    if hyper is not None:
        records, prior = hyper.reduced, partial(_slope_of, hyper)
        draw = partial(_draw_with_hyperpriors, hyper)
    scales, rounds = whitened_stages(records, prior, number, count, draw=draw)
    # the last round has no share: it takes what the others leave, and a caller's noise multiplier
    *others, last = (*scales.method.releases, *rounds.method.releases)
    releases = (*others, dataclasses.replace(last, share=None))
    whole = chain(scales.method, rounds)._replace(releases=releases)
    if hyper is None:
        return whole
    return whole._replace(
        doubts=lambda staged: (*whole.doubts(staged), *doubts_of_chains(hyper, staged.state))
    )


def by_rounds(number: int | None, count: int) -> OnRealLine:
    """Release scores and curvatures like `dp_advi`, whatever the scales of the data are.

    With n records the fixed points of variational updates and of expectation propagation differ
    from the posterior's mode by a share 1/n of its width; noise and clipping differ by far more.
    """

    def build(records: Records) -> Method:
        return whitened_method(records, partial(prior_gradient, records), number, count)

    return OnRealLine(build)


def whitened_stages(
    records: Records,
    prior: Callable[[str], Gradient],
    number: int | None,
    count: int = ROUNDS + 1,
    share: float = 1.0,
    point: Callable[[Any], np.ndarray] = lambda state: np.zeros(0),
    draw: Draw | None = None,
) -> tuple[Stage, Stage]:
    """Return the stages: scales of scores, then rounds, which take ``share`` of the budget.

    ``prior`` compiles the gradient of the log prior for a backend, ``number`` is the declared
    number of records, and ``point`` returns where the method before has ended. ``draw`` draws the
    posterior; by default it is normal.

    **Privacy.** A histogram for each latent, to which a record (or a unit) adds shares that sum to
    one, and ``count - 1`` vectors of score, curvature and variance, whose joint norm is clipped.
    All take all records; coordinates and clip norms are functions of earlier releases. All else is
    post-processing.
    """
    shares, d = schedule(count - 1), records.size
    slope, draw = cache(lambda: prior("python")), draw or partial(_draw, records)
    # some passes over the records: any faster backend would take longer to compile
    compiled = cache(lambda: drawn_scores(records, "python"))
    scale = outcome_scale(records)
    known = cache(
        lambda: Known(slope(), shares, number, scale, unseen_directions(records, compiled()))
    )
    observed = () if scale is None else (scale.latent,)
    histograms = d + len(observed)
    scales = Method(
        size=vector_size(d),
        init=lambda rng: _begin(records, records.start, slope(), number),
        settings={},
        releases=(_spec(SCALES, histograms**0.5, share * DEFAULTS.scales_share),),
        compile=lambda backend: Compiled(
            {SCALES: score_scales(compiled(), observed)},
            lambda state, query, noisy: measured(known(), state, noisy),
        ),
        query=lambda state, rng: Query(SCALES, state.at.point),
        posterior=partial(draw, 0.0),
        describe=partial(_describe, records),
        trace=_trace,
        doubts=partial(doubts_of_rounds, records),
        defaults=(DEFAULTS,),
    )
    clip_norm = DEFAULTS.score_range[0] * d**0.5
    rounds = scales._replace(
        releases=tuple(_spec(SCORES, clip_norm, share * own.of_release) for own in shares),
        compile=lambda backend: Compiled(
            {SCORES: whitened_scores(compiled())}, partial(step, known())
        ),
        query=lambda state, rng: Query(SCORES, state.at, state.at.clip_norm),
        noise_aware=partial(_noise_aware, draw),
    )
    return (
        Stage(scales, lambda state: _begin(records, point(state), slope(), number)),
        Stage(rounds),
    )


def _slope_of(hyper: Hyperpriors, backend: str) -> Gradient:
    """Return the slope of the normal prior; what cannot be drawn in the end fails here."""
    _ = hyper.integrated  # compiled here, before any budget is spent
    return hyper.prior.gradient


def _begin(records: Records, start: np.ndarray, slope: Gradient, number: int | None) -> State:
    """Begin near the mode of the prior where it holds public observations.

    Without them it may have no mode: that of groups and of their spread rises without end as the
    spread falls, and only records keep it up.
    """
    point = near_prior_mode(start, slope) if records.observes_public else start
    return begin(point, slope, number)


def _spec(name: str, clip_norm: float, share: float) -> ReleaseSpec:
    return ReleaseSpec(name, Full(), clip_norm, count=1, share=share)


def _draw(
    records: Records, noise: float, state: State, draws: int, rng: np.random.Generator
) -> Draws:
    learnt = state.learnt
    v = draw_gaussian(learnt.mode.mean, learnt.covariance + noise * learnt.noise, draws, rng)
    return dict(zip(records.point, records.split(v), strict=True))


def _draw_with_hyperpriors(
    hyper: Hyperpriors, noise: float, state: State, draws: int, rng: np.random.Generator
) -> Draws:
    found, mixing = hyper.draw(likelihood(state.learnt, hyper.prior, noise), draws, rng)
    mode = state.learnt.mode.mean.tobytes()
    hyper.mixing[mode] = max(mixing, hyper.mixing.get(mode, mixing))
    return found


def _noise_aware(draw: Draw, state: State, draws: int, rng: np.random.Generator) -> Draws | None:
    """Draw with the noise; None before the first round, when it is not known, and without any."""
    known = state.t > 1 and state.noise_unit > 0
    return draw(1.0, state, draws, rng) if known else None


def _describe(records: Records, state: State) -> xr.Dataset:
    learnt = state.learnt
    described = describe_gaussian(learnt.mode.mean, learnt.covariance, records.labels)
    found = described.assign(noise_covariance=(("rows", "columns"), learnt.noise))
    if learnt.believed is None or state.noise_unit == 0:
        return found
    hidden = hidden_directions(records, state, learnt.believed)
    return found.assign(
        hidden_directions=int(hidden.sum()),
        directions=hidden.size,
        variance_share=learnt.variance_share.mean,
    )


def _trace(state: State) -> Trace:
    return {
        "mean_path": (("rows",), state.learnt.mode.mean),
        "noise_to_signal": ((), state.noise_to_signal),
        "clip_factor": ((), 1.0),
    }
