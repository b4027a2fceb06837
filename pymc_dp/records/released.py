"""What of a posterior may leave: latents, and deterministics that reach no private number."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor
from pytensor.tensor.type import TensorType

from pymc_dp.records.checks import describe
from pymc_dp.records.dims import Dims
from pymc_dp.records.harden import DataLeaf, is_structural
from pymc_dp.records.terms import KEPT_WHOLE, without_lengths

# numbers that formulas are made of; any other may have been computed from data
FORMULA_NUMBERS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)


class Outputs(NamedTuple):
    """The releasable part of a posterior as graphs of the latents' value variables.

    ``withheld`` names the deterministics that stay behind.
    """

    graphs: dict[str, Variable]
    dims: dict[str, tuple[str, ...]]
    coords: dict[str, np.ndarray]
    withheld: tuple[str, ...]


def releasable(
    model: pm.Model,
    leaves: Mapping[Variable, DataLeaf],
    records: set[Variable],
    public: frozenset[str],
    order: Sequence[str],
    dims: Dims,
) -> Outputs:
    """Pick the latents and the deterministics of a hardened model that may be released.

    They come in the ``order`` of the author's model, which its hardened copy does not keep.

    Notes
    -----
    **Privacy.** A deterministic is withheld if its graph reaches data that are not declared
    public, or a number that is not part of a formula (``b * y_sd`` beside ``b`` would return
    ``y_sd``), or if it has a dimension that is not public, unless its own name is declared public.
    A declaration covers numbers, never arrays of data, latents of single records or the records'
    dimensions. Coords leave only for dimensions of what is released.

    Raises
    ------
    ValueError
        A deterministic that is declared public reads data that are not, or goes by records.
    """
    of_latent = dict(zip(model.free_RVs, model.value_vars, strict=True))
    shared = [rv for rv, value in of_latent.items() if value not in records]
    variables = shared + model.deterministics
    names = [variable.name for variable in variables]
    graphs = dict(zip(names, model.replace_rvs_by_values(variables), strict=True))
    own = {name: tuple(model.named_vars_to_dims.get(name, ())) for name in names}
    private = _private(leaves, records, public)
    private |= {v: f"the latent `{rv.name}`" for rv, v in of_latent.items() if v in records}
    for name in public.intersection(names):
        _refuse_declared(name, graphs[name], private, dims.records.intersection(own[name]))
    clean = partial(_is_clean, leaves=leaves, records=records, public=public)
    withheld = tuple(
        name
        for name in names[len(shared) :]
        if not (name in public or (dims.public.issuperset(own[name]) and clean(graphs[name])))
    )
    kept = [name for name in order if name in graphs and name not in withheld]
    coords = _coords(model, {dim for name in kept for dim in own[name]})
    return Outputs(
        {name: graphs[name] for name in kept}, {name: own[name] for name in kept}, coords, withheld
    )


def _coords(model: pm.Model, dims: set[str]) -> dict[str, np.ndarray]:
    return {
        dim: np.asarray(values)
        for dim, values in model.coords.items()
        if dim in dims and values is not None
    }


def _private(
    leaves: Mapping[Variable, DataLeaf], records: set[Variable], public: frozenset[str]
) -> dict[Variable, str]:
    """Describe the arrays of data that no declaration of a deterministic covers."""
    return {
        variable: describe(leaf)
        for variable, leaf in leaves.items()
        if (variable in records or (leaf.declared and variable.ndim)) and leaf.name not in public
    }


def _refuse_declared(
    name: str, graph: Variable, private: Mapping[Variable, str], dims: Iterable[str]
) -> None:
    """Refuse a deterministic that is declared public, but returns data or the records' labels."""
    for variable in private.keys() & set(ancestors([graph])):
        raise ValueError(
            f"public= names the deterministic `{name}`, which reads {private[variable]}: it would "
            "return what belongs to single records. Compute it after the fit, from the released "
            "latents."
        )
    for dim in dims:
        raise ValueError(
            f"public= names the deterministic `{name}`, which has the records' own dimension "
            f"`{dim}`: it would return their number and their labels. Leave the dimension out."
        )


def _is_clean(
    graph: Variable,
    leaves: Mapping[Variable, DataLeaf],
    records: set[Variable],
    public: frozenset[str],
) -> bool:
    [graph] = without_lengths([graph])
    values = _values(graph)
    for variable in ancestors([graph]):
        if variable in leaves:
            library = variable not in records and variable not in values
            position = library and _is_index(leaves[variable])
            if leaves[variable].name not in public and not position:
                return False
        elif isinstance(variable, SharedVariable) or variable in records:
            return False
        elif isinstance(variable, Constant) and isinstance(variable.type, TensorType):
            if not np.isin(variable.data, FORMULA_NUMBERS).all():
                return False
        elif variable.owner is not None:
            op = variable.owner.op
            if isinstance(op, RandomVariable) or _repeats(variable.owner):
                return False
            op = getattr(op, "core_op", op)
            if isinstance(op, HasInnerGraph) and not isinstance(op, KEPT_WHOLE):
                return False  # numbers may hide inside
    return True


def _repeats(node: Apply) -> bool:
    """Whether one operand is stacked more than twice: how often is a number."""
    if not isinstance(node.op, MakeVector | Join):
        return False
    parts = [
        x.owner.inputs[0] if x.owner and isinstance(x.owner.op, DimShuffle) else x
        for x in node.inputs
    ]
    return max(map(parts.count, parts)) > 2


def _values(graph: Variable) -> set[Variable]:
    """Return the ancestors that are more than a position in an array."""
    values: set[Variable] = set()
    left = [graph]
    while left:
        variable = left.pop()
        if variable not in values and variable.owner is not None:
            op, inputs = variable.owner.op, variable.owner.inputs
            written = 1 + isinstance(op, AdvancedIncSubtensor)
            indexing = isinstance(op, AdvancedSubtensor | AdvancedIncSubtensor)
            left += inputs[:written] if indexing else inputs
        values.add(variable)
    return values


def _is_index(leaf: DataLeaf) -> bool:
    """Whether a library wrote the array: positions in a packed matrix, say."""
    value = np.asarray(leaf.value)
    return not leaf.declared and value.dtype.kind in "iu" and is_structural(value)
