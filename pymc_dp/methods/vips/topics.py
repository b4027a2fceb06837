"""VIPS for topic models: private latent Dirichlet allocation, in two forms.

The model is that of Blei, Ng and Jordan (2003), in section 4 of the VIPS paper. If the derivatives
of a document's log likelihood are, at probe points, those of a multinomial whose probabilities are
a mixture of topics, then no dense graph need run in a fit. Of a document's statistics, a (topics,
words) matrix, only the columns of its own words are stored: one row of shares of topics an entry.

In the default form every topic shrinks towards the words' overall frequencies. Most counts of a
vocabulary are smaller than the noise, while their distribution can be estimated (empirical Bayes;
Robbins 1956, Efron 2016), by post-processing.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import xarray as xr
from pytensor.tensor.random.basic import DirichletRV
from scipy.sparse import csr_matrix

from pymc_dp.accounting.plan import Full, ReleaseSpec
from pymc_dp.methods.conjugate import (
    DIRICHLET,
    NoisyBlock,
    at_point,
    conjugate_prior,
    dims_of,
    draw,
    geometric_mean,
    nearly_equal,
)
from pymc_dp.methods.linear import VipsOptions
from pymc_dp.methods.method import TOPICS, VARIATIONAL_BAYES, Compiled, Draws, Method, beside
from pymc_dp.methods.normal import NoisyAverage
from pymc_dp.methods.options import NotConjugateError
from pymc_dp.methods.prior import gradients
from pymc_dp.model import Records
from pymc_dp.model.graphs import Tensor
from pymc_dp.privacy.contribution import Batch, FactoredContribution, Noisy, Query


class Schedule(NamedTuple):
    """How a budget is spent."""

    sample_rate: float
    releases: int  # how often counts by topic are released
    totals_share: float  # of the budget, for the words' totals
    kappa: float  # releases are averaged with steps (tau0 + t)^-kappa


class Defaults(NamedTuple):
    """Public numbers, which options of the caller replace where there are any."""

    # half the typical norm of a document's counts: only the proportions of words matter
    clip_norm: float = 7.0
    iterations: int = 20  # steps that fit the shares of a document's topics
    all_records: Schedule = Schedule(1.0, 20, 0.3, 0.85)
    batches: Schedule = Schedule(0.1, 50, 0.2, 0.7)
    many_records: int = 20_000  # public number of records from which batches are the default

    # gamma variables by which the topics differ at the start
    start_shape: float = 10.0

    # deconvolution of the words' totals, in standard deviations of their noise
    certain: float = 8.0  # totals above this are taken as they are
    grid: tuple[float, float, int] = (0.02, 10.0, 60)  # means of the others: least, largest, count
    grid_steps: int = 100  # EM steps for the weights of the grid
    least_mean: float = 1e-3

    # shrinkage of topics towards the words' overall frequencies
    frequent_share: float = 0.05  # of the vocabulary: sums over frequent words have little noise
    fewest_frequent: int = 50
    least_share: float = 1e-3  # of a topic among frequent words, times the number of topics
    least_ratio: float = 0.02  # of a topic's count to the overall frequency
    least_variance: float = 1e-3  # of these ratios


DEFAULTS = Defaults()
MOST_DRAWN = 2**26  # numbers in all posterior draws together: half a gigabyte
# probe documents: the mean count of a word in each; one has no words
TRIALS = (0.0, 0.3, 1.5, 40.0)
# probabilities below count as zero: they explain no word, and counts over them stay finite
TINY = 1e-200
LEAST_DIVISOR = 1e-300
# possible means of totals, in standard deviations of the noise
GRID = np.append(0.0, np.geomspace(*DEFAULTS.grid))


class TopicModel(NamedTuple):
    """A model of documents as mixtures of topics."""

    topics: str  # the shared latent: words' probabilities of every topic, (topics, words)
    weights: str  # the local latent: topics' shares of every document, (documents, topics)
    counts: str  # the data: how often every document has every word, (documents, words)
    eta: np.ndarray  # shape (topics, words): prior concentration of the topics
    alpha: np.ndarray  # shape (topics,): prior concentration of a document's shares


def recognise(records: Records) -> TopicModel:
    """Prove, at probe points, that a document is a multinomial draw from a mixture of topics."""
    topics, weights, counts = _names(records)
    rng = np.random.default_rng(0)
    prior = conjugate_prior(records, {topics: DIRICHLET}, rng)
    eta = prior.message(topics, {topics: (np.zeros(records.point[topics].shape),)})[0] + 1
    alpha = _prior_of_weights(records, topics, weights, counts, rng)
    if not ((eta > 0).all() and (alpha > 0).all()):
        raise NotConjugateError("a Dirichlet prior has a concentration that is not above 0")
    return TopicModel(topics, weights, counts, eta, alpha)


def _names(records: Records) -> tuple[str, str, str]:
    """Find topics, shares and counts by their priors and shapes alone."""
    local, shared = list(records.local_latents), list(records.latents)
    if len(local) != 1 or len(shared) != 1:
        raise NotConjugateError(
            "it needs one latent of documents, the shares of their topics, and one shared latent, "
            f"the topics (there are {len(local)} and {len(shared)})"
        )
    [weights], [topics] = local, shared
    if records.of_units:
        raise NotConjugateError(f"`{weights}` belongs to units of several records")
    for name in (topics, weights):
        if not issubclass(records.distributions[name], DirichletRV):
            raise NotConjugateError(f"`{name}` has a prior that is not Dirichlet")
    return topics, weights, _counts_of_words(records, topics, weights)


def _counts_of_words(records: Records, topics: str, weights: str) -> str:
    """Find the one array of counts, of the shape that the two latents ask for."""
    data = [name for name in records.batch.inputs if name != weights]
    if len(data) != 1:
        listed = ", ".join(f"`{name}`" for name in data)
        raise NotConjugateError(
            f"it reads {listed} of every document, and must read counts of words alone: give "
            f"the concentration of `{weights}` by topic, and the documents by shape="
        )
    shape, of_documents = records.point[topics].shape, [records.shapes[x] for x in (weights, *data)]
    if len(shape) != 2 or of_documents != [(None, length) for length in shape]:
        raise NotConjugateError(
            f"`{topics}` (topics, words), `{weights}` (documents, topics) and the counts "
            f"`{data[0]}` (documents, words) do not match"
        )
    return data[0]


def _prior_of_weights(
    records: Records, topics: str, weights: str, counts: str, rng: np.random.Generator
) -> np.ndarray:
    """Subtract a mixture's expected counts from the derivatives; the rest must be constant."""
    joint: Tensor = records.batch.log_likelihood()
    wrt = [records.batch.inputs[weights], records.latents[topics]]
    slopes = at_point(records, records.batch, gradients(joint.sum(), wrt))
    shape, dtype = records.point[topics].shape, records.batch.inputs[counts].type.dtype
    remainders: list[np.ndarray] = []
    for mean in TRIALS:
        # neither sums to 1: the expected counts must hold as functions, not only on a simplex
        theta, beta = rng.uniform(0.1, 0.9, (1, shape[0])) / shape[0], rng.uniform(0.1, 0.9, shape)
        w = rng.poisson(mean, (1, shape[1]))
        of_theta, of_beta = slopes({counts: w.astype(dtype), weights: theta}, {topics: beta})
        ratio = w / (theta @ beta)
        if not nearly_equal(beta * (theta.T * ratio), beta * of_beta):
            raise NotConjugateError("the likelihood is not a multinomial over a mixture of topics")
        remainders.append((theta * (of_theta - ratio @ beta.T))[0])
    if not all(nearly_equal(remainders[0], other) for other in remainders):
        raise NotConjugateError("the shares of a document's topics are not conjugate")
    return remainders[0] + 1


def is_near(records: Records) -> bool:
    """Whether records have shares of their own."""
    return any(issubclass(records.distributions[n], DirichletRV) for n in records.local_latents)


def roles(records: Records, model: TopicModel) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    roles = {model.topics: "topics, a Dirichlet block"}
    roles |= dict.fromkeys(records.term_names, "multinomial over a mixture of topics")
    return roles | {model.weights: "shares of a document's topics, never released"}


def build(records: Records, model: TopicModel, settings: VipsOptions, form: Any = None) -> Method:
    """Build VIPS for a topic model, with another state where a ``form`` of the paper asks for it.

    **Privacy.** A release is a sum over documents of matrices (topics, words), each clipped in
    its Frobenius norm, or of their vectors of counts, which take a fixed public share of the
    budget as an unamplified release. The shares of a document's topics are fitted behind the wall
    by a fixed number of steps, and never released.
    """
    form = form or _Shrinking
    counts = topic_counts(model, settings.iterations or DEFAULTS.iterations)
    # documents are sparse, and no backend of PyTensor's is: NumPy and SciPy do the work
    releases = form.releases(settings)
    used = {r.name: word_counts(model) if r.name == "totals" else counts for r in releases}
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
        trace=lambda state: {"topic_share": ((topic,), normalised(state.mass()[None])[0])},
        settings={"form": settings.form or "shrunk"},
        algorithms=(TOPICS if form is _Shrinking else VARIATIONAL_BAYES,),
        defaults=(DEFAULTS,),
    )


class _Shrinking(NamedTuple):
    """Release totals once, then counts by topic; shrink the topics towards the totals.

    A state says what to release, how it follows, the concentration of the Dirichlet posterior and
    what noise leaves unknown about it (posterior), the released counts of words by topic (mass),
    and {name: number or (words,)} of what else stands in a result (details).
    """

    eta: np.ndarray  # the prior's concentration, (topics, words)
    t: int
    totals: np.ndarray  # noisy, shape (words,)
    totals_sd: float  # of their noise
    counts: NoisyAverage[np.ndarray]  # by topic, with one variance; raw, so perhaps negative
    start: np.ndarray  # shape (topics, words): public random factors by which the topics differ

    @classmethod
    def begin(cls, eta: np.ndarray, rng: np.random.Generator) -> Self:
        start = rng.gamma(DEFAULTS.start_shape, 1 / DEFAULTS.start_shape, eta.shape)
        nothing = NoisyAverage(np.zeros(eta.shape), np.zeros(()))
        return cls(eta, 0, np.zeros(eta.shape[1]), 0.0, nothing, start)

    @staticmethod
    def releases(settings: VipsOptions) -> tuple[ReleaseSpec, ...]:
        """Split the budget; the noisier of the two releases is the one that has a share."""
        topics, share = counts_spec(settings), _schedule(settings).totals_share
        topics = dataclasses.replace(topics, name="topics")
        totals = dataclasses.replace(topics, name="totals", sampler=settings.sampling(1.0), count=1)
        if share * topics.count * topics.sampler.rate**2 < 1 - share:
            return dataclasses.replace(totals, share=share), topics
        return totals, dataclasses.replace(topics, share=1 - share)

    def query(self) -> Query:
        return Query("topics", shrunk(self).beta) if self.t else Query("totals", None)

    def update(self, settings: VipsOptions, noisy: Noisy) -> Self:
        if not self.t:
            return self._replace(t=1, totals=noisy.value, totals_sd=noisy.sd)
        rho = max(1 / self.t, settings.rate(self.t, _schedule(settings).kappa))
        counts = self.counts.add(*counts_of(noisy, self.eta.shape), rho)
        return self._replace(t=self.t + 1, counts=counts)

    def posterior(self) -> tuple[np.ndarray, np.ndarray]:
        beta, mass, variance = shrunk(self)
        return self.eta + mass[:, None] * beta, variance

    def mass(self) -> np.ndarray:
        return np.asarray(np.maximum(self.counts.value.sum(axis=1), 0.0))

    @property
    def counts_sd(self) -> float:
        sd: float = float(self.counts.variance) ** 0.5
        return sd

    def details(self) -> dict[str, Any]:
        sd = self.totals_sd
        return {"noise_sd": self.counts_sd, "totals": self.totals, "totals_noise_sd": sd}


def counts_of(noisy: Noisy, shape: tuple[int, ...]) -> tuple[np.ndarray, Any]:
    """Estimate the counts of all documents by topic, and the variance of their noise."""
    return noisy.value.reshape(shape) / noisy.sample_rate, (noisy.sd / noisy.sample_rate) ** 2


def _schedule(settings: VipsOptions) -> Schedule:
    """Choose by the caller's sample rate, else by the public number of records."""
    if settings.sample_rate is not None:
        return DEFAULTS.batches if settings.sample_rate < 1 else DEFAULTS.all_records
    many = (settings.num_records or 0) >= DEFAULTS.many_records
    return DEFAULTS.batches if many and settings.sampling is not Full else DEFAULTS.all_records


def counts_spec(settings: VipsOptions) -> ReleaseSpec:
    """Describe the releases of counts by topic."""
    schedule = _schedule(settings)
    return settings.release_spec(schedule.releases, DEFAULTS.clip_norm, schedule.sample_rate)


def _posterior(model: TopicModel, state: _Shrinking, draws: int, rng: np.random.Generator) -> Draws:
    """Draw topics, and fewer where they would not fit in memory: the budget is already spent."""
    eta = (state.posterior()[0] - 1,)
    return {model.topics: DIRICHLET.sample(eta, _most_draws(model, draws), rng)}


def _noise_aware(
    model: TopicModel, state: _Shrinking, draws: int, rng: np.random.Generator
) -> Draws:
    concentration, variance = state.posterior()
    block = NoisyBlock((model.eta - 1,), (concentration - model.eta,), (variance,))
    return {model.topics: draw(DIRICHLET, block, _most_draws(model, draws), rng)}


def _most_draws(model: TopicModel, draws: int) -> int:
    return max(1, min(draws, MOST_DRAWN // model.eta.size))


def _describe(records: Records, model: TopicModel, state: _Shrinking) -> xr.Dataset:
    dims = dims_of(records, model.topics)
    variables = {
        "concentration": (dims, state.posterior()[0]),
        "document_concentration": (dims[:1], model.alpha),
    }
    for name, value in state.details().items():
        variables[name] = (dims[1 : 1 + np.ndim(value)], value)
    coords = {dim: values for dim, values in records.outputs.coords.items() if dim in dims}
    return xr.Dataset(variables, coords)


class Documents(NamedTuple):
    """Counts of words, for the words that occur."""

    counts: csr_matrix  # (documents, words), an entry for every word that occurs
    good: np.ndarray  # (documents,): whether counts are whole and not negative, or else dropped

    @property
    def rows(self) -> np.ndarray:
        """The document of every entry."""
        return np.repeat(np.arange(len(self.good)), np.diff(self.counts.indptr))

    def with_values(self, values: np.ndarray) -> csr_matrix:
        """Put one number an entry in the place of the counts."""
        return csr_matrix((values, self.counts.indices, self.counts.indptr), self.counts.shape)


class Explained(NamedTuple):
    """Documents with their posterior over topics, given the topics' words."""

    documents: Documents
    gamma: np.ndarray  # shape (documents, topics): posterior concentration of a document's shares
    shares: np.ndarray  # shape (entries, topics): of topics in an entry; 0 where none explains it


def topic_counts(model: TopicModel, iterations: int) -> FactoredContribution:
    """Contribute a document's expected counts of words by topic; the context is `beta`."""
    topics, words = model.eta.shape

    def prepare(batch: Batch, beta: np.ndarray) -> Explained:
        return explain(read_documents(batch[model.counts]), beta, model.alpha, iterations)

    def norms(at: Explained, beta: np.ndarray) -> np.ndarray:
        return _norms(at.documents, at.documents.counts.data**2 * np.vecdot(at.shares, at.shares))

    def weighted_sum(at: Explained, beta: np.ndarray, weights: np.ndarray) -> np.ndarray:
        documents, entries = at.documents.counts, len(at.shares)
        values = weights[at.documents.rows] * documents.data
        gather = csr_matrix((values, documents.indices, np.arange(entries + 1)), (entries, words))
        counts: np.ndarray = gather.T @ at.shares
        return counts.T.ravel()

    width = words * (2 + topics // 4)  # of a document of a quarter of the vocabulary
    return FactoredContribution(topics * words, width, norms, weighted_sum, prepare)


def word_counts(model: TopicModel) -> FactoredContribution:
    """Contribute a document's counts of words, whatever the topics."""
    words = model.eta.shape[1]
    return FactoredContribution(
        words,
        2 * words,
        norms=lambda at, context: _norms(at, at.counts.data**2),
        weighted_sum=lambda at, context, weights: at.counts.T @ weights,
        prepare=lambda batch, context: read_documents(batch[model.counts]),
    )


def read_documents(dense: np.ndarray) -> Documents:
    """Keep the words that occur; drop the words of documents that are not counts."""
    good = (dense >= 0).all(axis=1)
    if dense.dtype.kind == "f":
        good &= np.isfinite(dense).all(axis=1) & (dense == np.floor(dense)).all(axis=1)
    if not good.all():
        dense = np.where(good[:, None], dense, 0)
    return Documents(csr_matrix(dense, dtype="float64"), good)


def explain(
    documents: Documents, beta: np.ndarray, alpha: np.ndarray, iterations: int
) -> Explained:
    """E-step: fit every document's shares by a fixed number of steps (Blei et al., figure 6)."""
    # (topics, words): probabilities of words, or exp(E log) of them; alpha is (topics,)
    beta = np.ascontiguousarray(beta.T)
    counts, ones = documents.counts, np.ones(len(beta))
    at, length = beta[counts.indices], np.diff(counts.indptr)
    gamma = alpha + (counts @ ones)[:, None] / len(alpha)
    for _ in range(iterations):
        theta = geometric_mean(gamma)
        p = np.vecdot(np.repeat(theta, length, axis=0), at)
        ratio = documents.with_values(counts.data / np.maximum(p, TINY))
        gamma = alpha + theta * (ratio @ beta)
    joint = np.repeat(geometric_mean(gamma), length, axis=0) * at
    shares = joint / np.maximum(joint.sum(axis=1, keepdims=True), TINY)
    return Explained(documents, gamma, shares)


def _norms(documents: Documents, squares: np.ndarray) -> np.ndarray:
    """Norms of documents from the squared norms of their entries, which are far from underflow."""
    sums = documents.with_values(squares) @ np.ones(documents.counts.shape[1])
    return np.where(documents.good, np.sqrt(sums), np.nan)


class Shrunk(NamedTuple):
    """Estimated topics."""

    beta: np.ndarray  # shape (topics, words): topics' words; each topic sums to 1
    mass: np.ndarray  # shape (topics,)
    variance: np.ndarray  # shape (topics, words): of the counts, given what was released


def shrunk(state: _Shrinking) -> Shrunk:
    """Estimate topics and their masses from released sums; at first all are nearly equal."""
    released, sd, overall = state.counts.value, state.counts_sd, _overall(state)
    if state.t <= 1:
        mass = np.full(len(released), overall.sum() / len(released))
        return Shrunk(normalised(overall * state.start), mass, np.zeros_like(released))
    frequent = _frequent(overall)
    share = released[:, frequent].sum(axis=1) / max(overall[frequent].sum(), DEFAULTS.least_mean)
    expected = np.outer(np.maximum(share, DEFAULTS.least_share / len(share)), overall)
    slope = _slope(released, expected, sd)
    counts = expected * np.maximum(1 + slope * (released - expected), DEFAULTS.least_ratio)
    of_all = counts.sum(axis=0)
    shares = np.divide(counts, of_all, out=np.zeros_like(counts), where=of_all > 0)
    variance = sd**2 * slope * expected
    return Shrunk(normalised(overall * shares), counts.sum(axis=1), variance)


def _overall(state: _Shrinking) -> np.ndarray:
    """Pool the totals with the topics' sums: both estimate a word's frequency, up to a scale."""
    overall = denoised(state.totals, state.totals_sd)
    if state.totals_sd == 0 or state.counts_sd == 0:
        return overall
    frequent, counts = _frequent(overall), state.counts.value
    sums = counts.sum(axis=0)
    scale = max(sums[frequent].sum() / overall[frequent].sum(), 0.0)
    of_totals = state.totals_sd**-2
    of_sums = scale / (len(counts) * state.counts_sd**2)
    precision = of_totals + scale * of_sums
    pooled = (of_totals * state.totals + of_sums * sums) / precision
    return denoised(pooled, precision**-0.5)


def denoised(noisy: np.ndarray, sd: float) -> np.ndarray:
    """Posterior means of non-negative numbers, under the prior that fits all of them best.

    ``noisy``, shape (words,), are the numbers plus Gaussian noise of standard deviation ``sd``.

    >>> denoised(np.array([100.0, 40.0, 0.4, -0.3, 0.2]), sd=1.0).round(1)
    array([100. ,  40. ,   0.1,   0.1,   0.1])
    """
    if sd == 0:
        return noisy.clip(min=0.0)
    mean = noisy.astype("float64")
    uncertain = noisy < DEFAULTS.certain * sd
    distance = (noisy[uncertain, None] / sd - GRID) ** 2 / 2
    likelihood = np.exp(distance.min(axis=1, initial=np.inf, keepdims=True) - distance)
    weights = np.full(GRID.size, 1 / GRID.size)
    for _ in range(DEFAULTS.grid_steps if uncertain.any() else 0):
        weights = weights * (likelihood.T @ (1 / (likelihood @ weights))) / len(likelihood)
    mean[uncertain] = sd * (likelihood @ (weights * GRID)) / (likelihood @ weights)
    return mean.clip(min=DEFAULTS.least_mean * sd)


def _frequent(overall: np.ndarray) -> np.ndarray:
    size = overall.size
    count = min(max(DEFAULTS.fewest_frequent, int(DEFAULTS.frequent_share * size)), size)
    return np.asarray(overall >= np.partition(overall, -count)[-count])


def _slope(counts: np.ndarray, expected: np.ndarray, sd: float) -> np.ndarray:
    """How far counts move the posterior means of their ratios to what is expected."""
    # ratios vary around 1 with one variance: by moments of entries above half an sd of the noise
    large = (expected > sd / 2) & (expected > 0)
    noise, square = sd**2, expected[large] ** 2
    weight = square / (square + noise) ** 2
    excess = (counts[large] - expected[large]) ** 2 - noise
    total = (weight * square).sum()
    variance = max((weight * excess).sum() / total if large.any() else 0.0, DEFAULTS.least_variance)
    return np.asarray(
        variance * expected / np.maximum(variance * expected**2 + noise, LEAST_DIVISOR)
    )


def normalised(counts: np.ndarray) -> np.ndarray:
    """Make every row sum to 1; a row of zeros becomes even."""
    total = counts.sum(axis=1, keepdims=True)
    even = np.full_like(counts, 1 / counts.shape[1])
    np.divide(counts, total, out=even, where=total > 0)
    return even
