"""The two forms of VIPS for topic models: what is released, and how topics follow from it."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.methods.blocks.exponential import geometric_mean
from pymc_dp.methods.vips.settings import Settings
from pymc_dp.methods.vips.topic_shrinkage import Released, denoised, normalised, shrunk
from pymc_dp.query import Noisy, Query
from pymc_dp.release import Release

# half the typical norm of a document's counts: a smaller one costs little, because only the
# proportions of words matter
CLIP_NORM = 7.0
# public numbers of records above which batches of a tenth of them pay
MANY_RECORDS = 20_000
# how far the topics start from each other: shape and rate of a gamma variable
APART = 10.0
# the same for the plain form (Hoffman et al. 2010)
PLAIN_SHAPE, PLAIN_SCALE = 100.0, 0.01


class Pace(NamedTuple):
    """How a budget is spent where the caller says nothing.

    Attributes
    ----------
    sample_rate : float
    times : int
        How often counts by topic are released.
    share : float
        Of the budget, for the words' totals.
    kappa : float
        Releases are averaged with steps (tau0 + t)^-kappa.
    """

    sample_rate: float
    times: int
    share: float
    kappa: float


ALL_RECORDS = Pace(1.0, 20, 0.3, 0.85)
BATCHES = Pace(0.1, 50, 0.2, 0.7)


class Form(NamedTuple):
    """One way to release and to update.

    Attributes
    ----------
    releases : tuple of Release
    init : rng -> state
    query : state -> Query
        The context of counts by topic is the topics' words at which they are counted.
    update : (state, query, noisy) -> state
    concentration : state -> (topics, words)
        Of the released Dirichlet posterior.
    mass : state -> (topics,)
        Released counts of words by topic.
    noise_variance : state -> (topics, words)
        Of what the noise leaves unknown about the concentration.
    shown : state -> {name: (dims of (topic, word), value)}
        What else a result shows.
    """

    releases: tuple[Release, ...]
    init: Callable[[np.random.Generator], Any]
    query: Callable[[Any], Query]
    update: Callable[[Any, Query, Noisy], Any]
    concentration: Callable[[Any], np.ndarray]
    mass: Callable[[Any], np.ndarray]
    noise_variance: Callable[[Any], np.ndarray]
    shown: Callable[[Any], dict[str, Any]]


class ShrunkState(NamedTuple):
    """Released sums so far; ``start`` holds public random factors that set the topics apart."""

    t: int
    released: Released
    start: np.ndarray


class PlainState(NamedTuple):
    """The Dirichlet posterior, and the variance of the noise on its concentration."""

    t: int
    concentration: np.ndarray
    variance: float


def shrunk_form(eta: np.ndarray, settings: Settings) -> Form:
    """Release totals once, then counts by topic; shrink the topics towards the totals.

    The documents' shares are fitted at the topics' means: exp(E log) punishes rare words, which
    are all uncertain here.

    Notes
    -----
    **Privacy.** The totals take a fixed public share of the budget, as an unamplified release.
    """
    pace = _pace(settings)
    if settings.kappa is None:
        settings = settings._replace(kappa=pace.kappa)

    def init(rng: np.random.Generator) -> ShrunkState:
        start = rng.gamma(APART, 1 / APART, eta.shape)
        nothing = Released(np.zeros(eta.shape[1]), 0.0, np.zeros(eta.shape), 0.0)
        return ShrunkState(0, nothing, start)

    def query(state: ShrunkState) -> Query:
        return Query("topics", _means(state)[0]) if state.t else Query("totals", None)

    def update(state: ShrunkState, query: Query, noisy: Noisy) -> ShrunkState:
        if query.name == "totals":
            totals = state.released._replace(totals=noisy.value, totals_sd=noisy.sd)
            return state._replace(t=1, released=totals)
        rho = max(1 / state.t, settings.rate(state.t))
        return state._replace(t=state.t + 1, released=_averaged(state.released, noisy, rho))

    def concentration(state: ShrunkState) -> np.ndarray:
        beta, mass = _means(state)
        return eta + mass[:, None] * beta

    return Form(
        releases=_releases(settings, pace),
        init=init,
        query=query,
        update=update,
        concentration=concentration,
        mass=lambda state: np.maximum(state.released.counts.sum(axis=1), 0.0),
        noise_variance=lambda state: shrunk(state.released).variance,
        shown=lambda state: {
            "noise_sd": ((), state.released.counts_sd),
            "totals": ((1,), state.released.totals),
            "totals_noise_sd": ((), state.released.totals_sd),
        },
    )


def _means(state: ShrunkState) -> tuple[np.ndarray, np.ndarray]:
    """Topics' words and masses; before counts by topic are released, all topics are near alike."""
    if state.t > 1:
        beta, mass, _ = shrunk(state.released)
        return beta, mass
    totals = denoised(state.released.totals, state.released.totals_sd)
    mass = np.full(len(state.start), totals.sum() / len(state.start))
    return normalised(totals * state.start), mass


def _averaged(old: Released, noisy: Noisy, rho: float) -> Released:
    latest = noisy.value.reshape(old.counts.shape) / noisy.sample_rate
    sd = np.hypot((1 - rho) * old.counts_sd, rho * noisy.sd / noisy.sample_rate)
    return old._replace(counts=(1 - rho) * old.counts + rho * latest, counts_sd=float(sd))


def plain_form(eta: np.ndarray, settings: Settings) -> Form:
    """Release counts by topic; negative ones become 0 (the paper's algorithm).

    Without noise and clipping it is stochastic variational Bayes (Hoffman et al. 2010).
    """
    pace = _pace(settings)

    def init(rng: np.random.Generator) -> PlainState:
        return PlainState(0, rng.gamma(PLAIN_SHAPE, PLAIN_SCALE, eta.shape), 0.0)

    def update(state: PlainState, query: Query, noisy: Noisy) -> PlainState:
        rho = settings.rate(state.t)
        counts = noisy.value.reshape(eta.shape) / noisy.sample_rate
        latest = eta + np.maximum(counts, 0.0)
        sd = rho * noisy.sd / noisy.sample_rate
        return PlainState(
            state.t + 1,
            (1 - rho) * state.concentration + rho * latest,
            (1 - rho) ** 2 * state.variance + sd**2,
        )

    return Form(
        releases=(settings.as_release(pace.times, CLIP_NORM, pace.sample_rate),),
        init=init,
        query=lambda state: Query("statistics", geometric_mean(state.concentration)),
        update=update,
        concentration=lambda state: state.concentration,
        mass=lambda state: np.maximum((state.concentration - eta).sum(axis=1), 0.0),
        noise_variance=lambda state: np.full(eta.shape, state.variance),
        shown=lambda state: {"noise_sd": ((), state.variance**0.5)},
    )


def _pace(settings: Settings) -> Pace:
    """Choose by the public number of records; a rate that the caller names decides alone."""
    if settings.sample_rate is not None:
        return BATCHES if settings.sample_rate < 1 else ALL_RECORDS
    many = (settings.num_records or 0) >= MANY_RECORDS
    return BATCHES if many and settings.sampling != "full" else ALL_RECORDS


def _releases(settings: Settings, pace: Pace) -> tuple[Release, ...]:
    """Split the budget; relative noise multipliers are at least 1."""
    topics = settings.as_release(pace.times, CLIP_NORM, pace.sample_rate)
    topics = dataclasses.replace(topics, name="topics")
    totals = dataclasses.replace(topics, name="totals", sample_rate=1.0, count=1)
    # equal shares of what Gaussian releases of all records would spend; batches of a share q of
    # them spend about q times as much
    ratio = ((1 - pace.share) / (pace.share * topics.count)) ** 0.5 / topics.sample_rate
    return (
        dataclasses.replace(totals, noise_multiplier=settings.noise * max(ratio, 1.0)),
        dataclasses.replace(topics, noise_multiplier=settings.noise * max(1 / ratio, 1.0)),
    )
