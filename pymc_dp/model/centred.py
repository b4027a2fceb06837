"""Groups that a model writes as ``mu + tau * z``, as latents in place of z.

Records tell of the groups; given these they tell nothing of z, mu and tau. The prior density
changes by the determinant of the Jacobian, and nothing else does.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.model.batch import RecordGraph, remake
from pymc_dp.model.compile import function
from pymc_dp.model.graph_types import AnyVariable, Node, Tensor, pt
from pymc_dp.model.outcomes import Outcomes
from pymc_dp.model.separate import Records

Graphs = Sequence[AnyVariable]
# graphs -> what takes the place of their variables
Renew = Callable[[Graphs], dict[AnyVariable, AnyVariable]]


class Step(NamedTuple):
    """An invertible operation on an array of latents."""

    forward: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]
    # logarithm of the Jacobian's determinant, of an array of this shape
    log_scale: Callable[[tuple[int, ...]], Tensor]
    scale: AnyVariable | None  # what multiplies the latents


class Groups(NamedTuple):
    """What records read of an array z of latents."""

    variables: tuple[AnyVariable, ...]  # before the first step, and after each
    steps: tuple[Step, ...]  # from z to the groups
    picked: Node | None  # the index by which records pick their elements of z before the steps

    def after(self, steps: int) -> "Groups":
        """Return what is read after so many steps."""
        return Groups(self.variables[: steps + 1], self.steps[:steps], self.picked)

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


class Centred(NamedTuple):
    """A model with groups as latents."""

    records: Records
    written: tuple[AnyVariable, ...]  # the latents as the model has them, as graphs of these

    def as_written(self, draws: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Turn draws of these latents, by name and of shape (n, ...), into those of the model."""
        many = {
            x: x.type.clone(shape=(None, *x.type.shape))() for x in self.records.latents.values()
        }
        graphs: Any = vectorize_graph(list(self.written), many)
        found: list[np.ndarray] = function(list(many.values()), graphs, "python")(
            *[draws[name] for name in self.records.latents]
        )
        return found


def centred(records: Records) -> Centred:
    """Put groups in place of all latents that other latents scale before records read them.

    >>> import numpy as np, pymc as pm
    >>> from pymc_dp.model import separate
    >>> with pm.Model() as model:
    ...     a = pm.Normal("mu") + pm.HalfNormal("tau") * pm.Normal("z", shape=3)
    ...     group = pm.Data("group", np.arange(300) % 3)
    ...     y = pm.Normal("y", a[group], 1, observed=np.zeros(300))
    >>> list(centred(separate(model)[0]).records.latents)
    ['mu', 'tau_log__', 'groups of z']
    """
    found = Centred(records, tuple(records.latents.values()))
    for name in records.latents:
        found = _with_groups(found, name)
    return found


def _with_groups(found: Centred, name: str) -> Centred:
    """Put the groups that a latent makes in its place; without any, change nothing."""
    records, z = found.records, found.records.latents[name]
    read = [(x.terms, x.inputs) for x in (records.batch, records.single)]
    read += [(tuple(x.drawn.values()), x.inputs) for x in records.outcomes or ()]
    each = [_groups(graphs, inputs.values(), z, records) for graphs, inputs in read]
    latents = records.latents.values()
    if not all(x.scaled_by(latents) for x in each):
        return found
    groups, start = _in_all(each, z, records)
    if not groups or not groups[0].scaled_by(latents):
        return found
    own: Any = z.type(f"groups of {name}")
    written = groups[0].inverse(own)
    scale = sum(step.log_scale(records.point[name].shape) for step in groups[0].steps)
    prior, *as_written = clone_replace([records.prior, *found.written], {z: written})
    renewed = _on_groups(records, [partial(_renewed, groups=x, z=z, own=own) for x in groups])
    return Centred(
        renewed._replace(
            prior=prior - scale,
            prior_draws=_drawn(records, groups[0].of(z), z),
            latents=_renamed(records.latents, name, str(own.name), own),
            point=_renamed(records.point, name, str(own.name), start),
        ),
        tuple(as_written),
    )


def _groups(
    graphs: Graphs, inputs: Iterable[AnyVariable], z: AnyVariable, records: Records
) -> Groups:
    """Follow a latent as far as each operation on it can be inverted, and reads no records."""
    readers, of_records = _readers(graphs), set(inputs)
    shape = records.point[str(z.name)].shape
    x, picked = z, None
    variables, steps = [z], []
    while len(found := readers.get(x, [])) == 1:
        [(node, place)] = found
        others = [y for k, y in enumerate(node.inputs) if k != place]
        if x is z and _picks_rows(node):
            picked, x, shape = node, node.out, (0, *shape[1:])  # what broadcasts has length 1 there
            variables = [x]
            continue
        step = _step(node, place, others, shape)
        if step is None or not of_records.isdisjoint(ancestors(others)):
            break
        x = node.out
        steps.append(step)
        variables.append(x)
    return Groups(tuple(variables), tuple(steps), picked)


def _picks_rows(node: Node) -> bool:
    own, rows = node.out.type.ndim, node.inputs[0].type.ndim
    return isinstance(node.op, AdvancedSubtensor) and len(node.inputs) == 2 and own == rows


def _in_all(
    each: Sequence[Groups], z: AnyVariable, records: Records
) -> tuple[list[Groups], np.ndarray]:
    """Return the last groups that all graphs read, and their start; none if it is not finite.

    Graphs may take steps together, or end at another one. Groups are the same if they are so at
    a point that is none in particular.
    """
    graphs = [[x.after(k).of(z) for k in range(len(x.steps) + 1)] for x in each]
    compiled = function(
        list(records.latents.values()), [x for own in graphs for x in own], "python"
    )
    rng = np.random.default_rng(0)
    found = iter(compiled(*[x + rng.normal(size=x.shape) for x in records.point.values()]))
    values = [[next(found) for _ in own] for own in graphs]
    starts = compiled(*records.point.values())
    for k in reversed(range(len(values[0]))):
        steps = [_place(values[0][k], own) for own in values]
        if np.isfinite(starts[k]).all() and None not in steps:
            pairs = zip(each, steps, strict=True)
            groups = [x.after(step) for x, step in pairs if step is not None]
            return groups, np.asarray(starts[k], "float64")
    return [], np.empty(0)


def _place(value: np.ndarray, values: Sequence[np.ndarray]) -> int | None:
    """Return the last place of a value."""
    places = [k for k, x in enumerate(values) if x.shape == value.shape and np.allclose(x, value)]
    return places[-1] if places else None


def _readers(graphs: Graphs) -> dict[AnyVariable, list[tuple[Node, int]]]:
    """Return the operations that read each variable, and as which input; not those of shapes."""
    readers: dict[AnyVariable, list[tuple[Node, int]]] = {}
    for node in toposort(graphs):
        for place, x in enumerate(node.inputs):
            if not isinstance(node.op, Shape):
                readers.setdefault(x, []).append((node, place))
    return readers


def _step(node: Node, place: int, others: Graphs, shape: tuple[int, ...]) -> Step | None:
    """Return an operation on its input at a place, if it can be inverted; else None.

    What else it reads may have the input's ``shape`` along every axis, or the length 1.
    """
    op = node.op
    if isinstance(op, Blockwise) and isinstance(op.core_op, Dot):
        return _matrix_step(others[0], place) if len(shape) == 2 else None
    fits = all(_broadcasts(x, shape, node.out.type.ndim) for x in others)
    if not isinstance(op, Elemwise) or not fits:
        return None
    kind = op.scalar_op
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


def _broadcasts(x: AnyVariable, shape: tuple[int, ...], ndim: int) -> bool:
    own = x.type.shape
    return len(own) == ndim and all(n == 1 or n in shape[k : k + 1] for k, n in enumerate(own))


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


def _on_groups(records: Records, renew: Sequence[Renew]) -> Records:
    batch, single, *stages = renew
    outcomes = records.outcomes and tuple(
        _drawn_on_groups(stage, x) for stage, x in zip(records.outcomes, stages, strict=True)
    )
    return records._replace(
        batch=_read_on_groups(records.batch, batch),
        single=_read_on_groups(records.single, single),
        outcomes=outcomes,
    )


def _read_on_groups(graph: RecordGraph, renew: Renew) -> RecordGraph:
    renewed = renew([*graph.terms, graph.rows, *([] if graph.valid is None else [graph.valid])])
    return graph._replace(
        terms=tuple(renewed.get(x, x) for x in graph.terms),
        rows=renewed.get(graph.rows, graph.rows),
        axis={renewed.get(x, x): k for x, k in graph.axis.items()},
        valid=None if graph.valid is None else renewed.get(graph.valid, graph.valid),
    )


def _drawn_on_groups(stage: Outcomes, renew: Renew) -> Outcomes:
    renewed = renew(tuple(stage.drawn.values()))
    return stage._replace(drawn={name: renewed.get(x, x) for name, x in stage.drawn.items()})


def _renewed(
    graphs: Graphs, groups: Groups, z: AnyVariable, own: AnyVariable
) -> dict[AnyVariable, AnyVariable]:
    """Compute anew what is downstream of z, with the groups as they are."""
    last, renewed = groups.variables[-1], {z: own}
    if groups.picked is None:
        renewed[last] = own
    for node in toposort(graphs):
        operands = [renewed.get(x, x) for x in node.inputs]
        same = all(a is b for a, b in zip(operands, node.inputs, strict=True))
        if same or any(x in renewed for x in node.outputs):
            continue
        new = remake(node, operands)
        renewed.update(zip(node.outputs, new, strict=True))
        if node is groups.picked:
            [renewed[last]] = new
    return renewed


def _drawn(records: Records, groups: Tensor, z: AnyVariable) -> tuple[AnyVariable, ...]:
    """Draw the groups from their prior, in place of z."""
    if not records.prior_draws:
        return ()
    draws = dict(zip(records.latents.values(), records.prior_draws, strict=True))
    [drawn] = clone_replace([groups], draws, rebuild_strict=False)
    return tuple((draws | {z: drawn}).values())


def _renamed[T](values: dict[str, T], old: str, new: str, value: T) -> dict[str, T]:
    """Put another value, under another name, in the place of one."""
    return dict((new, value) if name == old else (name, x) for name, x in values.items())
