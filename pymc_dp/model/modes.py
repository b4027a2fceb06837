"""How PyTensor runs graphs at once, without a compiler: rewritten, or as they are written.

The proof of exact arithmetic (docs/proofs/gaussian_sum.md) speaks of both modes: products of
records row by row, and no loops that are fused.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

from pytensor.compile import maker
from pytensor.compile.executor import Function
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot

from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.linker import UfuncLinker
from pymc_dp.model.row_products import by_rows
from pymc_dp.model.ufuncs import by_batches, by_ufuncs

AFTER_SPECIALIZE = 48.9  # just before fusion and the in-place rewrites


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
