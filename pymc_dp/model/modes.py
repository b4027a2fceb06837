"""How PyTensor runs graphs at once, without a compiler: rewritten, or as they are written.

A batch is small: with PyTensor's own Python linker, what surrounds a ufunc of NumPy takes several
times as long as the ufunc. The linker here calls ufuncs directly.

The proof of exact arithmetic (docs/proofs/gaussian_sum.md) speaks of both modes: products of
records row by row, and no loops that are fused.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import Any

import numpy as np
from pytensor.compile import maker
from pytensor.compile.executor import Function
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.link.basic import PerformLinker
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.math import Dot

from pymc_dp.model.graph_types import AnyVariable, Node
from pymc_dp.model.row_products import by_rows
from pymc_dp.model.ufuncs import by_batches, by_ufuncs

AFTER_SPECIALIZE = 48.9  # just before fusion and the in-place rewrites


class UfuncLinker(PerformLinker):
    """PyTensor's Python linker, which calls ufuncs directly and gives no warnings of their numbers.

    What it computes for a record does not depend on other records, to the last bit, as far as
    products of matrices do not (`row_products`).
    """

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
    """Return a call that reduces an array in the order of its axes.

    NumPy adds numbers up in the order in which they lie in memory, and with the number of records
    the order may change in which the results of other operations lie there.
    """
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
        found = np.asarray(ufunc(*values), dtype=dtype)
        output[0] = found if found.flags.owndata else found.copy()

    at_once.inputs, at_once.outputs, at_once.lazy = inputs, call.outputs, False  # type: ignore
    return at_once


def _ufunc(node: Node) -> Callable[..., Any] | None:
    """Return the function that PyTensor would find at every call; all is as in its `perform`."""
    op, tag = node.op, node.tag
    if op.nfunc is not None and len(node.inputs) == op.nfunc_spec[1]:
        return partial(op.nfunc, sig=tag.sig) if hasattr(tag, "sig") else op.nfunc
    return op.ufunc or getattr(tag, "ufunc", None)


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


def as_written(inputs: Sequence[AnyVariable], outputs: Sequence[AnyVariable]) -> Function:
    """Make a function of graphs that are not rewritten, for inputs of the right type."""
    with without_c():
        fn: Function = maker.function(
            list(inputs), list(outputs), mode=AS_WRITTEN, on_unused_input="ignore"
        )
    fn.trust_input = True
    return fn


def without_c() -> AbstractContextManager[None]:
    """Keep PyTensor from building C code for every constant that it folds, a second each."""
    return config.change_flags(cxx="")
