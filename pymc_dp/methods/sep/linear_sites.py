"""Sites of records along their linear predictors, from the moments of tilted distributions."""

import numpy as np

from pymc_dp.contributions.contribution import Batch
from pymc_dp.methods.linear.features import Features
from pymc_dp.methods.linear.link import GAUSSIAN, PROBIT, PROBIT_SLOPE
from pymc_dp.methods.linear.predictor import Predictor
from pymc_dp.methods.linear.quadratic import Expect
from pymc_dp.methods.sep.tilted import likelihood_along, probit, quadrature, site
from pymc_dp.records import Records


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
