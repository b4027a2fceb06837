"""Outcomes drawn from the model at a public point, beside those that were observed.

They make clipping consistent: how much clipping moves a record's score on average follows from
scores of outcomes that the model itself draws for the record.
"""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors

from pymc_dp.contributions.gradients import on_batch
from pymc_dp.contributions.local_latents import no_latents, owners
from pymc_dp.model import Records
from pymc_dp.model.batch import STANDARD_UNIFORM, Outcomes
from pymc_dp.model.graphs import LISTED
from pymc_dp.privacy.contribution import OWNER, Batch, take_rows
from pymc_dp.privacy.private_data import ColumnSpec
from pymc_dp.privacy.probe import ALIKE, MIXED, probe_records

# (batch, z, generator) -> draws of all observed variables, shape (rows, count, ...), by the name
# that `drawn_name` gives to the leaf; z is one point, (d,), or one for each draw, (count, d). Rows
# that cannot be drawn have nan, or what their score makes nan, in `UNDRAWN`
Draw = Callable[[Batch, np.ndarray, np.random.Generator], Batch]

UNDRAWN = "rows without draws"
# both outcomes of a record that has one of two
BOTH = (0, 1)
# draws of a made-up record, alone and beside others, and how far their distribution functions lie
# apart with probability 1e-9 where both are the same
TRIES = 400
DISTANCE = (math.log(2e9) / TRIES) ** 0.5


def drawn_name(leaf: str) -> str:
    """Name the draws of a leaf in a batch."""
    return f"{leaf}, drawn"


def compile_draws(records: Records, count: int) -> Draw | None:
    """Compile ``count`` draws of all outcomes of a batch at a point; None where a model has none.

    Latents of single records or units are drawn first, and not handed out.

    **Privacy.** The draws of a record depend on the record, on the first record of its unit, and on
    the generator alone.
    """
    if records.outcomes is None:
        return None
    first, *later = [_compile(records, stage) for stage in records.outcomes]

    def draw(batch: Batch, z: np.ndarray, generator: np.random.Generator) -> Batch:
        if z.ndim == 1:
            return at_point(batch, z, generator, count)
        return _joined([at_point(batch, one, generator, 1) for one in z])

    def at_point(batch: Batch, z: np.ndarray, generator: np.random.Generator, count: int) -> Batch:
        owner = owners(records, batch)
        rows = len(owner)
        # the first record of each one's unit
        places = np.searchsorted(owner, owner) if OWNER in batch else owner
        batch = batch | no_latents(records, rows)
        drawn, failed = first(batch, z, generator, count)
        drawn = _shared(records, drawn, places)
        for stage in later:
            repeated = [n for n in axes if n in batch]
            given = {n: np.concatenate([batch[n]] * count, axis=axes[n]) for n in repeated}
            given |= {n: x.reshape(-1, *x.shape[2:]) for n, x in drawn.items()}
            more, missed = stage(given, z, generator, 1)
            each = {n: x.reshape(count, rows, *x.shape[2:]) for n, x in more.items()}
            drawn |= _shared(records, each, places)
            failed |= missed.reshape(count, rows).any(axis=0)
        found = {drawn_name(n): np.moveaxis(drawn[n], 0, 1) for n in records.drawn}
        return found | {UNDRAWN: failed | failed[places]}

    axes = records.batch.axes
    if own := _drawn_by_authors(records):
        _refuse_failing(records, own, draw)
        _refuse_mixing(records, own, at_point)
    return draw


def _drawn_by_authors(records: Records) -> str:
    """Name the variables whose draws are computed by operations that no proof covers."""
    own = {
        name
        for stage in records.outcomes or ()
        for leaf, name in stage.variables.items()
        if any(_is_of_author(v.owner_op) for v in ancestors([stage.drawn[leaf]]))
    }
    return ", ".join(f"`{name}`" for name in sorted(own))


def _is_of_author(op: Op | None) -> bool:
    return op is not None and op is not STANDARD_UNIFORM and type(op) not in LISTED


def _refuse_mixing(records: Records, own: str, at_point: Callable[..., Batch]) -> None:
    """Refuse draws of an author's that are distributed otherwise beside made-up records than alone.

    Each record's draws alone and beside all others are compared by the largest distance of their
    distribution functions (Kolmogorov and Smirnov), at the initial point and beside it.
    """
    inputs, rng = records.batch.inputs, np.random.default_rng(0)
    spec = {n: ColumnSpec(records.shapes[n], x.type.dtype) for n, x in inputs.items()}
    made = probe_records(spec, rng)
    for z in (records.start, records.start + rng.uniform(0.1, 0.4, records.size)):
        with np.errstate(all="ignore"):
            each = {k: take_rows(made, spec, np.array([k])) for k in range(ALIKE + MIXED)}
            alone = {k: at_point(one, z, rng, TRIES) for k, one in each.items()}
            kept = [k for k, drawn in alone.items() if not drawn[UNDRAWN].any()]
            beside = at_point(take_rows(made, spec, np.array(kept, int)), z, rng, TRIES)
        for place, name in product(range(len(kept)), map(drawn_name, records.drawn)):
            one, other = (
                x.reshape(TRIES, -1).T for x in (alone[kept[place]][name], beside[name][place])
            )
            if max(map(_distance, one, other)) > DISTANCE:
                raise ValueError(
                    f"random= of {own} draws otherwise for a made-up record beside others than for "
                    "the record alone, so that draws of one record would depend on other records. "
                    "Let each depend on the parameters of its own record: no sum, mean, maximum or "
                    "order over records. Without random= no outcomes are drawn."
                )


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest distance between the distribution functions of two samples."""
    every = np.concatenate([one, other])
    shares = [np.searchsorted(np.sort(x), every, side="right") / len(x) for x in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


def _refuse_failing(records: Records, own: str, draw: Draw) -> None:
    """Refuse an author's ``random=`` that fails for made-up records of zeros and for ones of ones.

    A record that cannot be drawn adds nothing, and so would all of them.
    """
    made = {n: _zeros_and_ones(records, n, x.type.dtype) for n, x in records.batch.inputs.items()}
    with np.errstate(all="ignore"):
        failed = draw(made, records.start, np.random.default_rng(0))[UNDRAWN]
    if failed.all():
        raise ValueError(
            f"random= of {own} raises an error for made-"
            "up records at the initial point, so no outcomes could be drawn. It is called for many "
            "draws of many records at once: let it broadcast its parameters, whose shapes are "
            "(draws, records) with 1 along some axes, and return an array of the shape size=."
        )


def _zeros_and_ones(records: Records, name: str, dtype: str) -> np.ndarray:
    axis, shape = records.batch.axes[name], [2 if n is None else n for n in records.shapes[name]]
    values = np.zeros(shape, dtype)
    values[(slice(None),) * axis + (1,)] = 1
    return values


def _joined(draws: list[Batch]) -> Batch:
    """Join draws of the same records."""
    failed = np.any([each[UNDRAWN] for each in draws], axis=0)
    names = draws[0].keys() - {UNDRAWN}
    return {n: np.concatenate([x[n] for x in draws], axis=1) for n in names} | {UNDRAWN: failed}


def both_outcomes(records: Records) -> Draw | None:
    """Give every record both outcomes in place of draws, where it has one of two; None elsewhere.

    Nothing is drawn, and nothing of a record is read.
    """
    if records.outcomes is None or not records.outcomes[0].is_binary or records.local_latents:
        return None
    [leaf] = records.drawn

    def give(batch: Batch, z: np.ndarray, generator: np.random.Generator) -> Batch:
        observed = batch[leaf]
        both = np.broadcast_to(np.array(BOTH, observed.dtype), (len(observed), len(BOTH)))
        each = both.reshape(len(observed), len(BOTH), *observed.shape[1:])
        return {drawn_name(leaf): each}

    return give


def _shared(records: Records, drawn: Batch, places: np.ndarray) -> Batch:
    """Let all records of a unit take the latents that were drawn for its first one."""
    local = drawn.keys() & records.local_latents.keys()
    return drawn | {name: np.take(drawn[name], places, axis=1) for name in local}


def _compile(records: Records, outcomes: Outcomes) -> Callable[..., tuple[Batch, np.ndarray]]:
    """Compile some draws: arrays of shape (count, rows, ...), and which records have failed."""
    # records whose distribution refuses its parameters are found by halving the batch: each then
    # fails alone
    given = [outcomes.number, *outcomes.generators]
    graphs = list(outcomes.drawn.values())
    compute = on_batch(records, given, graphs, "python", outcomes.inputs)  # NumPy draws on all

    def draw(
        batch: Batch, z: np.ndarray, rng: np.random.Generator, count: int
    ) -> tuple[Batch, np.ndarray]:
        batch = {name: batch[name] for name in outcomes.inputs}
        rows = len(batch[next(iter(outcomes.drawn))])
        drawn = {n: np.zeros((count, *batch[n].shape), batch[n].dtype) for n in outcomes.drawn}
        failed = np.zeros(rows, bool)
        parts = [slice(0, rows)] if rows else []
        while parts:
            part = parts.pop()
            try:
                some = {name: x[(slice(None),) * axes[name] + (part,)] for name, x in batch.items()}
                seeds = rng.integers(2**63, size=(len(outcomes.generators), 4))
                found = compute(some, z, np.asarray(count), *map(np.random.default_rng, seeds))
                for name, values in zip(drawn, found, strict=True):
                    drawn[name][:, part] = values
            except (ValueError, FloatingPointError, OverflowError):
                if part.stop - part.start == 1:
                    failed[part] = True
                else:
                    middle = (part.start + part.stop + 1) // 2  # as np.array_split cuts
                    parts += [slice(part.start, middle), slice(middle, part.stop)]
        return drawn, failed

    axes = records.batch.axes
    return draw
