"""Refuse indices of groups that pick another group than they say, or none.

A record whose index lies outside its array adds nothing to a release, and a negative one counts
from the end: neither is what the model says. Like the value checks of ``model``, this reads private
values, and nothing comes of it but a refusal.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pytensor.compile.maker import function
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors, graph_inputs, toposort
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.model.graph_types import Tensor, pt
from pymc_dp.model.indexing import index_arrays
from pymc_dp.model.modes import PYTHON, without_c


class Pick(NamedTuple):
    """Entries that records pick from an array."""

    index: Tensor
    array: Tensor
    axis: int


def refuse_bad_indices(model: pm.Model, data: Mapping[str, Any] | None, unit: str | None) -> None:
    """Refuse indices that are negative, or beyond their array; ``data`` replaces a model's own.

    The codes of a ``unit`` may be any numbers, and have checks of their own.
    """
    given = {v: data[v.name] for v in model.data_vars if data is not None and v.name in data}
    for pick in _picks(model):
        inside = {v for v in ancestors([pick.index]) if v.name}
        read = {v: x for v, x in given.items() if v in inside}
        of_unit = unit is not None and any(v.name == unit for v in inside)
        if not of_unit and all(isinstance(x, np.ndarray) for x in read.values()):
            _check(pick, read)


def _picks(model: pm.Model) -> Iterator[Pick]:
    """Yield once what is picked by an index that is computed from data alone."""
    seen = set()
    for node in toposort([*model.basic_RVs, *model.potentials, *model.deterministics]):
        arrays = index_arrays(node) if isinstance(node.op, AdvancedSubtensor) else {}
        if any(index.type.dtype == "bool" for index in arrays.values()):
            continue
        for axis, index in arrays.items():
            pick = Pick(index, node.inputs[0], axis)
            if index.type.ndim > 0 and _is_data(index) and pick not in seen:
                seen.add(pick)
                yield pick


def _is_data(index: Tensor) -> bool:
    inputs = list(graph_inputs([index]))
    return all(isinstance(x, SharedVariable | Constant) for x in inputs) and not any(
        isinstance(x.type, RandomType) for x in inputs
    )


def _check(pick: Pick, given: Mapping[Tensor, np.ndarray]) -> None:
    # the types of data= may be wider than those of the model
    replaced = {v: pt.constant(x.astype(v.type.dtype)) for v, x in given.items()}
    length = pick.array.shape[pick.axis]
    try:
        with without_c():
            index, size = function(
                [], [pick.index, length], givens=replaced, mode=PYTHON, on_unused_input="ignore"
            )()
    except Exception:  # of an author's own operation, or of shapes, which other checks refuse
        return
    names = [f"`{v.name}`" for v in ancestors([pick.index]) if v.name and v in given]
    names = names or [f"`{v.name}`" for v in graph_inputs([pick.index]) if v.name]
    what = f"The index {' and '.join(names)}" if names else "An index"
    of = f"`{pick.array.name}`" if pick.array.name else "a latent"
    if index.size and index.min() < 0:
        raise ValueError(
            f"{what} of {of} has negative numbers, as pandas writes for missing labels, and they "
            "would count from the last entry: drop these records, or make a level for them."
        )
    if index.size and index.max() >= size:
        raise ValueError(
            f"{what} of {of} has numbers beyond its last entry: number the groups from 0, and "
            "give the latent an entry for every one."
        )
