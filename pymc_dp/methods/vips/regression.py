"""VIPS for linear predictors: Gaussian, logistic, binomial and negative binomial regression.

The residual form releases the score at the current mean, so that the noise of the curvature only
preconditions; the absolute form (the paper's) solves with both noisy statistics.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray as xr

from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.vips import predictor
from pymc_dp.methods.vips.clipping import (
    Scale,
    first_scale,
    papers_scales,
    rescaled,
    scales,
    with_residual,
)
from pymc_dp.methods.vips.exponential import GAMMA
from pymc_dp.methods.vips.gaussian_prior import Gammas, GaussianPrior, gaussian_prior
from pymc_dp.methods.vips.predictor import Predictor
from pymc_dp.methods.vips.quadratic import (
    Asked,
    Scales,
    Sums,
    blend,
    contribution,
    noise_of,
    size_of,
    split,
)
from pymc_dp.methods.vips.result import natural_parameters
from pymc_dp.methods.vips.settings import Settings
from pymc_dp.methods.vips.solve import Solved, solve
from pymc_dp.records import Records
from pymc_dp.wall import Noisy, Query

FIRST_STEP, STEP = 1.0, 0.7
RELEASES = 10
# without noise, more steps cost nothing
NOISELESS_RELEASES = 100


class State(NamedTuple):
    """Where a fit stands: released values and what follows from them.

    Attributes
    ----------
    t : int
    averages, variances : Sums
        Released sums, averaged with steps rho_t, and the noise's variance on an entry of each.
    asked : Asked
        Where the next batch is asked, and with which scales.
    scale : Scale
        Its clip norm, and the length of a record that this was made for.
    mean, covariance : (d,), (d, d)
        Weighted average of the means along the fit, and the posterior covariance.
    noise : (d, d)
        Covariance of the privacy noise on ``mean``.
    gammas : {latent: natural parameters}
    """

    t: int
    averages: Sums
    variances: Sums
    asked: Asked
    scale: Scale
    mean: np.ndarray
    covariance: np.ndarray
    noise: np.ndarray
    gammas: Gammas


class Form(NamedTuple):
    """How the mean follows from the sums.

    Attributes
    ----------
    centre : (psi without the latents, psi at their mean) -> psi
        Where a record's score is taken.
    advance : (solved, averages, latest, mean, step) -> mean
    scales : Scale -> Scales
    """

    centre: Callable[[np.ndarray, np.ndarray], np.ndarray]
    advance: Callable[[Solved, Sums, Sums, np.ndarray, float], np.ndarray]
    scales: Callable[[Scale], Scales]


FORMS = {
    "residual": Form(
        lambda rest, psi: psi,
        lambda solved, averages, latest, mean, step: solved.residual(latest, mean, step),
        scales,
    ),
    "absolute": Form(
        lambda rest, psi: rest,
        lambda solved, averages, latest, mean, step: solved.absolute(averages),
        scales,
    ),
}
FORMS["paper"] = FORMS["absolute"]._replace(scales=papers_scales)


class Structure(NamedTuple):
    """A model with linear predictors and conjugate priors."""

    predictors: tuple[Predictor, ...]
    prior: GaussianPrior


def recognise(records: Records) -> Structure:
    """Prove, at made-up points, that the model is a regression with conjugate priors.

    Raises
    ------
    NotConjugateError
        With what does not fit.
    """
    return Structure(predictor.recognise(records), gaussian_prior(records))


def roles(records: Records, structure: Structure) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    told = dict.fromkeys(structure.prior.shapes, "one Gaussian vector with full covariance")
    told |= dict.fromkeys(structure.prior.gammas, "Gamma block: precision of Gaussian latents")
    for name, found in zip(records.term_names, structure.predictors, strict=True):
        if found.precision:
            told[found.precision] = "Gamma block: noise precision"
        told[name] = (
            "linear predictor, logistic: Pólya-Gamma variables make it quadratic"
            if found.augmented
            else "linear predictor, Gaussian"
        )
    return told


def build(records: Records, structure: Structure, settings: Settings) -> Method:
    """Build VIPS for linear predictors.

    Notes
    -----
    **Privacy.** Each release is one vector: score, curvature (its upper triangle, off-diagonals
    times sqrt 2), noise statistics and a one, clipped jointly. The clip norm of all releases but
    the first is a function of the first. All else is post-processing.
    """
    predictors, prior = structure
    name = "residual" if settings.form is None else settings.form
    if name not in FORMS:
        raise ValueError(f"form={name!r} is unknown for linear predictors: use {sorted(FORMS)}.")
    start = first_scale(records, predictors, prior.d, settings)
    count = RELEASES if settings.noise else NOISELESS_RELEASES
    release = settings.as_release(count, start.clip_norm)
    fit = _Fit(structure, FORMS[name], settings, start, release.count)

    def compile_parts(backend: str) -> Compiled:
        statistics = contribution(
            records, predictors, prior.d, fit.form.centre, settings.feature_bound, backend
        )
        return Compiled({"statistics": statistics}, partial(_update, fit))

    return Method(
        size=size_of(prior.d, predictors),
        releases=(release,),
        compile=compile_parts,
        init=lambda rng: _init(fit),
        query=lambda state, rng: Query("statistics", state.asked, state.scale.clip_norm),
        posterior=partial(_posterior, prior),
        describe=partial(_describe, records, prior),
        trace=lambda state: {
            "mean_path": (("gaussian",), state.asked.mean),
            "clip_norm": ((), state.scale.clip_norm),
        },
        settings={"form": "the paper's, for reproduction" if name == "paper" else name},
    )


class _Fit(NamedTuple):
    """What the updates of one fit share; public values and compiled priors."""

    structure: Structure
    form: Form
    settings: Settings
    start: Scale
    releases: int


def _init(fit: _Fit) -> State:
    predictors, prior = fit.structure
    d, count = prior.d, len(predictors)
    of_noise = np.zeros(count)
    nothing = Sums(np.zeros((count, d)), np.zeros((count, d, d)), of_noise, of_noise, np.zeros(()))
    quiet = Sums(*np.zeros(5))
    solved = solve(predictors, prior, nothing, quiet, np.zeros(d), prior.start())
    mean, covariance = solved.covariance @ solved.linear, solved.covariance
    scale = _following(fit, fit.start, solved)
    asked = Asked(mean, 0 * covariance, fit.form.scales(scale))
    return State(0, nothing, quiet, asked, scale, mean, covariance, 0 * covariance, solved.gammas)


def _update(fit: _Fit, state: State, query: Query, noisy: Noisy) -> State:
    """Average the sums, update precisions, then move the mean."""
    predictors, prior = fit.structure
    t, asked = state.t, state.asked
    sd = noisy.sd / noisy.sample_rate
    latest = split(noisy.value / noisy.sample_rate, prior.d, len(predictors), asked.scales)
    noise = noise_of(sd, asked.scales)
    # the first release is a pilot: it enters no average
    rho = fit.settings.rate(max(t - 1, 0))
    averages = blend(state.averages, latest, 1 - rho, rho)
    variances = blend(state.variances, noise, (1 - rho) ** 2, rho**2)
    solved = solve(predictors, prior, averages, variances, asked.mean, state.gammas)
    step = FIRST_STEP if t < 2 else STEP
    mean = fit.form.advance(solved, averages, latest, asked.mean, step)
    scale = rescaled(state.scale, latest, noise, fit.releases) if t == 0 else state.scale
    scale = _following(fit, scale, solved)
    # weights of the average of the means grow like t
    weight = 2 / (t + 1) if t else 1.0
    spread = sd * np.linalg.norm(solved.weights) * solved.step_covariance
    return State(
        t + 1,
        averages,
        variances,
        Asked(mean, solved.step_covariance, fit.form.scales(scale)),
        scale,
        state.mean + weight * (mean - state.mean),
        solved.covariance,
        (1 - weight) ** 2 * state.noise + weight**2 * spread @ spread,
        solved.gammas,
    )


def _following(fit: _Fit, scale: Scale, solved: Solved) -> Scale:
    """Let the clip norm follow the noise precisions, where the model has any."""
    told = [
        weight
        for found, weight in zip(fit.structure.predictors, solved.weights, strict=True)
        if found.precision
    ]
    return with_residual(scale, float(min(told) ** -0.5)) if told else scale


def _posterior(
    prior: GaussianPrior, state: State, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    gaussian = rng.multivariate_normal(state.mean, state.covariance, draws, method="cholesky")
    gammas = {name: GAMMA.sample(eta, draws, rng) for name, eta in state.gammas.items()}
    return prior.point(gaussian) | gammas


def _describe(records: Records, prior: GaussianPrior, state: State) -> xr.Dataset:
    """Show the Gaussian posterior, its natural parameters, and the noise on its mean."""
    labels = [label for label in records.labels if label.split("[")[0] in prior.shapes]
    precision = np.linalg.inv(state.covariance)
    square = ("gaussian", "gaussian_")
    variables = {
        "mean_vector": ("gaussian", state.mean),
        "standard_deviation": ("gaussian", np.sqrt(np.diag(state.covariance))),
        "covariance_matrix": (square, state.covariance),
        "noise_covariance": (square, state.noise),
        "precision_mean": ("gaussian", precision @ state.mean),
        "precision_matrix": (square, precision),
    }
    families = dict.fromkeys(state.gammas, GAMMA)
    variables |= natural_parameters(records, families, state.gammas)
    return xr.Dataset(variables, {"gaussian": labels, "gaussian_": labels})
