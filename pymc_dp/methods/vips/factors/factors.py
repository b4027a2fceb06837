"""VIPS for factor models: factor analysis, probabilistic PCA and sigmoid belief networks.

Each release is a residual score of loadings and intercept with one curvature matrix that all rows
of the loadings share, so that noise on the curvature only preconditions.
"""

from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from pymc_dp.accounting.release import ReleaseSpec
from pymc_dp.contributions.local_latents import MOST_LATENTS
from pymc_dp.methods.algorithm import FACTORS
from pymc_dp.methods.conjugate.blocks import dims_of, natural_parameters
from pymc_dp.methods.conjugate.exponential import NORMAL, Natural
from pymc_dp.methods.doubts import Doubt, Kind, quoted
from pymc_dp.methods.method import Compiled, Draws, Method, beside
from pymc_dp.methods.vips.factors.defaults import DEFAULTS
from pymc_dp.methods.vips.factors.model import FactorModel, scores_at_zero
from pymc_dp.methods.vips.factors.state import Fit, Posterior, State, context_of, split, start
from pymc_dp.methods.vips.factors.sums import Infer, contribution, infer_binary, infer_normal
from pymc_dp.methods.vips.factors.updates import update
from pymc_dp.methods.vips.settings import Settings
from pymc_dp.model import Records
from pymc_dp.privacy.query import Query
from pymc_dp.sampling.samplers import Full


def build(records: Records, structure: FactorModel, settings: Settings) -> Method:
    """Build VIPS for a factor model.

    **Privacy.** Each release is one vector: the score, the upper triangle of the curvature
    (off-diagonals times sqrt 2) and, if the noise's precision is a latent, the squared residual;
    clipped jointly. A record's latents are inferred behind the wall and never released.
    """
    fit = Fit(records, structure, settings)
    infer = inference_of(structure, settings.iterations)

    def compile_parts(backend: str) -> Compiled:
        slopes = scores_at_zero(records, structure.predictor, structure.latent, backend)
        contributions = {"statistics": contribution(fit.layout, slopes, infer)}
        return Compiled(contributions, partial(update, fit))

    def plain(state: State, draws: int, rng: np.random.Generator) -> Draws:
        return _draw(structure, state.posterior, draws, rng)

    return Method(
        size=fit.layout.size,
        releases=(_release(structure, settings),),
        compile=compile_parts,
        init=partial(start, fit),
        query=lambda state, rng: Query("statistics", context_of(structure, state.posterior)),
        posterior=plain,
        noise_aware=beside(
            plain,
            lambda state, draws, rng: _draw(
                structure, state.posterior | _widened(structure, state), draws, rng
            ),
        ),
        describe=partial(_describe, fit),
        trace=lambda state: {"noise_of_psi": ((), state.noise_of_psi)},
        settings={"form": "residual"},
        algorithms=(FACTORS,),
        doubts=lambda state: _too_narrow(structure) if settings.noisy else (),
        defaults=(DEFAULTS,),
    )


def _too_narrow(structure: FactorModel) -> tuple[Doubt, ...]:
    integrable = not structure.latent.binary and structure.latent.length <= MOST_LATENTS
    advice = " method='dp_advi' integrates them out." if integrable else ""
    text = (
        f"Intervals of {quoted(structure.prior.families)} are too narrow: closed-form updates take "
        f"the latents of single records as known, and clip sums without centring them.{advice}"
    )
    return (Doubt(Kind.TOO_NARROW, tuple(structure.prior.families), text),)


def inference_of(structure: FactorModel, iterations: int | None) -> Infer:
    """Choose how the records' latents are inferred."""
    if structure.latent.binary:
        sweeps = iterations or DEFAULTS.sweeps
        return partial(infer_binary, structure.curvature, sweeps)
    return partial(infer_normal, np.sqrt(structure.curvature))


def _release(structure: FactorModel, settings: Settings) -> ReleaseSpec:
    root = structure.shape[0] ** 0.5
    if not structure.latent.binary:
        count = DEFAULTS.releases if settings.noisy else DEFAULTS.noiseless_releases
        return settings.release_spec(count, DEFAULTS.clip_norm * root)
    rate = 1.0
    if settings.sampling is not Full:
        of_batch = DEFAULTS.binary_batch / (settings.num_records or np.inf)
        rate = min(1.0, max(DEFAULTS.binary_sample_rate, of_batch))
    return settings.release_spec(DEFAULTS.binary_releases, DEFAULTS.binary_clip_norm * root, rate)


def _draw(
    structure: FactorModel, posterior: Posterior, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    families = structure.prior.families.items()
    return {name: family.sample(posterior[name], draws, rng) for name, family in families}


def _widened(structure: FactorModel, state: State) -> Posterior:
    """Loadings, intercept and the outcomes' precision, with variances that include the noise."""
    wide: Posterior = {}
    for name, noise in _noise_sd(structure, state).items():
        mean, sd = NORMAL.moments(state.posterior[name])
        precision = 1 / (sd**2 + noise**2)
        wide[name] = (mean * precision, precision)
    if precision_name := structure.predictor.precision:
        wide[precision_name] = wider_gamma(
            state.posterior[precision_name], state.noise_of_precision
        )
    return wide


def wider_gamma(eta: Natural, noise: float) -> Natural:
    """Add to the relative variance of a Gamma, and keep its mean.

    ``eta`` is the shape less one, and the rate.

    >>> wider_gamma((np.array(99.0), np.array(50.0)), 0.01)
    (array(49.), array(25.))
    """
    shape, rate = eta[0] + 1, eta[1]
    wider = 1 / (1 / shape + noise)
    return np.asarray(wider - 1), np.asarray(rate * wider / shape)


def _noise_sd(structure: FactorModel, state: State) -> dict[str, np.ndarray]:
    sd = np.broadcast_to(np.sqrt(state.noise), (structure.shape[0], len(state.noise)))
    return split(structure, sd)


def _describe(fit: Fit, state: State) -> xr.Dataset:
    """Show moments of loadings, intercept and log odds; natural parameters of the other blocks."""
    records, structure = fit.records, fit.structure
    variables: dict[str, Any] = {}
    for name in structure.moved:
        mean, sd = NORMAL.moments(state.posterior[name])
        dims = dims_of(records, name)
        variables |= {f"{name}.mean": (dims, mean), f"{name}.sd": (dims, sd)}
    for name, sd in _noise_sd(structure, state).items():
        variables[f"{name}.noise_sd"] = (dims_of(records, name), sd)
    others = {name: structure.prior.families[name] for name in fit.following}
    return xr.Dataset(variables | natural_parameters(records, others, state.posterior))
