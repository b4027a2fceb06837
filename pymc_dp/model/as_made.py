"""Whether an object of PyTensor is as its class makes it, from plain settings.

In Python an object takes any attribute: another method, an array, a promise about its shape that
is not so. So what an operation or a type holds is compared with what its class makes anew.
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import is_dataclass
from functools import cache, lru_cache
from inspect import Parameter, signature
from sys import modules
from types import FunctionType, NoneType
from typing import Any

import numpy as np
import pytensor.scalar.basic as ps
from pymc.logprob.transforms import Transform
from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.graph.basic import Apply, FrozenApply, NominalVariable, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.graph.type import Type
from pytensor.graph.utils import Scratchpad
from pytensor.scalar.loop import ScalarLoop
from pytensor.scan.op import Scan
from pytensor.tensor.random.op import RandomVariable

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
    held, other = attributes(made), object()
    return held.keys() <= found.keys() and all(
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
