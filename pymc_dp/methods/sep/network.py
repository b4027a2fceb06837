"""Bayesian networks: recognised from the graph of one record, and means and variances through it.

All Gaussian latents pass through one output f, on which the likelihood depends as a Normal with
known or Gamma precision does, or a Bernoulli with a logistic or probit link. The latents are
independent given precisions, and every Op between them and f has a rule of moments.

The entries of every variable are taken as independent Gaussians with the right moments, as in
probabilistic backpropagation (Hernandez-Lobato and Adams 2015, section 3): exact in linear graphs.
Operands that share a latent, and entries that repeat one, are refused where the graph shows them.
Hidden units that share the layers below them are taken as independent, as in the paper.
"""

from collections.abc import Callable, Mapping
from functools import partial, reduce, singledispatch
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar.math import Erf, Erfc, Sigmoid
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_dp.methods.conjugate import gaussian_latents
from pymc_dp.methods.linear import (
    Predictor,
    bottlenecks,
    is_near_regression,
    of_outcome,
    predictor_at,
)
from pymc_dp.methods.method import quoted
from pymc_dp.methods.mixture.model import is_near as is_near_mixture
from pymc_dp.methods.normal import GaussianPrior, check_independent, gaussian_prior
from pymc_dp.methods.options import NotConjugateError, refuse_local_latents
from pymc_dp.model import Records
from pymc_dp.model.batch import remake
from pymc_dp.model.graphs import AnyVariable, Node, Tensor
from pymc_dp.model.split import number_in


class Defaults(NamedTuple):
    """Public numbers; none of them is fitted to data."""

    releases: int = 400
    noiseless_releases: int = 1000
    # records in a batch, and the range of sample rates that follows where their number is declared
    batch: int = 500
    sample_rate: float = 0.05
    sample_rate_range: tuple[float, float] = (0.02, 0.5)
    clip_norm: float = 0.5  # clip norm over the typical norm of a score
    # shares of the clip norm
    score_share: float = 0.85
    precision_share: float = 0.4
    noise_share: float = 0.3
    number_share: float = 0.1
    # longest precisions and noise sites of a record, in typical ones
    longest_precision: float = 2.0
    longest_noise: float = 4.5
    # probe records that are measured, and the cavity's standard deviation then, in weights' scales
    probes: int = 200
    start_sd: float = 0.1
    nodes: int = 10  # Gauss-Legendre nodes of the integral behind the variance of Phi(x)
    least_tilted: float = 0.1  # a tilted variance is at least this share of the cavity's
    # a record makes the rate of the noise precision at most this many times as large
    longest_rate: float = 1e6
    # the longest step, also where clipping shortens the scores, and its share at the end of a fit
    step: float = 1.0
    clipped_step: float = 3.0
    last_step: float = 0.1
    # the noise of all steps together moves weights by about this many of their scales
    noise_walk: float = 2.5
    # a step moves them by at most this many (root mean square), or units end where none is active
    trust_radius: float = 0.2
    # scores are averaged over this share of the releases: the longer, the steeper directions may be
    memory: float = 1 / 30
    shortest_memory: int = 10
    # weight of a release in averages of sites; less if noise would exceed ``noise_in_average``
    averaging: float = 0.05
    noise_in_average: float = 0.2
    # shares of the records that inform every weight at least: in the cavity, and in steps
    least_share: float = 0.1
    least_share_in_steps: float = 0.3
    nominal_records: int = 1000  # number of records where it is neither released nor declared
    # range of the shape of a record's site, near 1/2, in their noisy sum
    shape_range: tuple[float, float] = (0.4, 0.5)
    least_shape: float = 2.5  # least shape of the cavity of the noise precision


DEFAULTS = Defaults()
PROBIT_SCALE = (np.pi / 8) ** 0.5  # sigmoid(x) is near Phi(PROBIT_SCALE x): MacKay (1992)
TINY = 1e-12  # added to variances where their roots are differentiated
Pair = tuple[Tensor, Tensor]


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


class Network(NamedTuple):
    """A Bayesian network."""

    prior: GaussianPrior  # of all Gaussian latents; independent entries given the precisions
    output: Predictor  # the likelihood as a function of the network's output, one number
    # of the output: graphs of the latents, which stand for their means, and of ``variances``
    moments: Moments
    variances: dict[str, AnyVariable]  # {latent: AnyVariable}


def recognise(records: Records) -> Network:
    """Prove, at probe points, that the model is a network with independent weights."""
    refuse_local_latents(records)
    if len(records.term_names) > 1:
        raise NotConjugateError(f"`{records.term_names[1]}` is a second outcome")
    if not gaussian_latents(records):
        raise NotConjugateError("no latent has a Gaussian prior, so there are no weights")
    output = of_outcome(records.term_names[0], partial(_output, records))
    prior = gaussian_prior(records)
    check_independent(prior)
    latents = {name: records.latents[name] for name in prior.shapes}
    variances = {name: x.type.clone()(f"{name}_variance") for name, x in latents.items()}
    given = {x: Moments(x, variances[name], frozenset([name])) for name, x in latents.items()}
    return Network(prior, output, propagate(output.psi, given), variances)


def _output(records: Records) -> Predictor:
    """Find the variable of one entry nearest to the likelihood in which it has a known form."""
    [term] = records.single.terms
    gaussian = {records.latents[name] for name in gaussian_latents(records)}
    for variable in bottlenecks(records, term):
        shape = variable.type.shape
        if all(length == 1 for length in shape) and gaussian <= set(ancestors([variable])):
            output = predictor_at(records, term, variable, shape)
            if output.single:
                return output
    raise NotConjugateError(
        "has no single output in which it is Normal or Bernoulli with a logistic or probit link"
    )


def is_near(records: Records) -> bool:
    """Whether there are Gaussian latents in which no predictor is linear."""
    gaussian = gaussian_latents(records) and not records.local_latents
    return bool(gaussian) and not is_near_regression(records) and not is_near_mixture(records)


def roles(records: Records, network: Network) -> dict[str, str]:
    """Describe the role of each latent and each term in the updates."""
    roles = dict.fromkeys(network.prior.shapes, "weights, independent Gaussians")
    roles |= {name: network.prior.role(name, "weights") for name in network.prior.gammas}
    if network.output.precision:
        roles[network.output.precision] = network.prior.role(network.output.precision, "the noise")
    return roles | dict.fromkeys(
        records.term_names, f"network, {network.output.form}: moments through its graph"
    )


def propagate(output: AnyVariable, latents: Mapping[AnyVariable, Moments]) -> Moments:
    """Push the moments of latents through the graph that leads to ``output``."""
    moments = dict(latents)
    for node in toposort([output], blockers=list(latents)):
        operands = [moments.get(x, Moments(x)) for x in node.inputs]
        # a shape does not depend on the entries
        if not isinstance(node.op, Shape | Shape_i) and not all(x.known for x in operands):
            sources = frozenset[str]().union(*[operand.sources for operand in operands])
            moments[node.outputs[0]] = Moments(*rule(inner(node.op), node, operands), sources)
    return moments.get(output, Moments(output))


@singledispatch
def rule(op: Any, node: Node, operands: list[Moments]) -> Pair:
    """Return mean and variance of a node's output; at least one operand is not known."""
    raise NotConjugateError(
        f"the network passes through {name_of(node)}, which has no rule for means and variances"
    )


def inner(op: Op | None) -> Any:
    """Return what an Op does to one entry, or to one array of many."""
    if isinstance(op, Elemwise):
        return op.scalar_op
    return op.core_op if isinstance(op, Blockwise) else op


def name_of(node: Node) -> str:
    """Name what a node does, as PyTensor does: ``Exp``, ``Dot``."""
    return type(inner(node.op)).__name__


def refuse_shared(node: Node, operands: list[Moments]) -> None:
    """Refuse operands that share a latent."""
    entered: set[str] = set()
    for operand in operands:
        for name in sorted(operand.sources & entered):
            raise NotConjugateError(f"`{name}` enters {name_of(node)} by two ways")
        entered |= operand.sources


def refuse_dependent(node: Node, operands: list[Moments]) -> None:
    """Refuse operands that share a latent, and operands whose entries are repeated."""
    refuse_shared(node, operands)
    out = node.outputs[0].type.shape
    for x, operand in zip(node.inputs, operands, strict=False):
        within = [1] * (len(out) - x.type.ndim) + list(x.type.shape)
        if not operand.known and any(a == 1 != b for a, b in zip(within, out, strict=True)):
            named = quoted(sorted(operand.sources))
            raise NotConjugateError(f"{name_of(node)} repeats entries of {named}")


# --- entries that move or are added ----------------------------------------------------------


Moving = DimShuffle | Reshape | JoinDims | SplitDims | SpecifyShape | Subtensor | AdvancedSubtensor
Joining = Join | MakeVector


@rule.register
def _linear(op: Moving | Sum | Alloc | Joining, node: Node, operands: list[Moments]) -> Pair:
    count = len(operands) if isinstance(op, Joining) else 1  # of operands that hold entries
    if not all(x.known for x in operands[count:]):
        raise NotConjugateError(f"a latent is an index or a length in {name_of(node)}")
    if isinstance(op, Alloc):
        refuse_dependent(node, operands[:1])
    both = zip(*[x.pair for x in operands[:count]], strict=True)
    mean, variance = (remake(node, [*parts, *node.inputs[count:]])[0] for parts in both)
    return mean, variance


# --- sums and products ------------------------------------------------------------------------


PAIRS: dict[type, Callable[[Pair, Pair], Pair]] = {
    ps.Add: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    ps.Sub: lambda a, b: (a[0] - b[0], a[1] + b[1]),
    ps.Mul: lambda a, b: (a[0] * b[0], a[1] * b[0] ** 2 + a[0] ** 2 * b[1] + a[1] * b[1]),
    ps.TrueDiv: lambda a, b: (a[0] / b[0], a[1] / b[0] ** 2),  # b is known
}


@rule.register
def _pairwise(
    op: ps.Add | ps.Sub | ps.Mul | ps.TrueDiv, node: Node, operands: list[Moments]
) -> Pair:
    if isinstance(op, ps.TrueDiv) and not operands[1].known:
        raise NotConjugateError("the network divides by a latent")
    refuse_dependent(node, operands)
    return reduce(PAIRS[type(op)], [x.pair for x in operands])


@rule.register
def _dot(op: Dot, node: Node, operands: list[Moments]) -> Pair:
    """Sum products of independent factors; factors that are known have no variance."""
    refuse_shared(node, operands)
    (a, da), (b, db) = ((x.mean, x.variance) for x in operands)
    pairs = [(a, b), (da, b**2), (a**2, db), (da, db)]
    mean, *spread = (remake(node, [x, y])[0] for x, y in pairs if x is not None and y is not None)
    return mean, pt.add(*spread) if len(spread) > 1 else spread[0]


# --- activations -----------------------------------------------------------------------------


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


def relu(mean: Tensor, variance: Tensor) -> Pair:
    """Moments of max(0, x): Hernandez-Lobato and Adams (2015), section 3."""
    sd = pt.sqrt(variance + TINY)
    alpha = mean / sd
    above, density = cdf(alpha), sd * pt.exp(-(alpha**2) / 2) / (2 * np.pi) ** 0.5
    first = mean * above + density
    second = (mean**2 + variance) * above + mean * density
    return first, pt.maximum(second - first**2, 0.0)


def phi(scale: float, mean: Tensor, variance: Tensor) -> Pair:
    """Moments of Phi(scale x), exact but for the quadrature."""
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


def _twice(moments: Pair, less: float) -> Pair:
    mean, variance = moments
    return 2 * mean - less, 4 * variance


# (mean, variance) of one operand -> those of its function
OF_ONE: dict[type, Callable[[Tensor, Tensor], Pair]] = {
    ps.Cast: lambda mean, variance: (mean, variance),
    ps.Neg: lambda mean, variance: (-mean, variance),
    Sigmoid: sigmoid,
    # tanh x = 2 sigmoid(2 x) - 1, erf x = 2 Phi(sqrt 2 x) - 1, erfc x = 2 Phi(-sqrt 2 x)
    ps.Tanh: lambda mean, variance: _twice(sigmoid(2 * mean, 4 * variance), 1),
    Erf: lambda mean, variance: _twice(phi(2**0.5, mean, variance), 1),
    Erfc: lambda mean, variance: _twice(phi(-(2**0.5), mean, variance), 0),
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


@rule.register
def _above(op: ps.GT | ps.GE, node: Node, operands: list[Moments]) -> Pair:
    refuse_dependent(node, operands)
    mean, variance = PAIRS[ps.Sub](*[x.pair for x in operands])
    above = cdf(mean / pt.sqrt(variance + TINY))
    return above, above * (1 - above)


@rule.register
def _switch(op: ps.Switch, node: Node, operands: list[Moments]) -> Pair:
    condition, then, otherwise = operands
    if condition.known:
        means, variances = zip(then.pair, otherwise.pair, strict=True)
        return pt.switch(condition.mean, *means), pt.switch(condition.mean, *variances)
    event, x, zero = node.inputs
    if isinstance(inner(event.owner_op), ps.GT | ps.GE):
        above, bound = event.owner.inputs
        if above is x and number_in(bound) == number_in(zero) == 0:
            return relu(*then.pair)
    raise NotConjugateError("the network switches by a latent and is no max(0, x)")
