"""Mixtures with Gaussian components of known covariance, recognised from the graph of one record.

Every component's log joint density must be quadratic in latents of its own. Both are proved at
made-up rows and points.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import DirichletRV

from pymc_dp.compile import function
from pymc_dp.contributions.contribution import Batch
from pymc_dp.contributions.gradients import by_record, checked
from pymc_dp.methods.blocks.expectation import prior_messages
from pymc_dp.methods.blocks.exponential import DIRICHLET, flat_slopes
from pymc_dp.methods.blocks.families import gaussian_latents
from pymc_dp.methods.blocks.gaussian_prior import GaussianPrior, gaussian_prior
from pymc_dp.methods.blocks.made_up import agree, made_up_rows
from pymc_dp.methods.blocks.mixture_term import mixture_of
from pymc_dp.methods.refusal import NotConjugateError, refuse_local_latents
from pymc_dp.records import Records

# the whole numbers of made-up rows at which components are compared
WHOLE = (0, 1, 1)
# relative eigenvalue below which a component does not determine its latents
SINGULAR = 1e-9

# (batch, v) -> log joint densities, (rows, K), and their slopes in each component's own latents,
# (rows, K, d)
Components = Callable[[Batch, np.ndarray], tuple[np.ndarray, np.ndarray]]


class MixtureModel(NamedTuple):
    """A mixture of K components, each Gaussian in d latents of its own.

    Attributes
    ----------
    prior : GaussianPrior
        Of all Gaussian latents v, and of the precisions behind them.
    joint : Variable
        The components' log joint densities in the graph of one record; K entries.
    weights : str or None
        The Dirichlet latent that holds the components' probabilities.
    concentration : (K,)
        Its prior; ones if there is none.
    blocks : (K, d)
        The coordinates in v of each component's latents.
    curvature : (K, d, d)
        Precision of one record about them.
    """

    prior: GaussianPrior
    joint: Variable
    weights: str | None
    concentration: np.ndarray
    blocks: np.ndarray
    curvature: np.ndarray


def recognise(records: Records) -> MixtureModel:
    """Prove, at made-up points, that the model is a mixture of Gaussian components.

    Raises
    ------
    NotConjugateError
        With what does not fit.
    """
    joint = _joint(records)
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


def roles(records: Records, model: MixtureModel) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    told = dict.fromkeys(model.prior.shapes, "means of components, one Gaussian vector")
    told |= dict.fromkeys(model.prior.gammas, "Gamma block: precision of Gaussian latents")
    if model.weights:
        told[model.weights] = "Dirichlet block: weights of components"
    return told | dict.fromkeys(records.term_names, "mixture of Gaussian components")


def _joint(records: Records) -> Variable:
    refuse_local_latents(records)
    found = [mixture_of(term) for term in records.single.terms]
    if len(found) != 1 or found[0] is None:
        raise NotConjugateError("the likelihood is not one finite mixture")
    return found[0].joint.ravel()


def _weights(records: Records) -> str | None:
    names = [name for name, op in records.distributions.items() if isinstance(op, DirichletRV)]
    if len(names) > 1:
        raise NotConjugateError(f"`{names[1]}` is a second Dirichlet block")
    return names[0] if names else None


class _Trial(NamedTuple):
    """Log joint densities of one made-up record, and their slopes in all Gaussian latents.

    Attributes
    ----------
    evaluate : (rows, v, value of all other latents) -> (K,), (K, d_v)
    d : int
        Length of v.
    """

    evaluate: Callable[[Batch, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    d: int

    def slopes(self, rows: Batch, v: np.ndarray) -> np.ndarray:
        """Slopes where the components have even weights."""
        return self.evaluate(rows, v, np.ones(1))[1]


def _trial(records: Records, prior: GaussianPrior, joint: Variable) -> _Trial:
    gaussian = [records.latents[name] for name in prior.shapes]
    others = {name: v for name, v in records.latents.items() if name not in prior.shapes}
    inputs = [*gaussian, *others.values(), *records.single.inputs.values()]
    shapes = [records.point[name].shape for name in others]

    def at(rows: Batch, v: np.ndarray, rest: np.ndarray) -> list[np.ndarray]:
        given = [np.broadcast_to(rest, shape) for shape in shapes]
        return [*prior.point(v).values(), *given, *rows.values()]

    nowhere = at(
        made_up_rows(records, np.random.default_rng(0), [1]), np.zeros(prior.d), np.ones(1)
    )
    count = int(function(inputs, joint.shape[0], "python")(*nowhere))
    each = pt.stack([flat_slopes(joint[k], gaussian) for k in range(count)])
    fn = function(inputs, [joint, each], "python")
    return _Trial(lambda rows, v, rest: tuple(fn(*at(rows, v, rest))), prior.d)


def _blocks(records: Records, trial: _Trial, rng: np.random.Generator) -> np.ndarray:
    """Find the coordinates that each component depends on; no two share one."""
    of = ", ".join(f"`{name}`" for name in records.term_names)
    slopes = trial.slopes(made_up_rows(records, rng, [1]), rng.normal(size=trial.d))
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
    rows, nothing = made_up_rows(records, rng, [0]), np.zeros(trial.d)
    start = trial.slopes(rows, nothing)[each, blocks]
    curvature = np.empty((len(blocks), d, d))
    for k in range(d):
        step = nothing.copy()
        step[blocks[:, k]] = 1.0
        curvature[:, :, k] = start - trial.slopes(rows, step)[each, blocks]
    for whole in WHOLE:
        rows, v = made_up_rows(records, rng, [whole]), rng.normal(size=trial.d)
        moved = (trial.slopes(rows, nothing) - trial.slopes(rows, v))[each, blocks]
        if not agree(moved, np.einsum("kde,ke->kd", curvature, v[blocks])):
            raise NotConjugateError("a component is not Gaussian of known covariance")
    values = np.linalg.eigvalsh(curvature)
    if values.min() < SINGULAR * max(values.max(), 1e-300):
        raise NotConjugateError("a component does not determine its latents")
    return curvature


def _concentration(
    records: Records, trial: _Trial, weights: str, rng: np.random.Generator
) -> np.ndarray:
    """Read the weights' prior; prove that each component has the logarithm of its own weight."""
    shape = records.point[weights].shape
    rows, w, nothing = (
        made_up_rows(records, rng, [1]),
        rng.uniform(0.2, 0.8, shape),
        np.zeros(trial.d),
    )
    [message] = prior_messages(records, {weights: DIRICHLET}).values()
    first, second = (message({weights: x})[0] + 1 for x in (w, w[::-1].copy()))
    if not agree(first, second):
        raise NotConjugateError(f"the prior of `{weights}` is not conjugate")
    even, uneven = (trial.evaluate(rows, nothing, x)[0] for x in (np.ones(1), w))
    if even.shape != shape or not agree(uneven - even, np.log(w)):
        raise NotConjugateError(f"`{weights}` is not the weights of the components")
    return first


def components(records: Records, model: MixtureModel, backend: str) -> Components:
    """Compile log joint densities and slopes of a batch, with even weights at 1."""
    values = [records.latents[name] for name in model.prior.shapes]
    # components share no latent, so the slope of their sum holds the slope of each
    slope = flat_slopes(model.joint.sum(), values)
    one = [model.joint, slope[model.blocks]]
    inputs = records.batch.inputs
    rows = [checked(records, row) for row in by_record(records, one)]
    others = [v for name, v in records.latents.items() if name not in model.prior.shapes]
    fn = function([*values, *others, *inputs.values()], rows, backend)
    rest = [np.ones(records.point[v.name].shape) for v in others]

    def compute(batch: Batch, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        leaves = [batch[name] for name in inputs]
        joint, slopes = fn(*model.prior.point(v).values(), *rest, *leaves)
        return joint, slopes

    return compute
