"""Which named dimensions are public: all others may be the records', by length or by labels."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_dp.errors import NotSeparableError


class Dims(NamedTuple):
    """The dimensions of a model.

    Attributes
    ----------
    records : frozenset of str
        Those along which the records go.
    public : frozenset of str
        Those of shared latents, of data declared public, and of the other axes of the records.
    lengths : frozenset of variables
        The lengths of all that are not public, as PyMC keeps them.
    """

    records: frozenset[str]
    public: frozenset[str]
    lengths: frozenset[Variable]


def find_dims(
    model: pm.Model, along: Mapping[str, int], shared: Iterable[str], public: Iterable[str]
) -> Dims:
    """Tell the dimensions apart.

    Parameters
    ----------
    model : pymc.Model
    along : mapping
        The axis of the records in every variable that has one, by the variable's name.
    shared, public : iterable of str
        The latents that records share, and the names that are declared public.
    """
    dims = model.named_vars_to_dims
    records = {d for name, k in along.items() for d in dims.get(name, ())[k : k + 1]}
    known = {d for name in (*along, *shared, *public) for d in dims.get(name, ())}
    lengths = {
        length
        for dim, length in model.dim_lengths.items()
        if isinstance(length, SharedVariable) and dim not in known - records
    }
    return Dims(frozenset(records), frozenset(known - records), frozenset(lengths))


def refuse_record_dims(model: pm.Model, shared: Iterable[str], dims: Dims) -> None:
    """Refuse latents that records share, but that have an entry for each of them by name."""
    for name in shared:
        for dim in dims.records.intersection(model.named_vars_to_dims.get(name, ())):
            raise NotSeparableError(
                f"`{name}` has the records' own dimension `{dim}`, so a fit would release their "
                "number and their labels. Marginalise the latent if it belongs to single records; "
                "predict new records by pymc_dp.predict after the fit."
            )


def refuse_private_lengths(graphs: Mapping[str, Iterable[Variable]], dims: Dims) -> None:
    """Refuse priors that compute with the length of a dimension that is not public."""
    for name, graph in graphs.items():
        for length in dims.lengths.intersection(ancestors(graph)):
            raise NotSeparableError(
                f"The prior or the initial value of `{name}` reads the length of the dimension "
                f"`{length.name}`, which is private: write a public number there."
            )
