"""The walk that all checks share: through a graph, and through the graphs inside its operations."""

from collections.abc import Iterable, Iterator
from typing import Any

from pytensor.graph.basic import Constant
from pytensor.graph.op import HasMultipleInnerGraph, Op
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.type import TensorType

from pymc_dp.model.graph_types import AnyVariable


def layers(op: Op) -> Iterator[Op]:
    """Yield an operation, and those that it holds, such as what it applies to every entry."""
    yield op
    for inner in vars(op).values():
        if isinstance(inner, Op):
            yield from layers(inner)


def inner_variables(
    variables: Iterable[AnyVariable], closed: tuple[type[Op], ...] = ()
) -> Iterator[AnyVariable]:
    """Yield the variables inside the operations that compute ``variables``, however deep."""
    for op in operations_of(variables):
        if isinstance(op, HasMultipleInnerGraph) and not isinstance(op, closed):
            graphs = op.inner_graphs.values()
            inner = list(ancestors([output for graph in graphs for output in graph.outputs]))
            yield from inner
            yield from inner_variables(inner, closed)


def all_variables(
    graphs: Iterable[AnyVariable], closed: tuple[type[Op], ...] = ()
) -> Iterator[AnyVariable]:
    """Yield the variables of graphs, and those inside of operations, however deep."""
    outer = list(ancestors(graphs))
    yield from outer
    yield from inner_variables(outer, closed)


def operations(graphs: Iterable[AnyVariable]) -> Iterator[Op]:
    """Yield every operation of graphs, and those inside of operations, however deep."""
    yield from operations_of(all_variables(graphs))


def operations_of(variables: Iterable[AnyVariable]) -> Iterator[Op]:
    """Yield the operations that compute variables, and what these apply."""
    for op in {id(v.owner.op): v.owner.op for v in variables if v.owner}.values():
        yield from layers(op)


def tensor_constants(variables: Iterable[AnyVariable]) -> list[Constant[Any]]:
    """Return those of the variables that are numbers, with any number of axes; also positions."""
    kinds = (TensorType, ScalarType)
    return [v for v in variables if isinstance(v, Constant) and isinstance(v.type, kinds)]
