"""Bayesian networks by stochastic expectation propagation: what is released, and what is shown."""

from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from pymc_dp.methods.blocks.exponential import GAMMA, NORMAL
from pymc_dp.methods.blocks.noise_aware import draw, told_apart
from pymc_dp.methods.blocks.shown import labels_of, natural_parameters
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.sep.independent_prior import natural
from pymc_dp.methods.sep.network_model import Network
from pymc_dp.methods.sep.network_sites import contribution, lengths
from pymc_dp.methods.sep.network_start import scaled_to, scales_of, start_of, typical_of
from pymc_dp.methods.sep.network_steps import Fit, State, begin, of_noise, update
from pymc_dp.methods.sep.settings import Settings
from pymc_dp.query import Query
from pymc_dp.records import Records

RELEASES, NOISELESS_RELEASES = 400, 1000
# records in a batch, and the range of sample rates that follows where their number is declared
BATCH, SAMPLE_RATE, RATES = 500, 0.05, (0.02, 0.5)
# clip norm over the typical norm of a score
CLIP_NORM = 0.5


def build(records: Records, network: Network, settings: Settings) -> Method:
    """Build stochastic expectation propagation for a network.

    Notes
    -----
    **Privacy.** Each release is one vector: scores and precisions of the weights' sites, the site
    of the noise's precision and a one. Every part is shortened to its share of the clip norm, and
    the whole is clipped. The clip norm is public: it comes from made-up records. All else is
    post-processing.
    """
    prior = network.prior
    _, precision = natural(prior, prior.start())
    size = scales_of(records, network, precision)
    rng = np.random.default_rng(0)
    typical = typical_of(records, network, start_of(records, network, size, rng), size)
    count = RELEASES if settings.noise else NOISELESS_RELEASES
    release = settings.as_release(count, CLIP_NORM * typical.score, sample_rate_of(settings))
    scales = scaled_to(release.clip_norm, typical, network.output.precision is not None)
    fit = Fit(network, settings, release.count, scales, size, typical.curvature)
    return Method(
        size=sum(lengths(prior.d)),
        releases=(release,),
        compile=lambda backend: Compiled(
            {"sites": contribution(records, network, scales, backend)}, partial(update, fit)
        ),
        init=lambda rng: begin(fit, start_of(records, network, size, rng)),
        query=lambda state, rng: Query("sites", state.asked),
        posterior=lambda state, draws, rng: _draw(fit, state, state.variance, draws, rng),
        noise_aware=partial(_draw_with_noise, fit),
        describe=partial(_describe, records, fit),
        trace=lambda state: {
            "mean_path": (("gaussian",), state.mean),
            "step": ((), state.step),
        },
        settings={"form": "damped"},
    )


def sample_rate_of(settings: Settings) -> float:
    """Batches of some hundred records, if the number of records is declared."""
    if settings.sampling == "full":
        return 1.0
    if settings.num_records is None:
        return SAMPLE_RATE
    return float(np.clip(BATCH / settings.num_records, *RATES))


def _draw(
    fit: Fit, state: State, variance: np.ndarray, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    mean, sd = state.average.mean, variance**0.5
    weights = mean + sd * rng.normal(size=(draws, len(mean)))
    gammas = {name: GAMMA.sample(eta, draws, rng) for name, eta in state.gammas.items()}
    return fit.network.prior.point(weights) | gammas


def _draw_with_noise(
    fit: Fit, state: State, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    values = _draw(fit, state, state.variance + state.average.noise, draws, rng)
    if fit.of_noise:
        says = of_noise(fit, state.sites, state.variances)
        told = told_apart(state.gammas[fit.of_noise], says, state.variances.noise)
        values[fit.of_noise] = draw(GAMMA, told, draws, rng)
    return values


def _describe(records: Records, fit: Fit, state: State) -> xr.Dataset:
    """Show moments and natural parameters, and the privacy noise on the mean."""
    prior, mean = fit.network.prior, state.average.mean
    variables: dict[str, Any] = {
        "mean_vector": ("gaussian", mean),
        "standard_deviation": ("gaussian", state.variance**0.5),
        "noise_sd": ("gaussian", state.average.noise**0.5),
    }
    parts = (prior.point(mean / state.variance), prior.point(1 / state.variance))
    weights = {name: (parts[0][name], parts[1][name]) for name in prior.shapes}
    variables |= natural_parameters(records, dict.fromkeys(weights, NORMAL), weights)
    variables |= natural_parameters(records, dict.fromkeys(state.gammas, GAMMA), state.gammas)
    labels = labels_of(records, prior.shapes)
    return xr.Dataset(variables, {"gaussian": labels})
