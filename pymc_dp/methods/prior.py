"""The prior by itself, which needs no records: draws, the gradient, the curvature.

First stand derivatives of any graph. Graphs that are made of a prior are made once for all models
with an equal one. At the end stand graphs of latents at many draws at once.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.compile.mode import AddDestroyHandler, Mode
from pytensor.gradient import grad
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.rewriting.basic import dfs_rewriter
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Eye
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.random.rewriting.basic import random_make_inplace
from pytensor.tensor.special import LogSumExp

from pymc_dp.model import Records
from pymc_dp.model.compilation import PYTHON, Kept, function, graph_key, without_c
from pymc_dp.model.graphs import AnyVariable, Tensor, pt
from pymc_dp.model.split import rewrite

Gradient = Callable[[np.ndarray], np.ndarray]  # point (d,) -> gradient (d,)

# the least eigenvalue of a prior's precision, in units of its latents
LEAST_PRECISION = 1e-10
STEP = 1e-4  # the step of central differences where the prior is smooth
LONGEST_STEP = 1e3  # the longest step, about a kink
_kept = Kept()  # graphs that are made of a prior, for all models with an equal one
# Generators are used where they are: copies of them would take half of the time of all draws. The
# handler lets none be used so of which another operation needs the state before.
DRAWING: Mode = PYTHON.register(  # type: ignore[no-untyped-call]
    (AddDestroyHandler(), 49.5),
    (dfs_rewriter(random_make_inplace, ignore_newtrees=True), 50.9),
)


def gradients(value: AnyVariable, wrt: Iterable[AnyVariable]) -> list[Tensor]:
    """Gradients of a scalar, zero in the variables that it does not depend on."""
    slopes: Any = grad(value, list(wrt), disconnected_inputs="ignore", return_disconnected="zero")
    return list(slopes)


def two_derivatives(log_density: AnyVariable, x: AnyVariable) -> tuple[Tensor, Tensor]:
    """First and second derivative of a scalar; the second is right where entries do not mix."""
    [first] = gradients(log_density, [x])
    [second] = gradients(first.sum(), [x])
    return first, second


def flat_gradient(value: AnyVariable, wrt: Iterable[AnyVariable]) -> Tensor:
    """Gradient of a scalar in several variables, as one vector."""
    return pt.concatenate([slope.ravel() for slope in gradients(value, wrt)])


def draw_of_prior(variables: Sequence[AnyVariable], number: int) -> list[np.ndarray]:
    """Draw random variables jointly, each of shape (number, ...); the same in every call."""
    with without_c():
        drawn: list[np.ndarray] = pm.draw(list(variables), number, random_seed=0, mode=DRAWING)
    return drawn


def finite_draws(latents: tuple[AnyVariable, ...], number: int) -> np.ndarray | None:
    """Draw latents so often from their prior, and return what is finite, shape (draws, size)."""
    try:
        drawn = draw_of_prior(latents, number)
    except (NotImplementedError, ValueError, ArithmeticError):
        return None
    flat = np.concatenate([x.reshape(number, -1) for x in drawn], axis=1).astype("float64")
    return np.asarray(flat[np.isfinite(flat).all(axis=1)])


def made_once[Made](records: Records, what: Hashable, make: Callable[[], Made]) -> Made:
    """Return the graphs, called ``what``, that ``make`` makes of the log prior and the latents.

    They may be those of a model whose log prior is the same, operation by operation.
    """
    key = graph_key(list(records.latents.values()), [records.prior])
    if key is None:  # an operation may keep what changes between two fits
        return make()
    graphs: Made | None = _kept.made.get((what, key))
    if graphs is None:
        graphs = make()
        _kept.made[what, key] = graphs
    return graphs


def prior_gradient(records: Records, backend: str) -> Gradient:
    """Compile the gradient of the log prior at a point z, shape (size,)."""

    def gradient() -> tuple[list[AnyVariable], AnyVariable]:
        latents = list(records.latents.values())
        return latents, pt.cast(flat_gradient(records.prior, latents), "float64")

    fn = function(*made_once(records, "gradient of all", gradient), backend)
    # a state holds NumPy's arrays, whatever the backend
    return lambda z: np.asarray(fn(*records.split(z)))


def prior_curvature(slope: Gradient, point: np.ndarray) -> np.ndarray:
    """Differentiate the prior's gradient numerically: minus its Jacobian, symmetric, (d, d)."""
    at = np.asarray(point, "float64")
    steps = _steps(slope, at)
    falls = [slope(at - e) - slope(at + e) for e in np.diag(steps)]
    matrix = np.stack(falls, axis=-1) / (2 * steps)
    return np.asarray((matrix + matrix.T) / 2)


def prior_precision(slope: Gradient, point: np.ndarray, least: float | np.ndarray) -> np.ndarray:
    """Return the curvature of the log prior, and ``least`` of one without an end."""
    curvature = prior_curvature(slope, point)
    scale = np.sqrt(np.maximum(abs(curvature).max(axis=0), least))
    units = np.outer(scale, scale)
    values, vectors = np.linalg.eigh(curvature / units)
    floored = (vectors * np.maximum(values, LEAST_PRECISION)) @ vectors.T
    return np.asarray(units * (floored + floored.T) / 2 + np.diag(np.full(point.size, least)))


def _steps(slope: Gradient, at: np.ndarray) -> np.ndarray:
    """Return the step of each difference, (d,): short, and one scale long about a kink."""

    def fall_about(point: np.ndarray, step: float) -> np.ndarray:
        return np.asarray(slope(point - step) - slope(point + step))

    steps = np.full(at.size, STEP)
    for centre in (np.zeros_like(at), at):
        fall = fall_about(centre, STEP)
        kinked = (fall > 1e-9) & (fall_about(centre, STEP / 2) > 0.9 * fall)
        if kinked.any():
            fall = fall_about(np.where(kinked, centre, at), STEP)[kinked]
            steps[kinked] = np.clip(2 / np.maximum(fall, 1e-9), STEP, LONGEST_STEP)
    return steps


# --- graphs of latents at many draws -----------------------------------------------------------


def at_draws(
    graphs: Sequence[AnyVariable],
    latents: Mapping[str, AnyVariable],
    draws: Mapping[str, np.ndarray],
) -> list[np.ndarray]:
    """Compute graphs of latents at each of their draws, by name and of shape (n, ...)."""
    many = {x: x.type.clone(shape=(None, *x.type.shape))() for x in latents.values()}
    values = [np.asarray(draws[name]) for name in latents]
    first = {x: value[0] for x, value in zip(latents.values(), values, strict=True)}
    each = vectorized(with_identities(graphs, first), many)
    return list(function(list(many.values()), each, "python")(*values))


def vectorized(
    graphs: Sequence[AnyVariable], many: Mapping[AnyVariable, AnyVariable]
) -> list[AnyVariable]:
    """Compute graphs at many points; PyTensor would loop over the points for `LogSumExp`."""
    each: Any = vectorize_graph(list(graphs), many)
    return rewrite(list(each), _at_once)


def _at_once(variable: AnyVariable) -> Tensor | None:
    op = variable.owner_op
    if not isinstance(op, Blockwise) or not isinstance(op.core_op, LogSumExp):
        return None
    [x] = variable.owner.inputs
    dims = len(op.inputs_sig[0])  # of one point
    first = x.type.ndim - dims
    of_all: Any = LogSumExp
    found: Tensor = of_all(axis=[first + axis % dims for axis in op.core_op.axis])(x)
    return found


def with_identities(
    graphs: Sequence[AnyVariable], point: Mapping[AnyVariable, np.ndarray]
) -> list[AnyVariable]:
    """Compute identity matrices at a point: their sizes are the same at all."""
    eyes = [x for x in ancestors(graphs) if isinstance(x.owner_op, Eye)]
    if not eyes:
        return list(graphs)
    numbers = map(pt.constant, function(list(point), eyes, "python")(*point.values()))
    known = dict(zip(eyes, numbers, strict=True))
    return list(clone_replace(list(graphs), known, rebuild_strict=False))
