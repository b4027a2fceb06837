"""What PyMC and `data=` were given, before it became an array.

PyMC converts its data when a model is built: labels of rows are gone then, whole numbers beyond
2^31 and dates have become other numbers. So the hook looks at what PyMC is given, and a private fit
refuses what was not kept, and indices that pick another group than they say. All of this reads
private values, and nothing comes of it but a refusal.
"""

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from itertools import combinations
from numbers import Real
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, graph_inputs, toposort
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.subtensor import AdvancedSubtensor
from scipy.sparse import issparse

from pymc_dp.model.compilation import PYTHON, as_written
from pymc_dp.model.graphs import Tensor, pt, tensor_constants
from pymc_dp.model.separation_proof import index_arrays

# for each array that a model was given: what it is called, its rows' labels, how PyMC changed it
_GIVEN: WeakKeyDictionary[pm.Model, list[tuple[str, Any, str]]] = WeakKeyDictionary()


def take_note(original: Callable[[Any], Any], data: Any) -> Any:
    """Convert data as PyMC does, and note for the model in use what it does to them."""
    converted = original(data)
    model = pm.Model.get_context(error_if_none=False)
    if model is not None and not isinstance(data, Variable):
        name = getattr(data, "name", None)
        what = f"`{name}`" if isinstance(name, str) else f"a {type(data).__name__} of the model"
        labels = getattr(data, "index", None)  # of a list it is a method
        note = what, labels if isinstance(labels, pd.Index) else None, _fault(data, converted)
        _GIVEN.setdefault(model, []).append(note)
    return converted


def refuse_given(model: pm.Model) -> None:
    """Refuse a model of which PyMC has changed the data, or paired rows of different labels."""
    notes = _GIVEN.get(model, [])
    faults = [(what, fault) for what, _, fault in notes]
    graph = ancestors([*model.basic_RVs, *model.potentials])
    written = [np.asarray(x.data) for x in tensor_constants(graph)]  # into an expression
    written = [x for x in written if x.ndim and x.dtype.kind in "cu"]
    faults += [("An array of the model", fault_of(x)) for x in written]
    for what, fault in faults:
        if fault:
            raise ValueError(f"{what} {fault}")
    _refuse_orders([(what, labels) for what, labels, _ in notes])


def read_numbers(data: Any) -> Any:
    """Return ``data=`` with columns of numbers that pandas holds as objects, as arrays."""
    if not isinstance(data, Mapping | pd.DataFrame):
        return data
    tables = {name: data[name] for name in data}
    _refuse_orders([(f"data=`{name}`", getattr(x, "index", None)) for name, x in tables.items()])
    for name, x in tables.items():
        # of missing values others warn
        if isinstance(x, np.ndarray) and not isinstance(x, np.memmap) and x.dtype.kind != "f":
            if fault := fault_of(x):
                raise ValueError(f"data=`{name}` {fault}")
    return {name: _array(table) for name, table in tables.items()}


def _refuse_orders(labels: list[tuple[str, Any]]) -> None:
    known = [(what, x) for what, x in labels if isinstance(x, pd.Index)]
    for (first, one), (what, other) in combinations(known, 2):
        if len(one) == len(other) and not one.equals(other) and not set(one) ^ set(other):
            raise ValueError(
                f"The rows of {first} and of {what} have the same labels in another order, and "
                "records are paired by position. Bring them into one order, as by "
                "x.loc[y.index], or say that positions count: x.reset_index(drop=True)."
            )


def _fault(data: Any, converted: Any) -> str:
    """Say how PyMC changed data, or what of them no number stands for."""
    if issparse(converted):
        data, converted = data.data, converted.data
    if not isinstance(converted, np.ndarray):
        return ""
    whole = np.asarray(data)
    if converted.dtype.kind == "i" and whole.dtype.kind in "iu" and (whole != converted).any():
        return (
            "holds whole numbers that PyMC has changed, since they do not fit its type: give "
            "floats, or number labels by pandas.factorize."
        )
    return "" if np.ma.isMaskedArray(converted) else fault_of(converted)


def fault_of(array: np.ndarray) -> str:
    """Say what of an array no number of a model can stand for."""
    kind = array.dtype.kind
    if kind in "mM":
        return "holds dates or times: give the days or years since a public date, as numbers."
    if kind == "c":
        return f"holds {array.dtype} values: give their parts as real numbers."
    if kind == "u" and array.size and int(array.max()) > np.iinfo("int64").max:
        return "holds whole numbers beyond 2^63, which wrap: give them as floats."
    if kind == "f" and np.isnan(array).any():
        return "has missing values: drop these records, or give observed= a masked array."
    return ""


def _array(table: Any) -> Any:
    """Return a table of pandas as one array of numbers, where all of its columns are numbers."""
    if isinstance(table, pd.Series):
        return _numbers(table)
    if isinstance(table, pd.DataFrame) and table.shape[1]:
        columns = [_numbers(table.iloc[:, j]) for j in range(table.shape[1])]
        if all(isinstance(x, np.ndarray) for x in columns):
            return np.column_stack(columns)
    return table


def _numbers(column: pd.Series) -> Any:
    values = column.to_numpy()
    if values.dtype == object and all(isinstance(x, Real | Decimal) for x in values):
        return values.astype("float64")
    return values if values.dtype.kind in "biuf" and not np.isnan(values).any() else column


def refuse_bad_indices(model: pm.Model, data: Mapping[str, Any] | None, unit: str | None) -> None:
    """Refuse indices that are negative, or beyond their array; ``data`` replaces a model's own."""
    given = {v: data[v.name] for v in model.data_vars if data is not None and v.name in data}
    for array, axis, index in dict.fromkeys(_picks(model)):
        inside = {v for v in ancestors([index]) if v.name}
        read = {v: x for v, x in given.items() if v in inside}
        of_unit = unit is not None and any(v.name == unit for v in inside)
        if not of_unit and all(isinstance(x, np.ndarray) for x in read.values()):
            _check_index(array, axis, index, read)


def _picks(model: pm.Model) -> Iterator[tuple[Tensor, int, Tensor]]:
    """Yield the arrays of which an index that is computed from data alone picks entries."""
    for node in toposort([*model.basic_RVs, *model.potentials, *model.deterministics]):
        arrays = index_arrays(node) if isinstance(node.op, AdvancedSubtensor) else {}
        is_mask = any(index.type.dtype == "bool" for index in arrays.values())
        for axis, index in arrays.items():
            if index.type.ndim and not is_mask and all(map(_is_data, graph_inputs([index]))):
                yield node.inputs[0], axis, index


def _is_data(x: Tensor) -> bool:
    return isinstance(x, SharedVariable | Constant) and not isinstance(x.type, RandomType)


def _check_index(
    array: Tensor, axis: int, index: Tensor, given: Mapping[Tensor, np.ndarray]
) -> None:
    # the types of data= may be wider than those of the model
    replaced = {v: pt.constant(x.astype(v.type.dtype)) for v, x in given.items()}
    try:
        graphs = clone_replace([index, array.shape[axis]], replaced, rebuild_strict=False)
        codes, size = as_written([], graphs, PYTHON)()  # kept by nothing: it holds data
    except Exception:  # of an author's own operation, or of shapes, which other checks refuse
        return
    names = [f"`{v.name}`" for v in graph_inputs([index]) if v.name]
    what = f"The index {' and '.join(names)}" if names else "An index"
    of = f"`{array.name}`" if array.name else "a latent"
    if codes.size and codes.min() < 0:
        raise ValueError(
            f"{what} of {of} has negative numbers, as pandas writes for missing labels: drop these "
            "records, or make a level for them."
        )
    if codes.size and codes.max() >= size:
        raise ValueError(
            f"{what} of {of} has numbers beyond its last entry: number the groups from 0, and give "
            "the latent an entry for every one."
        )
