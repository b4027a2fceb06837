"""Which operations a proof covers: those of PyTensor and PyMC that compute from their inputs alone.

An operation is a Python object. One that wraps a Python function, or keeps an array as an
attribute, may compute with data that stand nowhere in the graph, and no walk through the graph
finds them. So an operation is accepted only if its class is on a list, and so are the classes of
all operations inside it.
"""

import sys
from collections.abc import Iterable, Mapping
from copy import copy
from functools import partial
from importlib import import_module
from types import FunctionType, MethodType

import numpy as np
import pymc as pm
from pymc.distributions.dist_math import SplineWrapper
from pymc.distributions.simulator import SimulatorRV
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import FromFunctionOp
from pytensor.gradient import GradClip, GradScale
from pytensor.graph.op import Op
from pytensor.tensor.random.op import RandomVariable

from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.walk import operations

MODULES = (
    "pytensor.assumptions.specify",
    "pytensor.compile.builders",
    "pytensor.compile.ops",
    "pytensor.conditional.op",
    "pytensor.gradient",
    "pytensor.raise_op",
    "pytensor.scalar.basic",
    "pytensor.scalar.loop",
    "pytensor.scalar.math",
    "pytensor.scan.op",
    "pytensor.tensor.basic",
    "pytensor.tensor.blockwise",
    "pytensor.tensor.einsum",
    "pytensor.tensor.elemwise",
    "pytensor.tensor.extra_ops",
    "pytensor.tensor.fft",
    "pytensor.tensor.fourier",
    "pytensor.tensor.math",
    "pytensor.tensor.pad",
    "pytensor.tensor.random.basic",
    "pytensor.tensor.reshape",
    "pytensor.tensor.shape",
    "pytensor.tensor.signal.conv",
    "pytensor.tensor.sort",
    "pytensor.tensor.special",
    "pytensor.tensor.subtensor",
    "pytensor.tensor.type_other",
    "pymc.data",
    "pymc.logprob.utils",
    "pymc.math",
    "pymc.variational.minibatch_rv",
)
PACKAGES = ("pytensor.tensor.linalg", "pymc.distributions")
# these hold a Python function, a table of values, or numbers that change gradients alone
HOLD_VALUES = {FromFunctionOp, SplineWrapper, SimulatorRV, GradClip, GradScale}
# what runs an operation; a class that inherits them from `OpFromGraph` runs its inner graph
RUN = ("perform", "fn", "make_thunk", "prepare_node", "pullback", "infer_shape", "inner_graphs")
LIBRARIES = ("numpy", "scipy", "pytensor", "pymc")
# what operations keep when they are compiled, and what stands there before; some PyTensor makes
# from Python functions, so that an author's cannot be distinguished
COMPILED: dict[str, object] = {
    "ufunc": None,
    "_ufunc": None,
    "_fn": None,
    "_rop_op_cache": None,
    "_lop_op_cache": {},
}
# these name, in words, the function of NumPy or SciPy that an operation calls
SPECS = ("nfunc_spec", "gufunc_spec")
OVERRIDES = ("pullback_overrides", "pushforward_overrides")


def _listed() -> frozenset[type[Op]]:
    modules = [import_module(name) for name in MODULES]
    modules += [m for name, m in sys.modules.items() if name.startswith(PACKAGES)]
    return frozenset(
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Op)
        if value.__module__ == module.__name__ and value not in HOLD_VALUES
    )


LISTED = _listed()


def unproved_in(graph: Iterable[AnyVariable], *, drawn: bool = True) -> frozenset[str]:
    """Name the operations of a graph that may compute with more than their inputs.

    All of them forget the functions that they keep, and are compiled anew when they are needed.
    ``drawn=False`` leaves out how random variables are drawn: a density does not depend on it.
    What draws them asks for itself.
    """
    found = list(operations(graph))
    for op in found:
        _forget_compiled(op)
    return frozenset(
        name_of(op)
        for op in found
        if not is_proved(op) and (drawn or not isinstance(op, RandomVariable))
    )


def unproved_by_variable(
    model: pm.Model, factors: Mapping[str, AnyVariable], prior: Mapping[str, list[AnyVariable]]
) -> dict[str, frozenset[str]]:
    """Name the operations of every variable of a model that may compute with more than inputs.

    ``factors`` are the densities of observed variables and potentials; ``prior`` has for every
    latent its density, its own graph, and whatever else is evaluated.
    """
    variables = (*model.basic_RVs, *model.potentials, *model.deterministics)
    found = {variable.name: unproved_in([variable], drawn=False) for variable in variables}
    evaluated: dict[str, list[AnyVariable]] = {name: [graph] for name, graph in factors.items()}
    evaluated |= {name: [density, *others] for name, (density, _, *others) in prior.items()}
    for name, graph in evaluated.items():
        found[name] = found.get(name, frozenset()) | unproved_in(graph)
    return found


def _forget_compiled(op: Op) -> None:
    for name in COMPILED.keys() & vars(op).keys():
        if name == "_ufunc":  # a cached property is looked for by its name
            del vars(op)[name]
        else:
            setattr(op, name, copy(COMPILED[name]))


def is_proved(op: Op) -> bool:
    """Whether an operation computes from its inputs alone; those inside it are not looked at."""
    kind, attributes = type(op), vars(op)
    if any(callable(getattr(kind, name, None)) for name in attributes):
        return False  # an attribute stands in for a method
    if any(_may_hold_values(value) for value in attributes.values()):
        return False
    if not all(_is_of_library(getattr(op, name, None)) for name in SPECS):
        return False
    if isinstance(op, OpFromGraph):
        base = next(base for base in kind.__mro__ if base in LISTED)  # PyMC makes some as it goes
        return all(attributes.get(name) is None for name in OVERRIDES) and all(
            getattr(kind, name) is getattr(base, name) for name in RUN
        )
    return kind in LISTED


def _may_hold_values(value: object) -> bool:
    """Whether an attribute is an array, or a function that no library has defined, or holds one."""
    if isinstance(value, FunctionType):
        home = value.__globals__.get("__name__", LIBRARIES[0])  # compiled code has no module
        return home.partition(".")[0] not in LIBRARIES
    if isinstance(value, dict):
        return any(map(_may_hold_values, value.values()))
    if isinstance(value, tuple | list | set | frozenset):
        return any(map(_may_hold_values, value))
    return isinstance(value, np.ndarray | partial | MethodType)


def _is_of_library(spec: tuple[str, int, int] | None) -> bool:
    """Whether a function is one of NumPy's or SciPy's, by its name; PyTensor imports any."""
    if spec is None:
        return True
    home, dot, _ = spec[0].partition(".")
    return home in LIBRARIES[:2] if dot else hasattr(np, home)


def name_of(op: Op) -> str:
    """Return the name by which ``public=`` may allow an operation: its class's or function's.

    A class on the list has no such name, or all its operations would be allowed.

    >>> import pytensor.tensor as pt
    >>> name_of(pt.exp), name_of(pt.exp.scalar_op)
    ('changed Elemwise', 'changed Exp')
    """
    function = getattr(op, "_FromFunctionOp__fn", None)  # wrap_py gives all the same class
    prefix = "changed " if type(op) in LISTED else ""
    return getattr(function, "__name__", prefix + type(op).__name__)
