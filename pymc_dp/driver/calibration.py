"""Epsilon of equal releases, and the noise with which they keep to one."""

from pymc_dp.accounting.plan import ReleaseSpec
from pymc_dp.calibration.budget import Budget


def epsilon(
    *,
    noise_multiplier: float,
    sample_rate: float,
    n: int,
    delta: float,
    sampling: str = "poisson",
    neighbours: str = "add_remove",
    accountant: str = "pld",
    num_records: int | None = None,
) -> float:
    """Epsilon of ``n`` equal releases.

    Parameters
    ----------
    noise_multiplier : float
        The noise's standard deviation over ``clip_norm``, whatever the neighbours.
    sample_rate : float
        The probability of a record to be in a batch; 1 for ``sampling="full"``.
    n : int
        The number of releases.
    delta, sampling, neighbours, accountant, num_records
        As in `pymc_dp.fit`.

    Returns
    -------
    float
        Infinite without noise.

    Raises
    ------
    ValueError
        No proof covers the combination, or a value is out of its range.

    Notes
    -----
    **Privacy.** Each release is a Gaussian one of sensitivity ``clip_norm`` (twice that under
    replace-one neighbours) on a fresh batch; sampling amplifies it and the releases compose.

    Examples
    --------
    >>> round(epsilon(noise_multiplier=4.0, sample_rate=0.01, n=10_000, delta=1e-5), 3)
    0.947
    """
    budget = Budget(None, delta, noise_multiplier, neighbours, sampling, accountant, num_records)
    return budget.settle([_equal_releases(budget, sample_rate, n)]).epsilon()


def calibrate(
    *,
    epsilon: float,
    delta: float,
    sample_rate: float,
    n: int,
    sampling: str = "poisson",
    neighbours: str = "add_remove",
    accountant: str = "pld",
    num_records: int | None = None,
) -> float:
    """Noise multiplier with which ``n`` equal releases cost at most ``epsilon``.

    Parameters
    ----------
    epsilon : float
        The target, above 0; infinite for no noise.
    delta, sample_rate, n, sampling, neighbours, accountant, num_records
        As in :func:`epsilon`.

    Returns
    -------
    float
        The noise's standard deviation over ``clip_norm``, rounded up to four digits. If even
        the least noise that the accountants are reliable at (0.3 of the sensitivity where batches
        are sampled, else 0.0001) costs less than ``epsilon``, it is that least noise.

    Raises
    ------
    ValueError
        The accountant cannot certify so small an epsilon, or as in :func:`epsilon`.

    Notes
    -----
    **Privacy.** The accountant is asked again at the returned noise: it never exceeds the
    target.

    Examples
    --------
    >>> round(calibrate(epsilon=1.0, delta=1e-5, sample_rate=0.1, n=200), 2)
    5.43
    """
    budget = Budget(epsilon, delta, None, neighbours, sampling, accountant, num_records)
    return budget.settle([_equal_releases(budget, sample_rate, n)]).releases[0].noise_multiplier


def _equal_releases(budget: Budget, sample_rate: float, n: int) -> ReleaseSpec:
    return ReleaseSpec("release", budget.sampler(sample_rate), 1.0, n)
