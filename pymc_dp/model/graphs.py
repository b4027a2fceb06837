"""PyTensor graphs: their types, the walk that all checks share, and what a proof covers.

An operation that wraps a Python function, or keeps an array as an attribute, may compute with data
that stand nowhere in the graph. So an operation is accepted only if its class itself is on a list
of those that compute from their inputs alone, and its settings are plain, and if the same holds for
all operations inside it. That is a check of mistakes: whoever changes objects of PyTensor in the
curator's own process can do whatever the curator can.
"""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from importlib.resources import files
from inspect import getclosurevars, ismodule
from types import FunctionType, NoneType
from typing import Any

import numpy as np
import pymc as pm
import pytensor.scalar.basic as ps
import pytensor.tensor
from pymc.distributions.custom import CustomSymbolicDistRV
from pymc.logprob.transforms import Transform
from pytensor.compile import sharedvalue
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.op import HasMultipleInnerGraph, Op
from pytensor.graph.traversal import ancestors
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarType
from pytensor.scan.op import Scan
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import TensorType

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
OWN_NAMES = {*OF_A_COMPOSED, "ndims_params"}  # of any random variable, too: its signature's axes
LIBRARIES = ("builtins", "numpy", "pytensor", "pymc")
NUMBERS_AND_TEXT = (NoneType, bool, int, float, complex, str, np.generic, np.dtype)
# what operations keep when they are compiled, and what their pages of documentation are made from
COMPILED = {"ufunc", "_ufunc", "nfunc", "_fn", "_py_perform_fn", "_name", "_c_code", "nodenames"}
COMPILED |= {"_rop_op_cache", "_lop_op_cache", "_inner_shape_template", "_inner_shape_frozen"}
COMPILED |= {"prepare_node_called", "__doc__", "__module__", "__epydoc_asRoutine", "__oplist_tags"}
# settings by which an operation runs another function of NumPy or SciPy than its class's
SPECS = ("nfunc_spec", "gufunc_spec")


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
    for op in operations(variables):
        if isinstance(op, HasMultipleInnerGraph) and not isinstance(op, closed):
            graphs = op.inner_graphs.values()
            yield from all_variables([x for graph in graphs for x in graph.outputs], closed)


def all_variables(
    graphs: Iterable[AnyVariable], closed: tuple[type[Op], ...] = ()
) -> Iterator[AnyVariable]:
    """Yield the variables of graphs, and those inside of operations, however deep."""
    outer = list(ancestors(graphs))
    yield from outer
    yield from inner_variables(outer, closed)


def operations(variables: Iterable[AnyVariable]) -> Iterator[Op]:
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


def unproved_in(graph: Iterable[AnyVariable], *, drawn: bool = True) -> dict[str, str]:
    """Name what in a graph may compute with more than its inputs, each with how to allow it."""
    unproved = {}
    for op in operations(all_variables(graph)):
        own = type(op) not in LISTED and _changes_listed(op)
        if not is_proved(op) and (drawn or own or not isinstance(op, RandomVariable)):
            unproved[name_of(op)] = how_to_allow(op)
    return unproved


def unproved_by_variable(
    model: pm.Model, factors: Mapping[str, AnyVariable], prior: Mapping[str, list[AnyVariable]]
) -> dict[str, dict[str, str]]:
    """Name the operations of every variable of a model that may compute with more than inputs."""
    variables = (*model.basic_RVs, *model.potentials, *model.deterministics)
    unproved = {v.name: unproved_in([v], drawn=False) for v in variables}
    evaluated: dict[str, list[AnyVariable]] = {name: [graph] for name, graph in factors.items()}
    evaluated |= {name: [density, *others] for name, (density, _, *others) in prior.items()}
    for name, graph in evaluated.items():
        unproved[name] = unproved.get(name, {}) | unproved_in(graph)
    for rv, transform in model.rvs_to_transforms.items():
        if not is_known_transform(transform):  # it makes graphs anew each time that it is asked
            unproved[rv.name] |= {type(transform).__name__: how_to_allow(transform)}
    return unproved


def is_proved(op: Op) -> bool:
    """Whether an operation computes from its inputs alone; those inside it are not looked at."""
    settings, kind = [x for name, x in vars(op).items() if name not in COMPILED], type(op)
    # PyMC's class for a distribution that an author composes of others
    is_composed = kind.__bases__ == (CustomSymbolicDistRV,) and vars(kind).keys() <= OF_A_COMPOSED
    return (
        (kind in LISTED or is_composed)
        and not op.destroy_map
        and _runs_its_own(op)
        and all(map(is_plain, settings))
    )


def _runs_its_own(op: Op) -> bool:
    """Whether an operation runs the functions of what it applies, and has no own gradient."""
    applied, own = getattr(op, "scalar_op", getattr(op, "core_op", None)), vars(op)
    gradients = own.get("pullback_overrides"), own.get("pushforward_overrides")
    if isinstance(op, Scan) and (op.mode is not None or op.profile):
        return False  # it would compile its inner graph by another linker, or write of it
    return gradients == (None, None) and all(
        own.get(spec) in (None, getattr(applied, spec, None)) for spec in SPECS
    )


def _changes_listed(op: Op) -> bool:
    """Whether rules for a class on the list may be taken to hold for an operation."""
    # what inherits from `OpFromGraph` is computed by its inner graph
    kind, *bases = type(op).__mro__
    return kind in LISTED or any(x in LISTED and x is not OpFromGraph for x in bases)


def name_of(own: Any) -> str:
    """Return the name by which ``public=`` may allow an operation: its class's or function's."""
    function = getattr(own, "_FromFunctionOp__fn", None)  # wrap_py gives all the same class
    prefix = CHANGED if _changes_listed(own) else ""
    return getattr(function, "__name__", prefix + type(own).__name__)


def how_to_allow(own: Any) -> str:
    """Say how ``public=`` allows an author's operation or transform, unless it may hold data."""
    if (name := name_of(own)).startswith(CHANGED):
        return ""
    if kept := ", ".join(f"`{x}`" for x, value in _kept(own).items() if _may_be_data(value)):
        return f". It holds {kept}, which may be records: as its inputs they would be checked"
    return f", or declare public=[{name!r}] if the operation holds no data"


def _kept(own: Any) -> dict[str, Any]:
    """Return what an object and its class hold by name, and what functions of theirs read."""
    classes = (dict(vars(kind)) for kind in type(own).__mro__ if not is_of_library(kind))
    kept = {k: getattr(x, "__func__", x) for k, x in ChainMap(vars(own), *classes).items()}
    for name in [k for k, x in kept.items() if isinstance(x, FunctionType)]:
        read, kept[name] = getclosurevars(kept[name]), kept[name].__defaults__
        values = {k: x for k, x in read.globals.items() if not (callable(x) or ismodule(x))}
        kept |= {**values, **read.nonlocals}
    return {k: x for k, x in kept.items() if k not in OWN_NAMES and k[:2] != "__"}


def _may_be_data(value: object) -> bool:
    """Whether a value is more than a setting: no library's own, real, or several numbers."""
    if not is_plain(value):
        return not isinstance(value, type)
    if isinstance(value, tuple | list | set | frozenset):
        return any(map(_may_be_data, value)) or sum(isinstance(x, int) for x in value) > 1
    return isinstance(value, float | complex | np.number)


def is_plain(value: object) -> bool:
    """Whether a value is of numbers, text, types, operations, frozen graphs, or a library's own."""
    if isinstance(value, (Op, Type, Variable, FrozenFunctionGraph, *NUMBERS_AND_TEXT)):
        return True
    if isinstance(value, type | FunctionType):
        return is_of_library(value)
    if isinstance(value, slice):
        return all(map(is_plain, (value.start, value.stop, value.step)))
    if isinstance(value, tuple | list | set | frozenset):
        return all(map(is_plain, value))
    if isinstance(value, Mapping):  # a slow question, so the last one
        return all(map(is_plain, (*value, *value.values())))
    is_record = is_dataclass(value) or type(value).__module__ == ps.__name__
    return is_record and all(map(is_plain, vars(value).values()))


def is_of_library(thing: type | FunctionType) -> bool:
    """Whether a class or a function is one of a library's."""
    return str(thing.__module__).partition(".")[0] in LIBRARIES


def is_known_transform(thing: object) -> bool:
    """Whether a transform, or what it holds, is a library's own: it makes one graph every time."""
    if isinstance(thing, tuple | list):
        return all(map(is_known_transform, thing))
    if isinstance(thing, Transform):
        return is_of_library(type(thing)) and is_known_transform([*vars(thing).values()])
    return isinstance(thing, np.ndarray) or is_plain(thing)
