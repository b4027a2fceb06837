"""VIPS for linear predictors: Gaussian, logistic, binomial and negative binomial regression.

The residual form releases the score at the current mean, so that the noise of the curvature only
preconditions; the absolute form (the paper's) solves with both noisy statistics.
"""

from pymc_dp.methods.gaussian.prior import gaussian_prior
from pymc_dp.methods.linear import predictor
from pymc_dp.methods.linear.clipping import paper_scaled, scaled
from pymc_dp.methods.linear.quadratic import from_origin, own_curvature, variational
from pymc_dp.methods.linear.regression import Form, Structure, roles_of
from pymc_dp.methods.linear.regression import build as build_regression
from pymc_dp.methods.method import Method, OnRealLine
from pymc_dp.methods.vips.settings import Settings
from pymc_dp.model import Records

BOUNDED = Form(
    title="residual",
    expect=lambda records, predictor, backend: variational(predictor),
    next_context=lambda solved, mean, number: (mean, solved.step_covariance),
    scaled=scaled,
    step=0.7,
)
# the curvature of Pólya-Gamma variables is a bound: posteriors come out too narrow with it
OWN = BOUNDED._replace(expect=lambda records, predictor, backend: own_curvature(predictor))
ABSOLUTE = BOUNDED._replace(
    title="absolute",
    expect=lambda records, predictor, backend: from_origin(variational(predictor)),
    step=None,
)
FORMS = {
    "residual": BOUNDED,
    "absolute": ABSOLUTE,
    "paper": ABSOLUTE._replace(title="the paper's, for reproduction", scaled=paper_scaled),
}


def recognise(records: Records) -> Structure:
    """Prove, at made-up points, that the model is a regression with conjugate priors."""
    return Structure(predictor.recognise(records, predictor.predictor_of), gaussian_prior(records))


def roles(records: Records, structure: Structure) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    logistic = "Pólya-Gamma variables make it quadratic"
    return roles_of(
        records, structure, lambda found: logistic if found.augmented else "in closed form"
    )


def build(records: Records, structure: Structure, settings: Settings) -> Method | OnRealLine:
    """Build VIPS for linear predictors: by default rounds, else one of its own forms."""
    if settings.rounds:
        return settings.rounds
    form = FORMS[settings.form or "residual"]
    if form is BOUNDED and settings.noise_aware:
        form = OWN
    return build_regression(records, structure, settings, form)
