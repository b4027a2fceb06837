"""From released sums to the next posterior of a factor model; all of it post-processing."""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.conjugate.exponential import NORMAL
from pymc_dp.methods.linear.predictor import pg_weight
from pymc_dp.methods.vips.factors.defaults import DEFAULTS
from pymc_dp.methods.vips.factors.model import FactorModel
from pymc_dp.methods.vips.factors.state import Fit, Posterior, State, side_by_side, split
from pymc_dp.methods.vips.factors.steps import (
    Curvature,
    averaged,
    averaged_energy,
    expansion,
    noise_spread,
    solve_rows,
    step_length,
)
from pymc_dp.methods.vips.factors.sums import Context, Sums
from pymc_dp.privacy.query import Noisy, Query


class _Rows(NamedTuple):
    """What scores and curvatures are multiplied by, row by row.

    ``psi`` and ``psi_of_batch`` turn noise, and the error of a drawn batch, into steps of psi
    relative to the scale of the outcomes' own noise.
    """

    gain: np.ndarray
    weight: np.ndarray
    psi: float
    psi_of_batch: float


def update(fit: Fit, state: State, query: Query, noisy: Noisy) -> State:
    """Average the curvature, move the means, then update everything behind them."""
    structure, context = fit.structure, query.context
    sd = noisy.sd / noisy.sample_rate
    sums = Sums(**fit.layout.unpack(noisy.value / noisy.sample_rate))
    curvature = averaged(state.t, state.curvature, sums, sd, fit.settings.records_in_sums)
    rows = _rows(structure, context)
    noise_of_psi = sd * rows.psi * float(np.sqrt(curvature.inverse_trace))
    n, rate = len(curvature.average), noisy.sample_rate
    of_batch = rows.psi_of_batch * np.sqrt(n * (1 - rate) / (rate * curvature.number))
    rho = step_length(state.t, float(np.hypot(noise_of_psi, of_batch)))
    mean, alpha, spread = _step(fit, state.posterior, sums, curvature, rows, rho)
    stretch = _stretch(structure, state.t, curvature)
    back = np.linalg.inv(stretch)
    average, corrected = (back @ x @ back.T for x in (curvature.average, curvature.corrected))
    precision = rows.weight[:, None] * np.diag(corrected) + alpha
    variance = split(structure, 1 / precision)
    moved: Posterior = {
        name: (m / variance[name], 1 / variance[name])
        for name, m in split(structure, mean @ stretch).items()
    }
    moved |= _moved_log_odds(fit, state.posterior, curvature, rho)
    energy, likelihood, unsure = _noise_precision(fit, state, context, sums, curvature, sd)
    posterior = fit.follow(state.posterior | moved, likelihood)
    noise = (1 - rho) ** 2 * state.noise + (rho * sd / curvature.share) ** 2 * spread
    return State(state.t + 1, average, energy, posterior, noise @ stretch**2, noise_of_psi, unsure)


def _stretch(structure: FactorModel, t: int, curvature: Curvature) -> np.ndarray:
    """Find the map of latents that loadings and intercept absorb."""
    if structure.latent.binary or t >= DEFAULTS.expansions:
        return np.eye(len(curvature.average))
    moments = curvature.corrected / curvature.number
    return expansion(moments, structure.latent.parameter, bool(structure.intercept))


def _rows(structure: FactorModel, context: Context) -> _Rows:
    weight = context.precision * structure.curvature
    gain = context.precision * structure.gain
    if structure.latent.binary:
        of_psi = float(np.mean(1 / weight))
        return _Rows(gain, weight, of_psi, of_psi**0.5)
    return _Rows(gain, weight, context.precision**0.5, 1.0)


def _step(
    fit: Fit, posterior: Posterior, sums: Sums, curvature: Curvature, rows: _Rows, rho: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Take a step of length rho towards (w H + alpha)^-1 (g - alpha m).

    Return the new means m of loadings and intercept, alpha, and the noise of m from noise of 1.
    """
    structure = fit.structure
    messages = {name: structure.prior.message(name, posterior) for name in structure.moved}
    linear, alpha = side_by_side(structure, messages)
    moments = {name: NORMAL.moments(posterior[name]) for name in structure.moved}
    mean, _ = side_by_side(structure, moments)
    slope = rows.gain[:, None] * sums.score / curvature.share + linear - alpha * mean
    n = mean.shape[1] if structure.intercept else mean.shape[1] - 1
    shared = curvature.corrected[:n, :n]
    mean[:, :n] += rho * solve_rows(shared, rows.weight, alpha[:, :n], slope[:, :n])
    spread = np.zeros(mean.shape[1])
    spread[:n] = np.mean(rows.gain**2) * noise_spread(shared, rows.weight, alpha[:, :n])
    return mean, alpha, spread


def _moved_log_odds(fit: Fit, posterior: Posterior, curvature: Curvature, rho: float) -> Posterior:
    """Move the latents' prior log odds, by Pólya-Gamma variables; the curvature holds the sums."""
    name = fit.structure.latent.log_odds
    if name is None:
        return {}
    number, least = curvature.number, curvature.number * DEFAULTS.log_odds_share
    mean, sd = NORMAL.moments(posterior[name])
    ones = np.clip(curvature.average[:-1, -1] / curvature.share, least, number - least)
    omega = number / 4 * pg_weight(np.hypot(mean, sd))
    linear, alpha = fit.structure.prior.message(name, posterior)
    precision = omega + alpha
    slope = ones.reshape(mean.shape) - number / 2 - omega * mean + linear - alpha * mean
    return {name: (precision * mean + rho * slope, precision)}


def _noise_precision(
    fit: Fit, state: State, context: Context, sums: Sums, curvature: Curvature, sd: float
) -> tuple[float, Posterior, float]:
    """Average the energy; return also the likelihood's natural parameters of the precision.

    The last number is the variance of the privacy noise on the precision's logarithm: the precision
    is the number of outcomes over the energy, and both are released.
    """
    structure = fit.structure
    name = structure.predictor.precision
    if name is None:
        return 0.0, {}, 0.0
    entries = structure.shape[0] * curvature.number
    least = entries * curvature.share
    energy, raised, noise = averaged_energy(state.t, state.energy, sums, sd, least)
    of_loadings = context.variance.sum(axis=0) @ np.diag(curvature.corrected)
    shape = fit.records.point[name].shape
    rate = (raised / curvature.share + of_loadings) / 2
    unsure = float((noise / curvature.share / (2 * rate)) ** 2 + curvature.noise_of_number**2)
    return energy, {name: (np.full(shape, entries / 2), np.full(shape, rate))}, unsure
