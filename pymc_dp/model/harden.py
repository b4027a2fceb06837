"""Turn every array that a model holds into a named leaf, before anything is derived from it.

PyTensor folds expressions of constants: ``x - x.mean()`` over a NumPy array would arrive as one
array, and a model that couples its records would pass for one that does not.

`harden` first joins observed variables that have missing entries, which PyMC splits in two, whose
lengths say how many are missing. With a mask by records, a missing outcome adds nothing to its
record's likelihood; a missing entry that is read elsewhere is a latent of a record.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pymc as pm
from pymc.distributions.censored import CensoredRV
from pymc.model.fgraph import (
    ModelDeterministic,
    ModelFreeRV,
    ModelObservedRV,
    fgraph_from_model,
    model_free_rv,
    model_from_fgraph,
    model_observed_rv,
)
from pymc.model.transform.conditioning import remove_value_transforms
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.variable import shared_rng
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.graphs import AnyVariable, Node, Tensor, pt, shared, stored_value

MASK = "missing in "
SYMBOLS = {"Add": "+", "Sub": "-", "Mul": "*", "True_div": "/", "Pow": "**"}
SYMBOLS |= {"Dot": "@", "Matmul": "@"}


class DataLeaf(NamedTuple):
    """An array of the model."""

    name: str
    variable: Any  # a shared variable; stands for the array in the graph
    value: np.ndarray
    declared: bool  # whether the author named it (``pm.Data`` or ``observed=``)
    inside: str = ""  # the expression that one without a name stands in

    def __str__(self) -> str:
        """Name the array for an error sentence."""
        inside = f" in `{self.inside}`" if self.inside else ""
        unnamed = f"an unnamed array of shape {np.shape(self.value)}{inside}"
        return f"the data `{self.name}`" if self.declared else unnamed


class HardenedModel(NamedTuple):
    """A copy of a model in which every array and every observed value is a `DataLeaf`."""

    model: pm.Model
    leaves: dict[AnyVariable, DataLeaf]  # by variable, in an order that is the same every time
    initvals: dict[str, object]  # the author's initial values, by the name of the variable
    # by the name of an observed variable that has missing entries: which are missing
    masks: dict[str, DataLeaf]
    public: frozenset[str] = frozenset()  # names that the author declares public


def is_structural(value: np.ndarray) -> bool:
    """Say whether an array carries at most two numbers: a fill, an even sequence, an identity.

    It equals what NumPy makes to the last bit, or each entry could carry some bits of a record.
    Libraries make such arrays: the frequencies of a basis, a jitter on a diagonal, the row numbers
    of a packed Cholesky factor. Two real numbers are a sequence only if they differ by one.
    """
    value = np.asarray(value)
    flat = value.ravel()
    with np.errstate(all="ignore"):  # limits of censoring may be infinite
        return flat.size < 2 or any(_same(flat, x) for x in _regular(value, flat))


def _same(values: np.ndarray, others: np.ndarray) -> bool:
    """Whether two arrays are equal to the last bit: that of a zero's sign can be read, too."""
    return values.tobytes() == others.astype(values.dtype).tobytes()


def _regular(value: np.ndarray, flat: np.ndarray) -> Iterator[np.ndarray]:
    """Make the regular arrays that begin as an array does; few are, and of others no copy is."""
    if _same(flat[:4], np.full_like(flat[:4], flat[0])):
        yield np.full_like(flat, flat[0])
    is_number, side = flat.dtype.kind in "iuf", side_of_triangle(flat.size)
    if is_number and side is not None and flat[0] == 0 and flat[-1] == side - 1:
        yield from np.tril_indices(side)  # the rows, or the columns, of a triangle in order
    if value.ndim == 2 and flat[1] == 0:  # its second entry is off the diagonal
        yield flat[0] * np.eye(*value.shape)
    if not is_number:
        return
    if flat.size == 2 and flat.dtype.kind == "f" and abs(flat[1] - flat[0]) != 1:
        return
    begin = np.diff(flat[:4].astype(float))
    if np.allclose(begin, begin[0], rtol=1e-6, atol=0):
        steps = np.arange(flat.size, dtype=flat.dtype)
        yield flat[0] + steps * (flat[1] - flat[0])
        # of whole numbers, or of equal ones at the limit of precision, steps would differ
        if flat.dtype.kind == "f" and begin[0] != 0:
            yield np.linspace(flat[0].item(), flat[-1].item(), flat.size)
            yield np.pi * (steps + 1)


def side_of_triangle(size: int) -> int | None:
    """Return the side of the triangle that holds so many numbers, its diagonal included."""
    side = int((2 * size) ** 0.5)
    return side if side * (side + 1) == 2 * size else None


def harden(model: pm.Model) -> HardenedModel:
    """Copy ``model`` with all observed values and constants of several numbers made shared."""
    names = (name for i in count() if (name := f"array_{i}") not in model.named_vars)
    masks: dict[str, DataLeaf] = {}
    lifted: list[DataLeaf] = []

    def change(fgraph: FunctionGraph) -> None:
        splits = [_split(fgraph, node) for node in _nodes(fgraph, ModelObservedRV)]
        masks.update({split[0]: _join(fgraph, *split) for split in splits if split is not None})
        for constant in _array_constants(fgraph):
            _lift(fgraph, constant, names, lifted)
        _keep_limits(fgraph)
        for i, leaf in enumerate(lifted):
            inside = "" if leaf.declared else expression_around(fgraph, leaf.variable)
            lifted[i] = leaf._replace(inside=inside)

    hardened = changed(model, change)
    # the author's own are checked, and read, from ``initvals`` alone
    hardened.rvs_to_initial_values = dict.fromkeys(hardened.rvs_to_initial_values)
    data = [
        DataLeaf(str(variable.name), variable, np.asarray(stored_value(variable)), True)
        for variable in hardened.data_vars
        if isinstance(variable, SharedVariable)
    ]
    initvals = {str(k.name): x for k, x in model.rvs_to_initial_values.items() if x is not None}
    leaves = {leaf.variable: leaf for leaf in (*data, *masks.values(), *lifted)}
    return HardenedModel(hardened, leaves, initvals, masks)


def constrained(model: pm.Model) -> pm.Model:
    """Copy ``model`` with every latent on its own scale, not on the whole real line."""
    return _copied(model, remove_value_transforms)


def changed(model: pm.Model, change: Callable[[FunctionGraph], None]) -> pm.Model:
    """Copy a model with a change of its graph."""

    def copy(view: pm.Model) -> pm.Model:
        fgraph, _ = fgraph_from_model(view)
        change(fgraph)
        return model_from_fgraph(fgraph, mutate_fgraph=True)

    return _copied(model, copy)


def _copied(model: pm.Model, copy: Callable[[pm.Model], pm.Model]) -> pm.Model:
    """Copy a model with what PyMC copies to no graph: dims that lack a name, initial values."""
    all_dims, initial = model.named_vars_to_dims, model.rvs_to_initial_values
    partly_named = {name: dims for name, dims in all_dims.items() if None in dims}
    view = object.__new__(type(model))
    vars(view).update(vars(model))
    view.rvs_to_initial_values = dict.fromkeys(initial)
    view.deterministics = [*_distinct(model)]
    view.named_vars_to_dims = {n: dims for n, dims in all_dims.items() if n not in partly_named}
    with warnings.catch_warnings():
        # for people who keep using the objects of Gaussian processes
        warnings.filterwarnings("ignore", message="Detected variables likely created by GP")
        made = copy(view)
    made.named_vars_to_dims.update(partly_named)
    given = {rv.name: value for rv, value in initial.items()}
    made.rvs_to_initial_values.update({rv: given[rv.name] for rv in made.free_RVs})
    return made


def _distinct(model: pm.Model) -> Iterator[Any]:
    """Copy deterministics that are the same as others, or data: PyMC has one name for both."""
    seen: set[Any] = {*model.potentials, *model.data_vars}
    for own in model.deterministics:
        viewed: Any = own
        while isinstance(viewed.owner_op, ViewOp):
            [viewed] = viewed.owner.inputs
        yield own.copy(own.name) if viewed in seen else own
        seen.add(viewed)


def _array_constants(fgraph: FunctionGraph) -> list[Constant[Any]]:
    inputs = [variable for node in fgraph.toposort() for variable in node.inputs]
    return [
        variable
        for variable in dict.fromkeys(inputs)  # in an order that is the same every time
        if isinstance(variable, Constant)
        and isinstance(variable.type, pt.TensorType)
        and (np.size(variable.data) > 1 or _observing(fgraph, variable))
        and not all(
            is_size(node, variable) or _adds_axes(node, variable)
            for node, _ in fgraph.clients[variable]
        )
    ]


def _observing(fgraph: FunctionGraph, constant: Constant[Any]) -> list[str]:
    """Return the names of the variables that were observed to have this value."""
    nodes = [node for node, _ in fgraph.clients[constant]]
    return [node.op.name for node in nodes if isinstance(node.op, ModelObservedRV)]


def _keep_limits(fgraph: FunctionGraph) -> None:
    """Write all limits of censoring into their variable: PyMC leaves out those never reached."""
    for node in fgraph.toposort():
        if isinstance(node.op, CensoredRV):
            dist, *limits = node.inputs
            kept = [dist if isinstance(x, Constant) and np.isinf(x.data) else x for x in limits]
            op = CensoredRV(inputs=node.inputs, outputs=[pt.clip(dist, *kept)])
            fgraph.replace(node.outputs[0], op(*node.inputs), import_missing=True)


def is_size(node: Node, variable: AnyVariable) -> bool:
    """Whether the variable is the shape of a random variable, which PyTensor must know."""
    if getattr(node.op, "extended_signature", "") is None:  # as in a draw by rejection
        return False
    sizes = getattr(node.op, "size_param", None)
    return sizes is not None and sizes(node) is variable


def _adds_axes(node: Node, variable: Constant[Any]) -> bool:
    """Whether a vector is reshaped by ``variable`` to one row or one column, as by None."""
    # such numbers are those of axes, as in a transposition; lengths stand in no other reshape
    return (
        isinstance(node.op, Reshape)
        and variable is node.inputs[1]
        and node.inputs[0].type.ndim == 1
        and sorted(variable.data) == [-1, 1]
    )


def _lift(
    fgraph: FunctionGraph, constant: Constant[Any], names: Iterator[str], lifted: list[DataLeaf]
) -> None:
    """Put a leaf in place of a constant; an array without a name that is used twice is one."""
    observed = _observing(fgraph, constant)
    # the same by its place in memory: whether two arrays have equal values is private
    same = [] if observed else [leaf for leaf in lifted if _is_same(leaf, constant.data)]
    if not same:
        name = observed[0] if observed else next(names)
        # Lengths must not be static, or PyTensor would fold them. Length 1 must be, for
        # broadcasting, but never along the records: a single observed row is a record too.
        shape = tuple(
            1 if length == 1 and not (observed and axis == 0) else None
            for axis, length in enumerate(constant.data.shape)
        )
        variable = shared(constant.data, name=name, shape=shape, borrow=True)
        same = [DataLeaf(name, variable, np.asarray(constant.data), bool(observed))]
        lifted += same
    fgraph.replace(constant, same[0].variable, import_missing=True)


def _is_same(leaf: DataLeaf, value: np.ndarray) -> bool:
    places = [(x.ctypes.data, x.strides, x.shape, x.dtype) for x in (leaf.value, value)]
    return places[0] == places[1] and not leaf.declared


def _nodes(fgraph: FunctionGraph, kind: type) -> list[Node]:
    return [x.owner for x in fgraph.outputs if isinstance(x.owner_op, kind)]


def _split(
    fgraph: FunctionGraph, observed: Node
) -> tuple[str, Node, Node, Node, np.ndarray] | None:
    """Return the parts of a variable with missing entries, as PyMC makes them."""
    name = observed.op.name.removesuffix("_observed")
    free = {node.op.name: node for node in _nodes(fgraph, ModelFreeRV)}
    whole = {node.op.name: node for node in _nodes(fgraph, ModelDeterministic)}
    if name == observed.op.name or f"{name}_unobserved" not in free or name not in whole:
        return None
    joined = whole[name].inputs[0].owner.inputs[0].owner
    operation = observed.inputs[0].owner.op
    entries = isinstance(operation, RandomVariable) and operation.ndim_supp == 0
    missing = joined.inputs[2] if isinstance(joined.op, AdvancedIncSubtensor) else None
    if not (entries and isinstance(missing, Constant) and missing.type.dtype == "bool"):
        _refuse(name)
    return name, observed, free[f"{name}_unobserved"], whole[name], missing.data


def _refuse(name: str) -> NoReturn:
    raise NotSeparableError(
        f"`{name}` has missing entries within its vectors: drop the incomplete records, or observe "
        "each column by a univariate variable of its own."
    )


def _join(
    fgraph: FunctionGraph, name: str, seen: Node, free: Node, whole: Node, missing: np.ndarray
) -> DataLeaf:
    """Put one observed variable in place of the two, and a latent where others read it."""
    mask = shared(missing, name=f"{MASK}{name}", shape=(None,) * missing.ndim)
    value: Tensor
    draw, value = seen.inputs
    node = draw.owner
    parameters = [*map(partial(_for_all, name, ~missing), node.inputs[2:], node.op.ndims_params)]
    # in missing places stands a number that no term reads
    filler = 0.5 if value.type.dtype.startswith("float") else 1
    filled = np.full(missing.shape, filler, dtype=value.type.dtype)
    filled[~missing] = value.data
    observed = model_observed_rv(
        _drawn(node, missing.shape, parameters), pt.constant(filled), name, *whole.op.dims
    )
    joined = whole.inputs[0]
    readers = [client for client, _ in fgraph.clients[joined] if client is not whole]
    added = [observed]
    if readers:
        latent = _drawn(node, missing.shape, parameters)
        own = free.inputs[1].type.clone(shape=(None,) * missing.ndim)(name=free.inputs[1].name)
        added.append(model_free_rv(latent, own, free.op.transform, free.op.name, *whole.op.dims))
        fgraph.replace(joined, pt.switch(mask, added[1], observed), import_missing=True)
    for variable in added:
        fgraph.add_output(variable, import_missing=True)
    for gone in (whole, seen, free):
        fgraph.remove_output(fgraph.outputs.index(gone.outputs[0]))
    return DataLeaf(f"{MASK}{name}", mask, missing, True)


def _drawn(node: Node, shape: tuple[int, ...], parameters: list[Tensor]) -> Tensor:
    generator = shared_rng(seed=None)
    return node.op.make_node(generator, pt.constant(shape, dtype="int64"), *parameters).outputs[1]


def _for_all(name: str, observed: np.ndarray, parameter: Tensor, own: int) -> Tensor:
    """Return a parameter, whose last ``own`` axes are one entry's, for all entries."""
    node = parameter.owner
    if all(parameter.type.broadcastable[: parameter.type.ndim - own]):
        return parameter
    if isinstance(parameter.owner_op, AdvancedSubtensor) and len(node.inputs) == 2:
        index = node.inputs[1]
        if isinstance(index, Constant) and np.array_equal(index.data, observed):
            return node.inputs[0]
    return _refuse(name)


def expression_around(fgraph: FunctionGraph, variable: AnyVariable) -> str:
    """Write the operation that reads a variable; what has no name is dots."""
    for node, _ in fgraph.clients[variable]:
        if isinstance(node.op, DimShuffle | SpecifyShape):
            return expression_around(fgraph, node.outputs[0])
        if node.outputs and not type(node.op).__name__.startswith("Model"):
            is_drawn = isinstance(node.op, RandomVariable)
            name = str(node.op.name if is_drawn else node.op).partition("{")[0].removesuffix("_rv")
            read = []
            for x in node.op.dist_params(node) if is_drawn else node.inputs:
                while isinstance(x.owner_op, DimShuffle | SpecifyShape):
                    x = x.owner.inputs[0]
                read.append(str(x.name or "..."))
            if isinstance(node.op, AdvancedSubtensor):
                return f"{read[0]}[{', '.join(read[1:])}]"
            if name in SYMBOLS:
                return f" {SYMBOLS[name]} ".join(read)
            return f"{name.lower()}({', '.join(read)})"
    return ""
