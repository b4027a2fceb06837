"""What the Python linker would run number by number, or record by record, as NumPy runs it."""

from collections.abc import Callable
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import Add, Clip, Mul
from pytensor.scalar.math import Log1mexp, Softplus, TriGamma
from pytensor.tensor.basic import AllocDiag
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.model.graph_types import AnyVariable, Node, Tensor, pt

MOST_OPERANDS = 16  # NumPy's ufuncs take at most 32 operands


FORMULAS: dict[type, Callable[..., Tensor]] = {
    Softplus: lambda x: pt.maximum(x, 0.0) + pt.log1p(pt.exp(-pt.abs(x))),
    Log1mexp: lambda x: pt.switch(
        pt.gt(x, -np.log(2.0)), pt.log(-pt.expm1(x)), pt.log1p(-pt.exp(x))
    ),
    Clip: lambda x, low, high: pt.switch(pt.lt(x, low), low, pt.minimum(x, high)),
    TriGamma: lambda x: pt.polygamma(pt.ones((), "int64"), x),
}


def _long_sum(node: Node) -> Tensor:
    """Sum, or multiply, many operands in parts."""
    fold = pt.add if isinstance(node.op.scalar_op, Add) else pt.mul
    parts = [node.inputs[i : i + MOST_OPERANDS] for i in range(0, len(node.inputs), MOST_OPERANDS)]
    return fold(*[fold(*part) if len(part) > 1 else part[0] for part in parts])


def by_ufuncs(fgraph: FunctionGraph, node: Node) -> list[AnyVariable] | None:
    """Replace an operation by ufuncs of NumPy and SciPy."""
    operation = node.op.scalar_op
    if isinstance(operation, Add | Mul) and len(node.inputs) > MOST_OPERANDS:
        whole = _long_sum(node)
    elif type(operation) in FORMULAS and not all(isinstance(x, Constant) for x in node.inputs):
        whole = FORMULAS[type(operation)](*node.inputs)
    else:
        return None
    return [whole.astype(node.outputs[0].type.dtype)]


def by_batches(fgraph: FunctionGraph, node: Node) -> list[AnyVariable] | None:
    """Replace a loop over records by operations on all of them."""
    core = node.op.core_op
    if node.outputs[0].type.ndim == len(node.op.outputs_sig[0]):
        return None  # one record's alone, such as the inverse below
    if isinstance(core, AllocDiag) and (core.offset, core.axis1, core.axis2) == (0, 0, 1):
        whole = _diagonals(node.inputs[0], len(node.op.inputs_sig[0]))
    elif isinstance(core, SolveTriangular) and _shares_matrices(node):
        whole = _solved_by_inverse(core, *node.inputs)
    elif isinstance(core, AdvancedSubtensor) and _takes_single_values(node):
        whole = _values_at(*node.inputs)
    else:
        return None
    return [whole.astype(node.outputs[0].type.dtype)]


def _diagonals(x: Tensor, core: int) -> Tensor:
    """Put the last axis on diagonals, whose two axes come first of the core's."""
    on = pt.eye(x.shape[-1], dtype="bool")
    batch = x.ndim - core
    return pt.moveaxis(pt.switch(on, x[..., None], 0.0), (-2, -1), (batch, batch + 1))


def _shares_matrices(node: Node) -> bool:
    """Whether several right sides share a matrix; those of an inverse do not."""
    of_a, of_b = (
        x.type.broadcastable[: x.type.ndim - len(sides)]
        for x, sides in zip(node.inputs, node.op.inputs_sig, strict=True)
    )
    return any(a and not b for a, b in zip(of_a, of_b, strict=True))


def _solved_by_inverse(solve: SolveTriangular, a: Tensor, b: Tensor) -> Tensor:
    """Solve by the inverse of each matrix, where several right sides share one."""
    if all(a.type.broadcastable[:-2]):
        a = a[(0,) * (a.ndim - 2)]
    settings: Any = {"lower": solve.lower, "unit_diagonal": solve.unit_diagonal}
    inverse = pt.linalg.solve_triangular(a, pt.eye(a.shape[-1]), b_ndim=2, **settings)
    right = b[..., None] if solve.b_ndim == 1 else b
    solved = pt.matmul(inverse, right)
    return solved[..., 0] if solve.b_ndim == 1 else solved


def _takes_single_values(node: Node) -> bool:
    """Whether each record's array has an index for each axis, and all have as many dimensions."""
    array, *indices = (len(sides) for sides in node.op.inputs_sig)
    numbers = all(x.type.dtype.startswith(("int", "uint")) for x in node.inputs[1:])
    every_axis = node.op.core_op.idx_list == tuple(range(array))
    return numbers and every_axis and len(set(indices)) == 1


def _values_at(x: Tensor, *indices: Tensor) -> Tensor:
    """Take values of each record's array, or of the one that all records share."""
    batch, ndim = x.ndim - len(indices), indices[0].ndim
    places = [
        0 if x.type.broadcastable[k] else pt.arange(x.shape[k])[(..., *[None] * (ndim - 1 - k))]
        for k in range(batch)
    ]
    return x[(*places, *indices)]
