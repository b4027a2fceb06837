"""A short text that is the same for the same model, in every process; no data."""

import hashlib
from collections.abc import Iterable

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import toposort

from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.separate import Records


def fingerprint(records: Records) -> str:
    """Return a digest of a model's prior, its likelihood and its initial values."""
    parts = [_graph([records.prior, *records.batch.terms])]
    parts += [f"{name} {value.tobytes().hex()}" for name, value in records.point.items()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _graph(outputs: Iterable[AnyVariable]) -> str:
    """Write a graph as lines, one for each of its operations."""
    outputs = list(outputs)
    names: dict[AnyVariable, str] = {}

    def name(variable: AnyVariable) -> str:
        if variable not in names:
            names[variable] = f"{len(names)}: {_leaf(variable)}"
        return names[variable]

    lines = []
    for node in toposort(outputs):
        inner = getattr(node.op, "inner_outputs", None)
        lines.append(f"{node.op} {_graph(inner) if inner else ''} {[name(x) for x in node.inputs]}")
        names.update({out: f"{len(names) + k}" for k, out in enumerate(node.outputs)})
    return "\n".join([*lines, *map(name, outputs)])


def _leaf(variable: AnyVariable) -> str:
    if not isinstance(variable, Constant):
        return f"{variable.name} {variable.type}"
    value = np.asarray(variable.data)
    shown = value.tobytes().hex() if value.dtype != object else str(variable.data)
    return f"{value.dtype} {value.shape} {shown}"
