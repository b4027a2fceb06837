"""Topic models (Blei, Ng and Jordan 2003; the VIPS paper's section 4), recognised from the graph.

Fisher's identity makes a document's expected statistics derivatives of its log likelihood. If
those are, at probe points, the derivatives of a multinomial whose probabilities are a mixture
of topics, then the counts are the document itself, and no dense graph need run in a fit.
"""

from typing import NamedTuple

import numpy as np
from pytensor.tensor.random.basic import DirichletRV

from pymc_dp.methods.conjugate.blocks import at_point, conjugate_prior, nearly_equal
from pymc_dp.methods.conjugate.exponential import DIRICHLET, gradients
from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.model import Records
from pymc_dp.model.graph_types import Tensor

# probe documents: the mean count of a word in each; one has no words
TRIALS = (0.0, 0.3, 1.5, 40.0)


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


def is_near(records: Records) -> bool:
    """Whether records have shares of their own."""
    return any(issubclass(records.distributions[n], DirichletRV) for n in records.local_latents)


def roles(records: Records, model: TopicModel) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    terms = dict.fromkeys(records.term_names, "multinomial over a mixture of topics")
    return {
        model.topics: "topics, a Dirichlet block",
        **terms,
        model.weights: "shares of a document's topics, never released",
    }


def _names(records: Records) -> tuple[str, str, str]:
    """Find topics, shares and counts by their priors and shapes alone."""
    local, shared = list(records.local_latents), list(records.latents)
    if len(local) != 1 or len(shared) != 1:
        raise NotConjugateError(
            "it needs one latent of single records, the shares of a document's topics, and one "
            f"shared latent, the topics (there are {len(local)} and {len(shared)})"
        )
    [weights], [topics] = local, shared
    if records.of_units:
        raise NotConjugateError(f"`{weights}` belongs to units of several records")
    for name in (topics, weights):
        if not issubclass(records.distributions[name], DirichletRV):
            raise NotConjugateError(f"`{name}` has a prior that is not Dirichlet")
    return topics, weights, _counts(records, topics, weights)


def _counts(records: Records, topics: str, weights: str) -> str:
    """Find the one array of counts, of the shape that the two latents ask for."""
    data = [name for name in records.batch.inputs if name != weights]
    if len(data) != 1:
        listed = ", ".join(f"`{name}`" for name in data)
        raise NotConjugateError(
            f"it reads {listed} of every document, and must read counts of words alone: give "
            f"the concentration of `{weights}` by topic, and the documents by shape="
        )
    shape = records.point[topics].shape
    expected = {weights: (None, shape[0]), data[0]: (None, shape[-1])}
    if len(shape) != 2 or any(records.shapes[name] != asked for name, asked in expected.items()):
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
