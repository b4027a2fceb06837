"""Invertible functions of an array of latents, as graphs of records have them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.model.batch import remake
from pymc_dp.model.graph_types import AnyVariable, Node, Tensor, pt


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
    if _picks_rows(node) and not steps and not reading:
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


def _picks_rows(node: Node) -> bool:
    if not isinstance(node.op, AdvancedSubtensor) or len(node.inputs) != 2:
        return False
    return bool(node.out.type.ndim == node.inputs[0].type.ndim)


def _step(node: Node, place: int, shape: tuple[int, ...], added: tuple[int, ...]) -> Step | None:
    """Return an operation on its input at a place, if it can be inverted; else None.

    The input is an array with axes of length 1 ``added``, which the step is without. What else the
    operation reads may have the input's ``shape`` along every axis, or the length 1.
    """
    others = [y for k, y in enumerate(node.inputs) if k != place]
    op = node.op
    if isinstance(op, Blockwise) and isinstance(op.core_op, Dot):
        return None if added or len(shape) != 2 else _matrix_step(others[0], place)
    if not isinstance(op, Elemwise) or not all(_broadcasts(x, shape) for x in others):
        return None
    others, kind = [pt.squeeze(x, added) for x in others], op.scalar_op
    if isinstance(kind, ps.Add):
        other = pt.add(*others)
        return _shift(lambda x: x + other, lambda y: y - other)
    if isinstance(kind, ps.Sub):
        [other] = others
        if place == 0:
            return _shift(lambda x: x - other, lambda y: y + other)
        return _shift(lambda x: other - x, lambda y: other - y)
    if isinstance(kind, ps.Mul):
        return _scaled(pt.mul(*others))
    if isinstance(kind, ps.TrueDiv) and place == 0:
        return _scaled(pt.reciprocal(others[0]))
    return None


def _broadcasts(x: AnyVariable, shape: Sequence[int]) -> bool:
    # a length that is not known statically is never broadcast: it is that of the latent
    lengths = zip(x.type.shape, shape, strict=True)
    return all(n in (1, own) or (n is None and own > 1) for n, own in lengths)


def _shift(forward: Callable[[Tensor], Tensor], inverse: Callable[[Tensor], Tensor]) -> Step:
    return Step(forward, inverse, lambda shape: pt.constant(0.0), None)


def _scaled(scale: Tensor) -> Step:
    return Step(
        lambda x: x * scale,
        lambda y: y / scale,
        lambda shape: (pt.log(abs(scale)) + pt.zeros(shape)).sum(),
        scale,
    )


def _matrix_step(matrix: Tensor, place: int) -> Step | None:
    """Multiply by a square matrix, from the right where the input comes first."""
    rows, columns = matrix.type.shape
    if rows is None or rows != columns:
        return None
    # not a number, where rounding leaves no inverse: no draw goes there, and none fails
    usable = pt.switch(pt.eq(pt.linalg.det(matrix), 0), np.nan, matrix)
    inverse, scale = pt.linalg.inv(usable), pt.log(abs(pt.linalg.det(usable)))
    if place == 0:
        return Step(lambda x: x @ matrix, lambda y: y @ inverse, lambda n: n[0] * scale, matrix)
    return Step(lambda x: matrix @ x, lambda y: inverse @ y, lambda n: n[1] * scale, matrix)
