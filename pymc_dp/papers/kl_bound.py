"""Theorem 4.1 of the DP-SEP paper (Vinaroz and Park 2022), with a simulation of what it assumes."""

import dataclasses

import numpy as np

# simulated noises, and the share of them that may fall outside tau < 1 + lambda_min < A
SIMULATIONS = 2000
OUTSIDE = 0.01


@dataclasses.dataclass(frozen=True)
class KlBound:
    """What `sep_kl_bound` returns."""

    # the theorem's bound on P(KL >= threshold); infinite where its assumptions cannot hold
    bound: float
    # the theorem's tau and A: one simulated noise in a hundred breaks tau < 1 + lambda_min < A
    lower: float
    upper: float
    exceeded: float  # the share of simulated noises whose divergence is at least the threshold


def sep_kl_bound(
    covariance: np.ndarray,
    *,
    mean_sd: float,
    covariance_sd: float,
    threshold: float,
    random_seed: int = 0,
) -> KlBound:
    r"""Bound the divergence between a Gaussian posterior and the same one with noise.

    Theorem 4.1 of Vinaroz and Park (Differentially private stochastic expectation propagation)
    adds independent noise to the entries of mean and covariance. A fit adds it to natural
    parameters, and Gaussian noise breaks the theorem's assumption on eigenvalues with a probability
    above 0, here of one in a hundred: take the bound as a heuristic.

    Parameters
    ----------
    covariance : (d, d)
        Of the posterior, as a result shows it (``fit["covariance_matrix"]``): a released number.
    mean_sd, covariance_sd : float
        Standard deviations sigma_1 and sigma_2 of the noise on an entry of mean and covariance.
    threshold : float
        The divergence a, in nats.
    random_seed : int
        Of the simulation.

    Returns
    -------
    KlBound

    Raises
    ------
    ValueError
        The covariance is not positive definite, or a number is not above 0.

    Notes
    -----
    **Privacy.** Reads released numbers alone. The paper evaluates the bound at the posterior
    without noise, which would be a release of its own.

    Examples
    --------
    >>> import numpy as np, pymc_dp
    >>> result = pymc_dp.sep_kl_bound(np.eye(2), mean_sd=0.1, covariance_sd=0.02, threshold=1.0)
    >>> result.exceeded <= result.bound < 0.2
    True
    """
    if not all(np.isfinite(x) and x > 0 for x in (mean_sd, covariance_sd, threshold)):
        raise ValueError("mean_sd=, covariance_sd= and threshold= must be finite and above 0.")
    if covariance.ndim != 2 or not (np.linalg.eigvalsh(covariance) > 0).all():
        raise ValueError("The covariance must be a positive definite matrix.")
    precision = np.linalg.inv(covariance)
    smallest, divergence = _simulate(covariance, precision, mean_sd, covariance_sd, random_seed)
    lower, upper = np.quantile(1 + smallest, [OUTSIDE / 2, 1 - OUTSIDE / 2])
    return KlBound(
        _bound(precision, mean_sd, covariance_sd, threshold, lower, upper),
        float(lower),
        float(upper),
        float((divergence >= threshold).mean()),
    )


def _simulate(
    covariance: np.ndarray, precision: np.ndarray, mean_sd: float, covariance_sd: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw noises; return lambda_min(Sigma^-1 E), and the divergence of each."""
    rng, d = np.random.default_rng(seed), len(covariance)
    upper = np.triu(covariance_sd * rng.normal(size=(SIMULATIONS, d, d)))
    noise = upper + np.swapaxes(np.triu(upper, 1), -1, -2)
    root = np.linalg.cholesky(precision)
    # Sigma^-1 E has the eigenvalues of L' E L with Sigma^-1 = L L'
    values, vectors = np.linalg.eigh(root.T @ noise @ root)
    shift = mean_sd * rng.normal(size=(SIMULATIONS, d)) @ root
    along = np.einsum("nij,ni->nj", vectors, shift)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.log1p(values) - 1 + (1 + along**2) / (1 + values)
    divergence = np.where((values > -1).all(axis=1), terms.sum(axis=1) / 2, np.inf)
    return values[:, 0], divergence


def _bound(
    precision: np.ndarray, mean_sd: float, covariance_sd: float, a: float, tau: float, A: float
) -> float:
    """Evaluate the right-hand side of theorem 4.1."""
    if tau <= 0:
        return np.inf
    d = len(precision)
    # |sum_k A_k A_k'|, where Sigma^-1 E = sum_k e_k A_k for symmetric E of unit noise: every row
    # of Sigma^-1 meets d entries of E
    statistic = d * np.linalg.norm(precision, 2) ** 2
    spread = np.sqrt(2 * covariance_sd**2 * statistic * np.log(2 * d))
    of_mean = mean_sd**2 * np.trace(precision) + 1
    total = np.log1p(spread) - 1 + of_mean * (A + tau + spread - 1) / (A * tau)
    return float(d / (2 * a) * total)
