"""New records in the place of a model's own."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from pytensor.graph.traversal import ancestors
from scipy.sparse import issparse

from pymc_dp.errors import PrivacyWarning
from pymc_dp.model.columns import column
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.harden import HardenedModel
from pymc_dp.postprocess.new_records import NewRecords

OF_FORMULA = " Of a formula, give bambi's model, and its data frame of new rows."


def put_new_data(
    hardened: HardenedModel,
    new: NewRecords,
    predicted: list[AnyVariable],
    data: dict[str, Any],
    rows: int | None,
) -> int:
    """Put new rows in place of the model's records; return their number."""
    axes = new.axes
    masks = {mask.leaf for mask in hardened.masks}
    records = {
        leaf.name: leaf
        for leaf in hardened.leaves.values()
        if leaf.variable in axes.axis and leaf.name not in masks
    }
    read = set(ancestors(predicted))
    for name in data.keys() - records.keys():
        raise ValueError(
            f"data= names `{name}`, but the model's records are {sorted(records)}.{OF_FORMULA}"
        )
    for name, leaf in records.items():
        if leaf.variable in read and name not in data:
            unnamed = f" It is {leaf}: make it pm.Data('x', ...).{OF_FORMULA}"
            unnamed = "" if leaf.declared else unnamed
            raise ValueError(
                f"data= lacks `{name}`, which the predictions depend on: give its values for the "
                f"new records under this name.{unnamed}"
            )
    columns = {name: column(records[name], axes, values) for name, values in data.items()}
    counts = {each.rows for each in columns.values()} | (set() if rows is None else {rows})
    if len(counts) != 1:
        raise ValueError(
            "The new records differ in number." if counts else "Say how many rows= to predict."
        )
    for name, new_column in columns.items():
        variable: Any = records[name].variable
        variable.set_value(_stored(name, new_column.values, variable.type.dtype))
    [count] = counts
    draw_all_entries(hardened, count)
    return count


def draw_all_entries(hardened: HardenedModel, count: int) -> None:
    """Let no entry be missing: of new records nothing is observed, and all is drawn."""
    for mask in hardened.masks:
        variable: Any = mask.variable
        variable.set_value(np.zeros((count, *mask.values.shape[1:]), bool))


def warn_if_fitted(hardened: HardenedModel, data: Mapping[str, Any]) -> None:
    """Warn where new values have the shapes of those of the model."""
    own = {leaf.name: np.shape(leaf.value) for leaf in hardened.leaves.values()}
    if data and all(np.shape(values) == own[name] for name, values in data.items()):
        warnings.warn(
            f"The new values of {', '.join(f'`{name}`' for name in data)} have the shapes of "
            "those that the model holds. If they are the fitted records, the predictions are "
            "computed from them again and are not covered by the guarantee: do not publish them.",
            PrivacyWarning,
            stacklevel=3,
        )


def _stored(name: str, values: Any, dtype: str) -> np.ndarray:
    """Return new values in the model's own type; whole numbers may not wrap to others."""
    given = np.asarray(values.toarray() if issparse(values) else values)
    kept = given.astype(dtype)
    if kept.dtype.kind in "iu" and not np.array_equal(kept, given):
        raise ValueError(
            f"data=`{name}` holds whole numbers beyond those of {dtype}, as which the model reads "
            "them: codes would be of other levels. Leave these rows out."
        )
    return kept


def put_units(hardened: HardenedModel, unit: str | None, codes: Any, number: int) -> None:
    """Say which unit each new record belongs to: by default each to one of its own."""
    own = np.arange(number)
    if codes is not None:
        labels, own = np.unique(codes, return_inverse=True)
        if labels.dtype.kind in "if" and labels.size and not labels.min() >= 0:
            raise ValueError(
                f"data=`{unit}` holds negative codes or nan, as pandas writes for missing labels: "
                "all these records would be of one unit. Give each of them a code of its own."
            )
    if np.shape(own) != (number,):
        raise ValueError(f"data=`{unit}` must be one code for each of the {number} new records.")
    for leaf in hardened.leaves.values():
        if leaf.name == unit:
            leaf.variable.set_value(own.astype(leaf.variable.type.dtype))
