"""The private columns: the values behind the record leaves, for the wall alone."""

from collections.abc import Container, Mapping
from typing import Any

import numpy as np
from pytensor.graph.traversal import ancestors
from scipy.sparse import issparse

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.axis import RecordAxes
from pymc_dp.model.batch import batch_dtype
from pymc_dp.model.harden import DataLeaf, HardenedModel
from pymc_dp.model.indexing import CENSORED
from pymc_dp.model.tables import as_array, has_missing
from pymc_dp.privacy.partitions import in_partitions
from pymc_dp.privacy.private_data import Column, Columns, Partition
from pymc_dp.privacy.units import Blocks, UnitBlocks, Units

NO_RECORDS = "The data have no records: give two or more."


def refuse_few_rows(hardened: HardenedModel, likelihood: Container[str]) -> None:
    """Refuse private observed values without rows, or with a single one."""
    for rv in hardened.model.observed_RVs:
        for variable in ancestors([hardened.model.rvs_to_values[rv]]):
            leaf = hardened.leaves.get(variable)
            if rv.name in likelihood and leaf is not None and leaf.name not in hardened.public:
                if leaf.variable.ndim:
                    _refuse_few(rv.name, leaf.value.shape[0])


def _refuse_few(name: str, rows: int) -> None:
    if rows == 0:
        raise NotSeparableError(NO_RECORDS)
    if rows == 1:
        raise NotSeparableError(
            f"`{name}` has a single row, and the array of one record looks like one that all "
            "records share. If its values are public, name it in public=[...]; if they are "
            "private, build the model on two records or more."
        )


def make_columns(
    leaves: Mapping[str, DataLeaf], axes: RecordAxes, data: Mapping[str, Any] | None
) -> dict[str, Column]:
    """Pair every record leaf with its values, or with those that ``data`` gives in their place."""
    if data is not None and not hasattr(data, "keys"):
        raise TypeError(
            f"data= must be a mapping from names to arrays, such as {{'X': X, 'y': y}}, not "
            f"{type(data).__name__}."
        )
    given = {name: leaf.value for name, leaf in leaves.items()} if data is None else dict(data)
    for name in given.keys() - leaves.keys():
        raise ValueError(
            f"data= names `{name}`, but the model's records are {sorted(leaves)}. "
            "Use the names of its pm.Data and observed variables; a formula has its own data frame."
        )
    for name in leaves.keys() - given.keys():
        hint = f" It is {leaves[name]}: give it a name by pm.Data('x', ...) first."
        hint = "" if leaves[name].declared else hint
        raise ValueError(
            f"data= replaces the model's records but leaves `{name}` as it was: "
            f"give it as well.{hint}"
        )
    for name, leaf in leaves.items():
        _refuse_few(name, leaf.value.shape[axes.axis[leaf.variable]])
    return {name: column(leaf, axes, given[name]) for name, leaf in leaves.items()}


def refuse_unequal(columns: Columns, units: Units | UnitBlocks | None) -> None:
    """Refuse columns, and the codes of units, that are not all of the same records."""
    counts = {name: column.rows for name, column in columns.items()}
    if 0 in counts.values():
        raise NotSeparableError(NO_RECORDS)
    counts |= {units.name: units.records} if units else {}
    if len(set(counts.values())) > 1:
        raise NotSeparableError(
            f"The records differ in number: {counts}. One record is one row of all variables: "
            f"stack groups in one, with an index of the group; fit others separately ({CENSORED})."
        )


def refuse_missing(columns: Columns) -> None:
    """Read all records in blocks once: what cannot be read must not cost a release."""
    if not any(isinstance(column.values, Blocks) for column in columns.values()):
        return
    found = in_partitions(columns).read(_missing)
    for name in sorted({name for names in found for name in names}):
        raise ValueError(
            f"data=`{name}` has missing values in one of its partitions, and a private fit takes "
            "none: drop the incomplete records."
        )


def _missing(partition: Partition) -> list[str]:
    return [name for name, column in partition.columns.items() if has_missing(column.values)]


def column(leaf: DataLeaf, axes: RecordAxes, values: Any) -> Column:
    """Check that values fit the leaf they stand for, and pair them with its axis."""
    values = as_array(f"data=`{leaf.name}`", values)
    if (issparse(values) or isinstance(values, Blocks)) and axes.axis[leaf.variable] != 0:
        kind = "sparse" if issparse(values) else "chunked"
        raise ValueError(f"data=`{leaf.name}` is {kind}, which needs the records along axis 0.")
    dtype = batch_dtype(leaf.variable.type.dtype)
    template = leaf.variable.type
    if len(values.shape) != template.ndim:
        raise ValueError(
            f"data=`{leaf.name}` has {len(values.shape)} dimensions, the model's has "
            f"{template.ndim}."
        )
    if not np.can_cast(values.dtype, dtype, casting="same_kind"):
        raise ValueError(
            f"data=`{leaf.name}` holds {values.dtype} values, but the model takes {dtype}: "
            "convert it first."
        )
    axis = axes.axis[leaf.variable]
    for k, length in enumerate(np.shape(leaf.value)):
        if k != axis and values.shape[k] != length:
            raise ValueError(
                f"data=`{leaf.name}` has length {values.shape[k]} along axis {k}, the model's "
                f"has {length}; only the records' axis {axis} may differ."
            )
    return Column(values, axis, dtype)
