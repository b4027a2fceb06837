"""Draws of PyMC's distributions written anew: finite mixtures, and counts that are at least 1.

PyMC writes a draw of a mixture by row numbers, from which no proof of separable records follows. A
choice entry by entry among draws of its components says the same.

It draws counts that are at least 1 by rejection in a loop. Think of the events of a Poisson process
on [0, 1] of rate r, given that there are some. The first falls at s, of which ``1 - exp(-r s)`` is
uniform below ``1 - exp(-r)``, and those after it are Poisson of mean r (1 - s). A negative binomial
count of parameters n and p adds up a logarithmic number for each event, where r = -n log p: those
after the first add up to a negative binomial count of n (1 - s) and p, and the first is geometric
of success p^u for a uniform u (Kemp 1981).
"""

from typing import Any

import numpy as np
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.mixture import _BaseMixtureRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import NegBinomialRV, PoissonRV

from pymc_dp.model.graph_types import AnyVariable, Node, Tensor, pt
from pymc_dp.model.terms import number_in

SMALLEST = 1e-300  # numpy refuses a negative binomial of n = 0, which is what it is nearest to
# below numpy's own limit of a negative binomial's mean and ten standard deviations
LARGEST_MEAN = 9e18


def counts_without_rejection(graph: AnyVariable) -> AnyVariable:
    """Replace Poisson and negative binomial counts above 0 by draws of finitely many variables."""
    found = {
        node.outputs[0]: _at_least_one(node)
        for node in {v.owner for v in ancestors([graph])}
        if node is not None and _is_at_least_one(node)
    }
    if not found:
        return graph
    [graph] = clone_replace([graph], found, rebuild_strict=False)
    return graph


def _is_at_least_one(node: Node) -> bool:
    if not isinstance(node.op, TruncatedRV):
        return False
    counts = isinstance(node.op.base_rv_op, PoissonRV | NegBinomialRV)
    return counts and [*map(number_in, node.inputs[-2:])] == [1, np.inf]


def _at_least_one(node: Node) -> Tensor:
    generator, size, *parameters = node.inputs[:-2]
    drawn: dict[str, Any] = {"rng": generator, "size": size, "return_next_rng": True}
    _, uniform = pt.random.uniform(**drawn)
    if isinstance(node.op.base_rv_op, PoissonRV):
        [rate] = parameters
        _, others = pt.random.poisson(rate * (1 - _first(rate, uniform)), **drawn)
        whole = 1 + others
    else:
        n, p = parameters
        left = n * (1 - _first(n * -pt.log(p), uniform))
        # whether numpy refuses a draw must not depend on chance, or a row would be drawn again as
        # often as others of its batch are: it refuses this mean of n, so of less, too
        mean = pt.expm1(-pt.log(p)) * (n + 10 * pt.sqrt(n))
        left = pt.switch(mean < LARGEST_MEAN, left, np.nan)
        _, others = pt.random.negative_binomial(pt.maximum(left, SMALLEST), p, **drawn)
        _, wait = pt.random.exponential(**drawn)  # not a second uniform, which could be merged
        _, one = pt.random.geometric(p ** pt.exp(-wait), **drawn)
        whole = one + others
    return whole.astype(node.outputs[0].type.dtype)


def _first(rate: Tensor, uniform: Tensor) -> Tensor:
    """Return when the first event falls, from 0 to 1."""
    return pt.clip(-pt.log1p(uniform * pt.expm1(-rate)) / rate, 0.0, 1.0)


def mixtures_by_choice(graph: AnyVariable) -> AnyVariable:
    """Replace every mixture in a graph, also those inside others."""
    while mixtures := [
        v for v in ancestors([graph]) if isinstance(v.owner_op, _BaseMixtureRV) and v.type.ndim > 0
    ]:
        choice = {mixtures[0]: _choice(mixtures[0].owner, mixtures[0])}
        [graph] = clone_replace([graph], choice, rebuild_strict=False)
    return graph


def _choice(node: Node, draw: Tensor) -> Tensor:
    """Choose by a category, which has a number for each draw of the mixture."""
    inputs: list[Tensor] = list(node.inputs)
    generator, weights, *components = inputs
    support = node.op.ndim_supp
    weights = pt.shape_padleft(weights, draw.ndim - support + 1 - weights.ndim)
    _, category = pt.random.categorical(weights, rng=generator, return_next_rng=True)
    if len(components) == 1:  # stacked along the axis before those of the support
        number = pt.shape_padright(pt.arange(weights.shape[-1]), support)
        chosen = pt.eq(pt.shape_padright(category, support + 1), number)
        return pt.switch(chosen, components[0], 0).sum(axis=-support - 1).astype(draw.dtype)
    first, *others = map(_value, components)
    category = pt.shape_padright(category, support)
    for k, other in enumerate(others, 1):
        first = pt.switch(pt.eq(category, k), other, first)
    return first.astype(draw.dtype)


def _value(component: Tensor) -> Tensor:
    """Return a component's draw; that of a constant is the constant, whatever its size."""
    node = component.owner
    if isinstance(node.op, DiracDeltaRV):
        [constant] = node.op.dist_params(node)
        return constant
    return component
