"""What a round says of a log posterior, written down."""

from typing import Any

import numpy as np

from pymc_dp.methods.gaussian.belief import Curvature
from pymc_dp.methods.gaussian.local_posterior import LocalPosterior


def local_posterior_of(H: np.ndarray, prior: np.ndarray, **others: Any) -> LocalPosterior:
    """A likelihood and a prior of these curvatures, (d, d), in a unit's reach; others as given."""
    d = len(H)
    curvature = Curvature(H, np.eye(d))
    found = LocalPosterior(
        gradient=np.ones(d),
        gradient_noise=np.eye(d),
        held=np.full(d, False),
        believed=curvature,
        spectrum=curvature.spectrum(),
        likelihood_curvature=H,
        independent_diagonal=np.diag(H),
        along_last_step=np.zeros((d, d)),
        prior_precision=prior,
        prior_at_start=prior,
        prior_gradient=np.zeros_like,
        whitening=np.eye(d),
        number=1.0,
        reach=1.0,
        point=np.zeros(d),
        unknown_change=np.full(d, True),
        scale=None,
        hidden_scale=None,
        groups=None,
    )
    return found._replace(**others)
