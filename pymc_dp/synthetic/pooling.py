"""Combining rules: one estimate and one interval from those of several data sets."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from pymc_dp.errors import PosteriorWarning

FEWEST_FREEDOM = 3.0


class Rule(NamedTuple):
    """The variance of the mean estimate: ``(whole + 1/m) b + sign v``."""

    whole: int
    sign: int


RULES = {"synthetic": Rule(1, -1), "partially synthetic": Rule(0, 1), "imputed": Rule(1, 1)}


def pool(
    estimates: Any,
    variances: Any,
    kind: str = "synthetic",
    *,
    prob: float = 0.9,
    ratio: float = 1.0,
) -> pd.DataFrame:
    r"""Combine estimates from several data sets into one, with an interval.

    Parameters
    ----------
    estimates : array_like, shape (m,) or (m, k)
        Estimates of k numbers, such as coefficients, from each of m data sets. The columns of a
        data frame name them.
    variances : array_like, of the same shape
        Their squared standard errors in each data set, as if it were real.
    kind : {"synthetic", "partially synthetic", "imputed"}
        All values are synthetic, as those of `pymc_dp.synthesize`; some replace real ones; or some
        replace missing ones.
    prob : float, optional
        The probability of the intervals.
    ratio : float, optional
        The number of records of a synthetic data set over that of the fitted one. It is read where
        a variance would be negative.

    Returns
    -------
    DataFrame
        For each number ``estimate``, ``sd``, ``lower``, ``upper``, ``freedom`` (degrees of
        freedom of Student's t), and the variances ``between`` and ``within`` data sets.

    Raises
    ------
    ValueError
        The arrays differ in shape, hold fewer than two data sets or what is not a number, or an
        argument is out of range.

    Warns
    -----
    PosteriorWarning
        The variance of synthetic data is negative or hardly known.

    Notes
    -----
    With the mean :math:`\bar q` and the variance :math:`b` of the m estimates, the mean
    :math:`\bar v` of their variances, and :math:`e = (1 + 1/m)\, b`, that of :math:`\bar q` is

    - synthetic: :math:`e - \bar v`, with :math:`(m - 1)(1 - \bar v / e)^2` degrees of freedom
      (Raghunathan, Reiter and Rubin 2003). Where it is not positive: :math:`\bar v` times
      ``ratio``, and m - 1 (Reiter 2002);
    - imputed: :math:`e + \bar v`, with :math:`(m - 1)(1 + \bar v / e)^2` (Rubin 1987);
    - partially synthetic: the same with :math:`e = b / m` (Reiter 2003).

    The first rule is right for data sets of `pymc_dp.synthesize` of any number of records: their
    estimates differ by the posterior's variance, which holds the privacy noise, and by that of
    drawn records, which is :math:`\bar v`.

    **Privacy.** Post-processing.

    References
    ----------
    T. E. Raghunathan, J. P. Reiter and D. B. Rubin (2003). Multiple imputation for statistical
    disclosure limitation. *Journal of Official Statistics* 19, 1-16.

    J. P. Reiter (2002). Satisfying disclosure restrictions with synthetic data sets. *Journal of
    Official Statistics* 18, 531-543.

    J. P. Reiter (2003). Inference for partially synthetic, public use microdata sets. *Survey
    Methodology* 29, 181-188.

    D. B. Rubin (1987). *Multiple Imputation for Nonresponse in Surveys*. Wiley.

    Examples
    --------
    >>> import pymc_dp
    >>> pymc_dp.pool([1.0, 1.4, 1.2], [0.01, 0.01, 0.01])[["estimate", "sd"]].round(3)
       estimate     sd
    0       1.2  0.208
    """
    if kind not in RULES:
        raise ValueError(f"kind={kind!r} must be one of {sorted(RULES)}.")
    if not 0 < prob < 1 or not 0 < ratio < np.inf:
        raise ValueError(f"prob={prob!r} must be between 0 and 1, and ratio={ratio!r} above 0.")
    q, v = _checked(estimates, variances)
    estimate, between, within = q.mean(axis=0), q.var(axis=0, ddof=1), v.mean(axis=0)
    variance, freedom = _variance(RULES[kind], between, within, len(q), ratio)
    half = stats.t(freedom).ppf((1 + prob) / 2) * variance**0.5
    found = {"estimate": estimate, "sd": variance**0.5}
    found |= {"lower": estimate - half, "upper": estimate + half}
    found |= {"freedom": freedom, "between": between, "within": within}
    names = list(estimates.columns) if isinstance(estimates, pd.DataFrame) else None
    return pd.DataFrame(found, index=names)


def _checked(estimates: Any, variances: Any) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(estimates, pd.DataFrame) and isinstance(variances, pd.DataFrame):
        if list(estimates.columns) != list(variances.columns):
            raise ValueError("estimates= and variances= must have the same columns in one order.")
    q, v = (np.asarray(x, "float64") for x in (estimates, variances))
    if q.shape != v.shape or q.ndim not in (1, 2) or len(q) < 2:
        raise ValueError(
            f"estimates= and variances= have the shapes {q.shape} and {v.shape}: both must be "
            "(m,) or (m, k) for m data sets, two or more."
        )
    if not (np.isfinite(q).all() and np.isfinite(v).all() and (v >= 0).all()):
        raise ValueError(
            "estimates= and variances= must be finite, and variances= at least 0: leave out what "
            "could not be estimated in all data sets."
        )
    return q.reshape(len(q), -1), v.reshape(len(q), -1)


def _variance(
    rule: Rule, between: np.ndarray, within: np.ndarray, m: int, ratio: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the variance and its degrees of freedom, which match its first two moments."""
    estimated = (rule.whole + 1 / m) * between
    share = np.divide(within, estimated, out=np.full_like(within, np.inf), where=estimated > 0)
    variance = estimated + rule.sign * within
    freedom = (m - 1) * (1 + rule.sign * share) ** 2
    negative = (variance <= 0) & (rule.sign < 0)
    if (negative | (freedom < FEWEST_FREEDOM)).any():
        warnings.warn(
            "Estimates hardly differ by more than those of records drawn from one posterior draw, "
            "so that the variance of some is hardly known. Draw data sets with more records, or "
            "more data sets: pymc_dp.synthesize does so at no cost.",
            PosteriorWarning,
            stacklevel=3,
        )
    return np.where(negative, ratio * within, variance), np.where(negative, m - 1.0, freedom)
