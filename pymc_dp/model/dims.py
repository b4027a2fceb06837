"""Which named dimensions are public: all others may be the records', by length or by labels."""

from collections.abc import Sequence
from typing import NamedTuple

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.split import Split


class Dims(NamedTuple):
    """The dimensions of a model."""

    records: frozenset[str]  # those along which the records go
    # those of shared latents, of data declared public, and of the other axes of the records
    public: frozenset[str]
    lengths: frozenset[AnyVariable]  # the lengths of all that are not public, as PyMC keeps them


def find_dims(split: Split, unit: str | None) -> Dims:
    """Sort the dimensions; ``unit`` names the data that say which unit has a record."""
    axis, model = split.axes.axis, split.hardened.model
    # the axis of the records in every variable that has one
    along = {name: axis[leaf.variable] for name, leaf in split.record_leaves.items()}
    along |= dict.fromkeys(split.terms, 0) | {name: axis[v] for name, v in split.local.items()}
    along |= {} if unit is None else {unit: 0}
    dims = model.named_vars_to_dims
    records = {d for name, k in along.items() for d in dims.get(name, ())[k : k + 1]}
    known = {
        d for name in (*along, *split.shared, *split.hardened.public) for d in dims.get(name, ())
    }
    lengths = {
        length
        for dim, length in model.dim_lengths.items()
        if isinstance(length, SharedVariable) and dim not in known - records
    }
    records, known = records - {None}, known - {None}  # an axis without a name has no labels
    return Dims(frozenset(records), frozenset(known - records), frozenset(lengths))


def refuse_record_dims(split: Split, dims: Dims) -> None:
    """Refuse latents that records share, but that have an entry for each of them by name."""
    for name in split.shared:
        for dim in dims.records.intersection(split.hardened.model.named_vars_to_dims.get(name, ())):
            raise NotSeparableError(
                f"`{name}` has the records' own dimension `{dim}`, so a fit would release their "
                "number and their labels. Read a latent of single records without an index: "
                "method='dp_advi' then integrates it out. Predict new records by pymc_dp.predict, "
                "after the fit."
            )


def refuse_private_lengths(split: Split, dims: Dims) -> None:
    """Refuse priors that compute with the length of a dimension that is not public."""
    for name, graph in split.before_data.items():
        for length in dims.lengths.intersection(ancestors(graph)):
            raise NotSeparableError(
                f"The prior or the initial value of `{name}` reads the length of the dimension "
                f"`{length.name}`, which is private: write a public number there."
            )


def named_dims(own: Sequence[str | None] | None, name: str, ndim: int) -> tuple[str, ...]:
    """Name the dims of a variable: as its model does, and the others as ArviZ does.

    >>> named_dims(None, "b", 1), named_dims((None, "term"), "b", 2)
    (('b_dim_0',), ('b_dim_0', 'term'))
    """
    pairs = zip(own or (None,) * ndim, range(ndim), strict=True)
    return tuple(dim or f"{name}_dim_{k}" for dim, k in pairs)
