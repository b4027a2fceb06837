"""VIPS for factor models: factor analysis, probabilistic PCA and sigmoid belief networks.

Each release is a residual score of loadings and intercept with one curvature matrix that all rows
of the loadings share, so that noise on the curvature only preconditions.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.special import expit

from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.vips.binary_latents import SWEEPS, binary_latents
from pymc_dp.methods.vips.expectation import in_turn, prior_says
from pymc_dp.methods.vips.exponential import NORMAL, Natural
from pymc_dp.methods.vips.factor_blocks import (
    Posterior,
    asked_of,
    blocks_of,
    natural,
    side_by_side,
)
from pymc_dp.methods.vips.factor_model import FactorModel, slopes_of
from pymc_dp.methods.vips.factor_steps import (
    Curvature,
    averaged,
    averaged_energy,
    length,
    noise_spread,
    solve_rows,
)
from pymc_dp.methods.vips.factor_sums import (
    Asked,
    Inference,
    Sums,
    contribution,
    size_of,
    split,
)
from pymc_dp.methods.vips.normal_latents import normal_latents
from pymc_dp.methods.vips.result import dims_of, natural_parameters
from pymc_dp.methods.vips.settings import Settings
from pymc_dp.records import Records
from pymc_dp.release import Release
from pymc_dp.wall import Noisy, Query

# Gaussian latents: all records, whose latents cost little; binary ones: batches
RELEASES, BINARY_RELEASES, NOISELESS_RELEASES = 20, 40, 100
BINARY_SAMPLE_RATE = 0.05
# rows of a batch of binary latents, where the number of records is public
BINARY_BATCH = 3000
# the clip norm over the square root of psi's length: residuals near 1, or near 1/2
CLIP_NORM, BINARY_CLIP_NORM = 1.0, 0.5
# loadings start this far apart, unless the author's own initial values differ
START = 0.1
# log odds of latents stay where at least this share of the records has each value
LEAST_SHARE = 1e-4


class State(NamedTuple):
    """Where a fit stands: released values and what follows from them.

    Attributes
    ----------
    t : int
    curvature : (K + 1, K + 1)
        Average of the released curvatures.
    energy : float
        Average of the released energies.
    posterior : {latent: natural parameters}
    noise : (K + 1,)
        Variance of the privacy noise on an entry of each column of the means.
    noise_of_psi : float
        Predicted standard deviation of one full step's noise in a predictor, relative to its own
        scale.
    """

    t: int
    curvature: np.ndarray
    energy: float
    posterior: Posterior
    noise: np.ndarray
    noise_of_psi: float


class _Fit(NamedTuple):
    """What the updates of one fit share; public values and compiled priors."""

    records: Records
    structure: FactorModel
    settings: Settings

    @property
    def moved(self) -> list[str]:
        """The blocks that scores move; the others follow from them in closed form."""
        log_odds = self.structure.latent.log_odds
        return [*blocks_of(self.structure), *([log_odds] if log_odds else [])]

    def prior_says(self, name: str, posterior: Posterior) -> Natural:
        """Return what the prior says about one block."""
        return prior_says(name, self.structure.messages, self.structure.families, posterior)

    def in_turn(self, posterior: Posterior, says: Posterior) -> Posterior:
        """Update the blocks that no score moves."""
        families = self.structure.families
        nothing = {
            name: (np.zeros(self.records.point[name].shape),) * len(family.parameters)
            for name, family in families.items()
            if name not in self.moved
        }
        return in_turn(nothing, self.structure.messages, families, nothing | says, posterior)


def build(records: Records, structure: FactorModel, settings: Settings) -> Method:
    """Build VIPS for a factor model.

    Notes
    -----
    **Privacy.** Each release is one vector: the score, the upper triangle of the curvature
    (off-diagonals times sqrt 2) and, if the noise's precision is a latent, the squared residual;
    clipped jointly. A record's latents are inferred behind the wall and never released.
    """
    if settings.form not in (None, "residual"):
        raise ValueError(f"form={settings.form!r} is not for factor models; leave it out.")
    fit = _Fit(records, structure, settings)
    inference = inference_of(structure, settings.iterations)
    return Method(
        size=size_of(structure.shape, inference.energies),
        releases=(_release(structure, settings),),
        compile=lambda backend: Compiled(
            {
                "statistics": contribution(
                    structure.shape, slopes_of(records, structure, backend), inference
                )
            },
            partial(_update, fit),
        ),
        init=partial(_init, fit),
        query=lambda state, rng: Query("statistics", asked_of(structure, state.posterior)),
        posterior=lambda state, draws, rng: {
            name: family.sample(state.posterior[name], draws, rng)
            for name, family in structure.families.items()
        },
        describe=partial(_describe, fit),
        trace=lambda state: {"noise_of_psi": ((), state.noise_of_psi)},
        settings={"form": "residual"},
    )


def inference_of(structure: FactorModel, iterations: int | None) -> Inference:
    """Choose how the records' latents are inferred."""
    if structure.latent.binary:
        return binary_latents(structure.curvature, iterations or SWEEPS)
    return normal_latents(np.sqrt(structure.curvature), structure.predictor.precision is not None)


def _release(structure: FactorModel, settings: Settings) -> Release:
    root = structure.shape[0] ** 0.5
    if not structure.latent.binary:
        count = RELEASES if settings.noise else NOISELESS_RELEASES
        return settings.as_release(count, CLIP_NORM * root)
    rate = 1.0
    if settings.sampling != "full":
        rate = min(1.0, max(BINARY_SAMPLE_RATE, BINARY_BATCH / (settings.num_records or np.inf)))
    return settings.as_release(BINARY_RELEASES, BINARY_CLIP_NORM * root, rate)


def _init(fit: _Fit, rng: np.random.Generator) -> State:
    """Start with small random loadings; precisions start as if loadings were of unit scale."""
    structure, point = fit.structure, fit.records.point
    posterior = {
        name: (np.zeros(point[name].shape), np.ones(point[name].shape))
        if family is NORMAL
        else family.spread(point[name].shape, rng)
        for name, family in structure.families.items()
    }
    posterior = fit.in_turn(posterior, {})
    for name in fit.moved:
        start = point[name]
        if name == structure.loadings and np.unique(start).size == 1:
            start = START * rng.normal(size=start.shape)
        posterior[name] = (start / START**2, np.full(start.shape, START**-2))
    n = structure.shape[1] + 1
    return State(0, np.eye(n), 0.0, posterior, np.zeros(n), 0.0)


def _update(fit: _Fit, state: State, query: Query, noisy: Noisy) -> State:
    """Average the curvature, move the means, then update everything behind them."""
    structure, asked = fit.structure, query.context
    sd = noisy.sd / noisy.sample_rate
    sums = split(noisy.value / noisy.sample_rate, structure.shape)
    curvature = averaged(state.t, state.curvature, sums, sd, fit.settings.num_records)
    rows = _rows(structure, asked)
    noise_of_psi = sd * rows.psi * float(np.sqrt(curvature.inverse_trace))
    rho = length(state.t, float(np.hypot(noise_of_psi, _of_batch(noisy, rows, curvature))))
    moved, spread = _moved(fit, state.posterior, sums, curvature, rows, rho)
    moved |= _moved_log_odds(fit, state.posterior, curvature, sd, rho)
    energy, says = _noise_says(fit, state, asked, sums, curvature, sd)
    posterior = fit.in_turn(state.posterior | moved, says)
    noise = (1 - rho) ** 2 * state.noise + (rho * sd / curvature.share) ** 2 * spread
    return State(state.t + 1, curvature.average, energy, posterior, noise, noise_of_psi)


class _Rows(NamedTuple):
    """What scores and curvatures are multiplied by, row by row.

    ``psi`` and ``psi_of_batch`` turn noise, and the error of a batch, into steps of psi relative to
    the scale of the outcomes' own noise.
    """

    gain: np.ndarray
    weight: np.ndarray
    psi: float
    psi_of_batch: float


def _of_batch(noisy: Noisy, rows: _Rows, curvature: Curvature) -> float:
    """Predicted standard deviation of a step in psi that comes from drawing a batch."""
    n, rate = len(curvature.average), noisy.sample_rate
    return float(rows.psi_of_batch * np.sqrt(n * (1 - rate) / (rate * curvature.count)))


def _rows(structure: FactorModel, asked: Asked) -> _Rows:
    weight = asked.precision * structure.curvature
    gain = asked.precision * structure.gain
    if structure.latent.binary:
        of_psi = float(np.mean(1 / weight))
        return _Rows(gain, weight, of_psi, of_psi**0.5)
    return _Rows(gain, weight, asked.precision**0.5, 1.0)


def _moved(
    fit: _Fit,
    posterior: Posterior,
    sums: Sums,
    curvature: Curvature,
    rows: _Rows,
    rho: float,
) -> tuple[Posterior, np.ndarray]:
    """Take a step of length rho towards (w H + alpha)^-1 (g - alpha m); also its noise."""
    structure = fit.structure
    blocks = blocks_of(structure)
    linear, alpha = side_by_side(structure, {x: fit.prior_says(x, posterior) for x in blocks})
    mean, _ = side_by_side(structure, {x: NORMAL.moments(posterior[x]) for x in blocks})
    slope = rows.gain[:, None] * sums.score / curvature.share + linear - alpha * mean
    n = mean.shape[1] if structure.intercept else mean.shape[1] - 1
    shared = curvature.floored[:n, :n]
    mean[:, :n] += rho * solve_rows(shared, rows.weight, alpha[:, :n], slope[:, :n])
    precision = rows.weight[:, None] * np.diag(curvature.floored) + alpha
    spread = np.zeros(mean.shape[1])
    spread[:n] = np.mean(rows.gain**2) * noise_spread(shared, rows.weight, alpha[:, :n])
    return natural(structure, mean, 1 / precision), spread


def _moved_log_odds(
    fit: _Fit, posterior: Posterior, curvature: Curvature, sd: float, rho: float
) -> Posterior:
    """Newton step of the latents' prior log odds, of which the curvature holds the sums."""
    name = fit.structure.latent.log_odds
    if name is None:
        return {}
    count, shape = curvature.count, fit.records.point[name].shape
    least = count * LEAST_SHARE
    ones = np.clip(curvature.average[:-1, -1] / curvature.share, least, count - least)
    b = NORMAL.reference(posterior[name])
    linear, alpha = fit.prior_says(name, posterior)
    precision = count / 4 + alpha
    slope = ones.reshape(shape) - count * expit(b) + linear - alpha * b
    return {name: ((b + rho * slope / precision) * precision, precision)}


def _noise_says(
    fit: _Fit, state: State, asked: Asked, sums: Sums, curvature: Curvature, sd: float
) -> tuple[float, Posterior]:
    """Average the energy, and what it says about the noise's precision."""
    structure = fit.structure
    name = structure.predictor.precision
    if name is None:
        return 0.0, {}
    entries = structure.shape[0] * curvature.count
    energy, floored = averaged_energy(state.t, state.energy, sums, sd, entries * curvature.share)
    of_loadings = asked.variance.sum(axis=0) @ np.diag(curvature.floored)
    shape = fit.records.point[name].shape
    rate = (floored / curvature.share + of_loadings) / 2
    return energy, {name: (np.full(shape, entries / 2), np.full(shape, rate))}


def _describe(fit: _Fit, state: State) -> xr.Dataset:
    """Show moments of loadings, intercept and log odds; natural parameters of the other blocks."""
    records, structure = fit.records, fit.structure
    variables = {}
    for name in fit.moved:
        mean, sd = NORMAL.moments(state.posterior[name])
        dims = dims_of(records, name)
        variables |= {f"{name}.mean": (dims, mean), f"{name}.sd": (dims, sd)}
    sd = np.broadcast_to(np.sqrt(state.noise), (structure.shape[0], len(state.noise)))
    for name, (eta, lam) in natural(structure, sd, np.ones_like(sd)).items():
        variables[f"{name}.noise_sd"] = (dims_of(records, name), eta / lam)
    others = {x: f for x, f in structure.families.items() if x not in fit.moved}
    return xr.Dataset(variables | natural_parameters(records, others, state.posterior))
