"""Groups that a model writes as ``mu + tau * z``, as latents in place of z.

Records tell of the groups; given these they tell nothing of z, mu and tau. The prior density
changes by the determinant of the Jacobian, and nothing else does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.methods.prior import at_draws
from pymc_dp.model.batch import rebuilt, remake
from pymc_dp.model.compilation import function
from pymc_dp.model.graphs import AnyVariable, Node, Tensor, pt
from pymc_dp.model.separate import Records


class Step(NamedTuple):
    """An invertible operation on an array of latents."""

    forward: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]
    # logarithm of the Jacobian's determinant, of an array of this shape
    log_scale: Callable[[tuple[int, ...]], Tensor]
    scale: AnyVariable | None  # what multiplies the latents


class Groups(NamedTuple):
    """What records read of an array z of latents."""

    variable: AnyVariable  # in a graph of records
    shape: tuple[int, ...]  # the variable's; 0 for the axis of records that picked their groups
    steps: tuple[Step, ...] = ()  # from z to the groups
    # from the groups to the variable: the index by which records pick theirs, and axes added
    reading: tuple[Node, ...] = ()
    added: tuple[int, ...] = ()

    def scaled_by(self, latents: Iterable[AnyVariable]) -> bool:
        """Whether some of these decide the groups' scale."""
        scales = [step.scale for step in self.steps if step.scale is not None]
        return not set(latents).isdisjoint(ancestors(scales))

    def of(self, z: Tensor) -> Tensor:
        """Return the groups."""
        for step in self.steps:
            z = step.forward(z)
        return z

    def inverse(self, groups: Tensor) -> Tensor:
        """Return z."""
        for step in reversed(self.steps):
            groups = step.inverse(groups)
        return groups

    @property
    def indices(self) -> list[AnyVariable]:
        """What the index reads; one that is clipped reads the length of z."""
        return [x for node in self.reading for x in node.inputs[1:]]

    def read(self, groups: Tensor, renewed: Mapping[AnyVariable, AnyVariable]) -> Tensor:
        """Return what takes the variable's place, with others in those of the index."""
        for node in self.reading:
            [groups] = remake(node, [groups, *(renewed.get(x, x) for x in node.inputs[1:])])
        return groups


def after(groups: Groups, node: Node, place: int, varying: set[AnyVariable]) -> Groups | None:
    """Return groups as an operation leaves them, if it can be inverted; else None.

    What else it reads may not depend on what is ``varying``: on records, and on the latents.
    """
    shape, steps, reading, added = groups[1:]
    if isinstance(node.op, DimShuffle) and node.op.is_squeeze and reading:
        return _without_added(groups, node)
    picks = isinstance(node.op, AdvancedSubtensor) and len(node.inputs) == 2
    if picks and node.out.type.ndim == node.inputs[0].type.ndim and not steps and not reading:
        return Groups(node.out, (0, *shape[1:]), reading=(node,))
    if isinstance(node.op, DimShuffle) and node.op.is_expand_dims:
        order = node.op.new_order
        axes = tuple(k for k, old in enumerate(order) if old == "x" or old in added)
        lengths = tuple(1 if old == "x" else shape[old] for old in order)
        return Groups(node.out, lengths, steps, (*reading, node), axes)
    others = [x for k, x in enumerate(node.inputs) if k != place]
    step = _step(node, place, shape, added)
    if step is None or not varying.isdisjoint(ancestors(others)):
        return None
    return Groups(node.out, shape, (*steps, step), reading, added)


def _without_added(groups: Groups, node: Node) -> Groups | None:
    """Drop the axes that the operation before added: a product with a matrix needs them."""
    before = groups.reading[-1]
    own = tuple(k for k, old in enumerate(before.op.new_order) if old == "x")
    if not before.op.is_expand_dims or node.op.drop != own:
        return None
    kept = node.op.new_order
    added = tuple(kept.index(k) for k in groups.added if k in kept)
    shape = tuple(groups.shape[k] for k in kept)
    return Groups(node.out, shape, groups.steps, groups.reading[:-1], added)


def _step(node: Node, place: int, shape: tuple[int, ...], added: tuple[int, ...]) -> Step | None:
    """Return an operation on its input at a place, if it can be inverted; else None.

    The input has axes of length 1 ``added``, which the step is without. What else the operation
    reads may have the input's ``shape`` along every axis, or the length 1.
    """
    others = [y for k, y in enumerate(node.inputs) if k != place]
    op = node.op
    if isinstance(op.core_op if isinstance(op, Blockwise) else op, Dot):
        return _product_step(others[0], place, shape, added)
    if not isinstance(op, Elemwise) or not all(_broadcasts(x, shape) for x in others):
        return None
    others, kind = [pt.squeeze(x, added) for x in others], op.scalar_op
    if isinstance(kind, ps.Add) or (isinstance(kind, ps.Sub) and place == 0):
        other = pt.add(*others) if isinstance(kind, ps.Add) else pt.neg(others[0])
        return Step(lambda x: x + other, lambda y: y - other, lambda n: pt.constant(0.0), None)
    if isinstance(kind, ps.Mul):
        return _scaled(pt.mul(*others))
    if isinstance(kind, ps.TrueDiv) and place == 0:
        return _scaled(pt.reciprocal(others[0]))
    return None


def _broadcasts(x: AnyVariable, shape: Sequence[int]) -> bool:
    # a length that is not known statically is never broadcast: it is that of the latent
    lengths = zip(x.type.shape, shape, strict=True)
    return all(n in (1, own) or (n is None and own > 1) for n, own in lengths)


def _scaled(scale: Tensor) -> Step:
    return Step(
        lambda x: x * scale,
        lambda y: y / scale,
        lambda shape: (pt.log(abs(scale)) + pt.zeros(shape)).sum(),
        scale,
    )


def _product_step(
    matrix: Tensor, place: int, shape: tuple[int, ...], added: tuple[int, ...]
) -> Step | None:
    """Multiply by a square matrix: a vector as a column, or a matrix from either side."""
    length, other = matrix.type.shape
    is_square = _is_cholesky(matrix) or (length is not None and length == other)
    if len(shape) != 2 or not is_square or (added and (added, place) != ((1,), 1)):
        return None
    rows, columns = shape  # of a vector one column
    scale = pt.log(abs(pt.linalg.det(matrix)))  # that of small kernels may be 0
    if _is_cholesky(matrix):
        scale = pt.log(pt.diagonal(matrix)).sum()
    if place == 0:
        back = matrix.T
        return Step(
            lambda x: x @ matrix, lambda y: _solved(back, y.T).T, lambda n: rows * scale, matrix
        )
    return Step(
        lambda x: matrix @ x, lambda y: _solved(matrix, y), lambda n: columns * scale, matrix
    )


def _is_cholesky(matrix: Tensor) -> bool:
    op = matrix.owner.op if matrix.owner else None
    core = op.core_op if isinstance(op, Blockwise) else op
    return isinstance(core, Cholesky) and bool(core.lower)


def _solved(matrix: Tensor, y: Tensor) -> Tensor:
    """Solve for x in ``matrix @ x = y``; it is not a number where rounding leaves no inverse."""
    if _is_cholesky(matrix):
        return pt.linalg.solve_triangular(matrix, y, lower=True, b_ndim=y.ndim)
    return pt.linalg.inv(pt.switch(pt.eq(pt.linalg.det(matrix), 0), np.nan, matrix)) @ y


class Centred(NamedTuple):
    """A model with groups as latents."""

    records: Records
    written: tuple[AnyVariable, ...]  # the latents as the model has them, as graphs of these

    def as_written(self, draws: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Turn draws of these latents, by name and of shape (n, ...), into those of the model."""
        return at_draws(self.written, self.records.latents, draws)


def centred(records: Records) -> Centred:
    """Put ``groups of z`` in place of each latent z that others scale before records read it."""
    found = Centred(records, tuple(records.latents.values()))
    for name in records.latents:
        found = _with_groups(found, name)
    return found


def _with_groups(found: Centred, name: str) -> Centred:
    """Put the groups that a latent makes in its place; without any, change nothing."""
    records, z = found.records, found.records.latents[name]
    latents, shape = records.latents.values(), records.point[name].shape
    paths = _paths(Groups(z, shape), records)
    if not all(path[-1].scaled_by(latents) for path in paths):
        return found
    groups, start = _in_all(paths, z, records)
    if not groups or not groups[0].scaled_by(latents):
        return found
    own: Any = z.type(f"groups of {name}")
    written = groups[0].inverse(own)
    scale = sum(step.log_scale(shape) for step in groups[0].steps)
    prior, *as_written = clone_replace([records.prior, *found.written], {z: written})
    prior_draws: tuple[AnyVariable, ...] = ()
    if records.prior_draws:  # of the groups, in place of z
        draws = dict(zip(latents, records.prior_draws, strict=True))
        [drawn] = clone_replace([groups[0].of(z)], draws, rebuild_strict=False)
        prior_draws = tuple((draws | {z: drawn}).values())
    renewed = rebuilt([x for y in groups for x in y.indices], {z: own})
    renewed |= {x.variable: x.read(own, renewed) for x in groups}
    return Centred(
        _on_groups(records, renewed)._replace(
            prior=prior - scale,
            prior_draws=prior_draws,
            latents=_renamed(records.latents, name, str(own.name), own),
            point=_renamed(records.point, name, str(own.name), start),
        ),
        tuple(as_written),
    )


def _paths(z: Groups, records: Records) -> list[list[Groups]]:
    """Follow a latent through all graphs, as far as every operation on it can be inverted."""
    graphs = _graphs(records)
    readers: dict[AnyVariable, list[tuple[Node, int]]] = {}
    for node in toposort(graphs):
        for place, x in enumerate(node.inputs):
            if not isinstance(node.op, Shape):
                readers.setdefault(x, []).append((node, place))
    read = [records.batch.inputs, records.single.inputs]
    read += [stage.inputs for stage in records.outcomes or ()]
    varying = {z.variable, *(leaf for inputs in read for leaf in inputs.values())}

    def onward(groups: Groups) -> list[list[Groups]]:
        nodes = readers.get(groups.variable, ())
        found = [x for x in (after(groups, *at, varying) for at in nodes) if x]
        if groups.variable in graphs or len(found) < len(nodes) or not nodes:
            return [[groups]]
        return [[groups, *path] for x in found for path in onward(x)]

    return onward(z)


def _graphs(records: Records) -> list[AnyVariable]:
    drawn = [x for stage in records.outcomes or () for x in stage.drawn.values()]
    return [*records.batch.terms, *records.single.terms, *drawn]


def _in_all(
    paths: Sequence[Sequence[Groups]], z: AnyVariable, records: Records
) -> tuple[list[Groups], np.ndarray]:
    """Return the last groups on all paths, and their start; none if it is not finite.

    Graphs may take steps together, or end at another one. Groups are the same if they are so at
    a point that is none in particular.
    """
    graphs = [x.of(z) for path in paths for x in path]
    compiled = function(list(records.latents.values()), graphs, "python")
    rng = np.random.default_rng(0)
    found = iter(compiled(*[x + rng.normal(size=x.shape) for x in records.point.values()]))
    values = [[(x, next(found)) for x in path] for path in paths]
    starts = compiled(*records.point.values())
    for k, (_, value) in reversed([*enumerate(values[0])]):
        same = [
            [x for x, own in path if own.shape == value.shape and np.allclose(own, value)]
            for path in values
        ]
        if np.isfinite(starts[k]).all() and all(same):
            return [groups[-1] for groups in same], np.asarray(starts[k], "float64")
    return [], np.empty(0)


def _on_groups(records: Records, groups: dict[AnyVariable, AnyVariable]) -> Records:
    """Compute anew what is downstream of z, with the groups as they are."""
    graphs = records.batch, records.single
    valid = [x.valid for x in graphs if x.valid is not None]
    renewed = rebuilt([*_graphs(records), *valid], groups)
    batch, single = (
        x._replace(
            terms=tuple(renewed.get(y, y) for y in x.terms),
            axis={renewed.get(y, y): k for y, k in x.axis.items()},
            valid=None if x.valid is None else renewed.get(x.valid, x.valid),
        )
        for x in graphs
    )
    outcomes = records.outcomes and tuple(
        stage._replace(drawn={name: renewed.get(x, x) for name, x in stage.drawn.items()})
        for stage in records.outcomes
    )
    return records._replace(batch=batch, single=single, outcomes=outcomes)


def _renamed[T](values: dict[str, T], old: str, new: str, value: T) -> dict[str, T]:
    """Put another value, under another name, in the place of one."""
    return dict((new, value) if name == old else (name, x) for name, x in values.items())
