"""Whether outcomes are distributed as the model says: a private goodness-of-fit test.

Clipping is centred by outcomes that the model draws. Where those that were observed are more skewed
than these, or spread wider, clipped scores are biased, and rounds have to clip less.
"""

import numpy as np
from scipy.stats import chi2

from pymc_dp.contributions.drawn_scores import CENTRING
from pymc_dp.contributions.goodness_of_fit import BINS, EXPECTED, Comparison, compared
from pymc_dp.methods.gaussian.coordinates import bias_of_clipping
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.state import Known, Learnt, State, bounded
from pymc_dp.privacy.query import Noisy, Query


def compare(known: Known, state: State, query: Query, noisy: Noisy) -> State:
    """Clip less after a misfit, doubt what is known of the mode, and drop the scores so far.

    Where the mode may be far away a comparison tells nothing of the model.
    """
    state = state._replace(noise_to_signal=noisy.noise_to_signal)
    if state.learnt.way.unfinished.any():
        return state
    try:
        return _compared(known, state, noisy)
    except (np.linalg.LinAlgError, ArithmeticError):  # the rounds go on as they were
        return state


def _compared(known: Known, state: State, noisy: Noisy) -> State:
    off = _distance(state.learnt, state.number)
    state = state._replace(misfit=misfit(compared(noisy.value), noisy.sd, state.number, off))
    if not state.is_misfit:
        return state
    # no round so far had a shorter norm
    bias = bias_of_clipping(DEFAULTS.score_range[0], state.number, DEFAULTS.decay_if_misfit)
    learnt = state.learnt._replace(scored=())
    return bounded(state._replace(bias=bias, learnt=learnt), known)


def misfit(found: Comparison, noise_sd: float, number: float, off: float) -> float:
    """Return chi squared of the counts of all bins, over its critical value.

    The variance of a count is that of the noise and of drawing, and what a point that is ``off`` by
    so many whitened units may move.

    >>> expected = np.full(BINS, 1000.0)
    >>> fair = Comparison(np.full(BINS, 20.0), expected)
    >>> skewed = Comparison(np.repeat([120.0, -120.0], BINS // 2), expected)
    >>> [round(misfit(one, 30.0, 1000.0 * BINS, off=0.0), 2) for one in (fair, skewed)]
    [0.08, 2.72]
    """
    expected = np.maximum(found.expected, noise_sd / EXPECTED)
    drawn = expected * (1 - np.minimum(expected / number, 1.0)) * (1 + 1 / CENTRING)
    variance = noise_sd**2 + drawn + (off * expected) ** 2
    statistic = (found.excess**2 / variance).sum()
    return float(statistic / chi2.isf(DEFAULTS.size_of_test, BINS))


def _distance(learnt: Learnt, number: float) -> float:
    """Return how far the point is from the mode, in whitened units of the average record."""
    spread = np.trace(learnt.likelihood_curvature @ learnt.mode.covariance)
    return float((max(spread, 0.0) / number) ** 0.5)
