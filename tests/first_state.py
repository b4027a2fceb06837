"""A state of rounds from which nothing was released yet, and what is known before the first."""

import numpy as np

from pymc_dp.engine.clipping import Part
from pymc_dp.engine.curvature import matrix_blocks, vector_blocks
from pymc_dp.engine.rounds import Known, Scored, State, begin


def first_known(prior_precision, prior_mean=None, number=None) -> Known:
    """Latents none of which is of the dispersion, with scores at the point."""
    d = len(prior_precision)
    mean = np.zeros(d) if prior_mean is None else prior_mean
    return Known(
        prior_mean=vector_blocks(mean),
        prior_precision=matrix_blocks(prior_precision),
        shares=(0.45, 0.5),
        number=number,
        parts=(Part(vector_blocks(np.ones(d, bool)), 1.0, 1.0, False),),
        scale=None,
        null_space=np.zeros((d, 0)),
        estimating=None,
        is_centred=True,
        products=0.0,
    )


def scored_state(known, H, noise, peak, points=(0.0, 2.0)) -> State:
    """Score a log likelihood of this curvature and peak at some points, with noise on each score.

    ``noise`` is the covariance of the mean of all rounds.
    """
    d = len(H)
    state = begin(known, np.zeros(d))
    scored = tuple(
        Scored(
            point=vector_blocks(p * np.ones(d)),
            score=vector_blocks(H @ (peak - p)),
            noise=matrix_blocks(len(points) * noise),
            curvature=matrix_blocks(H),
            back=matrix_blocks(np.eye(d)),
            norms=vector_blocks(np.ones(d)),
        )
        for p in points
    )
    bias = np.zeros((len(points), *scored[0].point.shape))
    report = state.report._replace(bias=bias)
    number = float(known.number or 1)
    return state._replace(
        t=1 + len(points), number=number, curvature=matrix_blocks(H), scored=scored, report=report
    )
