"""Draws from the posterior of rounds, and the same draws without the width of the privacy noise."""

from functools import partial

import numpy as np

from pymc_dp.methods.gaussian.hamiltonian import draw_by_hamiltonian
from pymc_dp.methods.gaussian.likely_points import draws_by_importance, likely_points
from pymc_dp.methods.gaussian.noise_floor import draws_without_noise, shrunk
from pymc_dp.methods.gaussian.outcome_likelihood import (
    FEW,
    NEAR,
    ROWS,
    CompiledOutcomes,
    outcome_likelihood,
)
from pymc_dp.methods.gaussian.posterior import draw_gaussian
from pymc_dp.methods.gaussian.problem import Draw, Problem
from pymc_dp.methods.gaussian.state import State
from pymc_dp.methods.method import Both
from pymc_dp.model import Records


def draw_normal(records: Records, state: State, draws: int, rng: np.random.Generator) -> Both:
    """Draw a normal posterior."""
    found = state.learnt.reported
    wide = found.covariance + (found.noise if state.noise_unit else 0.0)
    v = draw_gaussian(found.mean, wide, draws, rng)
    return _by_latents(records, v, shrunk(v, wide, found.covariance))


def draw_given_scores(
    problem: Problem,
    compiled: CompiledOutcomes,
    state: State,
    draws: int,
    rng: np.random.Generator,
) -> Both:
    """Draw the prior as it is written times the likelihood of all released scores.

    Where covariances are singular the posterior is normal.
    """
    if state.noise_unit == 0 or not state.released:
        return problem.draw(state, draws, rng)
    found = state.learnt.reported
    likelihood = partial(outcome_likelihood, problem.records, problem.scores(), compiled, state)
    covariance = found.covariance + found.noise
    try:
        # outcomes of the rounds' points alone: the normal posterior may reach where none can be
        near = likely_points(likelihood(FEW).values, found.mean, covariance, rng)
        of_scores = likelihood(ROWS, near[-NEAR:])
        v = draws_by_importance(of_scores.values, near, draws, rng)
        if v is None:
            v = draw_by_hamiltonian(of_scores.log_density, near, draws, rng).points
    except (np.linalg.LinAlgError, ArithmeticError, NotImplementedError):
        return problem.draw(state, draws, rng)
    with np.errstate(all="ignore"):
        lost = of_scores.lost_to_noise(v.mean(axis=0), v.std(axis=0))
    return _by_latents(problem.records, v, draws_without_noise(v, lost))


def noise_aware(draw: Draw, state: State, draws: int, rng: np.random.Generator) -> Both | None:
    """Draw with the noise; None before the first round, when it is not known, and without any."""
    return draw(state, draws, rng) if state.t > 1 and state.noise_unit > 0 else None


def _by_latents(records: Records, v: np.ndarray, without: np.ndarray | None) -> Both:
    wide = dict(zip(records.point, records.split(v), strict=True))
    if without is None:
        return wide, None
    return wide, dict(zip(records.point, records.split(without), strict=True))
