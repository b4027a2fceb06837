"""Stochastic expectation propagation, private (Vinaroz and Park) and not (Li et al. 2015).

The entry: the classes of models that `dp_sep` and `sep` fit, and the two methods. Each class is a
file beside this one: regressions, mixtures of Gaussians, Bayesian networks. In all of them a record
adds its site, the Gaussian factor that matches the moments of cavity times likelihood, and the
state averages released sums of sites.

At the end stands `sep_kl_bound`: theorem 4.1 of the DP-SEP paper, with a simulation of what the
theorem assumes.
"""

import dataclasses
import math
from functools import partial

import numpy as np

from pymc_dp.contributions.estimating import SITES
from pymc_dp.methods.linear.predictor import is_near_regression
from pymc_dp.methods.method import (
    BACKPROPAGATION,
    EXPECTATION_PROPAGATION,
    NOT_PRIVATE_EP,
    SITES_NEWTON,
    Method,
    OnRealLine,
    of_rounds,
)
from pymc_dp.methods.mixture import model as mixture_model
from pymc_dp.methods.mixture.sketch import SketchedStart
from pymc_dp.methods.options import MethodSpec, ModelClass, build_matching
from pymc_dp.methods.sep import mixture, network, network_fit, regression
from pymc_dp.methods.sep.regression import PlainSettings, Settings
from pymc_dp.model import Records

MODEL_CLASSES = (
    ModelClass(
        "linear predictors",
        regression.recognise,
        regression.build,
        regression.roles,
        lambda records, structure: of_rounds(records, SITES),
        forms=("damped",),
        options=("step", "feature_bound"),
        near=is_near_regression,
    ),
    ModelClass(
        "mixtures of Gaussians",
        mixture_model.recognise,
        mixture.build,
        mixture_model.roles,
        mixture.algorithm,
        forms=("damped",),
        options=("step",),
        near=mixture_model.is_near,
        better=lambda records, model: (
            "a sketch of the records finds components that start alike, as it does in dp_advi"
            if SketchedStart.of(records, model)
            else ""
        ),
    ),
    ModelClass(
        "Bayesian networks",
        network.recognise,
        network_fit.build,
        network.roles,
        lambda records, structure: BACKPROPAGATION,
        forms=("damped",),
        options=("step",),
        near=network.is_near,
        better=lambda records, structure: (
            "on all data sets that were tried its test errors were lower than those of dp_advi"
        ),
    ),
)


def dp_sep(classes: tuple[ModelClass, ...] = MODEL_CLASSES) -> MethodSpec:
    """Return private stochastic expectation propagation, for models of these classes.

    Without ``num_records`` the cavity takes out one of as many sites as the releases count.

    **Privacy.** Every release is one clipped sum of the records' sites. Sites of single records
    stay behind the wall.
    """
    return MethodSpec(
        name="dp_sep",
        build=partial(build_matching, "dp_sep", classes),
        options=Settings,
        fits="regressions, Gaussian mixtures, Bayesian neural networks",
        by=f"regressions with one predictor: {SITES_NEWTON}; others and most mixtures: as dp_advi; "
        f"other mixtures: {EXPECTATION_PROPAGATION}; networks: {BACKPROPAGATION}",
        page="dp_sep",
        constrained=True,
        model_classes=classes,
    )


def build_plain(records: Records, options: PlainSettings) -> Method | OnRealLine:
    """Build what `dp_sep` builds, without clipping and noise."""
    settings = Settings(**vars(options), clip_norm=math.inf)
    built = build_matching("dp_sep", MODEL_CLASSES, records, settings)
    return built if isinstance(built, OnRealLine) else built._replace(algorithms=(NOT_PRIVATE_EP,))


SEP = dp_sep()._replace(
    name="sep",
    build=build_plain,
    options=PlainSettings,
    fits="the same without privacy, to compare with; takes no budget",
    by=f"without privacy: {NOT_PRIVATE_EP}",
    private=False,
    model_classes=tuple(
        each._replace(algorithm=lambda records, structure: NOT_PRIVATE_EP) for each in MODEL_CLASSES
    ),
)

# --- theorem 4.1 -------------------------------------------------------------------------------

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

    The theorem adds independent noise to the entries of mean and covariance. A fit adds it to
    natural parameters, and Gaussian noise breaks the theorem's assumption on eigenvalues with a
    probability above 0, here of one in a hundred: take the bound as a heuristic.

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

    References
    ----------
    Vinaroz and Park, Differentially private stochastic expectation propagation, theorem 4.1.

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
