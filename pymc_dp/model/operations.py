"""Which operations a proof covers: those of PyTensor and PyMC that compute from their inputs alone.

An operation is a Python object. One that wraps a Python function, or keeps an array as an
attribute, may compute with data that stand nowhere in the graph, and no walk through the graph
finds them. So an operation is accepted only if its class itself is on a list and it is as its
class makes it, and if the same holds for all operations inside it.
"""

from collections import ChainMap
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.resources import files
from inspect import getclosurevars, ismodule
from types import FunctionType
from typing import Any

import numpy as np
import pymc as pm
from pymc.distributions.custom import CustomSymbolicDistRV
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.op import Op
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.utils import import_func_from_string

from pymc_dp.model.as_made import (
    forget,
    is_as_made,
    is_known,
    is_known_transform,
    is_of_library,
    is_plain,
)
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.walk import all_variables, operations_of

CHANGED = "changed "
# what PyMC's class for a distribution that an author composes may have of its own
OF_A_COMPOSED = {"inline_logprob", "_print_name", "__module__", "__doc__", "_abc_impl"}
OF_A_COMPOSED |= {"__abstractmethods__"}


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
    held = ", ".join(f"`{x}`" for x, value in _held(own).items() if _may_be_data(value))
    if held:
        return f". It holds {held}, which may be records: as its inputs they would be checked"
    return f", or declare public=[{name!r}] if the operation holds no data"


def _held(own: Any) -> dict[str, Any]:
    """Return what an object and its class hold by name, and what functions of theirs read."""
    classes = (dict(vars(kind)) for kind in type(own).__mro__ if not is_of_library(kind))
    held = {k: getattr(x, "__func__", x) for k, x in ChainMap(vars(own), *classes).items()}
    functions = {k: x for k, x in held.items() if isinstance(x, FunctionType)}
    for name, function in functions.items():
        read, held[name] = getclosurevars(function), function.__defaults__
        values = {k: x for k, x in read.globals.items() if not (callable(x) or ismodule(x))}
        held |= {**values, **read.nonlocals}
    return {k: x for k, x in held.items() if k not in OF_A_COMPOSED and k[:2] != "__"}


def _may_be_data(value: object) -> bool:
    """Whether a value is more than a setting: no library's own, real, or several numbers."""
    if not is_plain(value):
        return not isinstance(value, type)
    numbers = np.asarray(value)
    return numbers.size > (numbers.dtype.kind not in "fc") and numbers.dtype.kind in "iufc"
