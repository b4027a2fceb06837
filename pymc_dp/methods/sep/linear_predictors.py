"""Stochastic expectation propagation for likelihoods of one linear predictor."""

import numpy as np

from pymc_dp.methods.blocks.gaussian_prior import gaussian_prior
from pymc_dp.methods.linear import predictor
from pymc_dp.methods.linear.clipping import scales
from pymc_dp.methods.linear.link import GAUSSIAN, PROBIT
from pymc_dp.methods.linear.predictor import linear_predictor
from pymc_dp.methods.linear.quadratic import at_mean
from pymc_dp.methods.linear.regression import Form, Structure, noise_of_score, roles_of
from pymc_dp.methods.linear.regression import build as build_regression
from pymc_dp.methods.linear.solve import Solved
from pymc_dp.methods.method import Method
from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.methods.sep import algorithm3
from pymc_dp.methods.sep.linear_sites import sites
from pymc_dp.methods.sep.settings import STEP, Settings
from pymc_dp.records import Records


def recognise(records: Records) -> Structure:
    """Prove, at made-up points, that every likelihood has one linear predictor.

    Raises
    ------
    NotConjugateError
        With what does not fit.
    """
    predictors = predictor.recognise(records, linear_predictor)
    for name, found in zip(records.term_names, predictors, strict=True):
        if found.form != GAUSSIAN and np.prod(found.shape) != 1:
            raise NotConjugateError(
                f"the likelihood of `{name}` has several predictors, and is not Gaussian"
            )
    return Structure(predictors, gaussian_prior(records))


def roles(records: Records, structure: Structure) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    how = {GAUSSIAN: "exact sites", PROBIT: "tilted moments in closed form"}
    return roles_of(
        records, structure, lambda found: how.get(found.form, "tilted moments by quadrature")
    )


def cavity(solved: Solved, mean: np.ndarray, number: float) -> tuple[np.ndarray, np.ndarray]:
    """Take one of N equal sites out of the posterior."""
    share = 1 / max(number, 2.0)
    sites = np.linalg.inv(solved.step_covariance) - solved.precision
    covariance = np.linalg.inv(solved.precision + (1 - share) * sites)
    return mean + share * covariance @ (solved.linear - solved.precision @ mean), covariance


DAMPED = Form(
    title="damped",
    expect=sites,
    centre=at_mean,
    advance=lambda solved, averages, latest, mean, step: solved.residual(latest, mean, step),
    believe=cavity,
    scales=scales,
    noise=noise_of_score,
    step=STEP,
)


def build(records: Records, structure: Structure, settings: Settings) -> Method:
    """Build stochastic expectation propagation for linear predictors, in one of its forms."""
    if settings.form == "algorithm3":
        return algorithm3.build(records, structure, settings)
    form = DAMPED if settings.step is None else DAMPED._replace(step=settings.step)
    return build_regression(records, structure, settings, form)
