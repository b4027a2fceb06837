"""Graphs as functions of rows and points, and random ones at which their structure is tested."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

import numpy as np

from pymc_dp.compiling.compile import function
from pymc_dp.contributions.gradients import by_record, checked
from pymc_dp.methods.conjugate.expectation import Point
from pymc_dp.methods.conjugate.exponential import ExponentialFamily
from pymc_dp.model import Records
from pymc_dp.model.batch import RecordGraph
from pymc_dp.model.graph_types import AnyVariable, Tensor
from pymc_dp.model.modes import as_written
from pymc_dp.privacy.contribution import Batch

# (rows, point of all latents, values of further inputs) -> values of graphs
AtPoint = Callable[..., tuple[np.ndarray, ...]]

# relative difference of values that count as equal; graphs are evaluated in double precision
TOLERANCE = 1e-6


def at_point(
    records: Records,
    graph: RecordGraph,
    outputs: Iterable[AnyVariable],
    further: Sequence[AnyVariable] = (),
    backend: str = "python",
) -> AtPoint:
    """Compile variables of a graph of records; ``further`` are inputs beside rows and latents."""
    inputs = [*further, *graph.inputs.values(), *records.latents.values()]
    fn = function(inputs, list(outputs), backend)

    def evaluate(rows: Batch, point: Point, *values: np.ndarray) -> tuple[np.ndarray, ...]:
        leaves = [rows[name] for name in graph.inputs]
        return tuple(fn(*values, *leaves, *[point[name] for name in records.latents]))

    return evaluate


def at_few_points(
    records: Records, outputs: Sequence[AnyVariable], further: Sequence[AnyVariable] = ()
) -> AtPoint:
    """Return what `at_point` does for one record; rewritten only where it is not finite as written.

    Rounding differs: it is for decisions, not for numbers that a fit computes with.
    """
    compiled = cache(lambda: at_point(records, records.single, outputs, further))
    leaves, latents = records.single.inputs, records.latents
    fn = as_written([*further, *leaves.values(), *latents.values()], outputs)

    def evaluate(rows: Batch, point: Point, *values: np.ndarray) -> tuple[np.ndarray, ...]:
        with np.errstate(all="ignore"):
            found = fn(*values, *[rows[name] for name in leaves], *[point[n] for n in latents])
        if all(np.isfinite(x).all() for x in found):
            return tuple(found)
        return compiled()(rows, point, *values)

    return evaluate


def for_each_row(
    records: Records, one: Sequence[Tensor], backend: str, further: Sequence[AnyVariable] = ()
) -> AtPoint:
    """Compile variables of the graph of one record, for every row of a batch."""
    rows = [checked(records, row) for row in by_record(records, one)]
    return at_point(records, records.batch, rows, further, backend)


def ones(records: Records) -> Point:
    """Return the point at which every latent is 1."""
    return {name: np.ones(value.shape) for name, value in records.point.items()}


def probe_rows(records: Records, rng: np.random.Generator, whole: Sequence[int]) -> Batch:
    """Draw one row for each entry of ``whole``, which is the value of all its whole numbers.

    So a count never exceeds its trials; real numbers lie between 0 and 1, which most likelihoods
    allow.
    """

    def values(name: str) -> np.ndarray:
        shape = [len(whole) if length is None else length for length in records.shapes[name]]
        dtype = records.batch.inputs[name].type.dtype
        if dtype.startswith("float"):
            return rng.uniform(0.1, 0.9, shape)
        along = [-1 if length is None else 1 for length in records.shapes[name]]
        return np.broadcast_to(np.reshape(whole, along), shape).astype(dtype)

    return {name: values(name) for name in records.batch.inputs}


def probe_point(
    records: Records, families: Mapping[str, ExponentialFamily], rng: np.random.Generator
) -> Point:
    """Draw values of all shared latents, inside their supports."""
    return {
        name: family.rule(family.random_parameters(records.point[name].shape, rng))[0]
        for name, family in families.items()
    }


def nearly_equal(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two evaluations of a graph are the same up to rounding; nan equals nothing."""
    scale = max(1.0, float(np.abs(first).max(initial=0.0)))
    return bool((np.abs(first - second) <= TOLERANCE * scale).all())
