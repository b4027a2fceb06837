"""Mean and variance of every entry of a variable, and those of activations of a Gaussian."""

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise

from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.methods.sep.network.defaults import DEFAULTS
from pymc_dp.model.graph_types import Node, Tensor

Pair = tuple[Tensor, Tensor]

PROBIT_SCALE = (np.pi / 8) ** 0.5  # sigmoid(x) is near Phi(PROBIT_SCALE x): MacKay (1992)
TINY = 1e-12  # added to variances where their roots are differentiated


class Moments(NamedTuple):
    """Mean and variance of every entry of a variable."""

    mean: Tensor
    variance: Tensor | None = None  # none where no latent reaches the variable
    sources: frozenset[str] = frozenset()  # the latents that do

    @property
    def known(self) -> bool:
        """Whether no latent reaches the variable."""
        return self.variance is None

    @property
    def pair(self) -> Pair:
        """Mean and variance; the variance of a known variable is 0."""
        return self.mean, self.mean.zeros_like() if self.variance is None else self.variance


def inner(op: Op) -> Any:
    """Return what an Op does to one entry, or to one array of many."""
    if isinstance(op, Elemwise):
        return op.scalar_op
    return op.core_op if isinstance(op, Blockwise) else op


def name_of(node: Node) -> str:
    """Name what a node does, as PyTensor does: ``Exp``, ``Dot``."""
    return type(inner(node.op)).__name__


def refuse_shared(node: Node, operands: list[Moments]) -> None:
    """Refuse operands that share a latent."""
    seen: set[str] = set()
    for operand in operands:
        for name in sorted(operand.sources & seen):
            raise NotConjugateError(f"`{name}` enters {name_of(node)} by two ways")
        seen |= operand.sources


def refuse_dependent(node: Node, operands: list[Moments]) -> None:
    """Refuse operands that share a latent, and operands whose entries are repeated."""
    refuse_shared(node, operands)
    out = node.outputs[0].type.shape
    for x, operand in zip(node.inputs, operands, strict=False):
        within = [1] * (len(out) - x.type.ndim) + list(x.type.shape)
        if not operand.known and any(a == 1 != b for a, b in zip(within, out, strict=True)):
            names = ", ".join(f"`{name}`" for name in sorted(operand.sources))
            raise NotConjugateError(f"{name_of(node)} repeats entries of {names}")


def cdf(x: Tensor) -> Tensor:
    """Phi(x), the standard normal distribution function."""
    return pt.erfc(-x / 2**0.5) / 2


def log_cdf(x: Tensor) -> Tensor:
    """Logarithm of Phi(x), with derivatives that are finite on both sides."""
    low, high = pt.minimum(x, -1.0), pt.maximum(x, -1.0)
    return pt.switch(
        x < -1,
        pt.log(pt.erfcx(-low / 2**0.5) / 2) - low**2 / 2,
        pt.log(pt.erfc(-high / 2**0.5) / 2),
    )


def step(mean: Tensor, variance: Tensor) -> Pair:
    """Moments of the event x > 0."""
    above = cdf(mean / pt.sqrt(variance + TINY))
    return above, above * (1 - above)


def relu(mean: Tensor, variance: Tensor) -> Pair:
    """Moments of max(0, x): Hernandez-Lobato and Adams (2015), section 3."""
    sd = pt.sqrt(variance + TINY)
    alpha = mean / sd
    above, density = cdf(alpha), sd * pt.exp(-(alpha**2) / 2) / (2 * np.pi) ** 0.5
    first = mean * above + density
    second = (mean**2 + variance) * above + mean * density
    return first, pt.maximum(second - first**2, 0.0)


def phi(scale: float, mean: Tensor, variance: Tensor) -> Pair:
    """Moments of Phi(scale x), exact but for the quadrature.

    The variance is the covariance of two events of probability Phi(a) whose correlation is rho,
    the integral of exp(-a^2 / (1 + sin t)) / 2 pi over t from 0 to arcsin rho.
    """
    inflated = 1 + scale**2 * variance
    a = scale * mean / pt.sqrt(inflated)
    end = pt.arcsin(1 - 1 / inflated)
    nodes, weights = np.polynomial.legendre.leggauss(DEFAULTS.nodes)
    t = pt.expand_dims(end, -1) * (1 + nodes) / 2
    values = pt.exp(-pt.expand_dims(a**2, -1) / (1 + pt.sin(t)))
    return cdf(a), (values * weights).sum(axis=-1) * end / (4 * np.pi)


def sigmoid(mean: Tensor, variance: Tensor) -> Pair:
    """Moments of 1 / (1 + exp(-x)): the mean is exact where x is known, the variance Phi's."""
    centre = pt.sigmoid(mean / pt.sqrt(1 + PROBIT_SCALE**2 * variance))
    return centre, phi(PROBIT_SCALE, mean, variance)[1]


def tanh(mean: Tensor, variance: Tensor) -> Pair:
    """Moments of tanh x = 2 sigmoid(2 x) - 1."""
    centre, spread = sigmoid(2 * mean, 4 * variance)
    return 2 * centre - 1, 4 * spread
