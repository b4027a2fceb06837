"""Equal graphs are rewritten once: a model that is fitted again compiles next to nothing."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Any

import numpy as np
from pytensor.compile.executor import Function
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import toposort

from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.operations import unproved_in

MOST_KEPT = 128
LARGEST_CONSTANT = 10_000  # numbers

# {key: (PyTensor's maker, which makes functions of a rewritten graph, the graph's outputs)}
_rewritten: OrderedDict[Hashable, Any] = OrderedDict()
_lock = Lock()


def rewritten_once(
    key: Hashable | None, outputs: Sequence[AnyVariable], compile_it: Callable[[], Function]
) -> Function:
    """Return a function with storage of its own, by the rewrites of an equal graph if there is one.

    ``key`` is what `graph_key` returns for ``outputs``; None is always compiled.
    """
    if key is None:
        return compile_it()
    with _lock:
        maker, computed = _rewritten.get(key, (None, ()))
        # an operation may have been changed since
        if maker is not None and not unproved_in(computed):
            _rewritten.move_to_end(key)
            again: Function = maker.create()
            return again
    fn = compile_it()
    with _lock:
        _rewritten[key] = fn.maker, tuple(outputs)
        if len(_rewritten) > MOST_KEPT:
            _rewritten.popitem(last=False)
    return fn


def graph_key(inputs: Sequence[AnyVariable], outputs: Sequence[AnyVariable]) -> Hashable | None:
    """Return a value that equals another graph's if both compute the same, operation by operation.

    There is none where an operation may keep Python state, which changes between two fits, and for
    shared variables and large constants.
    """
    if unproved_in(outputs):
        return None
    known: dict[AnyVariable, Hashable] = {x: i for i, x in enumerate(inputs)}
    steps: list[Hashable] = []
    try:
        for node in toposort(outputs, blockers=inputs):
            read = tuple(known[x] if x in known else _constant(x) for x in node.inputs)
            known |= {x: (len(steps), k) for k, x in enumerate(node.outputs)}
            steps.append((node.op, read, tuple(x.type for x in node.outputs)))
        ends = tuple(known[x] if x in known else _constant(x) for x in outputs)
        graph = tuple((x.name, x.type) for x in inputs), tuple(steps), ends
        hash(graph)
    except TypeError:
        return None
    return graph


def _constant(x: AnyVariable) -> Hashable:
    """Return a constant's value to the last bit."""
    if not isinstance(x, Constant) or np.size(x.data) > LARGEST_CONSTANT:
        raise TypeError
    value = x.data
    if isinstance(value, np.ndarray | np.generic):
        return x.type, value.shape, value.tobytes()
    return x.type, value
