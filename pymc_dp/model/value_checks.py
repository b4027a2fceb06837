"""The checks that read private values before any noise is added.

Nothing else may, beside the wall. They return nothing: what comes of them is a refusal, or a
warning to the curator, and no number of theirs enters a plan, a graph or a result. A fit is
therefore conditional on their acceptance (docs/guarantee.md).

`check_groups` is about latents that have an entry for each group of records: no group may be a
single privacy unit. `refuse_centres` is about numbers that a library took from the records, and
`refuse_as_many` about latents and arrays of which there are as many as records.
"""

import warnings
from collections.abc import Mapping

import numpy as np
import pymc as pm
from pytensor.compile.maker import function
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import AdvancedSubtensor
from scipy.sparse import csr_matrix, issparse

from pymc_dp.accounting.neighbours import unit_label
from pymc_dp.errors import NotSeparableError, PrivacyWarning
from pymc_dp.model.compile import PYTHON
from pymc_dp.model.graph_types import AnyVariable, Node
from pymc_dp.model.indexing import counted_rows, gather_layout
from pymc_dp.model.split import Split
from pymc_dp.privacy.private_data import Column
from pymc_dp.privacy.units import Units

SMALL_GROUP = 5
ADVICE = (
    "no fit can release it. Marginalise it (pm.NegativeBinomial, pm.BetaBinomial, pm.Mixture), or "
    "use coarser groups."
)

AS_MANY = (
    "along an axis as there are records, or units, whose number is private. Give it another "
    "length; or fit with neighbours='zero_out' or 'replace_one', under which the number is public."
)


def check_groups(split: Split, columns: Mapping[str, Column], units: Units | None) -> None:
    """Refuse latents that are indexed by the unit itself; warn where groups are small.

    A latent with an entry for every single unit belongs to single units.
    """
    terms, axes = split.terms, split.axes
    names: dict[AnyVariable, str] = {
        leaf.variable: name for name, leaf in split.record_leaves.items()
    }
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


def _products(node: Node) -> list[tuple[AnyVariable, AnyVariable]]:
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
    if len(column.values.shape) != 2 or not 1 < count <= column.spec.width:
        return
    used = column.values != 0
    used = used.T if column.axis else used
    if units is not None:
        # one row a unit, with ones at its records
        members = csr_matrix((np.ones(len(units.order)), units.order, units.starts))
        used = (members @ used) > 0
    alone = np.flatnonzero(np.asarray(used.sum(axis=0)).ravel() == 1)
    if (np.asarray(used[:, alone].sum(axis=1)) > 0).all():
        raise NotSeparableError(
            f"`{name}` has a column of its own for every single {_unit(units)}, so what it "
            f"multiplies is a local latent: {ADVICE}"
        )


def _unit(units: Units | None) -> str:
    return unit_label(units and units.name)


def _values(
    indices: list[AnyVariable], names: Mapping[AnyVariable, str], columns: Mapping[str, Column]
) -> list[np.ndarray]:
    if all(index in names for index in indices):
        return [np.asarray(columns[names[index]].values) for index in indices]
    inputs = {leaf: leaf.type() for leaf in names}
    fn = function(
        list(inputs.values()), indices, givens=inputs, mode=PYTHON, on_unused_input="ignore"
    )
    codes = [np.asarray(columns[name].values, leaf.type.dtype) for leaf, name in names.items()]
    return list(fn(*codes))


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


def refuse_centres(model: pm.Model, columns: Mapping[str, Column]) -> None:
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
            if any(_is_centre(number, column) for number in single if number):
                raise NotSeparableError(
                    f"The likelihood of `{rv.name}` holds the centre of the records of `{name}` as "
                    "a number: every record moves it. For pm.gp.HSGP, call gp.prior_linearized "
                    "with a public grid first, which fixes the centre, and give L= as a public "
                    "number."
                )


def _is_centre(number: float, column: Column) -> bool:
    """Whether the number is the column's centre, or the reach of a column that was centred."""
    if issparse(column.values) or column.dtype != "float64":
        return False
    values = np.asarray(column.values, "float64")
    low, high = values.min(axis=column.axis), values.max(axis=column.axis)
    centres = np.append((low + high) / 2, values.mean(axis=column.axis))
    centred = np.isclose(low, -high, rtol=1e-12, atol=0) & (0 < high) & (high < number)
    return bool(np.isclose(centres, number, rtol=1e-9, atol=0).any() or centred.any())


def refuse_as_many(
    split: Split,
    shapes: Mapping[str, tuple[int, ...]],
    columns: Mapping[str, Column],
    units: Units | None,
) -> None:
    """Refuse shared latents, and arrays without a name, that have the private number as a length.

    The number of records or units would be released as a shape, or enter as a length. A length that
    is also one of the records' own, such as the number of predictors, is public. ``shapes`` are
    those of the latents' unconstrained values.
    """
    hardened = split.hardened
    arrays = {
        variable: leaf.value.shape
        for variable, leaf in hardened.leaves.items()
        if not leaf.declared
        and leaf.name not in hardened.public
        and variable not in split.axes.axis
    }
    numbers = {column.rows for column in columns.values()}
    numbers |= set() if units is None else {units.number}
    numbers -= {length for column in columns.values() for length in column.spec.shape}
    for name in split.shared:
        if numbers.intersection(shapes[name]):
            raise NotSeparableError(f"`{name}` has as many entries {AS_MANY}")
    for name, graphs in ({n: [g] for n, g in split.terms.items()} | split.before_data).items():
        for variable in arrays.keys() & set(ancestors(graphs)):
            if numbers.intersection(arrays[variable]):
                raise NotSeparableError(f"`{name}` reads an array with as many entries {AS_MANY}")
