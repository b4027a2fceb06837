"""Mean and variance of every entry of a variable, and what makes entries dependent."""

from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise

from pymc_dp.methods.refusal import NotConjugateError

Pair = tuple[Variable, Variable]


class Moments(NamedTuple):
    """Mean and variance of every entry of a variable.

    Attributes
    ----------
    mean : Variable
    variance : Variable or None
        None where no latent reaches the variable.
    sources : frozenset of str
        The latents that do.
    """

    mean: Variable
    variance: Variable | None = None
    sources: frozenset[str] = frozenset()

    @property
    def known(self) -> bool:
        """Whether no latent reaches the variable."""
        return self.variance is None

    @property
    def pair(self) -> Pair:
        """Mean and variance; the variance of a known variable is 0."""
        return self.mean, pt.zeros_like(self.mean) if self.variance is None else self.variance


def inner(op: Op) -> Any:
    """Return what an Op does to one entry, or to one array of many."""
    if isinstance(op, Elemwise):
        return op.scalar_op
    return op.core_op if isinstance(op, Blockwise) else op


def name_of(node: Apply) -> str:
    """Name what a node does, as PyTensor does: ``Exp``, ``Dot``."""
    return type(inner(node.op)).__name__


def refuse_shared(node: Apply, operands: list[Moments]) -> None:
    """Refuse operands that share a latent."""
    seen: set[str] = set()
    for operand in operands:
        for name in sorted(operand.sources & seen):
            raise NotConjugateError(f"`{name}` enters {name_of(node)} by two ways")
        seen |= operand.sources


def refuse_dependent(node: Apply, operands: list[Moments]) -> None:
    """Refuse operands that share a latent, and operands whose entries are repeated."""
    refuse_shared(node, operands)
    out = node.outputs[0].type.shape
    for x, operand in zip(node.inputs, operands, strict=False):
        within = [1] * (len(out) - x.type.ndim) + list(x.type.shape)
        if not operand.known and any(a == 1 != b for a, b in zip(within, out, strict=True)):
            names = ", ".join(f"`{name}`" for name in sorted(operand.sources))
            raise NotConjugateError(f"{name_of(node)} repeats entries of {names}")
