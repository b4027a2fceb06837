"""What of a posterior may leave: latents, and deterministics that reach no private number."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from pytensor.graph.traversal import ancestors

from pymc_dp.model.dims import Dims
from pymc_dp.model.formulas import Known, is_formula
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.harden import side_of_triangle
from pymc_dp.model.split import Split
from pymc_dp.model.terms import without_lengths


class Outputs(NamedTuple):
    """The releasable part of a posterior as graphs of the latents' value variables."""

    graphs: dict[str, AnyVariable]
    dims: dict[str, tuple[str, ...]]
    coords: dict[str, np.ndarray]
    withheld: tuple[str, ...]  # the deterministics that stay behind
    declarable: dict[str, set[str]]  # those that public= would let go: dimensions that are why


def releasable(
    split: Split,
    order: Sequence[str],
    dims: Dims,
    shapes: Mapping[str, tuple[int, ...]],
    unproved: Collection[str],
) -> Outputs:
    """Pick the latents and the deterministics of a hardened model that may be released.

    They come in the ``order`` of the author's model, which its hardened copy does not keep.
    ``shapes`` are those of the latents' unconstrained values, by the latent's name, and
    ``unproved`` names the deterministics with operations that may hold data.

    **Privacy.** A deterministic is withheld if its graph reaches data that are not declared
    public, or a number, length or position that is not part of a formula (``b * y_sd`` beside
    ``b`` would return ``y_sd``), or if it has a dimension that is not public, unless its own name
    is declared public. A declaration covers numbers, never arrays of data, latents of single
    records or the records' dimensions. Coords leave only for dimensions of what is released.
    """
    model, public = split.hardened.model, split.hardened.public
    shared = [rv for rv in model.free_RVs if rv.name in split.shared]
    variables = shared + model.deterministics
    names = [variable.name for variable in variables]
    graphs = dict(zip(names, model.replace_rvs_by_values(variables), strict=True))
    own = {name: tuple(model.named_vars_to_dims.get(name, ())) for name in names}
    private = _private(split)
    of_records = {
        name: why
        for name in names
        if (why := _of_records(graphs[name], private, dims.records.intersection(own[name])))
    }
    for name in public.intersection(of_records):
        raise ValueError(f"public= names the deterministic `{name}`, {of_records[name]}")
    # latents leave, so a deterministic may read them: what they are made of does not matter
    plain = without_lengths(variables)
    latents = plain[: len(shared)]
    lengths = {n for rv in shared for n in (*rv.type.shape, *shapes[str(rv.name)]) if n is not None}
    known = _known(split, latents, lengths)
    formulas = {
        name
        for name, graph in zip(names[len(shared) :], plain[len(shared) :], strict=True)
        if name not in unproved
        and dims.public.issuperset(filter(None, own[name]))
        and is_formula(graph, known)
    }
    withheld = tuple(
        name for name in names[len(shared) :] if name not in public and name not in formulas
    )
    kept = [name for name in order if name in graphs and name not in withheld]
    used = {dim for name in kept for dim in own[name]}
    return Outputs(
        graphs={name: graphs[name] for name in kept},
        dims={name: own[name] for name in kept},
        coords={d: np.asarray(x) for d, x in model.coords.items() if d in used and x is not None},
        withheld=withheld,
        declarable={n: {*own[n]} - {None, *dims.public} for n in withheld if n not in of_records},
    )


def _known(split: Split, latents: Sequence[AnyVariable], lengths: set[int]) -> Known:
    """Gather what a deterministic may be made of."""
    sides = {side for n in lengths if (side := side_of_triangle(n)) is not None}
    leaves, public = split.hardened.leaves.items(), split.hardened.public
    declared = [variable for variable, leaf in leaves if leaf.name in public]
    arrays = {variable: leaf.value for variable, leaf in leaves if not leaf.declared}
    return Known(frozenset({*latents, *declared}), frozenset(lengths | sides), arrays)


def _private(split: Split) -> dict[AnyVariable, str]:
    """Describe the data, and the latents of single records, that no declaration covers."""
    private: dict[AnyVariable, str] = {
        variable: str(leaf)
        for variable, leaf in split.hardened.leaves.items()
        if (variable in split.axes.axis or (leaf.declared and leaf.variable.ndim))
        and leaf.name not in split.hardened.public
    }
    private |= {value: f"the latent `{name}`" for name, value in split.local.items()}
    return private | {value: f"the latent `{value.name}`" for value in split.unit_latents.rows}


def _of_records(
    graph: AnyVariable, private: Mapping[AnyVariable, str], dims: Iterable[str]
) -> str | None:
    """Say why no declaration lets a variable go: it returns data, or the records' labels."""
    for variable in private.keys() & set(ancestors([graph])):
        return (
            f"which reads {private[variable]}: it would return what belongs to single records. "
            "Compute it after the fit, from the released latents."
        )
    for dim in dims:
        return (
            f"which has the records' own dimension `{dim}`: it would return their number and their "
            "labels. Leave the dimension out."
        )
    return None
