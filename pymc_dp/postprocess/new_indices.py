"""Whether new records pick entries that the fitted model has."""

from collections.abc import Collection, Sequence

import numpy as np
from pytensor.compile.maker import function
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType

from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.modes import PYTHON, without_c
from pymc_dp.tables.indices import picks


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
    picked = {pick: names for pick in picks(graphs) if (names := _names(pick.index, data))}
    if not picked:
        return
    wanted = [x for pick in picked for x in (pick.index, pick.length)]
    with without_c():
        fn = function(list(inputs), wanted, mode=PYTHON, on_unused_input="ignore")
    found = fn(*values)
    for names, index, length in zip(picked.values(), found[::2], found[1::2], strict=True):
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


def _names(index: AnyVariable, data: Collection[AnyVariable]) -> str:
    """Name the new data that an index is computed from; none where it is drawn."""
    read = {*ancestors([index])}
    if any(isinstance(x.type, RandomType) for x in read):
        return ""
    return ", ".join(sorted(f"`{leaf.name}`" for leaf in data if leaf in read))
