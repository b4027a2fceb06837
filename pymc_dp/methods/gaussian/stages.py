"""Rounds in whitened coordinates as stages of a method."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from pymc_dp.accounting.plan import ReleaseSpec
from pymc_dp.contributions.joint_vector import PRODUCTS, parts_of, vector_size
from pymc_dp.contributions.score_scales import score_scales
from pymc_dp.contributions.whitened import whitened_scores
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.doubts import hidden_directions
from pymc_dp.methods.gaussian.draws import draw_given_scores, draw_normal, noise_aware
from pymc_dp.methods.gaussian.expected_scores import outcomes_alone
from pymc_dp.methods.gaussian.outcome_likelihood import compiled_outcomes
from pymc_dp.methods.gaussian.outcome_scale import outcome_scale
from pymc_dp.methods.gaussian.posterior import describe_gaussian
from pymc_dp.methods.gaussian.problem import (
    Draw,
    Problem,
    near_prior,
    problem_after_shifts,
    problem_of_latents,
    problem_of_shifts,
)
from pymc_dp.methods.gaussian.rounds import step
from pymc_dp.methods.gaussian.schedule import BudgetShares, RoundTerms, schedule
from pymc_dp.methods.gaussian.shifts import find_groups
from pymc_dp.methods.gaussian.start import measured
from pymc_dp.methods.gaussian.state import Gradient, State
from pymc_dp.methods.method import Compiled, Method, Stage, Trace
from pymc_dp.model import Records
from pymc_dp.privacy.query import Query
from pymc_dp.sampling.samplers import Full

SCALES, SHIFTED, SCORES = "score scales", "whitened scores of shifts", "whitened scores"


def stages_of_rounds(
    records: Records,
    prior: Callable[[str], Gradient],
    terms: RoundTerms,
    share: float = 1.0,
    point: Callable[[Any], np.ndarray] | None = None,
    draw: Draw | None = None,
    start_width: float = DEFAULTS.start_width,
) -> tuple[Stage, ...]:
    """Return the stages: scales of scores, then rounds, which take ``share`` of the budget.

    ``prior`` compiles the gradient of the log prior for a backend, and ``point`` returns where the
    method before has ended. ``draw`` draws the posterior; by default it is normal. ``start_width``
    is that of `Known`. Without a method before them, the first rounds of groups are of shifts.

    **Privacy.** A histogram for each latent, to which a record (or a unit) adds shares that sum to
    one, and a vector of score, curvature (of all latents, and along one direction), counts of
    lengths and variance for each round, whose joint norm is clipped. All take all records;
    coordinates and clip norms are functions of earlier releases. All else is post-processing.
    """
    rounds, first = terms.rounds, terms.of_shifts
    is_expected = outcomes_alone(records, terms.of_units) and terms.survey is None
    of_curvature = DEFAULTS.share_if_expected if is_expected else 1.0
    scale = outcome_scale(records)

    def scheduled(d: int, of_shifts: int = 0) -> BudgetShares:
        of_scales = terms.share_of_scales(d + (scale is not None))
        products = 0.0 if terms.survey is None else PRODUCTS
        return schedule(rounds, of_scales, of_curvature, of_shifts, products)

    shares, normal = scheduled(records.size), partial(draw_normal, records)
    problem = problem_of_latents(records, prior, terms, scale, shares, draw or normal, start_width)
    # chains that begin in one mode of a mixture do not visit the others
    if draw is None and is_expected and not records.mixtures:
        compiled = compiled_outcomes(records)  # before any budget is spent
        if compiled is not None:
            problem = problem._replace(draw=partial(draw_given_scores, problem, compiled))
    if point is not None:

        def after(state: Any) -> State:
            slope = problem.known().prior_gradient
            return problem.begin(near_prior(records, point(state), slope))

        return (
            Stage(_scales(problem, shares, share), after),
            Stage(_rounds(problem, shares, share, SCORES)),
        )
    groups = find_groups(records, problem.scores) if first else None
    if groups is None:
        return (
            Stage(_scales(problem, shares, share)),
            Stage(_rounds(problem, shares, share, SCORES)),
        )
    shares = scheduled(groups.shifts.shape[1], first)
    problem = problem_after_shifts(problem, groups, shares)
    shifts = problem_of_shifts(problem, groups.shifts, first, terms.counted)
    early, late = shares.parted(first)
    return (
        Stage(_scales(shifts, shares, share)),
        Stage(_rounds(shifts, early, share, SHIFTED)),
        Stage(_rounds(problem, late, share, SCORES), shifts.reported),
    )


def _scales(problem: Problem, shares: BudgetShares, share: float) -> Method:
    """Release the scales of scores."""
    histograms, of_all = problem.d + len(problem.observed), problem.reported
    return Method(
        size=vector_size(problem.d, parts_of(problem.dispersion()), problem.is_weighted),
        init=lambda rng: problem.begin(problem.start()),
        settings={},
        algorithms=(problem.algorithm,),
        releases=(_spec(SCALES, histograms**0.5, share * shares.of_scales),),
        compile=lambda backend: Compiled(
            {SCALES: score_scales(problem.scores(), problem.observed)},
            lambda state, query, noisy: measured(problem.known(), state, noisy),
            runs_on="python",
        ),
        query=lambda state, rng: Query(SCALES, state.at.point),
        posterior=lambda state, draws, rng: problem.draw(of_all(state), draws, rng)[0],
        describe=lambda state: _describe(problem.records, shares, of_all(state)),
        trace=lambda state: _trace(of_all(state)),
        doubts=problem.doubts,
        defaults=(DEFAULTS,),
    )


def _rounds(problem: Problem, shares: BudgetShares, share: float, name: str) -> Method:
    """Release scores and curvatures in whitened coordinates."""
    clip_norm, of_all = DEFAULTS.score_range[0] * problem.d**0.5, problem.reported
    return _scales(problem, shares, share)._replace(
        releases=tuple(_spec(name, clip_norm, share * own.of_release) for own in shares.of_rounds),
        compile=lambda backend: Compiled(
            {name: whitened_scores(problem.scores())},
            partial(step, problem.known()),
            runs_on="python",
        ),
        query=lambda state, rng: Query(name, state.at, state.at.clip_norm),
        noise_aware=lambda state, draws, rng: noise_aware(problem.draw, of_all(state), draws, rng),
    )


def _spec(name: str, clip_norm: float, share: float) -> ReleaseSpec:
    return ReleaseSpec(name, Full(), clip_norm, count=1, share=share)


def _describe(records: Records, shares: BudgetShares, state: State) -> xr.Dataset:
    learnt = state.learnt
    mean, covariance, noise, _ = learnt.reported
    described = describe_gaussian(mean, covariance, records.labels)
    found = described.assign(noise_covariance=(("rows", "columns"), noise))
    if learnt.believed is None or state.noise_unit == 0:
        return found
    hidden = hidden_directions(records, state, learnt.believed)
    found = found.assign(
        hidden_directions=int(hidden.sum()),
        directions=hidden.size,
        variance_share=learnt.variance_share.mean,
    )
    return found.assign(misfit=state.misfit)


def _trace(state: State) -> Trace:
    return {
        "mean_path": (("rows",), state.learnt.reported.mean),
        "noise_to_signal": ((), state.noise_to_signal),
        "clip_factor": ((), 1.0),
    }
