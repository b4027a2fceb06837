"""Mixtures with Gaussian components of known covariance, and components that lost their records.

A mixture is recognised from the graph of one record: every component's log joint density must be
quadratic in latents of its own. Both are proved at probe rows and points. After a fit, released
numbers alone decide whether components may have become one, or have no records (`lost_components`).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
import xarray as xr
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import DirichletRV
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.special import LogSumExp

from pymc_dp.methods.conjugate import (
    DIRICHLET,
    at_point,
    conjugate_prior,
    for_each_row,
    gaussian_latents,
    nearly_equal,
    ones,
    probe_rows,
)
from pymc_dp.methods.method import Doubt, Kind, quoted
from pymc_dp.methods.normal import GaussianPrior, gaussian_prior
from pymc_dp.methods.options import NotConjugateError, refuse_local_latents
from pymc_dp.methods.prior import Gradient, flat_gradient, prior_curvature
from pymc_dp.model import Records
from pymc_dp.model.graphs import AnyVariable, Tensor
from pymc_dp.privacy.contribution import Batch

SINGULAR = 1e-9  # relative eigenvalue below which a component does not determine its latents
# prior standard deviations that a mean may lie from the prior's middle and from the start
MOST_PRIOR_SDS = 4.0
# how many times as wide as another component's a component's posterior may be
MOST_WIDTH_RATIO = 10.0
ADVICE = (
    "Components may have become one, or have no records: then no location, spread or weight of "
    "theirs is right. Give priors, or initval=, that put each component near its records, by "
    "public numbers."
)
# signs of lost components, of the elements that have them
LOST = (
    f"has {{}} more than {MOST_PRIOR_SDS:g} standard deviations of the prior from the prior's "
    "middle and from the start",
    f"is more than {MOST_WIDTH_RATIO:g} times as wide in {{}} as in other components",
)
# (batch, v) -> log joint densities, (rows, K), and their slopes in each component's own latents,
# (rows, K, d)
Components = Callable[[Batch, np.ndarray], tuple[np.ndarray, np.ndarray]]
Trial = Callable[..., tuple[np.ndarray, ...]]  # (one row, v, others) -> (K,), (K, all of v)


class Mixture(NamedTuple):
    """A term that is a log sum over components, in the graph of one record."""

    joint: Tensor  # log joint densities of the components, along ``axis``
    axis: tuple[int, ...]
    weights: Tensor  # stands for the responsibilities


class MixtureModel(NamedTuple):
    """A mixture of K components, each Gaussian in d latents of its own."""

    prior: GaussianPrior  # of all Gaussian latents v, and of the precisions behind them
    joint: Tensor  # the components' log joint densities in the graph of one record; K entries
    weights: str | None  # the Dirichlet latent that holds the components' probabilities
    concentration: np.ndarray  # its prior; ones if there is none
    blocks: np.ndarray  # the coordinates in v of each component's latents
    curvature: np.ndarray  # precision of one record about them
    start: np.ndarray  # public initial point of v, (d,)

    @property
    def starts_distinct(self) -> bool:
        """Whether components differ at the initial point."""
        return bool(np.ptp(self.start[self.blocks], axis=0).any())


def recognise(records: Records) -> MixtureModel:
    """Prove, at probe points, that the model is a mixture of Gaussian components."""
    refuse_local_latents(records)
    mixtures = [mixture_of(term) for term in records.single.terms]
    if len(mixtures) != 1 or mixtures[0] is None:
        raise NotConjugateError("the likelihood is not one finite mixture")
    mixture: Tensor = mixtures[0].joint
    joint = mixture.ravel()
    dirichlet = [name for name, op in records.distributions.items() if issubclass(op, DirichletRV)]
    if len(dirichlet) > 1:
        raise NotConjugateError(f"`{dirichlet[1]}` is a second Dirichlet block")
    weights = dirichlet[0] if dirichlet else None
    if not gaussian_latents(records):
        raise NotConjugateError("no latent has a Gaussian prior")
    prior = gaussian_prior(records, apart=dirichlet)
    ancestry = set(ancestors([joint]))
    for name in prior.gammas:
        if records.latents[name] in ancestry:
            raise NotConjugateError(f"the spread of a component is unknown: it depends on `{name}`")
    start = np.concatenate([records.point[name].ravel() for name in prior.shapes])
    trial, zeros, rng = _trial(records, prior, joint), np.zeros(prior.d), np.random.default_rng(0)
    blocks = _blocks(records, trial, zeros, rng)
    curvature = _curvature(records, trial, zeros, blocks, rng)
    concentration = np.ones(len(blocks))
    if weights:
        concentration = _concentration(records, trial, zeros, weights, rng)
    return MixtureModel(prior, joint, weights, concentration, blocks, curvature, start)


def mixture_of(term: AnyVariable) -> Mixture | None:
    """Find the log sum over components that a term is, if it is one."""
    while isinstance(term.owner_op, Alloc | DimShuffle | Reshape | SpecifyShape):
        term = term.owner.inputs[0]
    if not isinstance(term.owner_op, LogSumExp):
        return None
    joint, axis = term.owner.inputs[0], term.owner_op.axis
    axes = range(joint.ndim) if axis is None else np.atleast_1d(axis) % joint.ndim
    weights = joint.type.clone(dtype="float64")("responsibilities")
    return Mixture(joint, tuple(int(a) for a in axes), weights)


def _trial(records: Records, prior: GaussianPrior, joint: Tensor) -> Trial:
    """Compile log joint densities and their slopes in v, with even weights where none are given."""
    gaussian = [records.latents[name] for name in prior.shapes]
    row = probe_rows(records, np.random.default_rng(0), [1])
    [count] = at_point(records, records.single, [joint.shape[0]])(row, records.point)
    each = pt.stack([flat_gradient(joint[k], gaussian) for k in range(int(count))])
    evaluate, even = at_point(records, records.single, [joint, each]), ones(records)
    return lambda rows, v, others={}: evaluate(rows, even | prior.point(v) | others)


def _blocks(
    records: Records, trial: Trial, zeros: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Find the coordinates that each component depends on; no two share one."""
    of = quoted(records.term_names)
    _, slopes = trial(probe_rows(records, rng, [1]), rng.normal(size=zeros.size))
    own = [np.flatnonzero(slope) for slope in slopes]
    if len({len(block) for block in own}) > 1 or not len(own[0]):
        raise NotConjugateError(f"the components of {of} have different numbers of latents")
    blocks = np.stack(own)
    if len(np.unique(blocks)) < blocks.size:
        raise NotConjugateError(f"components of {of} share a latent")
    return blocks


def _curvature(
    records: Records,
    trial: Trial,
    zeros: np.ndarray,
    blocks: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Difference the slopes, and prove that they are affine with the same matrix everywhere."""
    each = np.arange(len(blocks))[:, None]

    def fall(rows: Batch, v: np.ndarray) -> np.ndarray:
        return np.asarray((trial(rows, zeros)[1] - trial(rows, v)[1])[each, blocks])

    row, units = probe_rows(records, rng, [0]), np.eye(zeros.size)
    curvature = np.stack([fall(row, units[own].sum(axis=0)) for own in blocks.T], axis=-1)
    for whole in (0, 1, 1):
        rows, v = probe_rows(records, rng, [whole]), rng.normal(size=zeros.size)
        if not nearly_equal(fall(rows, v), np.einsum("kde,ke->kd", curvature, v[blocks])):
            raise NotConjugateError("a component is not Gaussian of known covariance")
    values = np.linalg.eigvalsh(curvature)
    if values.min() < SINGULAR * max(values.max(), 1e-300):
        raise NotConjugateError("a component does not determine its latents")
    return curvature


def _concentration(
    records: Records, trial: Trial, zeros: np.ndarray, weights: str, rng: np.random.Generator
) -> np.ndarray:
    """Read the weights' prior; prove that each component has the logarithm of its own weight."""
    shape = records.point[weights].shape
    rows, w = probe_rows(records, rng, [1]), rng.uniform(0.2, 0.8, shape)
    prior = conjugate_prior(records, {weights: DIRICHLET}, rng)
    even, uneven = trial(rows, zeros)[0], trial(rows, zeros, {weights: w})[0]
    if even.shape != shape or not nearly_equal(uneven - even, np.log(w)):
        raise NotConjugateError(f"`{weights}` is not the weights of the components")
    return prior.messages[weights](ones(records) | {weights: w})[0] + 1


def components(records: Records, model: MixtureModel, backend: str) -> Components:
    """Compile log joint densities and slopes of a batch, with even weights at 1."""
    values, others = [records.latents[name] for name in model.prior.shapes], ones(records)
    # components share no latent, so the slope of their sum holds the slope of each
    slope: Tensor = flat_gradient(model.joint.sum(), values)
    evaluate = for_each_row(records, [model.joint, slope[model.blocks]], backend)

    def compute(batch: Batch, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        joint, slopes = evaluate(batch, others | model.prior.point(v))
        return joint, slopes

    return compute


def is_near(records: Records) -> bool:
    """Whether outcomes are of a finite mixture."""
    return not records.local_latents and any(mixture_of(term) for term in records.single.terms)


def roles(records: Records, model: MixtureModel) -> dict[str, str]:
    """Describe the role of each latent and each term in the updates."""
    roles = dict.fromkeys(model.prior.shapes, "means of components, one Gaussian vector")
    roles |= {name: model.prior.role(name) for name in model.prior.gammas}
    if model.weights:
        roles[model.weights] = "Dirichlet block: weights of components"
    return roles | dict.fromkeys(records.term_names, "mixture of Gaussian components")


def lost_components(records: Records, slope: Gradient, described: xr.Dataset) -> tuple[Doubt, ...]:
    """List signs of components that became one: far from their prior, or far wider than others.

    **Privacy.** Reads the released posterior and the prior: post-processing.
    """
    precision = np.diag(prior_curvature(slope, records.start))
    unit = np.where(precision > 0, precision, np.nan) ** 0.5
    variance = described["standard_deviation"] ** 2 + np.diag(described["noise_covariance"])
    each = (described["mean_vector"], variance**0.5)
    # nan where the posterior has other coordinates
    mean, sd = (x.reindex(rows=records.labels).to_numpy() for x in each)
    far = np.minimum(abs(mean - records.start) * unit, abs(slope(mean)) / unit) > MOST_PRIOR_SDS
    widths = [np.atleast_1d(x) for x in records.split(sd * unit)]
    wide = [x > MOST_WIDTH_RATIO * x.min(axis=-1, keepdims=True) for x in widths]
    signs = (far, np.concatenate([x.ravel() for x in wide]))
    latents = np.repeat([*records.point], [x.size for x in widths])
    doubts, mixtures = [], tuple(records.mixtures)
    for sign, names, says in zip(signs, _latents_of_mixtures(records), LOST, strict=True):
        labels = np.array(records.labels)[sign & np.isin(latents, names)]
        if labels.size:
            text = f"The posterior of the mixture {quoted(mixtures)} {says.format(quoted(labels))}"
            doubts.append(Doubt(Kind.MERGED, mixtures, f"{text}. {ADVICE}"))
    return tuple(doubts)


def _latents_of_mixtures(records: Records) -> tuple[list[str], list[str]]:
    """Names of the latents that mixtures read, and of those with an entry for each component."""
    read, by_component = [], []
    for outcome, term in zip(records.term_names, records.batch.terms, strict=True):
        ancestry = set(ancestors([term])) if outcome in records.mixtures else ()
        own = [name for name, latent in records.latents.items() if latent in ancestry]
        weights = [name for name in own if issubclass(records.distributions[name], DirichletRV)]
        counts = {records.point[name].shape[-1] + 1 for name in weights}
        others = [name for name in own if name not in weights]
        read += own
        by_component += [name for name in others if {*records.point[name].shape[-1:]} & counts]
    return read, by_component
