"""Components that a record does not have: a weight of 0 in a mixture, as known labels give it.

The logarithm of such a weight is -inf, and the component adds nothing to the record's likelihood
nor to its gradient. The chain rule computes 0 / 0 there, and a record without a gradient would
drop out. Here the logarithm of 0 is a constant, whose slope is 0.
"""

import numpy as np
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Add, Log, Sub
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.special import LogAddExp, LogSumExp

from pymc_dp.model import Records
from pymc_dp.model.batch import RecordGraph, rebuilt
from pymc_dp.model.graphs import AnyVariable, Node, Tensor, pt


def with_absent_components(records: Records) -> Records:
    """Let weights of 0 have a logarithm whose slope is 0, in the likelihood of all records."""
    batch, single = records.batch, records.single
    return records._replace(batch=_with_constants(batch), single=_with_constants(single))


def _with_constants(graph: RecordGraph) -> RecordGraph:
    logs = _logarithms_of_weights(graph)
    if not logs:
        return graph
    axis = dict(graph.axis)

    def change(node: Node, operands: list[Tensor]) -> None:
        for i, x in enumerate(node.inputs):
            if x in logs:
                made = _logarithm(operands[i].owner.inputs[0])
                axis.update(dict.fromkeys(made, graph.axis[x]))
                operands[i] = made[-1]

    found = rebuilt(list(graph.terms), {}, change)
    axis |= {found[x]: k for x, k in graph.axis.items() if x in found}
    return graph._replace(terms=tuple(found.get(x, x) for x in graph.terms), axis=axis)


def _logarithm(x: Tensor) -> list[Tensor]:
    """Return what the logarithm is computed from, and itself last."""
    absent: Tensor = pt.eq(x, 0)
    present = pt.switch(absent, 1.0, x)
    value = pt.log(present)
    return [absent, present, value, pt.switch(absent, -np.inf, value)]


def _logarithms_of_weights(graph: RecordGraph) -> set[AnyVariable]:
    """Find logarithms of records' numbers that are added to what is summed on the log scale."""
    carrying = graph.axis
    sums = [v for v in ancestors(graph.terms) if isinstance(v.owner_op, LogSumExp | LogAddExp)]
    waiting, found = [x for v in sums for x in v.owner.inputs], set()
    while waiting:
        x = waiting.pop()
        scalar_op = getattr(x.owner_op, "scalar_op", None)
        if isinstance(scalar_op, Log) and x in carrying:
            found.add(x)
        elif isinstance(x.owner_op, DimShuffle) or isinstance(scalar_op, Add | Sub):
            waiting += x.owner.inputs
    return found
