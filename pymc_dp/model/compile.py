"""How graphs become functions: on compiled backends, or at once on the Python linker."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from typing import Any

import numpy as np
from pymc.pytensorf import resolve_backend_compile_kwargs
from pytensor.compile import maker
from pytensor.compile.executor import Function
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Eye
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot

from pymc_dp.model.graph_types import AnyVariable, pt
from pymc_dp.model.linker import UfuncLinker
from pymc_dp.model.row_products import by_rows
from pymc_dp.model.same_graph import graph_key, rewritten_once
from pymc_dp.model.ufuncs import by_batches, by_ufuncs

# just before fusion and the in-place rewrites
AFTER_SPECIALIZE = 48.9


class CachedMode(Mode):
    """A mode that looks its rewrites up once, not once for each function."""

    @cached_property
    def optimizer(self) -> Any:
        """The rewrites, in their order."""
        return super().optimizer


# without fusion, and powers as fused squares: a fused loop is one Python call per element here;
# nothing in place: finding out what may be takes time, and NumPy is no faster for it; matrix
# products of records row by row, not by BLAS
FAST_RUN: Any = CachedMode(linker=UfuncLinker(), optimizer="fast_run")
PYTHON: Mode = FAST_RUN.excluding(
    "fusion", "inplace", "local_pow_to_nested_squaring", "BlasOpt"
).register(
    (in2out(node_rewriter([Dot, BatchedDot, Blockwise])(by_rows)), AFTER_SPECIALIZE),
    (in2out(node_rewriter([Elemwise])(by_ufuncs)), AFTER_SPECIALIZE),
    (in2out(node_rewriter([Blockwise])(by_batches)), AFTER_SPECIALIZE),
)
# for functions that are called a few times: rewriting would take most of their time
AS_WRITTEN = Mode(linker=UfuncLinker(), optimizer="None")


def compile_mode(backend: str) -> Mode:
    """Return the PyTensor mode of a backend: ``"python"``, or one of PyMC's names."""
    if backend == "python":
        return PYTHON
    if backend not in ("numba", "c", "jax"):
        raise ValueError(
            f"backend={backend!r} is unknown: use 'numba', 'c', 'jax' or 'python', "
            "or leave it out to have it chosen by the time that made-up rows take."
        )
    mode: Mode = resolve_backend_compile_kwargs(backend, None)["mode"]
    return mode


def function(
    inputs: Sequence[AnyVariable],
    outputs: AnyVariable | Sequence[AnyVariable],
    backend: str,
    updates: dict[AnyVariable, AnyVariable] | None = None,
) -> Function:
    """Compile with inputs that are trusted to have the right type: the wall casts them.

    On the Python linker, where rewriting is most of the work, equal graphs are rewritten once.
    """
    variables = [outputs] if isinstance(outputs, Variable) else list(outputs)
    for variable in ancestors(variables):
        if isinstance(variable, Constant):  # a rewrite appends its trace to itself: it doubles
            variable.tag.trace = []
    compile_it = partial(_compile, inputs, outputs, backend, updates)
    key = graph_key(inputs, variables) if backend == "python" and updates is None else None
    fn = rewritten_once(key and (isinstance(outputs, Variable), key), variables, compile_it)
    fn.trust_input = True
    return fn


def as_written(inputs: Sequence[AnyVariable], outputs: Sequence[AnyVariable]) -> Function:
    """Make a function of graphs that are not rewritten, for inputs of the right type."""
    with without_c():
        fn: Function = maker.function(
            list(inputs), list(outputs), mode=AS_WRITTEN, on_unused_input="ignore"
        )
    fn.trust_input = True
    return fn


def at_draws(
    graphs: Sequence[AnyVariable],
    latents: Mapping[str, AnyVariable],
    draws: Mapping[str, np.ndarray],
) -> list[np.ndarray]:
    """Compute graphs of latents at each of their draws, by name and of shape (n, ...)."""
    many = {x: x.type.clone(shape=(None, *x.type.shape))() for x in latents.values()}
    values = [np.asarray(draws[name]) for name in latents]
    first = {x: value[0] for x, value in zip(latents.values(), values, strict=True)}
    each: Any = vectorize_graph(with_identities(graphs, first), many)
    return list(function(list(many.values()), each, "python")(*values))


def with_identities(
    graphs: Sequence[AnyVariable], point: Mapping[AnyVariable, np.ndarray]
) -> list[AnyVariable]:
    """Compute identity matrices at a point: their sizes are the same at all.

    PyTensor knows nothing of many identity matrices at once, and logs errors where it asks.
    """
    eyes = [x for x in ancestors(graphs) if x.owner is not None and isinstance(x.owner.op, Eye)]
    if not eyes:
        return list(graphs)
    numbers = map(pt.constant, function(list(point), eyes, "python")(*point.values()))
    found = dict(zip(eyes, numbers, strict=True))
    return list(clone_replace(list(graphs), found, rebuild_strict=False))


def _compile(inputs: Sequence[AnyVariable], outputs: Any, backend: str, updates: Any) -> Function:
    compiler = nullcontext() if backend == "c" else without_c()
    with compiler:
        fn: Function = maker.function(
            inputs, outputs, mode=compile_mode(backend), updates=updates, on_unused_input="ignore"
        )
    return fn


def without_c() -> AbstractContextManager[None]:
    """Keep PyTensor from building C code for every constant that it folds, a second each."""
    return config.change_flags(cxx="")
