"""What the fits of one cell say together, coefficient by coefficient."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.truth.cell import Fit

# eigenvalues of a correlation matrix below which a direction is not free, as in shares of one
DEPENDENT = 1e-9


class Coefficients(NamedTuple):
    """One number for every coefficient, shape (coefficients,).

    Attributes
    ----------
    coverage : share of the 90% intervals that hold the truth
    calibration : the posterior's sd over the root mean square error; 1 is right
    error : root mean square error over the non-private posterior's sd
    bias : mean error over the non-private posterior's sd
    width : median ratio of the posterior's sd to the non-private one's
    """

    coverage: np.ndarray
    calibration: np.ndarray
    error: np.ndarray
    bias: np.ndarray
    width: np.ndarray


class Summary(NamedTuple):
    """One cell's results.

    Attributes
    ----------
    sets, failures : data sets that have a reference, or failed, and those that failed
    coefficients : Coefficients
    joint : mean of e' H e / d, with e the error of the means and H the inverse of the non-private
        covariance; 1 without privacy
    interval : median length of the 90% intervals, in the coefficients' own units
    farthest : the largest error of all fits, in sds of its own posterior
    seconds : median time of a fit
    """

    sets: int
    failures: int
    coefficients: Coefficients
    joint: float
    interval: float
    farthest: float
    seconds: float


def summarise(fits: Sequence[Fit], references: Mapping[int, Fit]) -> Summary | None:
    """Compare fits with the truth and with the non-private posteriors of the same data sets."""
    compared = [fit for fit in fits if references[fit.set].error is None or fit.error]
    good = [fit for fit in compared if fit.error is None]
    if not good:
        return None
    truth, mean, sd, low, high = (np.array(x) for x in zip(*map(_values, good), strict=True))
    plain_sd = np.array([references[fit.set].sd for fit in good])
    error = mean - truth
    found = Coefficients(
        coverage=((low <= truth) & (truth <= high)).mean(axis=0),
        calibration=_size(sd) / np.maximum(_size(error), 1e-300),
        error=_size(error) / _size(plain_sd),
        bias=(error / plain_sd).mean(axis=0),
        width=np.median(sd / plain_sd, axis=0),
    )
    joint = [joint_error(e, references[fit.set]) for e, fit in zip(error, good, strict=True)]
    return Summary(
        sets=len(compared),
        failures=len(compared) - len(good),
        coefficients=found,
        joint=float(np.mean(joint)),
        interval=float(np.median(high - low)),
        farthest=float(np.max(abs(error) / np.maximum(sd, 1e-300))),
        seconds=float(np.median([fit.seconds for fit in good])),
    )


def joint_error(error: np.ndarray, reference: Fit) -> float:
    """Return e' H e over the number of free directions: probabilities that sum to one have less."""
    sd = np.array(reference.sd)
    covariance = np.reshape(reference.covariance, (len(sd), len(sd)))
    values, vectors = np.linalg.eigh(covariance / np.outer(sd, sd))
    free = values > DEPENDENT
    along = vectors[:, free].T @ (error / sd)
    return float(np.mean(along**2 / values[free]))


def _values(fit: Fit) -> tuple[list[float], ...]:
    return fit.truth, fit.mean, fit.sd, fit.low, fit.high


def _size(x: np.ndarray) -> np.ndarray:
    """Root mean square over the data sets."""
    return np.sqrt((x**2).mean(axis=0))
