"""How graphs become functions: on compiled backends, or at once on the Python linker.

Equal graphs are rewritten once: a model that is fitted again compiles next to nothing. Functions of
one rewritten graph share its operations. Each thread keeps graphs of its own, and none with
operations that write what they compute with into the graph: two functions that run at a time would
read each other's records, and a kept graph would hold some.
"""

import threading
from collections.abc import Callable, Hashable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from cachetools import LRUCache
from pymc.pytensorf import resolve_backend_compile_kwargs
from pytensor.compile import maker
from pytensor.compile.executor import Function
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.link.jax.linker import JAXLinker
from pytensor.tensor.blockwise import Blockwise

from pymc_dp.model.graphs import COMPILED, AnyVariable, unproved_in
from pymc_dp.model.modes import PYTHON, without_c

MOST_KEPT = 1024  # graphs of some tens of kilobytes each
LARGEST_CONSTANT = 10_000  # numbers


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
    """Compile with inputs that are trusted to have the right type: the wall casts them."""
    variables = [outputs] if isinstance(outputs, Variable) else list(outputs)
    for variable in ancestors(variables):
        if isinstance(variable, Constant):  # a rewrite appends its trace to itself: it doubles
            variable.tag.trace = []
    key = graph_key(inputs, variables) if backend == "python" and updates is None else None
    key = key and (isinstance(outputs, Variable), key)
    if key is not None and (kept := _kept.made.get(key)) is not None:
        fn: Function = kept.create()  # with storage of its own
    else:
        settings: Any = {"updates": updates, "on_unused_input": "ignore"}
        with nullcontext() if backend == "c" else without_c():
            fn = maker.function(inputs, outputs, mode=compile_mode(backend), **settings)
        if key is not None and not writes_into_itself(fn.maker.fgraph):
            _kept.made[key] = fn.maker
    fn.trust_input = True
    return fn


class Kept(threading.local):
    """What a thread has made, by key; what nothing has asked for the longest is dropped."""

    def __init__(self) -> None:
        self.made: MutableMapping[Hashable, Any] = LRUCache(MOST_KEPT)


# what PyTensor calls a maker, which makes functions of a graph
_kept = Kept()


def writes_into_itself(graph: FunctionGraph) -> bool:
    """Whether operations of a rewritten graph store arrays in it while they run, as loops do."""
    return any(isinstance(node.op, Blockwise | HasInnerGraph) for node in graph.apply_nodes)


def graph_key(inputs: Sequence[AnyVariable], outputs: Sequence[AnyVariable]) -> Hashable | None:
    """Return a value that equals that of a graph which computes the same, step by step."""
    if unproved_in(outputs):
        return None
    try:
        graph = tuple((x.name, x.type) for x in inputs), _steps(inputs, outputs)
        hash(graph)
    except TypeError:
        return None
    return graph


def _steps(inputs: Sequence[AnyVariable], outputs: Sequence[AnyVariable]) -> Hashable:
    known: dict[AnyVariable, Hashable] = {x: i for i, x in enumerate(inputs)}
    steps: list[Hashable] = []
    for node in toposort(outputs, blockers=inputs):
        read = tuple(known[x] if x in known else _constant(x) for x in node.inputs)
        known |= {x: (len(steps), k) for k, x in enumerate(node.outputs)}
        op = node.op  # PyTensor's own comparison leaves some of what it holds out
        own = tuple((name, repr(x)) for name, x in sorted(vars(op).items()) if name not in COMPILED)
        steps.append((type(op), op, own, read, tuple(x.type for x in node.outputs)))
    return tuple(steps), tuple(known[x] if x in known else _constant(x) for x in outputs)


def _constant(x: AnyVariable) -> Hashable:
    if not isinstance(x, Constant) or np.size(x.data) > LARGEST_CONSTANT:
        raise TypeError
    if x.data is None or isinstance(x.data, slice):
        return x.type, repr(x.data)
    data = np.asarray(x.data)
    if data.dtype.hasobject:  # such as a random generator
        raise TypeError
    return x.type, data.dtype.str, data.shape, data.tobytes()
