"""Combining rules: one estimate and one interval from those of several data sets."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pymc_dp.errors import PosteriorWarning

# variance, and degrees of freedom, from the variances between and within and the number of sets
Rule = Callable[[np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray]]
FEWEST_FREEDOM = 3.0


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
        The number of records of a synthetic data set over that of the fitted one, for a negative
        variance.

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
    With the mean :math:`\bar q` and the variance :math:`b` of the m estimates, and the mean
    :math:`\bar v` of their variances, :math:`\bar q` has the variance

    - synthetic: :math:`T = (1 + 1/m)\, b - \bar v`, with
      :math:`(m - 1)(1 - \bar v / ((1 + 1/m)\, b))^2` degrees of freedom (Raghunathan, Reiter and
      Rubin 2003). Where that is negative, ``ratio`` times :math:`\bar v`, and m - 1 (Reiter 2002);
    - partially synthetic: :math:`b / m + \bar v`, with :math:`(m - 1)(1 + m \bar v / b)^2`
      (Reiter 2003);
    - imputed: :math:`(1 + 1/m)\, b + \bar v`, with
      :math:`(m - 1)(1 + \bar v / ((1 + 1/m)\, b))^2` (Rubin 1987).

    For data sets of `pymc_dp.synthesize` the first rule is right whatever their number of records,
    and holds the privacy noise where the posterior does: estimates differ by the posterior's
    variance, which is T, and by that of the drawn records, which is :math:`\bar v`.

    **Privacy.** Post-processing of estimates from synthetic data.

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
    names = list(estimates.columns) if isinstance(estimates, pd.DataFrame) else None
    q, v = _checked(estimates, variances)
    m = len(q)
    between, within = q.var(axis=0, ddof=1), v.mean(axis=0)
    if kind == "synthetic":
        variance, freedom = _synthetic(between, within, m, ratio)
    else:
        variance, freedom = RULES[kind](between, within, m)
    sd, estimate = np.sqrt(variance), q.mean(axis=0)
    half = stats.t(freedom).ppf((1 + prob) / 2) * sd
    found = {"estimate": estimate, "sd": sd, "lower": estimate - half, "upper": estimate + half}
    found |= {"freedom": freedom, "between": between, "within": within}
    return pd.DataFrame(found, index=names)


def _checked(estimates: Any, variances: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return both as arrays, (m, k)."""
    if isinstance(estimates, pd.DataFrame) and isinstance(variances, pd.DataFrame):
        if list(estimates.columns) != list(variances.columns):
            raise ValueError("estimates= and variances= must name the same columns in one order.")
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


def _synthetic(
    between: np.ndarray, within: np.ndarray, m: int, ratio: float
) -> tuple[np.ndarray, np.ndarray]:
    """Keep variances positive, and warn where there is little left of them."""
    variance, freedom = _all_synthetic(between, within, m)
    negative = variance <= 0
    if (negative | (freedom < FEWEST_FREEDOM)).any():
        warnings.warn(
            "The variance within data sets is nearly as large as that between them, or larger: "
            "that of the estimates, which is what they differ by, is hardly known. Draw data "
            "sets with more records, or more data sets; pymc_dp.synthesize does so at no cost.",
            PosteriorWarning,
            stacklevel=3,
        )
    return np.where(negative, ratio * within, variance), np.where(negative, m - 1.0, freedom)


def _all_synthetic(
    between: np.ndarray, within: np.ndarray, m: int
) -> tuple[np.ndarray, np.ndarray]:
    total = (1 + 1 / m) * between
    share = np.divide(within, total, out=np.full_like(total, np.inf), where=total > 0)
    return total - within, (m - 1) * (1 - share) ** 2


def _partially_synthetic(
    between: np.ndarray, within: np.ndarray, m: int
) -> tuple[np.ndarray, np.ndarray]:
    return between / m + within, _freedom(between / m, within, m)


def _imputed(between: np.ndarray, within: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
    total = (1 + 1 / m) * between
    return total + within, _freedom(total, within, m)


def _freedom(estimated: np.ndarray, within: np.ndarray, m: int) -> np.ndarray:
    """Match the first two moments of a variance of which one part is estimated from m sets."""
    share = np.divide(within, estimated, out=np.full_like(within, np.inf), where=estimated > 0)
    return np.asarray((m - 1) * (1 + share) ** 2)


RULES: dict[str, Rule] = {
    "synthetic": _all_synthetic,
    "partially synthetic": _partially_synthetic,
    "imputed": _imputed,
}
