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
from pymc_dp.methods.gaussian.state import State
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

    Without the noise the same draws are shrunk to what scores without noise would say. Where
    covariances are singular the posterior is normal.
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
    except (np.linalg.LinAlgError, ArithmeticError):
        return problem.draw(noise, state, draws, rng)
    return _by_latents(problem.records, v if noise else _without_noise(v, of_scores))


def _without_noise(points: np.ndarray, of_scores: OutcomeLikelihood) -> np.ndarray:
    """Shrink draws, (n, d), where they are enough to say how wide they are."""
    try:
        with np.errstate(all="ignore"):
            return shrunk(points, of_scores.lost_to_noise(points.mean(axis=0), points.std(axis=0)))
    except (np.linalg.LinAlgError, ArithmeticError):
        return points


def shrunk(points: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Shrink draws, (n, d), about their mean to a precision that is ``more`` than theirs, (d, d).

    >>> points = np.random.default_rng(0).normal(size=(1000, 2))
    >>> shrunk(points, np.diag([0.0, 3.0])).std(axis=0).round(1)
    array([1. , 0.5])
    """
    mean = points.mean(axis=0)
    root = np.linalg.cholesky((points - mean).T @ (points - mean) / len(points))
    within = Spectrum.of(symmetric(root.T @ more @ root))
    factor = within.replaced((1 + np.maximum(within.values, 0.0)) ** -0.5)
    found = mean + (points - mean) @ (root @ factor @ np.linalg.inv(root)).T
    if not np.isfinite(found).all():
        raise FloatingPointError("the draws without noise are not finite")
    return np.asarray(found)


def noise_aware(draw: Draw, state: State, draws: int, rng: np.random.Generator) -> Draws | None:
    """Draw with the noise; None before the first round, when it is not known, and without any."""
    known = state.t > 1 and state.noise_unit > 0
    return draw(1.0, state, draws, rng) if known else None


def _by_latents(records: Records, v: np.ndarray) -> Draws:
    return dict(zip(records.point, records.split(v), strict=True))
