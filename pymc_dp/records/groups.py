"""Latents that have an entry for groups of records: no group may be a single record."""

import warnings
from collections.abc import Mapping

import numpy as np
import pytensor
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.compile import PYTHON
from pymc_dp.errors import NotSeparableError, PrivacyWarning
from pymc_dp.records.axis import RecordAxes
from pymc_dp.records.columns import Column
from pymc_dp.records.harden import DataLeaf
from pymc_dp.records.indexing import counted_rows, gather_layout

SMALL_GROUP = 5
ADVICE = (
    "no fit can release it. Marginalise it (pm.NegativeBinomial, pm.BetaBinomial, pm.Mixture), or "
    "use coarser groups."
)


def check_groups(
    terms: Mapping[str, Variable],
    axes: RecordAxes,
    columns: Mapping[str, Column],
    leaves: Mapping[str, DataLeaf],
) -> None:
    """Refuse latents that are indexed by the record itself; warn where groups are small.

    Raises
    ------
    NotSeparableError
        Every record has a group of its own, so the latent belongs to single records.
    """
    names = {leaf.variable: name for name, leaf in leaves.items()}
    latent = axes.inputs().keys() - names.keys()
    for node in toposort(list(terms.values())):
        for design, latents in _products(node):
            if design in names and latents not in axes.axis:
                _check_design(names[design], columns[names[design]])
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
            _check_sizes(node.inputs[0].name, _values(indices, names, columns))


def _products(node: Apply) -> list[tuple[Variable, Variable]]:
    """Return the operands of a product of matrices, either first."""
    if not isinstance(getattr(node.op, "core_op", node.op), Dot):
        return []
    left, right = (
        x.owner.inputs[0] if x.owner and isinstance(x.owner.op, DimShuffle) else x
        for x in node.inputs
    )
    return [(left, right), (right, left)]


def _check_design(name: str, column: Column) -> None:
    """Refuse a matrix that gives every record a coefficient of its own."""
    if len(column.values.shape) != 2 or not 1 < column.rows <= column.width:
        return
    used = column.values != 0
    used = used.T if column.axis else used
    alone = np.flatnonzero(np.asarray(used.sum(axis=0)).ravel() == 1)
    if (np.asarray(used[:, alone].sum(axis=1)) > 0).all():
        raise NotSeparableError(
            f"`{name}` has a column of its own for every single record, so what it multiplies is a "
            f"local latent: {ADVICE}"
        )


def _values(
    indices: list[Variable], names: Mapping[Variable, str], columns: Mapping[str, Column]
) -> list[np.ndarray]:
    if all(index in names for index in indices):
        return [np.asarray(columns[names[index]].values) for index in indices]
    inputs = {leaf: leaf.type() for leaf in names}
    fn = pytensor.function(
        list(inputs.values()), indices, givens=inputs, mode=PYTHON, on_unused_input="ignore"
    )
    return fn(*[np.asarray(columns[name].values, leaf.type.dtype) for leaf, name in names.items()])


def _check_sizes(name: str | None, indices: list[np.ndarray]) -> None:
    sizes = np.unique(np.stack([i.ravel() for i in indices]), axis=1, return_counts=True)[1]
    what = f"`{name}`" if name else "a latent"
    if sizes.size > 1 and sizes.max() == 1:
        raise NotSeparableError(
            f"{what} has an entry for every single record, so it is a local latent: {ADVICE}"
        )
    if sizes.min() < SMALL_GROUP:
        warnings.warn(
            f"{what} is indexed by groups of fewer than {SMALL_GROUP} records; private noise will "
            "drown them, and their names must be public.",
            PrivacyWarning,
            stacklevel=2,
        )
