"""Graphs of latents at many draws at once."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Eye

from pymc_dp.compiling.compile import function
from pymc_dp.model.graph_types import AnyVariable, pt


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
