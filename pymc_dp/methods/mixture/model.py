"""Mixtures with Gaussian components of known covariance, recognised from the graph of one record.

Every component's log joint density must be quadratic in latents of its own. Both are proved at
probe rows and points.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import DirichletRV

from pymc_dp.contributions.gradients import by_record, checked
from pymc_dp.methods.conjugate.expectation import prior_messages
from pymc_dp.methods.conjugate.exponential import DIRICHLET, flat_gradient
from pymc_dp.methods.conjugate.families import gaussian_latents
from pymc_dp.methods.conjugate.mixture_term import mixture_of
from pymc_dp.methods.conjugate.probe_points import nearly_equal, probe_rows
from pymc_dp.methods.gaussian.prior import GaussianPrior, gaussian_prior
from pymc_dp.methods.refusal import NotConjugateError, refuse_local_latents
from pymc_dp.model import Records
from pymc_dp.model.compile import function
from pymc_dp.model.graph_types import Tensor
from pymc_dp.privacy.contribution import Batch

# the whole numbers of probe rows at which components are compared
PROBE_COUNTS = (0, 1, 1)
# relative eigenvalue below which a component does not determine its latents
SINGULAR = 1e-9

# (batch, v) -> log joint densities, (rows, K), and their slopes in each component's own latents,
# (rows, K, d)
Components = Callable[[Batch, np.ndarray], tuple[np.ndarray, np.ndarray]]


class MixtureModel(NamedTuple):
    """A mixture of K components, each Gaussian in d latents of its own."""

    prior: GaussianPrior  # of all Gaussian latents v, and of the precisions behind them
    joint: Tensor  # the components' log joint densities in the graph of one record; K entries
    weights: str | None  # the Dirichlet latent that holds the components' probabilities
    concentration: np.ndarray  # its prior; ones if there is none
    blocks: np.ndarray  # the coordinates in v of each component's latents
    curvature: np.ndarray  # precision of one record about them


def recognise(records: Records) -> MixtureModel:
    """Prove, at probe points, that the model is a mixture of Gaussian components."""
    refuse_local_latents(records)
    found = [mixture_of(term) for term in records.single.terms]
    if len(found) != 1 or found[0] is None:
        raise NotConjugateError("the likelihood is not one finite mixture")
    mixture: Tensor = found[0].joint
    joint = mixture.ravel()
    weights = _weights(records)
    if not gaussian_latents(records):
        raise NotConjugateError("no latent has a Gaussian prior")
    prior = gaussian_prior(records, apart=[weights] if weights else [])
    reached = set(ancestors([joint]))
    for name in prior.gammas:
        if records.latents[name] in reached:
            raise NotConjugateError(f"the spread of a component is unknown: it depends on `{name}`")
    trial = _trial(records, prior, joint)
    rng = np.random.default_rng(0)
    blocks = _blocks(records, trial, rng)
    curvature = _curvature(records, trial, blocks, rng)
    concentration = np.ones(len(blocks))
    if weights:
        concentration = _concentration(records, trial, weights, rng)
    return MixtureModel(prior, joint, weights, concentration, blocks, curvature)


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


def _weights(records: Records) -> str | None:
    names = [name for name, op in records.distributions.items() if isinstance(op, DirichletRV)]
    if len(names) > 1:
        raise NotConjugateError(f"`{names[1]}` is a second Dirichlet block")
    return names[0] if names else None


class _Trial(NamedTuple):
    """Log joint densities of one probe record, and their slopes in all Gaussian latents."""

    # (rows, v, value of all other latents) -> (K,), (K, d_v)
    evaluate: Callable[[Batch, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    d: int  # length of v

    def slopes(self, rows: Batch, v: np.ndarray) -> np.ndarray:
        """Slopes where the components have even weights."""
        return self.evaluate(rows, v, np.ones(1))[1]


def _trial(records: Records, prior: GaussianPrior, joint: Tensor) -> _Trial:
    gaussian = [records.latents[name] for name in prior.shapes]
    others = {name: v for name, v in records.latents.items() if name not in prior.shapes}
    inputs = [*gaussian, *others.values(), *records.single.inputs.values()]
    shapes = [records.point[name].shape for name in others]

    def at(rows: Batch, v: np.ndarray, rest: np.ndarray) -> list[np.ndarray]:
        given = [np.broadcast_to(rest, shape) for shape in shapes]
        return [*prior.point(v).values(), *given, *rows.values()]

    point = at(probe_rows(records, np.random.default_rng(0), [1]), np.zeros(prior.d), np.ones(1))
    count = int(function(inputs, joint.shape[0], "python")(*point))
    each = pt.stack([flat_gradient(joint[k], gaussian) for k in range(count)])
    fn = function(inputs, [joint, each], "python")
    return _Trial(lambda rows, v, rest: tuple(fn(*at(rows, v, rest))), prior.d)


def _blocks(records: Records, trial: _Trial, rng: np.random.Generator) -> np.ndarray:
    """Find the coordinates that each component depends on; no two share one."""
    of = ", ".join(f"`{name}`" for name in records.term_names)
    slopes = trial.slopes(probe_rows(records, rng, [1]), rng.normal(size=trial.d))
    found = [np.flatnonzero(slope) for slope in slopes]
    if len({len(block) for block in found}) > 1 or not len(found[0]):
        raise NotConjugateError(f"the components of {of} have different numbers of latents")
    blocks = np.stack(found)
    if len(np.unique(blocks)) < blocks.size:
        raise NotConjugateError(f"components of {of} share a latent")
    return blocks


def _curvature(
    records: Records, trial: _Trial, blocks: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Difference the slopes, and prove that they are affine with the same matrix everywhere."""
    each, d = np.arange(len(blocks))[:, None], blocks.shape[1]
    rows, zeros = probe_rows(records, rng, [0]), np.zeros(trial.d)
    start = trial.slopes(rows, zeros)[each, blocks]
    curvature = np.empty((len(blocks), d, d))
    for k in range(d):
        step = zeros.copy()
        step[blocks[:, k]] = 1.0
        curvature[:, :, k] = start - trial.slopes(rows, step)[each, blocks]
    for whole in PROBE_COUNTS:
        rows, v = probe_rows(records, rng, [whole]), rng.normal(size=trial.d)
        moved = (trial.slopes(rows, zeros) - trial.slopes(rows, v))[each, blocks]
        if not nearly_equal(moved, np.einsum("kde,ke->kd", curvature, v[blocks])):
            raise NotConjugateError("a component is not Gaussian of known covariance")
    values = np.linalg.eigvalsh(curvature)
    if values.min() < SINGULAR * max(values.max(), 1e-300):
        raise NotConjugateError("a component does not determine its latents")
    return curvature


def _concentration(
    records: Records, trial: _Trial, weights: str, rng: np.random.Generator
) -> np.ndarray:
    """Read the weights' prior; prove that each component has the logarithm of its own weight."""
    shape, zeros = records.point[weights].shape, np.zeros(trial.d)
    rows, w = probe_rows(records, rng, [1]), rng.uniform(0.2, 0.8, shape)
    [message] = prior_messages(records, {weights: DIRICHLET}).values()
    first, second = (message({weights: x})[0] + 1 for x in (w, w[::-1].copy()))
    if not nearly_equal(first, second):
        raise NotConjugateError(f"the prior of `{weights}` is not conjugate")
    even, uneven = (trial.evaluate(rows, zeros, x)[0] for x in (np.ones(1), w))
    if even.shape != shape or not nearly_equal(uneven - even, np.log(w)):
        raise NotConjugateError(f"`{weights}` is not the weights of the components")
    return first


def components(records: Records, model: MixtureModel, backend: str) -> Components:
    """Compile log joint densities and slopes of a batch, with even weights at 1."""
    values = [records.latents[name] for name in model.prior.shapes]
    # components share no latent, so the slope of their sum holds the slope of each
    slope: Tensor = flat_gradient(model.joint.sum(), values)
    inputs = records.batch.inputs
    rows = by_record(records, [model.joint, slope[model.blocks]])
    others = {name: v for name, v in records.latents.items() if name not in model.prior.shapes}
    given = [*values, *others.values(), *inputs.values()]
    fn = function(given, [checked(records, row) for row in rows], backend)
    rest = [np.ones(records.point[name].shape) for name in others]

    def compute(batch: Batch, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        leaves = [batch[name] for name in inputs]
        joint, slopes = fn(*model.prior.point(v).values(), *rest, *leaves)
        return joint, slopes

    return compute
