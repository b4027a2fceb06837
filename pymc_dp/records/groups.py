"""Latents that have an entry for groups of records: no group may be a single privacy unit."""

import warnings
from collections.abc import Mapping

import numpy as np
import pytensor
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import AdvancedSubtensor
from scipy.sparse import csr_matrix

from pymc_dp.compile import PYTHON
from pymc_dp.errors import NotSeparableError, PrivacyWarning
from pymc_dp.records.axis import RecordAxes
from pymc_dp.records.columns import Column
from pymc_dp.records.harden import DataLeaf
from pymc_dp.records.indexing import counted_rows, gather_layout
from pymc_dp.units import Units, spoken

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
    units: Units | None,
) -> None:
    """Refuse latents that are indexed by the unit itself; warn where groups are small.

    Raises
    ------
    NotSeparableError
        Every group belongs to one unit alone, so the latent belongs to single units.
    """
    names = {leaf.variable: name for name, leaf in leaves.items()}
    latent = axes.inputs().keys() - names.keys()
    for node in toposort(list(terms.values())):
        for design, latents in _products(node):
            if design in names and latents not in axes.axis:
                _check_design(names[design], columns[names[design]], units)
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
            _check_sizes(node.inputs[0].name, _values(indices, names, columns), units)


def _products(node: Apply) -> list[tuple[Variable, Variable]]:
    """Return the operands of a product of matrices, either first."""
    if not isinstance(getattr(node.op, "core_op", node.op), Dot):
        return []
    left, right = (
        x.owner.inputs[0] if x.owner and isinstance(x.owner.op, DimShuffle) else x
        for x in node.inputs
    )
    return [(left, right), (right, left)]


def _check_design(name: str, column: Column, units: Units | None) -> None:
    """Refuse a matrix that gives every unit a coefficient of its own."""
    count = column.rows if units is None else units.number
    if len(column.values.shape) != 2 or not 1 < count <= column.width:
        return
    used = column.values != 0
    used = used.T if column.axis else used
    if units is not None:
        used = (_membership(units) @ used) > 0
    alone = np.flatnonzero(np.asarray(used.sum(axis=0)).ravel() == 1)
    if (np.asarray(used[:, alone].sum(axis=1)) > 0).all():
        raise NotSeparableError(
            f"`{name}` has a column of its own for every single {_unit(units)}, so what it "
            f"multiplies is a local latent: {ADVICE}"
        )


def _membership(units: Units) -> csr_matrix:
    """One row a unit, with ones at its records."""
    return csr_matrix((np.ones(len(units.order)), units.order, units.starts))


def _unit(units: Units | None) -> str:
    return spoken(units and units.name)


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


def _check_sizes(name: str | None, indices: list[np.ndarray], units: Units | None) -> None:
    """Count the records of every group, or its units: they are the groups of the distinct pairs."""
    pairs = np.stack([index.ravel() for index in indices])
    if units is not None:
        pairs = np.unique(np.vstack([pairs, units.codes]), axis=1)[:-1]
    sizes = np.unique(pairs, axis=1, return_counts=True)[1]
    what = f"`{name}`" if name else "a latent"
    if sizes.size > 1 and sizes.max() == 1:
        raise NotSeparableError(
            f"{what} has an entry for every single {_unit(units)}, so it is a local latent: "
            f"{ADVICE}"
        )
    if sizes.min() < SMALL_GROUP:
        warnings.warn(
            f"{what} is indexed by groups of fewer than {SMALL_GROUP} {_unit(units)}s; private "
            "noise will drown them, and their names must be public.",
            PrivacyWarning,
            stacklevel=2,
        )
