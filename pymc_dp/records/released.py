"""What of a posterior may leave: latents, and deterministics that reach no private number."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor
from pytensor.tensor.type import TensorType

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
) -> Outputs:
    """Pick the latents and the deterministics of a hardened model that may be released.

    They come in the ``order`` of the author's model, which its hardened copy does not keep.

    Notes
    -----
    **Privacy.** A deterministic is withheld if its graph reaches data that are not declared
    public, or a number that is not part of a formula (``b * y_sd`` beside ``b`` would return
    ``y_sd``), unless its own name is declared public. A declaration covers numbers, never
    arrays of data. Coords leave only for dimensions of what is released.

    Raises
    ------
    ValueError
        A deterministic that is declared public reads data that are not.
    """
    of_latent = dict(zip(model.free_RVs, model.value_vars, strict=True))
    variables = [rv for rv, v in of_latent.items() if v not in records] + model.deterministics
    graphs = dict(
        zip([v.name for v in variables], model.replace_rvs_by_values(variables), strict=True)
    )
    latents = {rv.name for rv in of_latent}
    for name in public.intersection(graphs):
        _refuse_data(name, graphs[name], leaves, public)
    withheld = tuple(
        name
        for name, graph in graphs.items()
        if name not in latents
        and name not in public
        and not _is_clean(graph, leaves, records, public)
    )
    kept = {name: graphs[name] for name in order if name in graphs and name not in withheld}
    dims = {name: tuple(d for d in model.named_vars_to_dims.get(name, ())) for name in kept}
    used = {d for names in dims.values() for d in names}
    coords = {
        d: np.asarray(values)
        for d, values in model.coords.items()
        if d in used and values is not None
    }
    return Outputs(kept, dims, coords, withheld)


def _refuse_data(
    name: str, graph: Variable, leaves: Mapping[Variable, DataLeaf], public: frozenset[str]
) -> None:
    for variable in ancestors([graph]):
        leaf = leaves.get(variable)
        if leaf is not None and leaf.declared and np.ndim(leaf.value) and leaf.name not in public:
            raise ValueError(
                f"public= names the deterministic `{name}`, which reads the data `{leaf.name}`: "
                "it would return them. Compute it after the fit, from the released latents."
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
            if isinstance(op, RandomVariable):
                return False
            op = getattr(op, "core_op", op)
            if isinstance(op, HasInnerGraph) and not isinstance(op, KEPT_WHOLE):
                return False  # numbers may hide inside
    return True


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
