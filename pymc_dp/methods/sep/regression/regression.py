"""Stochastic expectation propagation for likelihoods of one linear predictor."""

import numpy as np

from pymc_dp.contributions.estimating import SITES
from pymc_dp.methods.algorithm import EXPECTATION_PROPAGATION
from pymc_dp.methods.linear import predictor
from pymc_dp.methods.linear.clipping import scaled
from pymc_dp.methods.linear.link import GAUSSIAN, PROBIT
from pymc_dp.methods.linear.predictor import linear_predictor
from pymc_dp.methods.linear.regression import Form, Structure, roles_of
from pymc_dp.methods.linear.regression import build as build_regression
from pymc_dp.methods.linear.solve import Solved
from pymc_dp.methods.method import Method, OnRealLine
from pymc_dp.methods.normal import Cavity, cavity, gaussian_prior
from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.methods.sep.regression.defaults import DEFAULTS
from pymc_dp.methods.sep.regression.tilted import sites
from pymc_dp.methods.sep.settings import Settings
from pymc_dp.model import Records


def recognise(records: Records) -> Structure:
    """Prove, at probe points, that every likelihood has one linear predictor."""
    predictors = predictor.recognise(records, linear_predictor)
    for name, found in zip(records.term_names, predictors, strict=True):
        if found.form != GAUSSIAN and np.prod(found.shape) != 1:
            raise NotConjugateError(
                f"the likelihood of `{name}` has several predictors, and is not Gaussian"
            )
    return Structure(predictors, gaussian_prior(records))


def roles(records: Records, structure: Structure) -> dict[str, str]:
    """Describe the role of each latent and each term in the updates."""
    how = {GAUSSIAN: "exact sites", PROBIT: "tilted moments in closed form"}
    return roles_of(
        records, structure, lambda found: how.get(found.form, "tilted moments by quadrature")
    )


def cavity_of(solved: Solved, mean: np.ndarray, number: float) -> Cavity:
    """Take one of N equal sites out of the posterior."""
    sites = np.linalg.inv(solved.step_covariance) - solved.precision
    return cavity(solved.linear, solved.precision, sites, mean, number)


DAMPED = Form(
    title="damped",
    algorithm=EXPECTATION_PROPAGATION,
    expect=sites,
    next_context=cavity_of,
    scaled=scaled,
    step=DEFAULTS.step,
    defaults=(DEFAULTS,),
)


def build(records: Records, structure: Structure, settings: Settings) -> Method | OnRealLine:
    """Build a method for linear predictors: by default rounds, else damped updates of sites."""
    if rounds := settings.rounds_from(estimating=SITES):
        return rounds
    form = DAMPED if settings.step is None else DAMPED._replace(step=settings.step)
    return build_regression(records, structure, settings, form)
