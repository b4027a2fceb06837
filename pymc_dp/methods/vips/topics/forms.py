"""The two forms of VIPS for topic models: what is released, and how topics follow from it."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.accounting.release import ReleaseSpec
from pymc_dp.accounting.samplers import Full
from pymc_dp.methods.conjugate.exponential import geometric_mean
from pymc_dp.methods.gaussian.averaging import NoisyAverage
from pymc_dp.methods.vips.settings import Settings
from pymc_dp.methods.vips.topics.defaults import DEFAULTS, Schedule
from pymc_dp.methods.vips.topics.shrinkage import Released, denoised, normalised, shrunk
from pymc_dp.privacy.query import Noisy, Query


class Form(NamedTuple):
    """One way to release and to update."""

    releases: tuple[ReleaseSpec, ...]
    init: Callable[[np.random.Generator], Any]  # rng -> state
    # state -> Query: the context of counts by topic is the topics' words at which they are
    # counted
    query: Callable[[Any], Query]
    update: Callable[[Any, Query, Noisy], Any]  # (state, query, noisy) -> state
    # state -> (topics, words): of the released Dirichlet posterior
    concentration: Callable[[Any], np.ndarray]
    mass: Callable[[Any], np.ndarray]  # state -> (topics,): released counts of words by topic
    # state -> (topics, words): of what the noise leaves unknown about the concentration
    noise_variance: Callable[[Any], np.ndarray]
    # state -> {name: (dims of (topic, word), value)}: what else stands in a result
    details: Callable[[Any], dict[str, Any]]


class ShrunkState(NamedTuple):
    """Released sums so far."""

    t: int
    totals: np.ndarray  # shape (words,)
    totals_sd: float  # of their noise
    counts: NoisyAverage[np.ndarray]  # by topic, (topics, words), with one variance
    start: np.ndarray  # shape (topics, words): public random factors that set the topics apart

    @property
    def released(self) -> Released:
        """The released sums, with the standard deviations of their noise."""
        value, variance = self.counts
        return Released(self.totals, self.totals_sd, value, float(variance) ** 0.5)


class AbsoluteState(NamedTuple):
    """The Dirichlet posterior's concentration, and the variance of the noise on it."""

    t: int
    concentration: NoisyAverage[np.ndarray]


def shrunk_form(eta: np.ndarray, settings: Settings) -> Form:
    """Release totals once, then counts by topic; shrink the topics towards the totals.

    The documents' shares are fitted at the topics' means: exp(E log) of a rare word, whose count is
    uncertain here, would be too small.

    **Privacy.** The totals take a fixed public share of the budget, as an unamplified release.
    """
    schedule = _schedule(settings)
    if settings.kappa is None:
        settings = dataclasses.replace(settings, kappa=schedule.kappa)

    def init(rng: np.random.Generator) -> ShrunkState:
        start = rng.gamma(DEFAULTS.start_shape, 1 / DEFAULTS.start_shape, eta.shape)
        nothing = NoisyAverage(np.zeros(eta.shape), np.zeros(()))
        return ShrunkState(0, np.zeros(eta.shape[1]), 0.0, nothing, start)

    def query(state: ShrunkState) -> Query:
        return Query("topics", _means(state)[0]) if state.t else Query("totals", None)

    def update(state: ShrunkState, query: Query, noisy: Noisy) -> ShrunkState:
        if query.name == "totals":
            return state._replace(t=1, totals=noisy.value, totals_sd=noisy.sd)
        rho = max(1 / state.t, settings.rate(state.t))
        counts = state.counts.add(*_counts(noisy, eta.shape), rho)
        return state._replace(t=state.t + 1, counts=counts)

    def concentration(state: ShrunkState) -> np.ndarray:
        beta, mass = _means(state)
        return np.asarray(eta + mass[:, None] * beta)

    return Form(
        releases=_releases(settings, schedule),
        init=init,
        query=query,
        update=update,
        concentration=concentration,
        mass=lambda state: np.maximum(state.counts.value.sum(axis=1), 0.0),
        noise_variance=lambda state: shrunk(state.released).variance,
        details=lambda state: {
            "noise_sd": ((), state.released.counts_sd),
            "totals": ((1,), state.totals),
            "totals_noise_sd": ((), state.totals_sd),
        },
    )


def _counts(noisy: Noisy, shape: tuple[int, ...]) -> tuple[np.ndarray, Any]:
    """Estimate the counts of all documents by topic; return also the variance of the noise."""
    return noisy.value.reshape(shape) / noisy.sample_rate, (noisy.sd / noisy.sample_rate) ** 2


def _means(state: ShrunkState) -> tuple[np.ndarray, np.ndarray]:
    """Topics' words and masses; before counts by topic are released, all topics are near alike."""
    if state.t > 1:
        beta, mass, _ = shrunk(state.released)
        return beta, mass
    totals = denoised(state.totals, state.totals_sd)
    mass = np.full(len(state.start), totals.sum() / len(state.start))
    return normalised(totals * state.start), mass


def absolute_form(eta: np.ndarray, settings: Settings) -> Form:
    """Release counts by topic; negative ones become 0 (the paper's algorithm).

    Without noise and clipping it is stochastic variational Bayes (Hoffman et al. 2010).
    """
    schedule = _schedule(settings)

    def init(rng: np.random.Generator) -> AbsoluteState:
        shape, scale = DEFAULTS.absolute_start_shape, DEFAULTS.absolute_start_scale
        return AbsoluteState(0, NoisyAverage(rng.gamma(shape, scale, eta.shape), np.zeros(())))

    def update(state: AbsoluteState, query: Query, noisy: Noisy) -> AbsoluteState:
        counts, variance = _counts(noisy, eta.shape)
        latest = eta + np.maximum(counts, 0.0)
        rho = settings.rate(state.t)
        return AbsoluteState(state.t + 1, state.concentration.add(latest, variance, rho))

    return Form(
        releases=(
            settings.release_spec(schedule.releases, DEFAULTS.clip_norm, schedule.sample_rate),
        ),
        init=init,
        query=lambda state: Query("statistics", geometric_mean(state.concentration.value)),
        update=update,
        concentration=lambda state: state.concentration.value,
        mass=lambda state: np.maximum((state.concentration.value - eta).sum(axis=1), 0.0),
        noise_variance=lambda state: np.full(eta.shape, state.concentration.variance),
        details=lambda state: {"noise_sd": ((), float(state.concentration.variance) ** 0.5)},
    )


def _schedule(settings: Settings) -> Schedule:
    """Choose by the caller's sample rate, else by the public number of records."""
    if settings.sample_rate is not None:
        return DEFAULTS.batches if settings.sample_rate < 1 else DEFAULTS.all_records
    many = (settings.num_records or 0) >= DEFAULTS.many_records
    return DEFAULTS.batches if many and settings.sampling is not Full else DEFAULTS.all_records


def _releases(settings: Settings, schedule: Schedule) -> tuple[ReleaseSpec, ...]:
    """Split the budget; the noisier of the two releases is the one that has a share."""
    topics = settings.release_spec(schedule.releases, DEFAULTS.clip_norm, schedule.sample_rate)
    topics = dataclasses.replace(topics, name="topics")
    totals = dataclasses.replace(topics, name="totals", sampler=settings.sampling(1.0), count=1)
    share = schedule.totals_share
    if share * topics.count * topics.sampler.rate**2 < 1 - share:
        return dataclasses.replace(totals, share=share), topics
    return totals, dataclasses.replace(topics, share=1 - share)
