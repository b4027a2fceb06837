"""Missing entries of observed variables, by record.

PyMC splits such a variable in two, of the observed and of the missing entries, whose numbers say
how many are missing. Here it becomes one again, with a mask by records. A missing outcome then adds
nothing to its record's likelihood; a missing entry that is read elsewhere is a latent of a record.
"""

from functools import partial
from typing import NamedTuple, NoReturn

import numpy as np
from pymc.model.fgraph import (
    ModelDeterministic,
    ModelFreeRV,
    ModelObservedRV,
    model_free_rv,
    model_observed_rv,
)
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.variable import shared_rng
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.graph_types import AnyVariable, Node, Tensor, pt, shared

MASK = "missing in "


class Mask(NamedTuple):
    """Which entries of an observed variable are missing."""

    name: str  # of the observed variable
    variable: AnyVariable  # stands for the values in graphs
    values: np.ndarray  # of booleans, as many as the variable has

    @property
    def leaf(self) -> str:
        """The name of the mask among the records' arrays."""
        return f"{MASK}{self.name}"


def join_missing(fgraph: FunctionGraph) -> list[Mask]:
    """Join every variable with missing entries again, in place, and return the masks."""
    splits = [_split(fgraph, node) for node in _nodes(fgraph, ModelObservedRV)]
    return [_join(fgraph, *split) for split in splits if split is not None]


def _nodes(fgraph: FunctionGraph, kind: type) -> list[Node]:
    return [x.owner for x in fgraph.outputs if isinstance(x.owner_op, kind)]


def _split(
    fgraph: FunctionGraph, observed: Node
) -> tuple[str, Node, Node, Node, np.ndarray] | None:
    """Return the parts of a variable with missing entries, as PyMC makes them.

    They are its name, what is observed, what is free, the deterministic that joins both, and which
    entries are missing.
    """
    name = observed.op.name.removesuffix("_observed")
    free = {node.op.name: node for node in _nodes(fgraph, ModelFreeRV)}
    whole = {node.op.name: node for node in _nodes(fgraph, ModelDeterministic)}
    if name == observed.op.name or f"{name}_unobserved" not in free or name not in whole:
        return None
    joined = whole[name].inputs[0].owner.inputs[0].owner
    operation = observed.inputs[0].owner.op
    entries = isinstance(operation, RandomVariable) and operation.ndim_supp == 0
    if not (entries and isinstance(joined.op, AdvancedIncSubtensor)):
        _refuse(name)
    missing = joined.inputs[2]
    if not isinstance(missing, Constant) or missing.type.dtype != "bool":
        _refuse(name)
    return name, observed, free[f"{name}_unobserved"], whole[name], missing.data


def _refuse(name: str) -> NoReturn:
    raise NotSeparableError(
        f"`{name}` has missing entries within its vectors, and only whole entries of a univariate "
        "variable can be missing. Drop the incomplete records, or observe each column by a "
        "variable of its own."
    )


def _join(
    fgraph: FunctionGraph, name: str, seen: Node, free: Node, whole: Node, missing: np.ndarray
) -> Mask:
    """Put one observed variable in place of the two, and a latent where others read it."""
    mask = shared(missing, name=f"{MASK}{name}", shape=(None,) * missing.ndim)
    node, value = seen.inputs[0].owner, seen.inputs[1]
    parameters = [*map(partial(_for_all, name, ~missing), node.inputs[2:], node.op.ndims_params)]
    observed = model_observed_rv(
        _drawn(node, missing.shape, parameters), _filled(value, missing), name, *whole.op.dims
    )
    joined = whole.inputs[0]
    readers = [client for client, _ in fgraph.clients[joined] if client is not whole]
    added = [observed]
    if readers:
        latent = _drawn(node, missing.shape, parameters)
        own = free.inputs[1].type.clone(shape=(None,) * missing.ndim)(name=free.inputs[1].name)
        added.append(model_free_rv(latent, own, free.op.transform, free.op.name, *whole.op.dims))
        fgraph.replace(joined, pt.switch(mask, added[1], observed), import_missing=True)
    for variable in added:
        fgraph.add_output(variable, import_missing=True)
    for gone in (whole, seen, free):
        fgraph.remove_output(fgraph.outputs.index(gone.outputs[0]))
    return Mask(name, mask, missing)


def _drawn(node: Node, shape: tuple[int, ...], parameters: list[Tensor]) -> Tensor:
    generator = shared_rng(seed=None)
    return node.op.make_node(generator, pt.constant(shape, dtype="int64"), *parameters).outputs[1]


def _for_all(name: str, observed: np.ndarray, parameter: Tensor, own: int) -> Tensor:
    """Return a parameter, whose last ``own`` axes are one entry's, for all entries."""
    node = parameter.owner
    if all(parameter.type.broadcastable[: parameter.type.ndim - own]):
        return parameter
    if isinstance(parameter.owner_op, AdvancedSubtensor) and len(node.inputs) == 2:
        index = node.inputs[1]
        if isinstance(index, Constant) and np.array_equal(index.data, observed):
            return node.inputs[0]
    return _refuse(name)


def _filled(value: Tensor, missing: np.ndarray) -> Tensor:
    """Return the observed values, and in missing places a number that no term reads."""
    filler = 0.5 if value.type.dtype.startswith("float") else 1
    filled = np.full(missing.shape, filler, dtype=value.type.dtype)
    filled[~missing] = value.data
    return pt.constant(filled)
