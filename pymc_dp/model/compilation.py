"""How graphs become functions: at once, rewritten or as they are written, or on compiled backends.

With PyTensor's own Python linker, what surrounds a ufunc of NumPy takes several times as long as
the ufunc of a small batch. The linker here calls ufuncs directly.

The proof of exact arithmetic (docs/proofs/gaussian_sum.md) speaks of both modes: each number of a
matrix product depends on one row and one column (`RowProduct`), and no loops are fused. Sums over
records are products, too: their rounding is bounded as a whole, so that they keep the faster
kernels (`SumOverRecords`).

Equal graphs are rewritten once: a model that is fitted again compiles next to nothing. Functions of
one rewritten graph share its operations. Each thread keeps graphs of its own, and none with
operations that write what they compute with into the graph: two functions that run at a time would
read each other's records, and a kept graph would hold some.
"""

import threading
from collections.abc import Callable, Hashable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
from cachetools import LRUCache
from pymc.pytensorf import resolve_backend_compile_kwargs
from pytensor.compile import maker
from pytensor.compile.executor import Function
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.graph.traversal import ancestors, toposort
from pytensor.link.basic import PerformLinker
from pytensor.link.jax.linker import JAXLinker
from pytensor.scalar.basic import Add, Clip, Mul
from pytensor.scalar.math import Log1mexp, Softplus, TriGamma
from pytensor.tensor.basic import AllocDiag
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.model.graphs import COMPILED, AnyVariable, Node, Tensor, pt, unproved_in
from pymc_dp.privacy.norms import product

MOST_KEPT = 1024  # graphs of some tens of kilobytes each
LARGEST_CONSTANT = 10_000  # numbers
MOST_OPERANDS = 16  # NumPy's ufuncs take at most 32 operands
FORMULAS: dict[type, Callable[..., Tensor]] = {
    Softplus: lambda x: pt.maximum(x, 0.0) + pt.log1p(pt.exp(-pt.abs(x))),
    Log1mexp: lambda x: pt.switch(
        pt.gt(x, -np.log(2.0)), pt.log(-pt.expm1(x)), pt.log1p(-pt.exp(x))
    ),
    Clip: lambda x, low, high: pt.switch(pt.lt(x, low), low, pt.minimum(x, high)),
    TriGamma: lambda x: pt.polygamma(pt.ones((), "int64"), x),
}
AFTER_SPECIALIZE = 48.9  # just before fusion and the in-place rewrites


class SumOverRecords(Dot):
    """A matrix product that sums over records."""


def sum_over_records(left: Tensor, right: Tensor) -> Tensor:
    """Multiply (k, records) or (records,) by (records, m) or (records,)."""
    rows = left[None] if left.ndim == 1 else left
    columns = right[:, None] if right.ndim == 1 else right
    total: Tensor = SumOverRecords()(rows, columns)
    alone = [axis for axis, x in enumerate((left, right)) if x.ndim == 1]
    return total.squeeze(alone) if alone else total


class RowProduct(Op):
    """A matrix product, of stacks of matrices or of two operands of one or two axes."""

    __props__ = ()

    def perform(self, node: Node, inputs: Any, output_storage: Any) -> None:
        """Multiply."""
        output_storage[0][0] = np.asarray(product(*inputs), node.outputs[0].type.dtype)


def by_rows(fgraph: FunctionGraph, node: Node) -> list[AnyVariable] | None:
    """Replace a product of matrices of real numbers."""
    core = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    if type(core) not in (Dot, BatchedDot) or not node.outputs[0].type.dtype.startswith("float"):
        return None
    return list(Apply(RowProduct(), node.inputs, [node.outputs[0].type()]).outputs)


def by_ufuncs(fgraph: FunctionGraph, node: Node) -> list[AnyVariable] | None:
    """Replace an operation by ufuncs of NumPy and SciPy."""
    operation, inputs = node.op.scalar_op, node.inputs
    if isinstance(operation, Add | Mul) and len(inputs) > MOST_OPERANDS:
        fold = pt.add if isinstance(operation, Add) else pt.mul
        parts = [inputs[i : i + MOST_OPERANDS] for i in range(0, len(inputs), MOST_OPERANDS)]
        whole = fold(*[fold(*part) if len(part) > 1 else part[0] for part in parts])
    elif type(operation) in FORMULAS and not all(isinstance(x, Constant) for x in inputs):
        whole = FORMULAS[type(operation)](*inputs)
    else:
        return None
    return [whole.astype(node.outputs[0].type.dtype)]


def by_batches(fgraph: FunctionGraph, node: Node) -> list[AnyVariable] | None:
    """Replace a loop over records by operations on all of them."""
    core = node.op.core_op
    if node.outputs[0].type.ndim == len(node.op.outputs_sig[0]):
        return None  # one record's alone, such as the inverse below
    if isinstance(core, AllocDiag) and (core.offset, core.axis1, core.axis2) == (0, 0, 1):
        x: Tensor = node.inputs[0]  # its last axis goes on diagonals, whose axes come first
        batch = x.ndim - len(node.op.inputs_sig[0])
        diagonal = pt.switch(pt.eye(x.shape[-1], dtype="bool"), x[..., None], 0.0)
        whole = pt.moveaxis(diagonal, (-2, -1), (batch, batch + 1))
    elif isinstance(core, SolveTriangular) and _shares_matrices(node):
        whole = _solved_by_inverse(core, *node.inputs)
    elif isinstance(core, AdvancedSubtensor) and _takes_single_values(node):
        whole = _values_at(*node.inputs)
    else:
        return None
    return [whole.astype(node.outputs[0].type.dtype)]


def _shares_matrices(node: Node) -> bool:
    """Whether several right sides share a matrix; those of an inverse do not."""
    of_a, of_b = (
        x.type.broadcastable[: x.type.ndim - len(sides)]
        for x, sides in zip(node.inputs, node.op.inputs_sig, strict=True)
    )
    return any(a and not b for a, b in zip(of_a, of_b, strict=True))


def _solved_by_inverse(solve: SolveTriangular, a: Tensor, b: Tensor) -> Tensor:
    """Solve by the inverse of each matrix, where several right sides share one."""
    if all(a.type.broadcastable[:-2]):
        a = a[(0,) * (a.ndim - 2)]
    settings: Any = {"lower": solve.lower, "unit_diagonal": solve.unit_diagonal}
    inverse = pt.linalg.solve_triangular(a, pt.eye(a.shape[-1]), b_ndim=2, **settings)
    right = b[..., None] if solve.b_ndim == 1 else b
    solved = pt.matmul(inverse, right)
    return solved[..., 0] if solve.b_ndim == 1 else solved


def _takes_single_values(node: Node) -> bool:
    """Whether each record's array has an index for each axis, and all have as many dimensions."""
    array, *indices = (len(sides) for sides in node.op.inputs_sig)
    numbers = all(x.type.dtype.startswith(("int", "uint")) for x in node.inputs[1:])
    every_axis = node.op.core_op.idx_list == tuple(range(array))
    return numbers and every_axis and len(set(indices)) == 1


def _values_at(x: Tensor, *indices: Tensor) -> Tensor:
    """Take values of each record's array, or of the one that all records share."""
    batch, ndim = x.ndim - len(indices), indices[0].ndim
    places = [
        0 if x.type.broadcastable[k] else pt.arange(x.shape[k])[(..., *[None] * (ndim - 1 - k))]
        for k in range(batch)
    ]
    return x[(*places, *indices)]


class UfuncLinker(PerformLinker):
    """PyTensor's Python linker, which calls ufuncs directly and gives no warnings of numbers."""

    def make_all(self, *args: Any, **settings: Any) -> Any:
        """Make a function of a graph, as the linker of PyTensor does."""
        made: Any = super().make_all(*args, **settings)  # type: ignore[no-untyped-call]
        run, *containers, calls, order = made
        # an operation that runs lazily asks which of its inputs were computed
        if not any(getattr(call, "lazy", False) for call in calls):
            # `run` reads this list
            calls[:] = [_short(node, call) for node, call in zip(order, calls, strict=True)]

        def quiet() -> Any:
            with np.errstate(all="ignore"):
                return run()

        quiet.allow_gc, quiet.storage_map = run.allow_gc, run.storage_map  # type: ignore
        return quiet, *containers, calls, order


def _in_order(node: Node, call: Any) -> Callable[[], None]:
    """Return a call that reduces in the order of axes: that in memory changes with records."""
    [source], [target] = call.inputs, call.outputs

    def reduce() -> None:
        node.op.perform(node, [np.asarray(source[0], order="C")], [target])

    reduce.inputs, reduce.outputs, reduce.lazy = call.inputs, call.outputs, False  # type: ignore
    return reduce


def _short(node: Node, call: Any) -> Callable[[], None]:
    """Return a call that does what ``call`` does, with one test of lengths around the ufunc."""
    if isinstance(node.op, CAReduce):
        return _in_order(node, call)
    ufunc = _ufunc(node) if isinstance(node.op, Elemwise) else None
    if ufunc is None or node.op.inplace_pattern or len(node.outputs) > 1:
        return call  # type: ignore[no-any-return]
    inputs, output, dtype = call.inputs, call.outputs[0], np.dtype(node.outputs[0].type.dtype)
    lengths = [
        (cell, axis)
        for cell, x in zip(inputs, node.inputs, strict=True)
        for axis, one in enumerate(x.type.broadcastable)
        if not one
    ]

    def at_once() -> None:
        values = [cell[0] for cell in inputs]
        for cell, axis in lengths:
            if cell[0].shape[axis] == 1:  # it must be 1 everywhere
                node.op._check_runtime_broadcast(node, values)
                break
        result = np.asarray(ufunc(*values), dtype=dtype)
        output[0] = result if result.flags.owndata else result.copy()

    at_once.inputs, at_once.outputs, at_once.lazy = inputs, call.outputs, False  # type: ignore
    return at_once


def _ufunc(node: Node) -> Callable[..., Any] | None:
    """Return the function that PyTensor would find at every call; all is as in its `perform`."""
    op, tag = node.op, node.tag
    if op.nfunc is not None and len(node.inputs) == op.nfunc_spec[1]:
        return partial(op.nfunc, sig=tag.sig) if hasattr(tag, "sig") else op.nfunc
    return op.ufunc or getattr(tag, "ufunc", None)


# without fusion, and powers as fused squares: a fused loop is one Python call per element here;
# nothing in place: finding out what may be takes time, and NumPy is no faster for it; matrix
# products of records row by row, not by BLAS
FAST_RUN: Any = Mode(linker=UfuncLinker(), optimizer="fast_run")
PYTHON: Mode = FAST_RUN.excluding(
    "fusion", "inplace", "local_pow_to_nested_squaring", "BlasOpt"
).register(
    (in2out(node_rewriter([Dot, BatchedDot, Blockwise])(by_rows)), AFTER_SPECIALIZE),
    (in2out(node_rewriter([Elemwise])(by_ufuncs)), AFTER_SPECIALIZE),
    (in2out(node_rewriter([Blockwise])(by_batches)), AFTER_SPECIALIZE),
)
# for functions that are called a few times: rewriting would take most of their time
AS_WRITTEN = Mode(linker=UfuncLinker(), optimizer="None")


def as_written(
    inputs: Sequence[AnyVariable], outputs: Sequence[AnyVariable], mode: Mode = AS_WRITTEN
) -> Function:
    """Make a function of graphs, by default not rewritten, for inputs of the right type."""
    settings: Any = {"mode": mode, "on_unused_input": "ignore"}
    with without_c():
        fn: Function = maker.function(list(inputs), list(outputs), **settings)
    fn.trust_input = True
    return fn


def without_c() -> AbstractContextManager[None]:
    """Keep PyTensor from building C code for every constant that it folds, a second each."""
    return config.change_flags(cxx="")


def compile_mode(backend: str) -> Mode:
    """Return the PyTensor mode of a backend: ``"python"``, or one of PyMC's names."""
    if backend == "python":
        return PYTHON
    if backend not in ("numba", "c", "jax"):
        raise ValueError(
            f"backend={backend!r} is unknown: use 'python', the default, 'numba', 'c' or 'jax'."
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
