"""Draws from the posterior of rounds, with the width of the privacy noise or without it."""

from functools import partial

import numpy as np

from pymc_dp.methods.gaussian.belief import symmetric
from pymc_dp.methods.gaussian.hamiltonian import draw_by_hamiltonian
from pymc_dp.methods.gaussian.likely_points import likely_points
from pymc_dp.methods.gaussian.noise_floor import Spectrum
from pymc_dp.methods.gaussian.outcome_likelihood import (
    NEAR,
    CompiledOutcomes,
    OutcomeLikelihood,
    outcome_likelihood,
)
from pymc_dp.methods.gaussian.posterior import draw_gaussian
from pymc_dp.methods.gaussian.problem import Draw, Problem
from pymc_dp.methods.gaussian.state import State, prior_precision
from pymc_dp.methods.method import Draws
from pymc_dp.model import Records


def draw_normal(
    records: Records, noise: float, state: State, draws: int, rng: np.random.Generator
) -> Draws:
    """Draw a normal posterior; ``noise`` is 1, or 0 to leave the width of the privacy noise out."""
    found = state.learnt.reported
    v = draw_gaussian(found.mean, found.covariance + noise * found.noise, draws, rng)
    return _by_latents(records, v)


def draw_given_scores(
    problem: Problem,
    compiled: CompiledOutcomes,
    noise: float,
    state: State,
    draws: int,
    rng: np.random.Generator,
) -> Draws:
    """Draw the prior as it is written times the likelihood of all released scores.

    Where their covariance is singular the posterior is normal.
    """
    if state.noise_unit == 0 or not state.released:
        return problem.draw(noise, state, draws, rng)
    found = state.learnt.reported
    likelihood = partial(outcome_likelihood, problem.records, problem.scores(), compiled, state)
    covariance = found.covariance + found.noise
    try:
        # outcomes of the rounds' points alone: the normal posterior may reach where none can be
        near = likely_points(likelihood().log_density, found.mean, covariance, rng)
        of_scores = likelihood(near[-NEAR:])
        v = draw_by_hamiltonian(of_scores.log_density, near, draws, rng).points
        v = v if noise else _as_of_records(v, of_scores, problem, state)
    except (np.linalg.LinAlgError, ArithmeticError):
        return problem.draw(noise, state, draws, rng)
    return _by_latents(problem.records, v)


def _as_of_records(
    points: np.ndarray, of_scores: OutcomeLikelihood, problem: Problem, state: State
) -> np.ndarray:
    """Shrink draws, (n, d), about their mean to the width that the records alone give them."""
    known, mean = problem.known(), points.mean(axis=0)
    prior = prior_precision(known.prior_gradient, mean, state.least_prior)
    with_noise, without = (each.information(mean) for each in (of_scores, of_scores.without_noise))
    return shrunk(points, with_noise + prior, without + prior)


def shrunk(points: np.ndarray, precision: np.ndarray, larger: np.ndarray) -> np.ndarray:
    """Shrink draws, (n, d), about their mean as a normal distribution whose precision grows.

    Where the other one is no ``larger`` they stay.

    >>> points = np.random.default_rng(0).normal(size=(1000, 2))
    >>> shrunk(points, np.eye(2), np.diag([0.5, 4.0])).std(axis=0).round(1)
    array([1. , 0.5])
    """
    mean, root = points.mean(axis=0), np.linalg.cholesky(precision)
    inverse = np.linalg.inv(root)
    within = Spectrum.of(symmetric(inverse @ larger @ inverse.T))
    smaller = within.replaced(np.maximum(within.values, 1.0) ** -0.5)
    factor = inverse.T @ smaller @ root.T
    return np.asarray(mean + (points - mean) @ factor.T)


def noise_aware(draw: Draw, state: State, draws: int, rng: np.random.Generator) -> Draws | None:
    """Draw with the noise; None before the first round, when it is not known, and without any."""
    known = state.t > 1 and state.noise_unit > 0
    return draw(1.0, state, draws, rng) if known else None


def _by_latents(records: Records, v: np.ndarray) -> Draws:
    return dict(zip(records.point, records.split(v), strict=True))
