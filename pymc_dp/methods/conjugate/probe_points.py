"""Random rows and points at which the structure of a graph is tested; no data are read."""

from collections.abc import Mapping, Sequence

import numpy as np

from pymc_dp.methods.conjugate.expectation import Point
from pymc_dp.methods.conjugate.exponential import ExponentialFamily
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch

# relative difference of values that count as equal; graphs are evaluated in double precision
TOLERANCE = 1e-6


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
