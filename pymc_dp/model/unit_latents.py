"""Latents with an entry for every privacy unit, as latents of the unit's records.

``a[person]`` gives each record the entry of its own unit, where ``unit="person"``. With one entry a
record in the place of ``a[person]``, and records of one unit sharing it, nothing is left that says
which unit a record belongs to, and the proof of separable records covers the rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import AdvancedSubtensor, indices_from_subtensor

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.axis import find_record_axes
from pymc_dp.model.graph_types import AnyVariable, Tensor, pt
from pymc_dp.model.harden import HardenedModel
from pymc_dp.model.indexing import gather_layout
from pymc_dp.model.priors import Prior
from pymc_dp.model.terms import Terms


class UnitLatents(NamedTuple):
    """The latents of units, and what stands in their place in a graph of records."""

    column: AnyVariable | None  # says which unit a record belongs to
    rows: dict[AnyVariable, AnyVariable]  # a latent's value to that of every record's unit

    def by_record(self, graphs: Sequence[AnyVariable]) -> list[AnyVariable]:
        """Give every record the entry of its own unit, in place of the entries of all."""
        column = self.column
        entries = [v for v in ancestors(graphs) if is_entry_of_unit(v, column)]
        bases = _replaced([v.owner.inputs[0] for v in entries], self.rows)
        picked = {}
        for entry, base in zip(entries, bases, strict=True):
            # from the record's own row what the entry picks from its unit's
            indices = indices_from_subtensor(entry.owner.inputs[1:], entry.owner.op.idx_list)
            own: Tensor = base
            picked[entry] = own[(slice(None), *indices[1:])] if len(indices) > 1 else own
        return _replaced(_replaced(graphs, picked), self.rows)


NO_UNITS = UnitLatents(None, {})


def is_entry_of_unit(variable: AnyVariable, column: AnyVariable | None) -> bool:
    """Whether a variable is ``x[column]``, where the column says which unit a record belongs to.

    So is ``x[column, 0]``, with numbers and slices along the other axes.
    """
    node = variable.owner
    if not isinstance(variable.owner_op, AdvancedSubtensor) or column not in node.inputs:
        return False
    arrays = gather_layout(node).arrays
    others: list[Tensor] = [index for axis, index in arrays.items() if axis]
    return arrays.get(0) is column and all(index.type.ndim == 0 for index in others)


def find_unit_latents(
    hardened: HardenedModel, terms: Terms, prior: Prior, unit: str | None
) -> UnitLatents:
    """Find the latents that have an entry for every unit, and those that their priors read so."""
    columns = [variable for variable, leaf in hardened.leaves.items() if leaf.name == unit]
    if not columns:
        return NO_UNITS
    [column] = columns
    names = {value: str(rv.name) for rv, value in hardened.model.rvs_to_values.items()}
    rows: dict[AnyVariable, AnyVariable] = {}
    graphs = [*terms.values(), *(graphs[0] for graphs in prior.values())]
    entries = [v for v in ancestors(graphs) if is_entry_of_unit(v, column)]
    bases = {f"{v.owner.inputs[0].name or 'a latent'}[{unit}]": v.owner.inputs[0] for v in entries}
    while bases:
        found = [v for name, base in bases.items() for v in _along_units(name, base, names, unit)]
        new = [value for value in found if value not in rows]
        for value in new:
            shape = (None, *value.type.shape[1:])  # with one entry a record
            rows[value] = pt.TensorType(value.type.dtype, shape)(value.name)
        bases = {names[value]: prior[names[value]][0] for value in new}
    return UnitLatents(column, rows)


def _along_units(
    name: str, base: Tensor, names: Mapping[AnyVariable, str], unit: str | None
) -> Iterable[AnyVariable]:
    """Return the latents whose axis 0 is that of a graph, which must treat each entry alone."""
    for variable, axis in find_record_axes({name: base}).inputs().items():
        if variable not in names or axis != 0:
            raise NotSeparableError(
                f"`{name}` has an entry for every unit of unit={unit!r} and reads "
                f"`{variable.name}` with as many: give such an array one row a record, and add it "
                f"where the likelihood reads the entry of `{unit}`."
            )
        yield variable


def _replaced(
    graphs: Sequence[AnyVariable], changes: dict[AnyVariable, AnyVariable]
) -> list[AnyVariable]:
    return list(clone_replace(graphs, changes, rebuild_strict=False) if changes else graphs)


def refuse_both_kinds(latents: UnitLatents, local: Mapping[str, AnyVariable]) -> None:
    """Refuse latents of single records beside latents of units: each is integrated by itself."""
    own = [name for name, value in local.items() if value not in set(latents.rows.values())]
    if latents.rows and own:
        raise NotSeparableError(
            f"`{own[0]}` belongs to single records, and other latents to units of several: only "
            "one kind can be integrated out. Marginalise the latent of records, as a Normal error "
            "adds to the outcome's variance, or leave the other out."
        )


def refuse_other_uses(latents: UnitLatents, graphs: Mapping[str, AnyVariable]) -> None:
    """Refuse graphs that read the entries of other units than the record's own."""
    for name, graph in graphs.items():
        for value in latents.rows.keys() & set(ancestors([graph])):
            raise NotSeparableError(
                f"`{name}` reads `{value.name}`, a latent of single units, other than by the "
                "entry of a record's own unit: index it by the array that unit= names, and by "
                "nothing else."
            )
