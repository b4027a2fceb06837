"""Whether new records pick entries that the fitted model has."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from pytensor.compile.maker import function
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.model.axis import index_arrays
from pymc_dp.model.graph_types import AnyVariable, Tensor
from pymc_dp.model.modes import PYTHON, without_c


class _Picked(NamedTuple):
    """An index array, and the axis of an array that it picks entries from."""

    index: Tensor
    length: Tensor
    names: tuple[str, ...]  # of the new data that the index is computed from


def refuse_missing_levels(
    graphs: Sequence[AnyVariable],
    data: Collection[AnyVariable],
    inputs: Sequence[AnyVariable],
    values: Sequence[object],
) -> None:
    """Refuse new data that index an array before its start or beyond its end.

    PyTensor counts negative numbers from the end, so that -1, which pandas writes for a category
    that is missing, would pick the last group. ``data`` are the shared variables that hold the
    new records; ``values`` are those of the graphs' ``inputs``.
    """
    picked = list(_picked(graphs, data))
    if not picked:
        return
    wanted = [x for each in picked for x in (each.index, each.length)]
    with without_c():
        fn = function(list(inputs), wanted, mode=PYTHON, on_unused_input="ignore")
    found = fn(*values)
    for each, index, length in zip(picked, found[::2], found[1::2], strict=True):
        names = ", ".join(f"`{name}`" for name in each.names)
        if np.size(index) and index.min() < 0:
            raise ValueError(
                f"data={names} holds negative codes, as pandas writes for missing categories: they "
                "would pick the last group. Leave these rows out. If the model itself ignores what "
                "they pick, write pm.math.maximum(code, 0) where it indexes."
            )
        if np.size(index) and index.max() >= length:
            raise ValueError(
                f"data={names} holds an index beyond the array that it indexes, whose length is "
                f"{int(length)}. A level that was not in the fitted model has no posterior: leave "
                "its rows out."
            )


def _picked(graphs: Sequence[AnyVariable], data: Collection[AnyVariable]) -> Iterator[_Picked]:
    """Find what is indexed by the new data, and by no draw."""
    for node in toposort(graphs):
        if not isinstance(node.op, AdvancedSubtensor):
            continue
        for axis, index in index_arrays(node).items():
            if not index.type.dtype.startswith(("int", "uint")):
                continue
            read = {*ancestors([index])}
            names = {str(leaf.name) for leaf in data if leaf in read}
            if names and not any(isinstance(x.type, RandomType) for x in read):
                base: Tensor = node.inputs[0]
                yield _Picked(index, base.shape[axis], tuple(sorted(names)))
