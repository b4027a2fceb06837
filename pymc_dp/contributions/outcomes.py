"""Outcomes drawn from the model at a public point, beside those that were observed.

They make clipping consistent: how much clipping moves a record's score on average follows from
scores of outcomes that the model itself draws for the record.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_dp.contributions.local_latents import no_latents, owners
from pymc_dp.model import Records
from pymc_dp.model.compile import function
from pymc_dp.model.outcomes import Outcomes
from pymc_dp.privacy.contribution import Batch

# (batch, z, generator) -> draws of all observed variables by leaf; rows that cannot be drawn have
# nan, or what their score makes nan, in `UNDRAWN`
Draw = Callable[[Batch, np.ndarray, np.random.Generator], Batch]

UNDRAWN = "rows without draws"


def compile_draws(records: Records) -> Draw | None:
    """Compile draws of all outcomes of a batch at a point, or None where a model has none.

    Latents of single records or units are drawn first, and the outcomes given them.

    **Privacy.** The draws of a record depend on the record, on the number of records that its unit
    has, and on the generator alone.
    """
    if records.outcomes is None or (records.local_latents and records.local_draws is None):
        return None
    outcomes = _compile(records, records.outcomes)
    if records.local_draws is None:
        return outcomes
    latents = _compile(records, records.local_draws)

    def draw(batch: Batch, z: np.ndarray, generator: np.random.Generator) -> Batch:
        owner = owners(records, batch)
        drawn = latents(batch | no_latents(records, len(owner)), z, generator)
        failed = drawn.pop(UNDRAWN)
        first = np.searchsorted(owner, owner)  # all records of a unit take the draw of its first
        shared = {name: np.take(x, first, axis=0) for name, x in drawn.items()}
        given = outcomes(batch | shared, z, generator)
        return given | {UNDRAWN: given[UNDRAWN] | failed[first]}

    return draw


def _compile(records: Records, outcomes: Outcomes) -> Draw:
    """Compile some draws.

    Records whose distribution refuses its parameters are found by halving the batch: each then
    fails alone.
    """
    inputs = [*outcomes.generators, *outcomes.inputs.values(), *records.latents.values()]
    compute = function(inputs, list(outcomes.drawn.values()), "python")  # NumPy draws on all

    def draw_all(batch: Batch, z: np.ndarray, generator: np.random.Generator) -> list[Any]:
        seeds = generator.integers(2**63, size=(len(outcomes.generators), 4))
        generators = [np.random.default_rng(seed) for seed in seeds]
        values = [batch[name] for name in outcomes.inputs]
        drawn: list[Any] = compute(*generators, *values, *records.split(z))
        return drawn

    def draw(batch: Batch, z: np.ndarray, generator: np.random.Generator) -> Batch:
        batch = {name: batch[name] for name in outcomes.inputs}
        rows = len(batch[next(iter(outcomes.drawn))])
        drawn = {name: np.zeros_like(batch[name]) for name in outcomes.drawn}
        failed = np.zeros(rows, bool)
        parts = [np.arange(rows)] if rows else []
        while parts:
            part = parts.pop()
            try:
                some = {name: np.take(x, part, axis=axes[name]) for name, x in batch.items()}
                for name, values in zip(drawn, draw_all(some, z, generator), strict=True):
                    drawn[name][part] = values
            except (ValueError, FloatingPointError, OverflowError):
                if len(part) == 1:
                    failed[part] = True
                else:
                    parts += np.array_split(part, 2)
        return drawn | {UNDRAWN: failed}

    axes = {name: records.batch.axis[leaf] for name, leaf in records.batch.inputs.items()}
    return draw
