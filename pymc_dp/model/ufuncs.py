"""Operations that the Python linker would run number by number, written as those that NumPy has."""

from collections.abc import Callable

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import Add, Clip, Mul
from pytensor.scalar.math import Log1mexp, Softplus, TriGamma

from pymc_dp.model.graph_types import AnyVariable, Node, Tensor, pt

# NumPy's ufuncs take at most 32 operands
MOST_OPERANDS = 16


def _softplus(x: Tensor) -> Tensor:
    return pt.maximum(x, 0.0) + pt.log1p(pt.exp(-pt.abs(x)))


def _log1mexp(x: Tensor) -> Tensor:
    return pt.switch(pt.gt(x, -np.log(2.0)), pt.log(-pt.expm1(x)), pt.log1p(-pt.exp(x)))


def _clip(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return pt.minimum(pt.maximum(x, low), high)


def _tri_gamma(x: Tensor) -> Tensor:
    return pt.polygamma(pt.ones((), "int64"), x)


FORMULAS: dict[type, Callable[..., Tensor]] = {
    Softplus: _softplus,
    Log1mexp: _log1mexp,
    Clip: _clip,
    TriGamma: _tri_gamma,
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
