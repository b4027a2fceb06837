"""Prove that a log likelihood is a sum over records, by following the record axis.

*Demand* walks back from the terms, whose axis 0 is the records', and learns which axis of which
variable carries them. *Taint* then walks forward: whatever depends on a record must have been
demanded, or an operation mixed the records. Both are structural: no value is looked at.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pytensor.graph.basic import Constant
from pytensor.graph.traversal import toposort
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.axis_rules import Carries, Counts, needs
from pymc_dp.model.graph_types import AnyVariable, Node
from pymc_dp.model.indexing import (
    OtherLength,
    SameLength,
    counted_rows,
    gather_layout,
    measured_axis,
)


class RecordAxes(NamedTuple):
    """Which axis of each variable carries the records."""

    axis: dict[AnyVariable, int]
    carried: set[tuple[Node, int]]  # node inputs that go along the records with the node's output
    # node inputs that are the number of records, or hold it at this position of a shape
    counts: dict[tuple[Node, int], int | None]

    def inputs(self) -> dict[AnyVariable, int]:
        """Return the graph inputs that carry records, with their axes."""
        return {v: k for v, k in self.axis.items() if v.owner is None}


def find_record_axes(terms: dict[str, AnyVariable]) -> RecordAxes:
    """Follow the records from the terms back to the inputs, and check that nothing mixes them."""
    axes = RecordAxes({}, set(), {})
    for name, term in terms.items():
        with _naming(name):
            _demand(term, axes)
    refuse_mixing(terms, axes)
    return axes


def refuse_mixing(
    terms: dict[str, AnyVariable], axes: RecordAxes, lengths: frozenset[AnyVariable] = frozenset()
) -> None:
    """Check that no operation mixes records, or computes with their number or with ``lengths``."""
    for name, term in terms.items():
        with _naming(name):
            _check_taint(term, axes, set(lengths))


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Complete the reason of a refusal by the name of the term, and by what to do."""
    try:
        yield
    except NotSeparableError as reason:
        raise NotSeparableError(
            f"The log likelihood of `{name}` cannot be split into records: {reason}. "
            "A private fit needs one term per record along the first axis: compute on each record "
            "alone, take public numbers, and leave missing values as nan in observed=."
        ) from None


def _demand(term: AnyVariable, axes: RecordAxes) -> None:
    if term.type.ndim == 0:
        raise NotSeparableError(
            "it is one number for all records. In place of totals give one row a record; of a "
            "Gaussian process over records take pm.gp.HSGP, or a process at public places that "
            "records index; of kinship, name families in unit=; give a person's series as one row; "
            "leave the sum of a pm.Potential out; and name one observed number in public=, if it is"
        )
    if term.type.broadcastable[0]:
        raise NotSeparableError(
            "it has a single row, which every record would share (name what it observes in "
            "public=[...] if that is public)"
        )
    _require(axes, term, 0)
    nodes = list(toposort([term]))
    to_check = []
    for node in reversed(nodes):
        for number, output in enumerate(node.outputs):
            if output not in axes.axis:
                continue
            for need in needs(node, number, axes.axis[output]):
                match need:
                    case Carries(i, axis):
                        _require(axes, node.inputs[i], axis)
                        axes.carried.add((node, i))
                    case Counts(i, position):
                        axes.counts[node, i] = position
                    case SameLength() | OtherLength():
                        to_check.append(need)
    for need in to_check:
        counts_records = axes.axis.get(need.variable) == need.axis
        if counts_records and isinstance(need, OtherLength):
            raise NotSeparableError("every record is paired with all of them")
        if not counts_records and isinstance(need, SameLength):
            raise NotSeparableError("it is indexed by a range that is not the records' own")


def _require(axes: RecordAxes, variable: AnyVariable, axis: int) -> None:
    if axes.axis.setdefault(variable, axis) != axis:
        raise NotSeparableError(f"{_describe(variable)} is used along two of its axes")
    if isinstance(variable, Constant):
        raise NotSeparableError(f"{_describe(variable)} is a constant where records are expected")


def _check_taint(term: AnyVariable, axes: RecordAxes, lengths: set[AnyVariable]) -> None:
    tainted = set(axes.inputs())
    for node in toposort([term]):
        carries = any(output in axes.axis for output in node.outputs)
        reads = {i for i, x in enumerate(node.inputs) if x in tainted}
        sized = {i for i, x in enumerate(node.inputs) if x in lengths}
        if reads and isinstance(node.op, Shape | Shape_i):
            if not (isinstance(node.op, Shape_i) and node.op.i != axes.axis[node.inputs[0]]):
                lengths.update(node.outputs)
            continue
        measured = measured_axis(node.outputs[0])
        if measured and axes.axis.get(measured.variable, measured.axis) != measured.axis:
            continue  # `x.shape[i]` with an axis `i` that is not the records'
        for i in reads:
            if not (carries and (node, i) in axes.carried):
                raise NotSeparableError(
                    f"{type(node.op).__name__} takes {_describe(node.inputs[i])} across its records"
                    ", as a mean, a scale or a rank of the data does"
                )
        if carries and not all(_only_sizes(node, i, axes) for i in sized):
            raise NotSeparableError(
                f"{type(node.op).__name__} computes with the number of records, which is private"
            )
        if reads or (sized and carries):  # an array sized by the records walks along them too
            tainted.update(node.outputs)
        elif sized:
            lengths.update(node.outputs)


def _only_sizes(node: Node, i: int, axes: RecordAxes) -> bool:
    """The number of records may size an array or count its rows; no value may come from it."""
    if isinstance(node.op, AdvancedSubtensor):  # rows are counted along those of the base alone
        base, index = node.inputs[0], node.inputs[i]
        places = {x: axis for axis, x in gather_layout(node).arrays.items()}
        return counted_rows(index) is not None and axes.axis.get(base) == places.get(index)
    return (node, i) in axes.counts


def _describe(variable: AnyVariable) -> str:
    return f"`{variable.name}`" if variable.name else "an unnamed intermediate result"
