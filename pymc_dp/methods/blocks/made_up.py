"""Made-up rows and points on which the structure of a graph is tried; no data are read."""

from collections.abc import Mapping, Sequence

import numpy as np

from pymc_dp.contributions.contribution import Batch
from pymc_dp.methods.blocks.expectation import Point
from pymc_dp.methods.blocks.exponential import ExponentialFamily
from pymc_dp.records import Records

# values that agree up to this are equal; graphs are evaluated in double precision
TOLERANCE = 1e-6


def made_up_rows(records: Records, rng: np.random.Generator, whole: Sequence[int]) -> Batch:
    """Make up one row for each entry of ``whole``, which is the value of all its whole numbers.

    So a count never exceeds its trials; real numbers lie between 0 and 1, which most likelihoods
    allow.
    """

    def values(name: str) -> np.ndarray:
        shape = [len(whole) if length is None else length for length in records.shapes[name]]
        dtype = records.batch.inputs[name].dtype
        if dtype.startswith("float"):
            return rng.uniform(0.1, 0.9, shape)
        along = [-1 if length is None else 1 for length in records.shapes[name]]
        return np.broadcast_to(np.reshape(whole, along), shape).astype(dtype)

    return {name: values(name) for name in records.batch.inputs}


def made_up_point(
    records: Records, families: Mapping[str, ExponentialFamily], rng: np.random.Generator
) -> Point:
    """Make up values of all shared latents, inside their supports."""
    return {
        name: family.rule(family.spread(records.point[name].shape, rng))[0]
        for name, family in families.items()
    }


def agree(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two evaluations of a graph are the same function of it; nan is not."""
    scale = max(1.0, float(np.abs(first).max(initial=0.0)))
    return bool((np.abs(first - second) <= TOLERANCE * scale).all())
