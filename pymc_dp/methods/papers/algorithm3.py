"""The DP-SEP paper's Algorithm 3 to the letter, for reproduction.

Its step gamma / N is N times shorter than that of stochastic expectation propagation: after T
passes a share exp(-gamma T / N) of the way still remains.
"""

import math
import warnings
from functools import partial
from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.layout import Layout
from pymc_dp.methods.algorithm import ALGORITHM_3
from pymc_dp.methods.linear.defaults import DEFAULTS as LINEAR
from pymc_dp.methods.linear.quadratic import Context, Sums, contribution, from_origin, layout_of
from pymc_dp.methods.linear.regression import Structure
from pymc_dp.methods.linear.solve import Solved, solve
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.normal import Gammas, GaussianPosterior, NoisyAverage
from pymc_dp.methods.sep.regression.defaults import DEFAULTS as OF_SITES
from pymc_dp.methods.sep.regression.tilted import sites
from pymc_dp.methods.sep.settings import Settings
from pymc_dp.model import Records
from pymc_dp.privacy.query import Noisy, Query


class Defaults(NamedTuple):
    """Those of the paper's experiments; public numbers."""

    passes: int = 100  # over the data
    damping: float = 1.0  # gamma
    clip_norm: float = 1.0
    # natural parameters are clipped unscaled, and the count of records is not used
    count_scale: float = 1e-6


DEFAULTS = Defaults()


class State(NamedTuple):
    """The product of all sites, and the posterior that it implies."""

    sites: np.ndarray  # lambda = N theta_f
    variance: float  # of the privacy noise on an entry of lambda
    solved: Solved
    mean: np.ndarray


class _Fit(NamedTuple):
    structure: Structure
    num_records: int
    gamma: float
    clip_norm: float
    layout: Layout

    def state(self, sites: np.ndarray, variance: float, gammas: Gammas, mean: np.ndarray) -> State:
        """Multiply sites and prior; eigenvalues that noise made negative count as 0."""
        sums = NoisyAverage(Sums(**self.layout.unpack(sites)), Sums(*np.zeros(5)))
        solved = solve(self.structure.precisions, self.structure.prior, sums, mean, gammas)
        return State(sites, variance, solved, solved.absolute(sums.value))


def build(records: Records, structure: Structure, settings: Settings) -> Method:
    """Build Algorithm 3 for linear predictors.

    **Privacy.** Each release is the sum of the clipped sites of a batch of one record on average.
    Retention does not depend on the batch, so the sensitivity is the clip norm, and twice that
    under replace-one neighbours; the paper's 2 gamma C / N is this, seen from the posterior.
    """
    number = settings.num_records
    if number is None:
        raise ValueError(
            "form='algorithm3' has the number of records in its update: give num_records=, a "
            "public number."
        )
    gamma = DEFAULTS.damping if settings.step is None else settings.step
    release = settings.release_spec(DEFAULTS.passes * number, DEFAULTS.clip_norm, 1 / number)
    passed = gamma * release.count * release.sampler.rate / number
    warnings.warn(
        f"form='algorithm3' is for reproduction: with these settings {math.exp(-passed):.1%} of "
        "the way from the prior to the posterior will be left. Leave form= out to fit a model.",
        stacklevel=3,
    )
    predictors, prior = structure
    layout = layout_of(len(predictors), prior.d).with_scales(number=DEFAULTS.count_scale)
    fit = _Fit(structure, number, gamma, release.clip_norm, layout)

    def compile_parts(backend: str) -> Compiled:
        expects = [from_origin(sites(records, found, backend)) for found in predictors]
        bound = settings.feature_bound
        added = contribution(records, predictors, prior.d, expects, bound, backend)
        return Compiled({release.name: added}, partial(_update, fit))

    return Method(
        size=layout.size,
        releases=(release,),
        compile=compile_parts,
        init=lambda rng: fit.state(np.zeros(layout.size), 0.0, prior.start(), np.zeros(prior.d)),
        query=lambda state, rng: Query(release.name, _cavity(fit, state)),
        posterior=lambda state, draws, rng: _posterior(state).draw(prior, draws, rng),
        noise_aware=lambda state, draws, rng: _posterior(state).draw_with_noise(prior, draws, rng),
        describe=lambda state: _posterior(state).describe(records, prior),
        trace=lambda state: {"mean_path": (("gaussian",), state.mean)},
        settings={"form": "algorithm3, for reproduction"},
        algorithms=(ALGORITHM_3,),
        defaults=(DEFAULTS, OF_SITES, LINEAR),
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


def _cavity(fit: _Fit, state: State) -> Context:
    """Line 4: q / f, with the precisions that go with it."""
    without = (1 - 1 / fit.num_records) * state.sites
    cavity = fit.state(without, state.variance, state.solved.gammas, state.mean)
    return Context(cavity.mean, cavity.solved.covariance, fit.layout, cavity.solved.weights)


def _posterior(state: State) -> GaussianPosterior:
    covariance, gammas = state.solved.covariance, state.solved.gammas
    noise = state.variance * covariance @ covariance
    return GaussianPosterior(state.mean, covariance, noise, gammas)
