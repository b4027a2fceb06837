"""Refuse arrays and numbers of a model that were taken from the records before they were a graph.

Like `value_checks`, these read private values, and nothing comes of them but a refusal.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import pymc as pm
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from scipy.sparse import issparse

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.harden import is_structural
from pymc_dp.model.split import Split
from pymc_dp.privacy.partitions import in_partitions
from pymc_dp.privacy.private_data import Column, Columns, Partition


def refuse_copies(split: Split, released: Mapping[str, AnyVariable], columns: Columns) -> None:
    """Refuse arrays of the records outside the likelihood, where no noise is added to them.

    They stand there by a view of their memory, or by their values. A prior may hold regular numbers
    such as ones, which records can have by chance; ``released`` are the graphs of what leaves.
    """
    for name, array in _outside_the_likelihood(split, released):
        for of, column in columns.items():
            views = isinstance(column.values, np.ndarray)
            if (views and np.may_share_memory(array, column.values)) or _repeats(array, of, column):
                raise NotSeparableError(
                    f"The prior, the initial value or the formula of `{name}` holds values of the "
                    f"records' `{of}`, to which no noise is added there. Write public numbers in "
                    "their place."
                )


def _outside_the_likelihood(
    split: Split, released: Mapping[str, AnyVariable]
) -> Iterator[tuple[str, np.ndarray]]:
    leaves, public = split.hardened.leaves, split.hardened.public
    priors = [(name, np.asarray(x)) for name, x in split.hardened.initvals.items()]
    for name, graphs in split.before_data.items():
        found = {v: leaves[v] for v in ancestors(graphs) if v in leaves}
        priors += [(name, leaf.value) for leaf in found.values() if leaf.name not in public]
    yield from ((name, x) for name, x in priors if x.dtype.kind in "biuf" and not is_structural(x))
    for name, graph in released.items():
        for leaf in (leaves[v] for v in ancestors([graph]) if v in leaves):
            if leaf.name not in public:
                yield name, leaf.value


def _repeats(array: np.ndarray, name: str, column: Column) -> bool:
    """Whether an array has the values of a column along one of its axes."""
    axes = [k for k, length in enumerate(array.shape) if length == column.rows]
    if not axes or issparse(column.values):
        return False
    parts = in_partitions({name: column}).read(partial(_rows, name))
    values = set(map(bytes, np.concatenate(parts).T.copy()))
    rows = (np.moveaxis(array, k, -1).reshape(-1, column.rows) for k in axes)
    return any(bytes(x.astype("float64") + 0.0) in values for found in rows for x in found)


def _rows(name: str, partition: Partition) -> np.ndarray:
    column = partition.columns[name]
    values = np.moveaxis(np.asarray(column.values, "float64"), column.axis, 0)
    return values.reshape(column.rows, -1) + 0.0  # of two zeros, whose bytes differ, the positive


def refuse_centres(model: pm.Model, columns: Columns) -> None:
    """Refuse numbers that a library took from the records before they were a graph.

    `pm.gp.HSGP` centres by the first inputs that it is given, and keeps the centre as a number.
    An array of one number that is the mean or the middle of a column is such a number.
    """
    for rv in (*model.observed_RVs, *model.potentials):
        single = [
            float(variable.data.item())
            for variable in ancestors([rv])
            if isinstance(variable, Constant)
            and getattr(variable, "ndim", 0) > 0
            and np.size(variable.data) == 1
            and variable.type.dtype.startswith("float")
        ]
        for name, column in columns.items():
            if any(_is_centre(number, name, column) for number in single if number):
                raise NotSeparableError(
                    f"The likelihood of `{rv.name}` holds the centre of the records of `{name}` as "
                    "a number: every record moves it. For pm.gp.HSGP, call gp.prior_linearized "
                    "with a public grid first, which fixes the centre, and give L= as a public "
                    "number."
                )


def _is_centre(number: float, name: str, column: Column) -> bool:
    """Whether the number is the column's centre, or the reach of a column that was centred."""
    if issparse(column.values) or column.dtype != "float64":
        return False
    lows, highs, sums = zip(*in_partitions({name: column}).read(partial(_range, name)), strict=True)
    low, high = np.min(lows, axis=0), np.max(highs, axis=0)
    centres = np.append((low + high) / 2, np.sum(sums, axis=0) / column.rows)
    centred = np.isclose(low, -high, rtol=1e-12, atol=0) & (0 < high) & (high < number)
    return bool(np.isclose(centres, number, rtol=1e-9, atol=0).any() or centred.any())


def _range(name: str, partition: Partition) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    column = partition.columns[name]
    values, axis = np.asarray(column.values, "float64"), column.axis
    low = values.min(axis=axis, initial=np.inf)
    return low, values.max(axis=axis, initial=-np.inf), values.sum(axis=axis)
