"""How graphs become functions: on compiled backends, or at once on the Python linker."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
from pymc.pytensorf import resolve_backend_compile_kwargs
from pytensor.compile import maker
from pytensor.compile.executor import Function
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.link.jax.linker import JAXLinker

from pymc_dp.compiling.same_graph import graph_key, rewritten_once
from pymc_dp.model.graphs import AnyVariable
from pymc_dp.model.modes import PYTHON, without_c


def compile_mode(backend: str) -> Mode:
    """Return the PyTensor mode of a backend: ``"python"``, or one of PyMC's names."""
    if backend == "python":
        return PYTHON
    if backend not in ("numba", "c", "jax"):
        raise ValueError(
            f"backend={backend!r} is unknown: use 'python', which is the default, 'numba', 'c' or "
            "'jax'."
        )
    mode: Mode = resolve_backend_compile_kwargs(backend, None)["mode"]
    if backend == "jax":
        mode = Mode(JaxInDoubles(), mode.provided_optimizer)  # type: ignore[no-untyped-call]
    return mode


class JaxInDoubles(JAXLinker):
    """JAX in double precision, whatever a program sets: the bound of rounding in sums is for it."""

    def make_all(self, *args: Any, **settings: Any) -> Any:
        """Make a function of a graph, whose constants become arrays of JAX."""
        with _in_doubles():
            return super().make_all(*args, **settings)  # type: ignore[no-untyped-call]

    def jit_compile(self, fn: Callable[..., Any]) -> Callable[..., list[np.ndarray]]:
        """Compile a function that returns arrays of NumPy: those of JAX follow its settings."""
        compiled: Any = super().jit_compile(fn)  # type: ignore[no-untyped-call]
        return _in_doubles()(lambda *values: [np.asarray(x) for x in compiled(*values)])


@contextmanager
def _in_doubles() -> Iterator[None]:
    import jax

    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        yield


def function(
    inputs: Sequence[AnyVariable],
    outputs: AnyVariable | Sequence[AnyVariable],
    backend: str,
    updates: dict[AnyVariable, AnyVariable] | None = None,
) -> Function:
    """Compile with inputs of trusted types; in Python equal graphs are rewritten once."""
    variables = [outputs] if isinstance(outputs, Variable) else list(outputs)
    for variable in ancestors(variables):
        if isinstance(variable, Constant):  # a rewrite appends its trace to itself: it doubles
            variable.tag.trace = []
    compile_it = partial(_compile, inputs, outputs, backend, updates)
    key = graph_key(inputs, variables) if backend == "python" and updates is None else None
    fn = rewritten_once(key and (isinstance(outputs, Variable), key), variables, compile_it)
    fn.trust_input = True
    return fn


def _compile(inputs: Sequence[AnyVariable], outputs: Any, backend: str, updates: Any) -> Function:
    compiler = nullcontext() if backend == "c" else without_c()
    with compiler:
        fn: Function = maker.function(
            inputs, outputs, mode=compile_mode(backend), updates=updates, on_unused_input="ignore"
        )
    return fn
