"""Latents with which the curvature of the log likelihood does not change."""

import numpy as np
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Second
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.shape import Shape, Shape_i

from pymc_dp.methods.gaussian.only_outcome import only_outcome
from pymc_dp.methods.gaussian.outcome_scale import NORMAL
from pymc_dp.model import Records
from pymc_dp.model.batch import is_draw
from pymc_dp.model.graphs import AnyVariable, Node, pt


def constant_latents(records: Records) -> np.ndarray:
    """Return the coordinates, (d,), with which the curvature of the log likelihood is constant.

    They are those that the location of normal outcomes is linear in, where the scale does not read
    them: the slope of a score is -x x' / scale^2, wherever the location is. All of the location's
    latents are, or none is.

    **Privacy.** A function of the model's graph, and of the types of its columns.
    """
    none, outcome = np.zeros(records.size, bool), only_outcome(records)
    if outcome is None or records.local_latents or not isinstance(outcome.node.op, NORMAL):
        return none
    location, scale = outcome.node.op.dist_params(outcome.node)
    of_location = set(ancestors([location]))
    latents = [z for z in records.latents.values() if z in of_location]
    of_scale = set(ancestors([scale]))
    if not of_scale.isdisjoint(latents) or any(map(is_draw, of_location | of_scale)):
        return none
    # a scale that differs between records leaves no part of the matrix as it was
    differs = not of_scale.isdisjoint(outcome.stage.inputs.values())
    if differs and not of_scale.isdisjoint(records.latents.values()):
        return none
    if not is_linear(location, latents):
        return none
    sizes = [records.point[str(name)].size for name in records.latents]
    return np.repeat([z in latents for z in records.latents.values()], sizes)


def is_linear(graph: AnyVariable, variables: list[AnyVariable]) -> bool:
    """Whether the gradient of a graph does not read the variables.

    >>> x, z = pt.vector("x"), pt.vector("z", shape=(3,))
    >>> is_linear(x[0] * z + z[1], [z]), is_linear(pt.exp(z), [z])
    (True, False)
    >>> is_linear(pt.switch(x > 0, z, abs(z)), [z]), is_linear(x[0] * z + (z > 0), [z])
    (False, True)
    """
    if not variables:
        return False
    # comparisons and indices have no gradient
    slopes = pt.grad(pt.sum(graph), variables, disconnected_inputs="ignore")
    return _read(slopes).isdisjoint(variables)


def _read(graphs: list[AnyVariable]) -> set[AnyVariable]:
    """Return all variables whose values graphs read, and not their shapes alone."""
    found, waiting = set[AnyVariable](), list(graphs)
    while waiting:
        variable = waiting.pop()
        if variable not in found:
            found.add(variable)
            waiting += _values(variable.owner) if variable.owner else []
    return found


def _values(node: Node) -> list[AnyVariable]:
    if isinstance(node.op, Shape | Shape_i):
        return []
    fills = isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Second)
    return node.inputs[1:] if fills else node.inputs
