"""Means and variances of independent Gaussian latents, pushed through a graph: one rule an Op.

The entries of every variable are taken as independent Gaussians with the right moments, as in
probabilistic backpropagation (Hernandez-Lobato and Adams 2015, section 3). For linear graphs this
is exact. Operands that share a latent, and entries that repeat one, are not independent: they are
refused where the graph shows them. Hidden units that share the layers below them are taken as
independent, as in the paper.
"""

from collections.abc import Callable, Mapping
from functools import reduce, singledispatch
from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.traversal import toposort
from pytensor.scalar.math import Erf, Erfc, Sigmoid
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.methods.sep.network.moments import (
    Moments,
    Pair,
    inner,
    name_of,
    phi,
    refuse_dependent,
    refuse_shared,
    relu,
    sigmoid,
    step,
    tanh,
)
from pymc_dp.model.batch import remake
from pymc_dp.model.graph_types import AnyVariable, Node, Tensor
from pymc_dp.model.split import number_in


def propagate(output: AnyVariable, latents: Mapping[AnyVariable, Moments]) -> Moments:
    """Push the moments of latents through the graph that leads to ``output``.

    >>> import pytensor.tensor as pt
    >>> w, variance = pt.vector("w", shape=(2,)), pt.constant([0.5, 1.0])
    >>> y = pt.dot(pt.constant([2.0, 3.0]), w)
    >>> float(propagate(y, {w: Moments(w, variance, frozenset("w"))}).variance.eval())
    11.0
    """
    found = dict(latents)
    for node in toposort([output], blockers=list(latents)):
        operands = [found.get(x, Moments(x)) for x in node.inputs]
        # a shape does not depend on the entries
        if not isinstance(node.op, Shape | Shape_i) and not all(x.known for x in operands):
            sources = frozenset[str]().union(*[operand.sources for operand in operands])
            found[node.outputs[0]] = Moments(*rule(inner(node.op), node, operands), sources)
    return found.get(output, Moments(output))


@singledispatch
def rule(op: Any, node: Node, operands: list[Moments]) -> Pair:
    """Return mean and variance of a node's output; at least one operand is not known."""
    raise NotConjugateError(
        f"the network passes through {name_of(node)}, which has no rule for means and variances"
    )


# --- entries that move or are added ----------------------------------------------------------


@rule.register(DimShuffle)
@rule.register(Reshape)
@rule.register(JoinDims)
@rule.register(SplitDims)
@rule.register(SpecifyShape)
@rule.register(Subtensor)
@rule.register(AdvancedSubtensor)
@rule.register(Sum)
def _linear(op: Any, node: Node, operands: list[Moments]) -> Pair:
    first, *others = operands
    if not all(x.known for x in others):
        raise NotConjugateError(f"a latent is an index or a length in {name_of(node)}")
    mean, variance = (remake(node, [x, *node.inputs[1:]])[0] for x in first.pair)
    return mean, variance


@rule.register
def _alloc(op: Alloc, node: Node, operands: list[Moments]) -> Pair:
    refuse_dependent(node, operands[:1])
    return _linear(op, node, operands)


@rule.register
def _join(op: Join | MakeVector, node: Node, operands: list[Moments]) -> Pair:
    both = zip(*[x.pair for x in operands], strict=True)
    mean, variance = (remake(node, list(parts))[0] for parts in both)
    return mean, variance


# --- sums and products ------------------------------------------------------------------------


PAIRS: dict[type, Callable[[Pair, Pair], Pair]] = {
    ps.Add: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    ps.Sub: lambda a, b: (a[0] - b[0], a[1] + b[1]),
    ps.Mul: lambda a, b: (a[0] * b[0], a[1] * b[0] ** 2 + a[0] ** 2 * b[1] + a[1] * b[1]),
}


@rule.register
def _pairwise(op: ps.Add | ps.Sub | ps.Mul, node: Node, operands: list[Moments]) -> Pair:
    refuse_dependent(node, operands)
    return reduce(PAIRS[type(op)], [x.pair for x in operands])


@rule.register
def _true_div(op: ps.TrueDiv, node: Node, operands: list[Moments]) -> Pair:
    (mean, variance), below = operands[0].pair, operands[1]
    if not below.known:
        raise NotConjugateError("the network divides by a latent")
    refuse_dependent(node, operands)
    return mean / below.mean, variance / below.mean**2


@rule.register
def _dot(op: Dot, node: Node, operands: list[Moments]) -> Pair:
    """Sum products of independent factors; factors that are known have no variance."""
    refuse_shared(node, operands)
    (a, da), (b, db) = ((x.mean, x.variance) for x in operands)
    pairs = [(a, b), (da, b**2), (a**2, db), (da, db)]
    mean, *spread = (remake(node, [x, y])[0] for x, y in pairs if x is not None and y is not None)
    return mean, pt.add(*spread) if len(spread) > 1 else spread[0]


# --- activations -----------------------------------------------------------------------------


def _erf(mean: Tensor, variance: Tensor) -> Pair:
    """Erf x = 2 Phi(sqrt 2 x) - 1."""
    mean, variance = phi(2**0.5, mean, variance)
    return 2 * mean - 1, 4 * variance


def _erfc(mean: Tensor, variance: Tensor) -> Pair:
    """Erfc x = 2 Phi(-sqrt 2 x)."""
    mean, variance = phi(-(2**0.5), mean, variance)
    return 2 * mean, 4 * variance


# (mean, variance) of one operand -> those of its function
OF_ONE: dict[type, Callable[[Tensor, Tensor], Pair]] = {
    ps.Cast: lambda mean, variance: (mean, variance),
    ps.Neg: lambda mean, variance: (-mean, variance),
    Sigmoid: sigmoid,
    ps.Tanh: tanh,
    Erf: _erf,
    Erfc: _erfc,
}


@rule.register
def _function(
    op: ps.Cast | ps.Neg | Sigmoid | ps.Tanh | Erf | Erfc, node: Node, operands: list[Moments]
) -> Pair:
    return OF_ONE[type(op)](*operands[0].pair)


@rule.register
def _maximum(op: ps.Maximum, node: Node, operands: list[Moments]) -> Pair:
    """max(c, x) = c + max(0, x - c)."""
    refuse_dependent(node, operands)
    floor, x = sorted(operands, key=lambda operand: not operand.known)
    if not floor.known:
        raise NotConjugateError("the network takes the larger of two variables that it learns")
    mean, variance = relu(x.mean - floor.mean, x.pair[1])
    return floor.mean + mean, variance


@rule.register(ps.GT)
@rule.register(ps.GE)
def _above(op: Any, node: Node, operands: list[Moments]) -> Pair:
    refuse_dependent(node, operands)
    return step(*PAIRS[ps.Sub](*[x.pair for x in operands]))


@rule.register
def _switch(op: ps.Switch, node: Node, operands: list[Moments]) -> Pair:
    condition, then, otherwise = operands
    if condition.known:
        means, variances = zip(then.pair, otherwise.pair, strict=True)
        return pt.switch(condition.mean, *means), pt.switch(condition.mean, *variances)
    if _is_relu(*node.inputs):
        return relu(*then.pair)
    raise NotConjugateError("the network switches by a latent and is no max(0, x)")


def _is_relu(condition: AnyVariable, then: AnyVariable, otherwise: AnyVariable) -> bool:
    """Recognise switch(x > 0, x, 0)."""
    if condition.owner is None or not isinstance(inner(condition.owner.op), ps.GT | ps.GE):
        return False
    x, bound = condition.owner.inputs
    return x is then and number_in(bound) == 0 and number_in(otherwise) == 0
