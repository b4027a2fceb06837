"""The DP-SEP paper's Algorithm 3 to the letter, for reproduction.

Its step gamma / N is N times shorter than that of stochastic expectation propagation: after T
passes a share exp(-gamma T / N) of the way is still left.
"""

import math
import warnings
from functools import partial
from typing import NamedTuple

import numpy as np

from pymc_dp.methods.blocks.gaussian_posterior import GaussianPosterior
from pymc_dp.methods.linear.quadratic import (
    Asked,
    Scales,
    Sums,
    at_origin,
    contribution,
    size_of,
    split,
)
from pymc_dp.methods.linear.regression import Structure
from pymc_dp.methods.linear.solve import Solved, solve
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.sep.linear_sites import sites
from pymc_dp.methods.sep.settings import Settings
from pymc_dp.query import Noisy, Query
from pymc_dp.records import Records

# the paper's experiments: passes over the data, damping gamma, and clip norm
PASSES, DAMPING, CLIP_NORM = 100, 1.0, 1.0
# natural parameters are clipped as they are; the count is not used
AS_THEY_ARE = Scales(1.0, 1.0, 1.0, 1e-6)


class State(NamedTuple):
    """The product of all sites, lambda = N theta_f, and the posterior that it implies.

    ``variance`` is that of the privacy noise on an entry of lambda.
    """

    sites: np.ndarray
    variance: float
    solved: Solved
    mean: np.ndarray


class _Fit(NamedTuple):
    structure: Structure
    num_records: int
    gamma: float
    clip_norm: float

    def state(self, sites: np.ndarray, variance: float, gammas: dict, mean: np.ndarray) -> State:
        """Multiply sites and prior; eigenvalues that noise made negative count as 0."""
        predictors, prior = self.structure
        sums = split(sites, prior.d, len(predictors), AS_THEY_ARE)
        names = tuple(found.precision for found in predictors)
        solved = solve(names, prior, sums, Sums(*np.zeros(5)), mean, gammas)
        return State(sites, variance, solved, solved.absolute(sums))


def build(records: Records, structure: Structure, settings: Settings) -> Method:
    """Build Algorithm 3 for linear predictors.

    Notes
    -----
    **Privacy.** Each release is the sum of the clipped sites of a batch of one record on average.
    Retention does not depend on the batch, so the sensitivity is the clip norm, and twice that
    under replace-one neighbours; the paper's 2 gamma C / N is this, seen from the posterior.

    Raises
    ------
    ValueError
        ``num_records`` is missing: N is part of the update.
    """
    number = settings.num_records
    if number is None:
        raise ValueError(
            "form='algorithm3' has the number of records in its update: give num_records=, a "
            "public number."
        )
    gamma = DAMPING if settings.step is None else settings.step
    release = settings.as_release(PASSES * number, CLIP_NORM, 1 / number)
    _warn_of_shortness(gamma * release.count * release.sample_rate / number)
    predictors, prior = structure
    fit = _Fit(structure, number, gamma, release.clip_norm)
    size = size_of(prior.d, predictors)

    def compile_parts(backend: str) -> Compiled:
        expects = [sites(records, predictor, backend) for predictor in predictors]
        bound = settings.feature_bound
        added = contribution(records, predictors, prior.d, expects, at_origin, bound, backend)
        return Compiled({release.name: added}, partial(_update, fit))

    return Method(
        size=size,
        releases=(release,),
        compile=compile_parts,
        init=lambda rng: fit.state(np.zeros(size), 0.0, prior.start(), np.zeros(prior.d)),
        query=lambda state, rng: Query(release.name, _cavity(fit, state)),
        posterior=lambda state, draws, rng: _posterior(state).draw(prior, draws, rng),
        noise_aware=lambda state, draws, rng: _posterior(state).draw_with_noise(prior, draws, rng),
        describe=lambda state: _posterior(state).describe(records, prior),
        trace=lambda state: {"mean_path": (("gaussian",), state.mean)},
        settings={"form": "algorithm3, for reproduction"},
    )


def _warn_of_shortness(way: float) -> None:
    warnings.warn(
        f"form='algorithm3' is for reproduction: with these settings {math.exp(-way):.1%} of the "
        "way from the prior to the posterior will be left. Leave form= out to fit a model.",
        stacklevel=4,
    )


def _update(fit: _Fit, state: State, query: Query, noisy: Noisy) -> State:
    """Lines 8-11: lambda += gamma / N (sum of sites - q lambda), then clip theta_f."""
    number, rate = fit.num_records, fit.gamma / fit.num_records
    sites = state.sites + rate * (noisy.value - noisy.sample_rate * state.sites)
    variance = (1 - rate * noisy.sample_rate) ** 2 * state.variance + (rate * noisy.sd) ** 2
    longest = number * fit.clip_norm
    length = np.linalg.norm(sites)
    if length > longest:
        sites = sites * (longest / length)
    return fit.state(sites, variance, state.solved.gammas, state.mean)


def _cavity(fit: _Fit, state: State) -> Asked:
    """Line 4: q / f."""
    without = (1 - 1 / fit.num_records) * state.sites
    left = fit.state(without, state.variance, state.solved.gammas, state.mean)
    return Asked(left.mean, left.solved.covariance, AS_THEY_ARE)


def _posterior(state: State) -> GaussianPosterior:
    covariance, gammas = state.solved.covariance, state.solved.gammas
    noise = state.variance * covariance @ covariance
    return GaussianPosterior(state.mean, covariance, noise, gammas)
