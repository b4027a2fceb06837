"""VIPS for linear predictors: Gaussian, logistic, binomial and negative binomial regression.

The residual form releases the score at the current mean, so that the noise of the curvature only
preconditions; the absolute form (the paper's) solves with both noisy statistics.
"""

from pymc_dp.methods.blocks.gaussian_prior import gaussian_prior
from pymc_dp.methods.linear import predictor
from pymc_dp.methods.linear.clipping import papers_scales, scales
from pymc_dp.methods.linear.quadratic import at_mean, at_origin, own_curvature, variational
from pymc_dp.methods.linear.regression import (
    Form,
    Structure,
    noise_of_both,
    noise_of_score,
    roles_of,
)
from pymc_dp.methods.linear.regression import build as build_regression
from pymc_dp.methods.method import Method
from pymc_dp.methods.vips.settings import Settings
from pymc_dp.records import Records

BOUNDED = Form(
    title="residual",
    expect=lambda records, predictor, backend: variational(predictor),
    centre=at_mean,
    advance=lambda solved, averages, latest, mean, step: solved.residual(latest, mean, step),
    believe=lambda solved, mean, number: (mean, solved.step_covariance),
    scales=scales,
    noise=noise_of_score,
    step=0.7,
)
# the curvature of Pólya-Gamma variables is a bound: posteriors come out too narrow with it
OWN = BOUNDED._replace(expect=lambda records, predictor, backend: own_curvature(predictor))
ABSOLUTE = BOUNDED._replace(
    title="absolute",
    centre=at_origin,
    advance=lambda solved, averages, latest, mean, step: solved.absolute(averages),
    noise=noise_of_both,
    step=None,
)
FORMS = {
    "residual": BOUNDED,
    "absolute": ABSOLUTE,
    "paper": ABSOLUTE._replace(title="the paper's, for reproduction", scales=papers_scales),
}


def recognise(records: Records) -> Structure:
    """Prove, at made-up points, that the model is a regression with conjugate priors.

    Raises
    ------
    NotConjugateError
        With what does not fit.
    """
    return Structure(predictor.recognise(records, predictor.predictor_of), gaussian_prior(records))


def roles(records: Records, structure: Structure) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    logistic = "logistic: Pólya-Gamma variables make it quadratic"
    return roles_of(records, structure, lambda found: logistic if found.augmented else "Gaussian")


def build(records: Records, structure: Structure, settings: Settings) -> Method:
    """Build VIPS for linear predictors, in one of its forms."""
    form = FORMS[settings.form or "residual"]
    if form is BOUNDED and settings.noise_aware:
        form = OWN
    return build_regression(records, structure, settings, form)
