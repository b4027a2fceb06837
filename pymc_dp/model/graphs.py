"""PyTensor graphs: their types, the walk that all checks share, and what a proof covers.

First the types for annotations, with the functions that PyTensor does not annotate. Then the walk:
through a graph, and through the graphs inside its operations. Last the list: a proof covers the
operations of PyTensor and PyMC that compute from their inputs alone.

An operation is a Python object. One that wraps a Python function, or keeps an array as an
attribute, may compute with data that stand nowhere in the graph, and no walk through the graph
meets them. So an operation is accepted only if its class itself is on a list and it is as its
class makes it, and if the same holds for all operations inside it. In Python an object takes any
attribute: another method, an array, a promise about its shape that is not so. So what an operation
or a type has is compared with what its class makes anew from plain settings (`is_as_made`).
"""

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import is_dataclass
from functools import cache, lru_cache
from importlib import import_module
from importlib.resources import files
from inspect import Parameter, getclosurevars, ismodule, signature
from sys import modules
from types import FunctionType, NoneType
from typing import Any

import numpy as np
import pymc as pm
import pytensor.scalar.basic as ps
import pytensor.tensor
from pymc.distributions.custom import CustomSymbolicDistRV
from pymc.logprob.transforms import Transform
from pytensor.compile import sharedvalue
from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.graph.basic import Apply, Constant, FrozenApply, NominalVariable, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.op import HasMultipleInnerGraph, Op
from pytensor.graph.traversal import ancestors
from pytensor.graph.type import Type
from pytensor.graph.utils import Scratchpad
from pytensor.scalar.basic import ScalarType
from pytensor.scalar.loop import ScalarLoop
from pytensor.scan.op import Scan
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import TensorType
from pytensor.tensor.utils import import_func_from_string

AnyVariable = Variable[Any, Any]
Node = Apply[Any]
# a tensor that is computed with: PyTensor annotates neither its methods nor its operators
Tensor = Any
pt: Any = pytensor.tensor  # most of its functions are not annotated either
shared: Any = sharedvalue.shared

CHANGED = "changed "
# what PyMC's class for a distribution that an author composes may have of its own
OF_A_COMPOSED = {"inline_logprob", "_print_name", "__module__", "__doc__", "_abc_impl"}
OF_A_COMPOSED |= {"__abstractmethods__"}
LIBRARIES = ("builtins", "numpy", "pytensor", "pymc")
NUMBERS_AND_TEXT = (NoneType, bool, int, float, complex, str, np.generic, np.dtype)
# what operations keep when they are compiled, and what stands there before, if anything; some
# PyTensor makes from Python functions, so that an author's cannot be distinguished
RESET: dict[str, object] = {"ufunc": None, "_rop_op_cache": None, "_lop_op_cache": {}}
RESET["prepare_node_called"] = set()
COMPILED = {*RESET, "_ufunc", "_fn", "_py_perform_fn", "_name", "_c_code", "nodenames"}
COMPILED |= {"_inner_shape_template", "_inner_shape_frozen"}
# and what its pages of documentation are made from; the last is a function that it looks up
LEFT_OUT = COMPILED | {"__doc__", "__module__", "__epydoc_asRoutine", "__oplist_tags", "nfunc"}
AT_ONCE = {*map(id, (NoneType, bool, int, float, str))}  # most of what there is, by their ids
# settings by which an operation runs another function than its class's, or writes over its inputs
SPECS = ("nfunc_spec", "gufunc_spec")  # names of functions of NumPy or SciPy
FOREIGN = {*SPECS, "pullback", "pushforward", "destroy_map"}
FOREIGN |= {"broadcastable"}  # an old name of shapes
# what tells how to inline, differentiate or loop, and not what is computed
HOW = {"is_inline", "_connection_pattern", "vector_seqs", "vector_outs"}
# what a variable has, and what it may note of itself
OF_VARIABLES = {"type", "tag", "name", "auto_name", "owner", "index", "id", "data", "container"}
OF_VARIABLES |= {"_unique_value", "_default_update", "__reduce_ex__", "str_repr", "_repr_latex_"}
NOTES = {"trace", "observations", "transform", "used", "imported_by", "removed_by"}
NOTES |= {"lower_triangular", "upper_triangular"}


def stored_value(variable: Tensor) -> Any:
    """Return the value of a shared variable, not a copy of it."""
    return variable.get_value(borrow=True)


def layers(op: Op) -> Iterator[Op]:
    """Yield an operation, and those that it holds, such as what it applies to every entry."""
    yield op
    for inner in vars(op).values():
        if isinstance(inner, Op):
            yield from layers(inner)


def inner_variables(
    variables: Iterable[AnyVariable], closed: tuple[type[Op], ...] = ()
) -> Iterator[AnyVariable]:
    """Yield the variables inside the operations that compute ``variables``, however deep."""
    for op in operations_of(variables):
        if isinstance(op, HasMultipleInnerGraph) and not isinstance(op, closed):
            graphs = op.inner_graphs.values()
            inner = list(ancestors([output for graph in graphs for output in graph.outputs]))
            yield from inner
            yield from inner_variables(inner, closed)


def all_variables(
    graphs: Iterable[AnyVariable], closed: tuple[type[Op], ...] = ()
) -> Iterator[AnyVariable]:
    """Yield the variables of graphs, and those inside of operations, however deep."""
    outer = list(ancestors(graphs))
    yield from outer
    yield from inner_variables(outer, closed)


def operations(graphs: Iterable[AnyVariable]) -> Iterator[Op]:
    """Yield every operation of graphs, and those inside of operations, however deep."""
    yield from operations_of(all_variables(graphs))


def operations_of(variables: Iterable[AnyVariable]) -> Iterator[Op]:
    """Yield the operations that compute variables, and what these apply."""
    for op in {id(v.owner.op): v.owner.op for v in variables if v.owner}.values():
        yield from layers(op)


def tensor_constants(variables: Iterable[AnyVariable]) -> list[Constant[Any]]:
    """Return those of the variables that are numbers, with any number of axes; also positions."""
    kinds = (TensorType, ScalarType)
    return [v for v in variables if isinstance(v, Constant) and isinstance(v.type, kinds)]


def _listed() -> frozenset[type[Op]]:
    """Read the list; it may name operations that a version of the libraries lacks."""
    text = files("pymc_dp.model").joinpath("proved_operations.txt").read_text()
    lines = [line.partition(": ") for line in text.splitlines() if not line.startswith("#")]
    named = [(import_module(module), name) for module, _, all in lines for name in all.split()]
    return frozenset(getattr(module, name) for module, name in named if hasattr(module, name))


LISTED = _listed()
_LISTED = frozenset(map(id, LISTED))


def is_listed(kind: type) -> bool:
    """Whether a class is itself on the list: what classes call equal is up to their authors."""
    return id(kind) in _LISTED


def unproved_in(
    graph: Iterable[AnyVariable], *, drawn: bool = True, seen: dict[int, bool] | None = None
) -> dict[str, str]:
    """Name what in a graph may compute with more than its inputs, each with how to allow it.

    All of them forget the functions that they keep, and are compiled anew when they are needed.
    ``drawn=False`` leaves out how random variables are drawn: a density does not depend on it.
    What draws them asks for itself. ``seen`` is what was found of graphs that share parts, by id.
    """
    variables, seen = list(all_variables(graph)), {} if seen is None else seen
    found = list(operations_of(variables))
    # to make an operation anew gives variables of its graph other types, which equal their own
    types = [x.type for x in variables]
    for thing in (*variables, *found, *types):
        if id(thing) not in seen:
            forget(thing)
            seen[id(thing)] = is_proved(thing) if isinstance(thing, Op) else is_known(thing)
    own = [op for op in found if not seen[id(op)] and (drawn or not _is_drawn(op))]
    pairs = zip(variables, types, strict=True)
    unknown = {type(x).__name__ for x, kind in pairs if not (seen[id(x)] and seen[id(kind)])}
    return {name_of(op): how_to_allow(op) for op in own} | {CHANGED + name: "" for name in unknown}


def unproved_by_variable(
    model: pm.Model, factors: Mapping[str, AnyVariable], prior: Mapping[str, list[AnyVariable]]
) -> dict[str, dict[str, str]]:
    """Name the operations of every variable of a model that may compute with more than inputs.

    ``factors`` are the densities of observed variables and potentials; ``prior`` has for every
    latent its density, its own graph, and whatever else is evaluated.
    """
    variables = (*model.basic_RVs, *model.potentials, *model.deterministics)
    seen: dict[int, bool] = {}
    found = {v.name: unproved_in([v], drawn=False, seen=seen) for v in variables}
    evaluated: dict[str, list[AnyVariable]] = {name: [graph] for name, graph in factors.items()}
    evaluated |= {name: [density, *others] for name, (density, _, *others) in prior.items()}
    for name, graph in evaluated.items():
        found[name] = found.get(name, {}) | unproved_in(graph, seen=seen)
    # they make graphs anew each time that they are asked
    own = {rv.name: t for rv, t in model.rvs_to_transforms.items() if not is_known_transform(t)}
    return found | {k: found[k] | {type(t).__name__: how_to_allow(t)} for k, t in own.items()}


def is_proved(op: Op) -> bool:
    """Whether an operation computes from its inputs alone; those inside it are not looked at."""
    return (
        (is_listed(type(op)) or _is_composed(type(op)))
        and not op.destroy_map
        and is_as_made(op)
        and _runs_its_own(op)
    )


def _is_composed(kind: type[Op]) -> bool:
    """Whether a class is PyMC's for a distribution that an author composes of others."""
    own, bases = vars(kind), kind.__bases__
    is_own = len(bases) == 1 and bases[0] is CustomSymbolicDistRV
    return is_own and own.keys() <= OF_A_COMPOSED and is_plain(own.get("_print_name"))


def _runs_its_own(op: Op) -> bool:
    """Whether the function that an elementwise operation looked up is that of its name."""
    function, spec = getattr(op, "nfunc", None), getattr(op, "nfunc_spec", None) or ("",)
    return function is None or function is import_func_from_string(spec[0])


def _is_drawn(op: Op) -> bool:
    """Whether an operation draws a random variable, of a listed class or of none."""
    return isinstance(op, RandomVariable) and (is_listed(type(op)) or not _changes_listed(op))


def _changes_listed(op: Op) -> bool:
    """Whether rules for a class on the list may be taken to hold for an operation."""
    # what inherits from `OpFromGraph` is computed by its inner graph
    kind, *bases = type(op).__mro__
    return is_listed(kind) or any(is_listed(x) and x is not OpFromGraph for x in bases)


def name_of(own: Any) -> str:
    """Return the name by which ``public=`` may allow an operation: its class's or function's.

    What changes an operation on the list has no such name: rules go by what it has changed.

    >>> import pytensor.tensor as pt
    >>> name_of(pt.exp), name_of(pt.exp.scalar_op)
    ('changed Elemwise', 'changed Exp')
    """
    function = getattr(own, "_FromFunctionOp__fn", None)  # wrap_py gives all the same class
    prefix = CHANGED if _changes_listed(own) else ""
    return getattr(function, "__name__", prefix + type(own).__name__)


def how_to_allow(own: Any) -> str:
    """Say how ``public=`` allows an author's operation or transform, unless it may hold data."""
    if (name := name_of(own)).startswith(CHANGED):
        return ""
    kept = ", ".join(f"`{x}`" for x, value in _kept(own).items() if _may_be_data(value))
    if kept:
        return f". It holds {kept}, which may be records: as its inputs they would be checked"
    return f", or declare public=[{name!r}] if the operation holds no data"


def _kept(own: Any) -> dict[str, Any]:
    """Return what an object and its class hold by name, and what functions of theirs read."""
    classes = (dict(vars(kind)) for kind in type(own).__mro__ if not is_of_library(kind))
    kept = {k: getattr(x, "__func__", x) for k, x in ChainMap(vars(own), *classes).items()}
    functions = {k: x for k, x in kept.items() if isinstance(x, FunctionType)}
    for name, function in functions.items():
        read, kept[name] = getclosurevars(function), function.__defaults__
        values = {k: x for k, x in read.globals.items() if not (callable(x) or ismodule(x))}
        kept |= {**values, **read.nonlocals}
    return {k: x for k, x in kept.items() if k not in OF_A_COMPOSED and k[:2] != "__"}


def _may_be_data(value: object) -> bool:
    """Whether a value is more than a setting: no library's own, real, or several numbers."""
    if not is_plain(value):
        return not isinstance(value, type)
    numbers = np.asarray(value)
    return numbers.size > (numbers.dtype.kind not in "fc") and numbers.dtype.kind in "iufc"


def attributes(thing: object) -> dict[str, Any]:
    """Return what an object holds, but for its description and what it was compiled to."""
    return {name: value for name, value in vars(thing).items() if name not in LEFT_OUT}


def is_as_made(thing: Op | Type[Any]) -> bool:
    """Whether an object holds what its class makes from plain settings, and nothing else."""
    found = attributes(thing)
    if not all(map(is_plain, found.values())):
        return False
    try:
        made = _maker(type(thing))(**_settings(thing, found))
    except Exception:  # an author's object may raise anything
        return False
    anew, other = attributes(made), object()
    return anew.keys() <= found.keys() and all(
        getattr(made, name, other) == found[name] for name in found.keys() - HOW
    )


@cache
def _maker(kind: type) -> Callable[..., Any]:
    """Return what makes objects of a class; equal types, of numbers and text, are made once."""
    return lru_cache(1000)(kind) if issubclass(kind, Type) else kind


def _settings(thing: Op | Type[Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments from which the class of an object makes its like."""
    given = dict(found)
    if "fgraph" in found and not isinstance(thing, SymbolicOp):
        given |= _of_graph(thing, found["fgraph"])
    given |= found.get("kwargs", {})
    if "_ndim_supp" in found:
        given["ndim_supp"] = found["_ndim_supp"]
    names = _parameters(type(thing)) - FOREIGN
    if isinstance(thing, RandomVariable):
        names = frozenset({"dtype", "method"})  # all else are facts of its class
    if isinstance(thing, Scan):
        names -= {"mode"} if found.get("profile") is False else {"mode", "profile"}
    return {name: given[name] for name in names if name in given}


def _of_graph(op: Any, graph: FrozenFunctionGraph) -> dict[str, Any]:
    """Return the arguments by which an operation is made of its own graph."""
    if not isinstance(op, ps.Composite | ScalarLoop | Scan):
        return {"inputs": list(graph.inputs), "outputs": list(graph.outputs)}
    inner = graph.unfreeze()
    inputs, outputs = list(inner.inputs), list(inner.outputs)
    if not isinstance(op, ScalarLoop):
        return {"inputs": inputs, "outputs": outputs}
    until = outputs.pop() if op.is_while else None
    states = len(outputs)
    return {
        "init": inputs[:states], "constant": inputs[states:], "update": outputs, "until": until
    }  # fmt: skip


@cache
def _parameters(kind: type) -> frozenset[str]:
    """Name the settings of a class, its own and those that it passes on."""
    names: set[str] = set(vars(kind).get("__props__", ())) if SymbolicOp in kind.__mro__ else set()
    for base in kind.__mro__:
        if base is OpFromGraph and SymbolicOp in kind.__mro__:
            break  # they build their graphs themselves
        if "__init__" in vars(base):
            found = signature(vars(base)["__init__"]).parameters.values()
            names |= {p.name for p in found}
            if all(p.kind is not Parameter.VAR_KEYWORD for p in found):
                break
    return frozenset(names - {"self", "args", "kwargs"} | {"on_unused_input", "ndim_supp"})


def is_plain(value: object) -> bool:
    """Whether a value is of numbers, text, types, operations, frozen graphs, or a library's own."""
    if id(type(value)) in AT_ONCE:
        return True
    if type(value) is tuple:
        return all(map(is_plain, value))
    if isinstance(value, type | FunctionType):
        return is_of_library(value)
    if isinstance(value, np.dtype | Variable):  # an operation's variables are those of its graph
        return True
    if isinstance(value, Type):
        return is_of_library(type(value)) and is_as_made(value)
    if value is not None and not (isinstance(value, Op) or is_of_library(type(value))):
        return False
    if isinstance(value, FrozenFunctionGraph):
        return _is_whole(value)
    if isinstance(value, slice):
        return all(map(is_plain, (value.start, value.stop, value.step)))
    if isinstance(value, Mapping):
        return all(map(is_plain, (*value, *value.values())))
    if isinstance(value, tuple | list | set | frozenset):
        return all(map(is_plain, value))
    if is_dataclass(value) or type(value).__module__ == ps.__name__:
        return all(map(is_plain, vars(value).values()))
    return isinstance(value, (Op, *NUMBERS_AND_TEXT))


def is_of_library(thing: type | FunctionType) -> bool:
    """Whether a library holds a class or a function under the name that it gives itself."""
    known = str(thing.__module__).partition(".")[0] in LIBRARIES
    return known and _looked_up(thing.__module__, thing.__qualname__) is thing


def _looked_up(module: str, names: str) -> object:
    found: object = modules.get(module)
    for name in names.split("."):
        found = getattr(found, name, None)
    return found


def is_known_transform(thing: object) -> bool:
    """Whether a transform, or what it holds, is a library's own, which makes one graph every time.

    The bounds of an interval are a function, which a function of the library defines.
    """
    if isinstance(thing, tuple | list):
        return all(map(is_known_transform, thing))
    if isinstance(thing, FunctionType):
        closed_over = [cell.cell_contents for cell in thing.__closure__ or ()]
        return _is_defined_by_library(thing) and is_known_transform(closed_over)
    if isinstance(thing, Transform):
        return is_of_library(type(thing)) and is_known_transform([*vars(thing).values()])
    return _is_value(thing)


def _is_defined_by_library(function: FunctionType) -> bool:
    outer = _looked_up(function.__module__, function.__qualname__.partition(".<locals>.")[0])
    return (
        isinstance(outer, FunctionType)
        and is_of_library(outer)
        and function.__globals__ is outer.__globals__
        and function.__code__ in outer.__code__.co_consts
        and not (function.__defaults__ or function.__kwdefaults__)
    )


def _is_whole(graph: FrozenFunctionGraph) -> bool:
    """Whether a graph runs what a walk from its outputs meets."""
    nodes = {variable.owner for variable in ancestors(graph.outputs)}
    return nodes.issuperset(graph.toposort()) and vars(graph).keys().isdisjoint(dir(type(graph)))


def is_known(variable: Any) -> bool:
    """Whether a variable, or a type, is one of PyTensor's, with nothing of its own."""
    if isinstance(variable, Type):
        return is_plain(variable)
    found, node = vars(variable), variable.owner
    if isinstance(variable, NominalVariable):
        genuine = NominalVariable(variable.id, variable.type) is variable
    else:
        genuine = is_of_library(type(variable))
    return (
        genuine
        and found.keys() <= OF_VARIABLES
        and found.get("_default_update") is None
        and type(variable.tag) is Scratchpad
        and (node is None or type(node) is Apply or type(node) is FrozenApply)
        and _is_value(getattr(variable, "data", None))
        and _is_value(variable.container.data if "container" in found else None)
    )


def _is_value(value: object) -> bool:
    if isinstance(value, np.ndarray | np.random.Generator):
        return is_of_library(type(value))
    return is_plain(value)


def forget(thing: object) -> None:
    """Let an operation, or what a variable notes of itself, forget what it was compiled to."""
    if isinstance(thing, Variable):
        for tag in (thing.tag, *([thing.owner.tag] if thing.owner else ())):
            for name in vars(tag).keys() - NOTES:
                delattr(tag, name)
    if not isinstance(thing, Op):
        vars(thing).pop("_fn_cache", None)  # of its `eval`
        return
    for name in COMPILED & vars(thing).keys():
        if name in RESET:
            setattr(thing, name, copy(RESET[name]))
        else:
            del vars(thing)[name]
