"""VIPS for factor models: factor analysis, probabilistic PCA and sigmoid belief networks.

Each release is a residual score of loadings and intercept with one curvature matrix that all rows
of the loadings share, so that noise on the curvature only preconditions.
"""

from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from pymc_dp.methods.blocks.exponential import NORMAL
from pymc_dp.methods.blocks.shown import dims_of, natural_parameters
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.vips.binary_latents import SWEEPS, binary_latents
from pymc_dp.methods.vips.factor_blocks import Posterior, asked_of, natural
from pymc_dp.methods.vips.factor_fit import Fit, State, start
from pymc_dp.methods.vips.factor_likelihood import slopes_of
from pymc_dp.methods.vips.factor_model import FactorModel
from pymc_dp.methods.vips.factor_sums import Inference, contribution, size_of
from pymc_dp.methods.vips.factor_updates import update
from pymc_dp.methods.vips.normal_latents import normal_latents
from pymc_dp.methods.vips.settings import Settings
from pymc_dp.query import Query
from pymc_dp.records import Records
from pymc_dp.release import Release

# Gaussian latents: all records, whose latents cost little; binary ones: batches
RELEASES, BINARY_RELEASES, NOISELESS_RELEASES = 20, 40, 100
BINARY_SAMPLE_RATE = 0.05
# rows of a batch of binary latents, where the number of records is public
BINARY_BATCH = 3000
# the clip norm over the square root of psi's length: residuals near 1 times (z, 1), or near 1/2
CLIP_NORM, BINARY_CLIP_NORM = 2.5, 0.5


def build(records: Records, structure: FactorModel, settings: Settings) -> Method:
    """Build VIPS for a factor model.

    Notes
    -----
    **Privacy.** Each release is one vector: the score, the upper triangle of the curvature
    (off-diagonals times sqrt 2) and, if the noise's precision is a latent, the squared residual;
    clipped jointly. A record's latents are inferred behind the wall and never released.
    """
    fit = Fit(records, structure, settings)
    inference = inference_of(structure, settings.iterations)
    return Method(
        size=size_of(structure.shape, inference.energies),
        releases=(_release(structure, settings),),
        compile=partial(_compiled, fit, inference),
        init=partial(start, fit),
        query=lambda state, rng: Query("statistics", asked_of(structure, state.posterior)),
        posterior=lambda state, draws, rng: _draw(structure, state.posterior, draws, rng),
        noise_aware=lambda state, draws, rng: _draw(
            structure, state.posterior | _widened(structure, state), draws, rng
        ),
        describe=partial(_describe, fit),
        trace=lambda state: {"noise_of_psi": ((), state.noise_of_psi)},
        settings={"form": "residual"},
    )


def inference_of(structure: FactorModel, iterations: int | None) -> Inference:
    """Choose how the records' latents are inferred."""
    if structure.latent.binary:
        return binary_latents(structure.curvature, iterations or SWEEPS)
    return normal_latents(np.sqrt(structure.curvature), structure.predictor.precision is not None)


def _compiled(fit: Fit, inference: Inference, backend: str) -> Compiled:
    structure = fit.structure
    slopes = slopes_of(fit.records, structure.predictor, structure.latent, backend)
    contributions = {"statistics": contribution(structure.shape, slopes, inference)}
    return Compiled(contributions, partial(update, fit))


def _release(structure: FactorModel, settings: Settings) -> Release:
    root = structure.shape[0] ** 0.5
    if not structure.latent.binary:
        count = RELEASES if settings.noise else NOISELESS_RELEASES
        return settings.as_release(count, CLIP_NORM * root)
    rate = 1.0
    if settings.sampling != "full":
        rate = min(1.0, max(BINARY_SAMPLE_RATE, BINARY_BATCH / (settings.num_records or np.inf)))
    return settings.as_release(BINARY_RELEASES, BINARY_CLIP_NORM * root, rate)


def _draw(
    structure: FactorModel, posterior: Posterior, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    families = structure.families.items()
    return {name: family.sample(posterior[name], draws, rng) for name, family in families}


def _widened(structure: FactorModel, state: State) -> Posterior:
    """Loadings and intercept whose variances include the privacy noise."""
    wide: Posterior = {}
    for name, noise in _noise_sd(structure, state).items():
        mean, sd = NORMAL.moments(state.posterior[name])
        precision = 1 / (sd**2 + noise**2)
        wide[name] = (mean * precision, precision)
    return wide


def _noise_sd(structure: FactorModel, state: State) -> dict[str, np.ndarray]:
    sd = np.broadcast_to(np.sqrt(state.noise), (structure.shape[0], len(state.noise)))
    blocks = natural(structure, sd, np.ones_like(sd))
    return {name: eta / precision for name, (eta, precision) in blocks.items()}


def _describe(fit: Fit, state: State) -> xr.Dataset:
    """Show moments of loadings, intercept and log odds; natural parameters of the other blocks."""
    records, structure = fit.records, fit.structure
    variables: dict[str, Any] = {}
    for name in fit.moved:
        mean, sd = NORMAL.moments(state.posterior[name])
        dims = dims_of(records, name)
        variables |= {f"{name}.mean": (dims, mean), f"{name}.sd": (dims, sd)}
    for name, sd in _noise_sd(structure, state).items():
        variables[f"{name}.noise_sd"] = (dims_of(records, name), sd)
    others = {name: structure.families[name] for name in fit.following}
    return xr.Dataset(variables | natural_parameters(records, others, state.posterior))
