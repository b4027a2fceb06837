"""Stochastic expectation propagation for likelihoods of one linear predictor."""

import numpy as np

from pymc_dp.contributions.contribution import Batch
from pymc_dp.methods.method import Method
from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.methods.sep import algorithm3
from pymc_dp.methods.sep.settings import STEP, Settings
from pymc_dp.methods.sep.tilted import likelihood_along, probit, quadrature, site
from pymc_dp.methods.vips import predictor
from pymc_dp.methods.vips.clipping import scales
from pymc_dp.methods.vips.features import Features
from pymc_dp.methods.vips.gaussian_prior import gaussian_prior
from pymc_dp.methods.vips.likelihood_form import GAUSSIAN, PROBIT, PROBIT_SLOPE
from pymc_dp.methods.vips.predictor import Predictor, linear_predictor, psi_shape
from pymc_dp.methods.vips.quadratic import Expect
from pymc_dp.methods.vips.regression import Form, Structure
from pymc_dp.methods.vips.regression import build as build_regression
from pymc_dp.methods.vips.solve import Solved
from pymc_dp.methods.vips.trial import made_up_rows
from pymc_dp.records import Records


def recognise(records: Records) -> Structure:
    """Prove, at made-up points, that every likelihood has one linear predictor.

    Raises
    ------
    NotConjugateError
        With what does not fit.
    """
    predictors = predictor.recognise(records, linear_predictor)
    rows = list(made_up_rows(records, np.random.default_rng(0), [1]).values())
    for name, found in zip(records.term_names, predictors, strict=True):
        if found.form != GAUSSIAN and np.prod(psi_shape(records, found, rows)) != 1:
            raise NotConjugateError(
                f"the likelihood of `{name}` has several predictors, and is not Gaussian"
            )
    return Structure(predictors, gaussian_prior(records))


def roles(records: Records, structure: Structure) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    told = dict.fromkeys(structure.prior.shapes, "one Gaussian vector with full covariance")
    told |= dict.fromkeys(structure.prior.gammas, "Gamma block: precision of Gaussian latents")
    how = {GAUSSIAN: "exact sites", PROBIT: "tilted moments in closed form"}
    for name, found in zip(records.term_names, structure.predictors, strict=True):
        if found.precision:
            told[found.precision] = "Gamma block: noise precision"
        told[name] = f"linear predictor, {how.get(found.form, 'tilted moments by quadrature')}"
    return told


def sites(records: Records, found: Predictor, backend: str) -> Expect:
    """Compile a record's site in psi from the cavity's mean and variance."""
    if found.form == GAUSSIAN:
        return _exact
    if found.form == PROBIT:
        return _closed
    along = likelihood_along(records, found, backend)

    def expect(
        batch: Batch, part: Features, mean: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        log_z = quadrature(along, batch, mean[:, 0], variance[:, 0])
        residual, precision = site(log_z, variance[:, 0])
        return residual[:, None], precision[:, None]

    return expect


def _exact(
    batch: Batch, part: Features, mean: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    return part.slope - part.curvature * mean, part.curvature


def _closed(
    batch: Batch, part: Features, mean: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    # log Phi(c psi), with c from its slope at psi = 0
    c = part.slope / PROBIT_SLOPE
    mean, variance = c * mean, c**2 * variance
    residual, precision = site(probit(mean, variance), variance)
    return c * residual, c**2 * precision


def cavity(solved: Solved, mean: np.ndarray, number: float) -> tuple[np.ndarray, np.ndarray]:
    """Take one of N equal sites out of the posterior."""
    share = 1 / max(number, 2.0)
    sites = np.linalg.inv(solved.step_covariance) - solved.precision
    covariance = np.linalg.inv(solved.precision + (1 - share) * sites)
    return mean + share * covariance @ (solved.linear - solved.precision @ mean), covariance


DAMPED = Form(
    title="damped",
    expect=sites,
    centre=lambda rest, psi: psi,
    advance=lambda solved, averages, latest, mean, step: solved.residual(latest, mean, step),
    believe=cavity,
    scales=scales,
    step=STEP,
)


def build(records: Records, structure: Structure, settings: Settings) -> Method:
    """Build stochastic expectation propagation for linear predictors, in one of its forms."""
    if settings.form == "algorithm3":
        return algorithm3.build(records, structure, settings, sites)
    if settings.form not in (None, "damped"):
        raise ValueError(
            f"form={settings.form!r} is unknown for linear predictors: use 'damped' or "
            "'algorithm3'."
        )
    form = DAMPED if settings.step is None else DAMPED._replace(step=settings.step)
    return build_regression(records, structure, settings, form)
