"""Outcomes drawn from the model at a public point, beside those that were observed.

They make clipping consistent: how much clipping moves a record's score on average follows from
scores of outcomes that the model itself draws for the record.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_dp.model import Records
from pymc_dp.model.compile import function
from pymc_dp.model.outcomes import Outcomes
from pymc_dp.privacy.contribution import Batch

# (batch, z, generator) -> draws of all observed variables, shape (rows, count, ...), by the name
# that `drawn_name` gives to the leaf; rows that cannot be drawn have nan, or what their score makes
# nan, in `UNDRAWN`
Draw = Callable[[Batch, np.ndarray, np.random.Generator], Batch]

UNDRAWN = "rows without draws"


def drawn_name(leaf: str) -> str:
    """Name the draws of a leaf in a batch."""
    return f"{leaf}, drawn"


def compile_draws(records: Records, outcomes: Outcomes, count: int) -> Draw:
    """Compile ``count`` draws of all outcomes of a batch at a point.

    **Privacy.** The draws of a record depend on the record and on the generator alone. Records
    whose distribution refuses its parameters are found by halving the batch: each then fails alone.
    """
    latents = records.latents.values()
    inputs = [outcomes.number, *outcomes.generators, *outcomes.inputs.values(), *latents]
    compute = function(inputs, list(outcomes.drawn.values()), "python")  # NumPy draws on all

    def draw_all(batch: Batch, z: np.ndarray, generator: np.random.Generator) -> list[Any]:
        seeds = generator.integers(2**63, size=(len(outcomes.generators), 4))
        generators = [np.random.default_rng(seed) for seed in seeds]
        values = [batch[name] for name in outcomes.inputs]
        drawn: list[Any] = compute(np.asarray(count), *generators, *values, *records.split(z))
        return drawn

    def draw(batch: Batch, z: np.ndarray, generator: np.random.Generator) -> Batch:
        batch = {name: batch[name] for name in outcomes.inputs}
        rows = len(batch[next(iter(outcomes.drawn))])
        drawn = {n: np.zeros((count, *batch[n].shape), batch[n].dtype) for n in outcomes.drawn}
        failed = np.zeros(rows, bool)
        parts = [np.arange(rows)] if rows else []
        while parts:
            part = parts.pop()
            try:
                some = {name: np.take(x, part, axis=axes[name]) for name, x in batch.items()}
                for name, values in zip(drawn, draw_all(some, z, generator), strict=True):
                    drawn[name][:, part] = values
            except (ValueError, FloatingPointError, OverflowError):
                if len(part) == 1:
                    failed[part] = True
                else:
                    parts += np.array_split(part, 2)
        return {drawn_name(n): np.moveaxis(x, 0, 1) for n, x in drawn.items()} | {UNDRAWN: failed}

    axes = {name: records.batch.axis[leaf] for name, leaf in records.batch.inputs.items()}
    return draw
