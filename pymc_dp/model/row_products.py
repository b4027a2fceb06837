"""Matrix products of the Python linker, each number of which depends on one row and one column.

See `privacy.norms` for the reason. Sums over records are products, too: their rounding is bounded
as a whole, so that they keep the faster kernels (`SumOverRecords`).
"""

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot

from pymc_dp.model.graph_types import AnyVariable, Node, Tensor
from pymc_dp.privacy.norms import product


class SumOverRecords(Dot):
    """A matrix product that sums over records."""


def sum_over_records(left: Tensor, right: Tensor) -> Tensor:
    """Multiply (k, records) or (records,) by (records, m) or (records,)."""
    rows = left[None] if left.ndim == 1 else left
    columns = right[:, None] if right.ndim == 1 else right
    total: Tensor = SumOverRecords()(rows, columns)
    alone = [axis for axis, x in enumerate((left, right)) if x.ndim == 1]
    return total.squeeze(alone) if alone else total


class RowProduct(Op):
    """A matrix product, of stacks of matrices or of two operands of one or two axes."""

    __props__ = ()

    def perform(self, node: Node, inputs: Any, output_storage: Any) -> None:
        """Multiply."""
        output_storage[0][0] = np.asarray(product(*inputs), node.outputs[0].type.dtype)


def by_rows(fgraph: FunctionGraph, node: Node) -> list[AnyVariable] | None:
    """Replace a product of matrices of real numbers."""
    core = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    if type(core) not in (Dot, BatchedDot) or not node.outputs[0].type.dtype.startswith("float"):
        return None
    return list(Apply(RowProduct(), node.inputs, [node.outputs[0].type()]).outputs)
