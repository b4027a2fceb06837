"""The column that says which records belong to one unit: private, and outside the model's graph."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.shape import Shape, Shape_i
from scipy.sparse import issparse

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.harden import HardenedModel
from pymc_dp.model.terms import without_lengths
from pymc_dp.model.unit_latents import is_entry_of_unit
from pymc_dp.privacy.partitions import in_partitions
from pymc_dp.privacy.private_data import Column, Partition
from pymc_dp.privacy.units import Blocks, UnitBlocks, Units, units_of


def read_units(
    model: pm.Model, name: str, data: Mapping[str, Any] | None, public: Iterable[str]
) -> Units | UnitBlocks:
    """Sort the records by unit: the codes of a `pm.Data` that only picks latents of units."""
    if not isinstance(name, str):
        raise TypeError(
            f"unit= must be the name of a pm.Data, not {type(name).__name__}: put the codes into "
            "the model by pm.Data(name, codes), and give that name."
        )
    how_to_add = "pm.Data(name, codes), equal for records of one person, or (1|name) in the formula"
    column, values = private_column(model, "unit", name, data, public, how_to_add)
    _refuse_read(model, column)
    if isinstance(values, Blocks):
        return _in_blocks(values, name)
    return units_of(_codes(values, name), name)


def private_column(
    model: pm.Model,
    keyword: str,
    name: str,
    data: Mapping[str, Any] | None,
    public: Iterable[str],
    how_to_add: str,
) -> tuple[AnyVariable, Any]:
    """Return the private `pm.Data` that a keyword names, and its values."""
    columns = {variable.name: variable for variable in model.data_vars}
    if name not in columns:
        raise ValueError(
            f"{keyword}= names `{name}`, which is no pm.Data of the model; it has "
            f"{sorted(columns)}. Add {how_to_add}."
        )
    if name in public:
        raise ValueError(
            f"public= names `{name}`, but {keyword}= needs it private: its values are those of "
            "records, which the fit protects. Leave it out of public=."
        )
    if data is not None and name not in data:
        raise ValueError(
            f"data= replaces the model's records but leaves `{name}`, which {keyword}= names, as "
            "it was: give it as well."
        )
    return columns[name], columns[name].get_value() if data is None else data[name]


def _in_blocks(codes: Blocks, name: str) -> UnitBlocks:
    """Check codes partition by partition: all records of a unit must lie in one of them."""
    distinct = in_partitions({name: Column(codes, 0, "int64")}).read(partial(_distinct, name))
    every = np.concatenate(distinct)
    if len(np.unique(every)) < len(every):
        raise ValueError(
            f"unit=`{name}` has persons whose records lie in several partitions: sort the records "
            f"by `{name}` and cut between persons, as dask.dataframe's set_index does."
        )
    return UnitBlocks(name, codes, tuple(len(part) for part in distinct))


def _distinct(name: str, partition: Partition) -> np.ndarray:
    return np.unique(_codes(partition.columns[name].values, name))


def _codes(values: Any, name: str) -> np.ndarray:
    """Check codes; those of a mask, of floats with nan, and of text are no whole numbers."""
    if np.ma.isMaskedArray(values) or issparse(values):
        raise ValueError(f"unit=`{name}` is masked or sparse: give one whole number a record.")
    codes = np.asarray(values)
    if codes.ndim != 1:
        raise ValueError(
            f"unit=`{name}` has {codes.ndim} axes and needs one: one whole number a record."
        )
    if codes.dtype.kind not in "iu":
        raise ValueError(
            f"unit=`{name}` holds {codes.dtype} values and needs whole numbers: number the persons "
            "by pandas.factorize, after dropping records of nobody."
        )
    codes = codes.astype("int64")
    if (codes < 0).any():
        raise ValueError(
            f"unit=`{name}` has negative codes, as pandas writes for missing labels and as PyMC "
            "makes of numbers beyond 2^31: drop records of nobody, and number the persons from 0."
        )
    return codes


def _refuse_read(model: pm.Model, column: AnyVariable) -> None:
    """Refuse a model that computes with the codes; how many there are is another matter."""
    for name in readers(model, column, is_length_of, is_entry_of_unit):
        raise NotSeparableError(
            f"`{name}` reads `{column.name}`, which unit= names, other than as the index of a "
            f"latent with an entry for every unit. Write x[{column.name}] for a latent x, or "
            f"index by public groups, and leave `{column.name}` out of the rest of the model."
        )
    for name in readers(model, column, is_entry_of_unit):
        if name in [rv.name for rv in model.free_RVs]:
            raise NotSeparableError(
                f"`{name}` takes its length from `{column.name}`, which unit= names: make "
                f"`{column.name}` after the model's other data, or without dims."
            )


def readers(
    model: pm.Model, column: AnyVariable, *allowed: Callable[[AnyVariable, AnyVariable], bool]
) -> Iterator[str]:
    """Yield the variables that compute with a column, other than by what is allowed."""
    variables = (*model.basic_RVs, *model.deterministics, *model.potentials)
    for variable in variables:
        graphs = [variable, model.rvs_to_values.get(variable, variable)]
        known = [v for v in ancestors(graphs) if any(one(v, column) for one in allowed)]
        if column in set(ancestors(graphs, blockers=known)):
            yield variable.name


def is_length_of(variable: AnyVariable, column: AnyVariable) -> bool:
    """Whether a variable is the number of a column's entries."""
    return isinstance(variable.owner_op, Shape | Shape_i) and variable.owner.inputs[0] is column


def without_unit(
    terms: Mapping[str, AnyVariable], hardened: HardenedModel, name: str
) -> dict[str, AnyVariable]:
    """Let terms of the likelihood take their length from what they observe.

    A dimension has the length of the first array that has it, which may be the column of units.
    """
    [column] = [variable for variable, leaf in hardened.leaves.items() if leaf.name == name]
    renewed = dict(terms)
    for rv in hardened.model.observed_RVs:
        if rv.name in terms and column in set(ancestors([terms[rv.name]])):
            [value] = without_lengths([hardened.model.rvs_to_values[rv]])
            lengths = [v for v in ancestors([terms[rv.name]]) if is_length_of(v, column)]
            own = {v: v.owner.op(value) for v in lengths}
            renewed[rv.name] = clone_replace(terms[rv.name], own, rebuild_strict=False)
    return renewed
