"""What PyMC and `data=` were given, before it became an array.

PyMC converts its data when a model is built: labels of rows are gone then, whole numbers beyond
2^31 have become others, and dates have become numbers. So the hook looks at what PyMC is given, and
a private fit of that model refuses what was not kept. Nothing else changes for who uses PyMC.
"""

import warnings
from collections.abc import Callable, Mapping
from decimal import Decimal
from itertools import combinations
from numbers import Real
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from scipy.sparse import issparse

from pymc_dp.errors import PosteriorWarning

LARGEST = np.iinfo("int64").max


class Given(NamedTuple):
    """A table that PyMC was given."""

    what: str  # its name, or its kind
    labels: pd.Index | None  # of its rows
    fault: str  # how PyMC changed it, if it did


_OF_MODELS: WeakKeyDictionary[pm.Model, list[Given]] = WeakKeyDictionary()


def take_note(original: Callable[[Any], Any], data: Any) -> Any:
    """Convert data as PyMC does, and note for the model in use what it does to them."""
    found = original(data)
    model = pm.Model.get_context(error_if_none=False)
    if model is not None and not isinstance(data, Variable):
        name = getattr(data, "name", None)
        what = f"`{name}`" if isinstance(name, str) else f"a {type(data).__name__} of the model"
        given = Given(what, _labels(data), _fault(data, found))
        if given.labels is not None or given.fault:
            _OF_MODELS.setdefault(model, []).append(given)
    return found


def refuse_given(model: pm.Model) -> None:
    """Refuse a model of which PyMC has changed the data, or paired rows of different labels."""
    notes = _OF_MODELS.get(model, [])
    for note in notes:
        if note.fault:
            raise ValueError(f"{note.what} {note.fault}")
    _refuse_orders([(note.what, note.labels) for note in notes if note.labels is not None])
    for variable in ancestors([*model.basic_RVs, *model.potentials]):
        array = getattr(variable, "data", None)  # of what was written into an expression
        if isinstance(array, np.ndarray) and array.ndim and array.dtype.kind in "cu":
            if fault := fault_of(array):
                raise ValueError(f"An array of the model {fault}")


def read_numbers(data: Any) -> Any:
    """Return ``data=`` with columns of numbers that pandas holds as objects, as arrays.

    Refuses tables whose rows have the same labels in another order.
    """
    if not isinstance(data, Mapping | pd.DataFrame):
        return data
    tables = {name: data[name] for name in data}
    labels = {f"data=`{name}`": _labels(table) for name, table in tables.items()}
    _refuse_orders([(what, index) for what, index in labels.items() if index is not None])
    for name, table in tables.items():
        if isinstance(table, np.ndarray) and not isinstance(table, np.memmap | np.ma.MaskedArray):
            _check_array(name, table)
    return {name: _array(table) for name, table in tables.items()}


def _check_array(name: str, array: np.ndarray) -> None:
    """Refuse what is no number; warn of missing values, which a fit leaves out by records."""
    fault = fault_of(array)
    if array.dtype.kind == "f" and fault:
        warnings.warn(
            f"data=`{name}` has missing values, and a record with one adds nothing to the fit, as "
            "if it were not there. If that is what you mean, drop these records before.",
            PosteriorWarning,
            stacklevel=2,
        )
    elif fault:
        raise ValueError(f"data=`{name}` {fault}")


def _labels(table: Any) -> pd.Index | None:
    labels = getattr(table, "index", None)
    return labels if isinstance(labels, pd.Index) else None


def _refuse_orders(labelled: list[tuple[str, pd.Index]]) -> None:
    for (first, labels), (what, others) in combinations(labelled, 2):
        if (
            len(labels) == len(others)
            and not labels.equals(others)
            and labels.isin(others).all()
            and others.isin(labels).all()
        ):
            raise ValueError(
                f"The rows of {first} and of {what} have the same labels in another order, and "
                "records are paired by position. Bring them into one order, as by "
                "x.loc[y.index], or say that positions count: x.reset_index(drop=True)."
            )


def _fault(data: Any, found: Any) -> str:
    """Say how PyMC changed data, or what of them no number stands for."""
    if issparse(found):
        data, found = data.data, found.data
    if not isinstance(found, np.ndarray):
        return ""
    whole = np.asarray(data)
    if found.dtype.kind == "i" and whole.dtype.kind in "iu" and (whole != found).any():
        return (
            "holds whole numbers that PyMC has changed, since they do not fit its type: give them "
            "as floats, or number the labels that they are by pandas.factorize."
        )
    return "" if np.ma.isMaskedArray(found) else fault_of(found)


def fault_of(array: np.ndarray) -> str:
    """Say what of an array no number of a model can stand for."""
    kind = array.dtype.kind
    if kind in "mM":
        return (
            "holds dates or times, which would count as nanoseconds: give the days or years since "
            "a public date, as numbers."
        )
    if kind == "c":
        return f"holds {array.dtype} values: give their parts as real numbers."
    if kind == "u" and array.size and int(array.max()) > LARGEST:
        return "holds whole numbers beyond 2^63, which wrap: give them as floats."
    if kind == "f" and np.isnan(array).any():
        return (
            "has missing values: drop the incomplete records, or give outcomes to observed= as a "
            "masked array."
        )
    return ""


def _array(table: Any) -> Any:
    """Return a table of pandas as one array of numbers, where all of its columns are numbers."""
    if isinstance(table, pd.Series):
        return _numbers(table)
    if isinstance(table, pd.DataFrame) and table.shape[1]:
        columns = [_numbers(table.iloc[:, j]) for j in range(table.shape[1])]
        if all(isinstance(x, np.ndarray) and x.dtype.kind in "biuf" for x in columns):
            return np.column_stack(columns)
    return table


def _numbers(column: pd.Series) -> Any:
    values = column.to_numpy()
    if values.dtype == object and all(isinstance(x, Real | Decimal) for x in values):
        return values.astype("float64")
    return values if values.dtype.kind in "biuf" and not np.isnan(values).any() else column
