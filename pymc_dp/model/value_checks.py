"""The checks that read private values before any noise is added.

Nothing else may, beside `copied`, `prepared_arrays` and the wall. They return nothing: what comes
of them is a refusal, or a warning to the curator, and no number of theirs enters a plan, a graph or
a result. A fit is therefore conditional on their acceptance (docs/guarantee.md).
"""

import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from pytensor.compile.maker import function
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import AdvancedSubtensor
from scipy.sparse import csr_matrix, issparse, vstack

from pymc_dp.accounting.plan import unit_label
from pymc_dp.errors import NotSeparableError, PrivacyWarning
from pymc_dp.model.graph_types import AnyVariable, Node
from pymc_dp.model.indexing import counted_rows, gather_layout
from pymc_dp.model.modes import PYTHON
from pymc_dp.model.split import Split
from pymc_dp.model.walk import tensor_constants
from pymc_dp.privacy.partitions import in_partitions
from pymc_dp.privacy.private_data import Columns, Partition
from pymc_dp.privacy.units import UnitBlocks, Units

SMALL_GROUP = 5

AS_MANY = (
    "along an axis as there are records, or units, or one less, and that number is private. Give "
    "it another length. Under neighbours='zero_out' or 'replace_one' the number of records, or "
    "with unit= that of units, is public."
)
AS_MANY_COLUMNS = (
    "as there are records or units, or one less, or an intercept more, as a kernel matrix and an "
    "indicator of every person have: each row would be made of all records. Compute columns from "
    "one record each, such as kernels at a few public places or the basis of pm.gp.HSGP, and let "
    "latents of persons be indexed by the array that unit= names. If there are few records, as in "
    "a template, and the columns are measurements, add rows or leave a column out."
)


def check_groups(split: Split, data: Partition) -> None:
    """Refuse latents that are indexed by the unit itself; warn where groups are small."""
    terms, axes = split.terms, split.axes
    names = {leaf.variable: name for name, leaf in split.record_leaves.items()}
    latent = axes.inputs().keys() - names.keys()
    for node in toposort(list(terms.values())):
        for design, latents in _products(node):
            if design in names and latents not in axes.axis:
                _check_design(names[design], data)
        if not isinstance(node.op, AdvancedSubtensor) or node.inputs[0] in axes.axis:
            continue
        indices = [
            index
            for index in gather_layout(node).arrays.values()
            if index in axes.axis
            and counted_rows(index) is None
            and index.type.broadcastable.count(False) == 1
            and latent.isdisjoint(ancestors([index]))  # a latent is no group
        ]
        if indices:
            read = {names[leaf] for leaf in names.keys() & set(ancestors(indices))}
            sizes = in_partitions(*data).read(partial(_sizes, indices, names), read)
            _check_sizes(node.inputs[0].name, _added(sizes), data.units)


def _products(node: Node) -> list[tuple[AnyVariable, AnyVariable]]:
    """Return the operands of a product of matrices, either first."""
    if not isinstance(getattr(node.op, "core_op", node.op), Dot):
        return []
    left, right = (
        x.owner.inputs[0] if isinstance(x.owner_op, DimShuffle) else x for x in node.inputs
    )
    return [(left, right), (right, left)]


def _check_design(name: str, data: Partition) -> None:
    """Refuse a matrix that gives every unit, or all but one, a coefficient of its own."""
    column, units = data.columns[name], data.units
    if len(column.values.shape) != 2 or not 1 < data.number <= column.spec.width + 1:
        return
    parts = in_partitions({name: column}, units).read(partial(_used, name))
    used = vstack(parts).tocsr() if issparse(parts[0]) else np.vstack(parts)
    alone = np.flatnonzero(np.asarray(used.sum(axis=0)).ravel() == 1)
    if np.count_nonzero(np.asarray(used[:, alone].sum(axis=1))) >= data.number - 1:
        raise NotSeparableError(
            f"`{name}` has a column of its own for every single {_unit(units)}, or for all but "
            "one, so what it multiplies is a local latent: no fit can release it. "
            f"{_advice(units)}"
        )


def _used(name: str, partition: Partition) -> Any:
    """Return which coefficients each unit uses; the check above is of data of few units alone."""
    column, units = partition.columns[name], partition.units
    used = column.values != 0
    used = used.T if column.axis else used
    if units is None:
        return used
    # one row a unit, with ones at its records
    members = csr_matrix((np.ones(units.records), units.order, units.starts))
    return (members @ used) > 0


def _advice(units: Units | UnitBlocks | None) -> str:
    """Say how a latent of single units is written so that it can be integrated out."""
    if units is not None:
        return (
            f"Index it by `{units.name}`, the array that unit= names, and method='dp_advi' "
            "integrates it out; or use coarser groups."
        )
    return (
        "Name in unit= what indexes it, a pm.Data or a factor of a formula, or give it one entry "
        "a record and no index: method='dp_advi' then integrates it out. Or use coarser groups."
    )


def _unit(units: Units | UnitBlocks | None) -> str:
    return unit_label(units and units.name)


def _values(
    indices: list[AnyVariable], names: Mapping[AnyVariable, str], columns: Columns
) -> list[np.ndarray]:
    if all(index in names for index in indices):
        return [np.asarray(columns[names[index]].values) for index in indices]
    names = {leaf: name for leaf, name in names.items() if name in columns}
    inputs = {leaf: leaf.type() for leaf in names}
    fn = function(
        list(inputs.values()), indices, givens=inputs, mode=PYTHON, on_unused_input="ignore"
    )
    codes = [np.asarray(columns[name].values, leaf.type.dtype) for leaf, name in names.items()]
    return list(fn(*codes))


Sizes = tuple[np.ndarray, np.ndarray]  # groups, (indices, groups), and the size of each


def _sizes(
    indices: list[AnyVariable], names: Mapping[AnyVariable, str], partition: Partition
) -> Sizes:
    """Count the records of every group, or its units: they are the groups of the distinct pairs."""
    pairs = np.stack([index.ravel() for index in _values(indices, names, partition.columns)])
    if partition.units is not None:
        pairs = np.unique(np.vstack([pairs, partition.units.codes]), axis=1)[:-1]
    groups, counts = np.unique(pairs, axis=1, return_counts=True)
    return groups, counts


def _added(sizes: list[Sizes]) -> np.ndarray:
    """Add up the sizes that groups have in each partition; no unit lies in two of them."""
    groups, counts = (np.concatenate(parts, axis=-1) for parts in zip(*sizes, strict=True))
    places = np.unique(groups, axis=1, return_inverse=True)[1]
    return np.bincount(places.ravel(), weights=counts)


def _check_sizes(name: str | None, sizes: np.ndarray, units: Units | UnitBlocks | None) -> None:
    """Refuse groups of single units; warn where they are small."""
    what = f"`{name}`" if name else "a latent"
    if sizes.size > 1 and sizes.max() == 1:
        raise NotSeparableError(
            f"{what} has an entry for every single {_unit(units)}, so it is a local latent: "
            f"no fit can release it. {_advice(units)}"
        )
    if sizes.min() < SMALL_GROUP:
        warnings.warn(
            f"{what} is indexed by groups of fewer than {SMALL_GROUP} {_unit(units)}s; private "
            "noise will drown them, and their names must be public. Where these are persons: "
            f"{_advice(units)}",
            PrivacyWarning,
            stacklevel=2,
        )


def refuse_as_many(
    split: Split, shapes: Mapping[str, tuple[int, ...]], data: Partition, number_is_public: bool
) -> None:
    """Refuse what has as many entries as there are records or units, or one less.

    An array of the records with as many columns, such as a matrix of kernels or of persons, would
    couple them. As the length of a shared latent, or of an array without a name, the number would
    be released, or enter the model; ``number_is_public`` is of units: of rows that belong to units
    of several it is never public. ``shapes`` are those of the latents' unconstrained values.
    """
    rows = next(iter(data.columns.values())).rows
    numbers = {data.number, rows}
    for name, column in data.columns.items():
        public = number_is_public and name in split.hardened.public
        as_many = _as_many(column.spec.shape, numbers) or _has_intercept(name, data, numbers)
        if not public and as_many:
            raise NotSeparableError(f"`{name}` has as many columns {AS_MANY_COLUMNS}")
    private = numbers - ({data.number} if number_is_public else set())
    for name in split.shared:
        if _as_many(shapes[name], private):
            raise NotSeparableError(f"`{name}` has as many entries {AS_MANY}")
    hardened = split.hardened
    arrays = {
        variable: leaf.value.shape
        for variable, leaf in hardened.leaves.items()
        if not leaf.declared
        and leaf.name not in hardened.public
        and variable not in split.axes.axis
    }
    for name, graphs in ({n: [g] for n, g in split.terms.items()} | split.before_data).items():
        read = set(ancestors(graphs))
        # PyTensor writes `arange(y.shape[0])` as numbers where it knows the length
        lengths = [arrays[v] for v in arrays.keys() & read]
        lengths += [np.shape(x.data) for x in tensor_constants(read) if np.size(x.data) > 1]
        if any(_as_many(shape, private) for shape in lengths):
            raise NotSeparableError(f"`{name}` reads an array with as many entries {AS_MANY}")


def _has_intercept(name: str, data: Partition, numbers: set[int]) -> bool:
    """Whether one column stands beside as many as there are records or units, and is constant."""
    column = data.columns[name]
    if len(column.spec.shape) != 2 or column.spec.width - 1 not in numbers:
        return False
    ends = np.stack(in_partitions({name: column}, data.units).read(partial(_ends, name)))
    return bool((ends[:, 0].min(axis=0) == ends[:, 1].max(axis=0)).any())


def _ends(name: str, partition: Partition) -> np.ndarray:
    column = partition.columns[name]
    values = column.values.toarray() if issparse(column.values) else column.values
    return np.stack([values.min(axis=column.axis), values.max(axis=column.axis)])


def _as_many(shape: Iterable[int | None], numbers: set[int]) -> bool:
    """Whether a length is such a number, or one less; of a length of 1 it says nothing."""
    return any(n is not None and n > 1 and not numbers.isdisjoint((n, n + 1)) for n in shape)
