"""The expression that an array without a name stands in, as its author may have written it."""

from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.model.graph_types import AnyVariable, Node

SYMBOLS = {"Add": "+", "Sub": "-", "Mul": "*", "True_div": "/", "Pow": "**"}
SYMBOLS |= {"Dot": "@", "Matmul": "@"}
DEPTH = 2  # how many operations deep an expression is written out


def expression_around(fgraph: FunctionGraph, variable: AnyVariable) -> str:
    """Write the operation that reads a variable; numbers and what is far away are dots."""
    for node, _ in fgraph.clients[variable]:
        if _is_layout(node):
            return expression_around(fgraph, node.outputs[0])
        if node.outputs and not type(node.op).__name__.startswith("Model"):
            return _text(node.outputs[-1 if isinstance(node.op, RandomVariable) else 0], DEPTH)
    return ""


def _is_layout(node: Node) -> bool:
    return isinstance(node.op, DimShuffle | SpecifyShape)


def _text(variable: AnyVariable, depth: int) -> str:
    node = variable.owner
    if variable.name and (depth < DEPTH or node is None):
        return str(variable.name)
    if node is None or isinstance(variable, Constant) or depth == 0:
        return "..."
    if _is_layout(node):
        return _text(node.inputs[0], depth)
    if isinstance(node.op, RandomVariable):
        name = str(node.op.name).removesuffix("_rv")
        return f"{name}({', '.join(_text(x, depth - 1) for x in node.op.dist_params(node))})"
    operands = [_text(x, depth - 1) for x in node.inputs]
    if set(operands) == {"..."}:
        return "..."
    if isinstance(node.op, AdvancedSubtensor):
        return f"{operands[0]}[{', '.join(operands[1:])}]"
    name = str(node.op).partition("{")[0]
    if name in SYMBOLS:
        joined = f" {SYMBOLS[name]} ".join(operands)
        return joined if depth == DEPTH else f"({joined})"
    return f"{name.lower()}({', '.join(operands)})"
