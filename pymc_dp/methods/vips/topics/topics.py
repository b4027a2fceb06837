"""VIPS for topic models: private latent Dirichlet allocation, in two forms."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import xarray as xr

from pymc_dp.accounting.release import ReleaseSpec
from pymc_dp.methods.algorithm import TOPICS, VARIATIONAL_BAYES
from pymc_dp.methods.conjugate.description import dims_of
from pymc_dp.methods.conjugate.exponential import DIRICHLET, geometric_mean
from pymc_dp.methods.conjugate.noise_aware import NoisyBlock, draw
from pymc_dp.methods.method import Compiled, Method, beside
from pymc_dp.methods.normal import NoisyAverage
from pymc_dp.methods.vips.settings import Settings
from pymc_dp.methods.vips.topics.defaults import DEFAULTS, Schedule
from pymc_dp.methods.vips.topics.documents import topic_counts, word_counts
from pymc_dp.methods.vips.topics.model import TopicModel
from pymc_dp.methods.vips.topics.shrinkage import Released, denoised, normalised, shrunk
from pymc_dp.model import Records
from pymc_dp.privacy.query import Noisy, Query
from pymc_dp.sampling.samplers import Full

MOST_DRAWN = 2**26  # numbers in all posterior draws together: half a gigabyte


class _Shrunk(NamedTuple):
    """Release totals once, then counts by topic; shrink the topics towards the totals.

    The documents' shares are fitted at the topics' means: exp(E log) of a rare word, whose count is
    uncertain here, would be too small.
    """

    eta: np.ndarray  # the prior's concentration, (topics, words)
    t: int
    totals: np.ndarray  # shape (words,)
    totals_sd: float  # of their noise
    counts: NoisyAverage[np.ndarray]  # by topic, (topics, words), with one variance
    start: np.ndarray  # shape (topics, words): public random factors that set the topics apart

    @classmethod
    def begin(cls, eta: np.ndarray, rng: np.random.Generator) -> Self:
        start = rng.gamma(DEFAULTS.start_shape, 1 / DEFAULTS.start_shape, eta.shape)
        nothing = NoisyAverage(np.zeros(eta.shape), np.zeros(()))
        return cls(eta, 0, np.zeros(eta.shape[1]), 0.0, nothing, start)

    @staticmethod
    def releases(settings: Settings) -> tuple[ReleaseSpec, ...]:
        """Split the budget; the noisier of the two releases is the one that has a share."""
        topics, share = _counts_spec(settings), _schedule(settings).totals_share
        topics = dataclasses.replace(topics, name="topics")
        totals = dataclasses.replace(topics, name="totals", sampler=settings.sampling(1.0), count=1)
        if share * topics.count * topics.sampler.rate**2 < 1 - share:
            return dataclasses.replace(totals, share=share), topics
        return totals, dataclasses.replace(topics, share=1 - share)

    def query(self) -> Query:
        return Query("topics", self._means()[0]) if self.t else Query("totals", None)

    def update(self, settings: Settings, noisy: Noisy) -> Self:
        if not self.t:
            return self._replace(t=1, totals=noisy.value, totals_sd=noisy.sd)
        if settings.kappa is None:
            settings = dataclasses.replace(settings, kappa=_schedule(settings).kappa)
        rho = max(1 / self.t, settings.rate(self.t))
        counts = self.counts.add(*_counts(noisy, self.eta.shape), rho)
        return self._replace(t=self.t + 1, counts=counts)

    def concentration(self) -> np.ndarray:
        beta, mass = self._means()
        return np.asarray(self.eta + mass[:, None] * beta)

    def mass(self) -> np.ndarray:
        return np.asarray(np.maximum(self.counts.value.sum(axis=1), 0.0))

    def noise_variance(self) -> np.ndarray:
        return shrunk(self._released()).variance

    def details(self) -> dict[str, Any]:
        return {
            "noise_sd": ((), self._released().counts_sd),
            "totals": ((1,), self.totals),
            "totals_noise_sd": ((), self.totals_sd),
        }

    def _released(self) -> Released:
        value, variance = self.counts
        return Released(self.totals, self.totals_sd, value, float(variance) ** 0.5)

    def _means(self) -> tuple[np.ndarray, np.ndarray]:
        """Topics' words and masses; before counts by topic are released, all are near alike."""
        if self.t > 1:
            beta, mass, _ = shrunk(self._released())
            return beta, mass
        totals = denoised(self.totals, self.totals_sd)
        mass = np.full(len(self.start), totals.sum() / len(self.start))
        return normalised(totals * self.start), mass


class _Absolute(NamedTuple):
    """Release counts by topic; negative ones become 0 (the paper's algorithm).

    Without noise and clipping it is stochastic variational Bayes (Hoffman et al. 2010).
    """

    eta: np.ndarray  # the prior's concentration, (topics, words)
    t: int
    average: NoisyAverage[np.ndarray]  # of concentrations, with one variance

    @classmethod
    def begin(cls, eta: np.ndarray, rng: np.random.Generator) -> Self:
        shape, scale = DEFAULTS.absolute_start_shape, DEFAULTS.absolute_start_scale
        return cls(eta, 0, NoisyAverage(rng.gamma(shape, scale, eta.shape), np.zeros(())))

    @staticmethod
    def releases(settings: Settings) -> tuple[ReleaseSpec, ...]:
        return (_counts_spec(settings),)

    def query(self) -> Query:
        return Query("statistics", geometric_mean(self.average.value))

    def update(self, settings: Settings, noisy: Noisy) -> Self:
        counts, variance = _counts(noisy, self.eta.shape)
        latest, rho = self.eta + np.maximum(counts, 0.0), settings.rate(self.t)
        return self._replace(t=self.t + 1, average=self.average.add(latest, variance, rho))

    def concentration(self) -> np.ndarray:
        return self.average.value

    def mass(self) -> np.ndarray:
        return np.asarray(np.maximum((self.average.value - self.eta).sum(axis=1), 0.0))

    def noise_variance(self) -> np.ndarray:
        return np.full(self.eta.shape, self.average.variance)

    def details(self) -> dict[str, Any]:
        return {"noise_sd": ((), float(self.average.variance) ** 0.5)}


# states of a fit, by the name of their form. Each says what to release and how the state follows
# (releases, query, update), and what the Dirichlet posterior is: its concentration, the released
# counts of words by topic (mass), what noise leaves unknown about the concentration, and
# {name: (axes of (topic, word), value)} of what else stands in a result (details).
FORMS: dict[str, type[_Shrunk] | type[_Absolute]] = {"shrunk": _Shrunk, "absolute": _Absolute}
_State = _Shrunk | _Absolute


def _counts(noisy: Noisy, shape: tuple[int, ...]) -> tuple[np.ndarray, Any]:
    """Estimate the counts of all documents by topic; return also the variance of the noise."""
    return noisy.value.reshape(shape) / noisy.sample_rate, (noisy.sd / noisy.sample_rate) ** 2


def _schedule(settings: Settings) -> Schedule:
    """Choose by the caller's sample rate, else by the public number of records."""
    if settings.sample_rate is not None:
        return DEFAULTS.batches if settings.sample_rate < 1 else DEFAULTS.all_records
    many = (settings.num_records or 0) >= DEFAULTS.many_records
    return DEFAULTS.batches if many and settings.sampling is not Full else DEFAULTS.all_records


def _counts_spec(settings: Settings) -> ReleaseSpec:
    schedule = _schedule(settings)
    return settings.release_spec(schedule.releases, DEFAULTS.clip_norm, schedule.sample_rate)


def build(records: Records, model: TopicModel, settings: Settings) -> Method:
    """Build VIPS for a topic model.

    **Privacy.** A release is a sum over documents of matrices (topics, words), each clipped in
    its Frobenius norm, or of their vectors of counts, which take a fixed public share of the
    budget as an unamplified release. The shares of a document's topics are fitted behind the wall
    by a fixed number of steps, and never released.
    """
    name = settings.form or "shrunk"
    form = FORMS[name]
    counts = topic_counts(model, settings.iterations or DEFAULTS.iterations)
    # documents are sparse, and no backend of PyTensor's is: NumPy and SciPy do the work
    contributions = {"totals": word_counts(model), "topics": counts, "statistics": counts}
    releases = form.releases(settings)
    used = {release.name: contributions[release.name] for release in releases}
    topic = dims_of(records, model.topics)[0]
    return Method(
        size=model.eta.size,
        releases=releases,
        compile=lambda backend: Compiled(
            used, lambda state, query, noisy: state.update(settings, noisy)
        ),
        init=lambda rng: form.begin(model.eta, rng),
        query=lambda state, rng: state.query(),
        posterior=partial(_posterior, model),
        noise_aware=beside(partial(_posterior, model), partial(_noise_aware, model)),
        describe=partial(_describe, records, model),
        trace=lambda state: {
            # how the released words are spread over topics
            "topic_share": ((topic,), normalised(state.mass()[None])[0])
        },
        settings={"form": name},
        algorithms=(TOPICS if name == "shrunk" else VARIATIONAL_BAYES,),
        defaults=(DEFAULTS,),
    )


def _posterior(
    model: TopicModel, state: _State, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draw topics, and fewer where they would not fit in memory: the budget is already spent."""
    eta = (state.concentration() - 1,)
    return {model.topics: DIRICHLET.sample(eta, _most_draws(model, draws), rng)}


def _noise_aware(
    model: TopicModel, state: _State, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    counts = state.concentration() - model.eta
    block = NoisyBlock((model.eta - 1,), (counts,), (state.noise_variance(),))
    return {model.topics: draw(DIRICHLET, block, _most_draws(model, draws), rng)}


def _most_draws(model: TopicModel, draws: int) -> int:
    return max(1, min(draws, MOST_DRAWN // model.eta.size))


def _describe(records: Records, model: TopicModel, state: _State) -> xr.Dataset:
    dims = dims_of(records, model.topics)
    variables = {
        "concentration": (dims, state.concentration()),
        "document_concentration": (dims[:1], model.alpha),
    }
    for name, (axes, value) in state.details().items():
        variables[name] = (tuple(dims[axis] for axis in axes), value)
    coords = {dim: values for dim, values in records.outputs.coords.items() if dim in dims}
    return xr.Dataset(variables, coords)
