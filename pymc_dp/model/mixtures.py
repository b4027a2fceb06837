"""Draws of finite mixtures, as a choice among draws of their components.

PyMC writes such a draw by row numbers, from which no proof of separable records follows. A choice
entry by entry says the same.
"""

from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.mixture import _BaseMixtureRV
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_dp.model.graph_types import AnyVariable, Node, Tensor, pt


def mixtures_by_choice(graph: AnyVariable) -> AnyVariable:
    """Replace every mixture in a graph, also those inside others."""
    while found := _first_mixture(graph):
        [graph] = clone_replace([graph], found, rebuild_strict=False)
    return graph


def _first_mixture(graph: AnyVariable) -> dict[AnyVariable, AnyVariable]:
    for variable in ancestors([graph]):
        node = variable.owner
        if node is not None and isinstance(node.op, _BaseMixtureRV) and variable.type.ndim:
            return {variable: _choice(node, variable)}
    return {}


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
