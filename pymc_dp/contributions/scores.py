"""Scores of records at their observed outcomes, and at outcomes that the model draws for them.

They are the parametric bootstrap that centres clipped scores: how much clipping moves a record's
score on average follows from scores of drawn outcomes, or of both where a record has one of two.
Draws of authors are first tried on made-up records. At the end stands the first contribution of
rounds: the magnitudes of scores.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from scipy.stats import ks_2samp

from pymc_dp.contributions.channels import Channels, combined, record_channels
from pymc_dp.contributions.frontier import NoFrontierRuleError
from pymc_dp.contributions.gradients import checked, each_gradient, on_batch
from pymc_dp.contributions.local_latents import (
    SHARE,
    local_densities,
    marginal_scores,
    no_latents,
    nodes_of_quadrature,
    owners,
    with_shares,
)
from pymc_dp.contributions.polya_gamma_and_sites import (
    MOST_PREDICTORS,
    SHIFTS,
    Along,
    Estimated,
    Estimating,
    shifted,
)
from pymc_dp.model import Records
from pymc_dp.model.batch import STANDARD_UNIFORM, Outcomes
from pymc_dp.model.graphs import LISTED, pt
from pymc_dp.privacy.contribution import OWNER, Batch, RowContribution, UnitVector, take_rows
from pymc_dp.privacy.norms import row_norms
from pymc_dp.privacy.private_data import ColumnSpec
from pymc_dp.privacy.probe import ALIKE, MIXED, probe_records
from pymc_dp.tables.weights import SurveyWeights

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
# draws of a record's outcomes: those that its weight follows from, and those that centre its score
WEIGHING, CENTRING = 3, 8
DRAWS = WEIGHING + CENTRING
# binary logarithms of magnitudes are clipped to this, and divided by it
BITS = 24.0


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
    axes = records.batch.axes

    def draw(batch: Batch, z: np.ndarray, generator: np.random.Generator) -> Batch:
        if z.ndim == 1:
            return at_point(batch, z, generator, count)
        each = [at_point(batch, one, generator, 1) for one in z]
        failed = np.any([one.pop(UNDRAWN) for one in each], axis=0)
        return {n: np.concatenate([x[n] for x in each], axis=1) for n in each[0]} | {
            UNDRAWN: failed
        }

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
        outcomes = {drawn_name(n): np.moveaxis(drawn[n], 0, 1) for n in records.drawn}
        return outcomes | {UNDRAWN: failed | failed[places]}

    if own := _drawn_by_authors(records):
        _refuse_mixing(records, own, at_point)
    return draw


def _compile(records: Records, outcomes: Outcomes) -> Callable[..., tuple[Batch, np.ndarray]]:
    """Compile some draws: arrays of shape (count, rows, ...), and which records have failed."""
    given, axes = [outcomes.number, *outcomes.generators], records.batch.axes
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
                values = compute(some, z, np.asarray(count), *map(np.random.default_rng, seeds))
                for name, each in zip(drawn, values, strict=True):
                    drawn[name][:, part] = each
            except (ValueError, FloatingPointError, OverflowError):
                # a record whose distribution refuses its parameters must fail alone
                if part.stop - part.start == 1:
                    failed[part] = True
                else:
                    middle = (part.start + part.stop + 1) // 2  # as np.array_split cuts
                    parts += [slice(part.start, middle), slice(middle, part.stop)]
        return drawn, failed

    return draw


def _shared(records: Records, drawn: Batch, places: np.ndarray) -> Batch:
    """Let all records of a unit take the latents that were drawn for its first one."""
    local = drawn.keys() & records.local_latents.keys()
    return drawn | {name: np.take(drawn[name], places, axis=1) for name in local}


def _drawn_by_authors(records: Records) -> str:
    """Name the variables whose draws are computed by operations that no proof covers."""
    own = set()
    for stage in records.outcomes or ():
        for leaf, name in stage.variables.items():
            ops = {v.owner_op for v in ancestors([stage.drawn[leaf]])} - {None, STANDARD_UNIFORM}
            if not all(type(op) in LISTED for op in ops):
                own.add(name)
    return ", ".join(f"`{name}`" for name in sorted(own))


def _refuse_mixing(records: Records, own: str, at_point: Callable[..., Batch]) -> None:
    """Refuse an author's draws that fail, or that made-up records change (Kolmogorov-Smirnov)."""
    inputs, rng = records.batch.inputs, np.random.default_rng(0)
    spec = {n: ColumnSpec(records.shapes[n], x.type.dtype) for n, x in inputs.items()}
    made = probe_records(spec, rng)
    for z in (records.start, records.start + rng.uniform(0.1, 0.4, records.size)):
        with np.errstate(all="ignore"):
            each = {k: take_rows(made, spec, np.array([k])) for k in range(ALIKE + MIXED)}
            alone = {k: at_point(one, z, rng, TRIES) for k, one in each.items()}
            kept = [k for k, drawn in alone.items() if not drawn[UNDRAWN].any()]
            beside = at_point(take_rows(made, spec, np.array(kept, int)), z, rng, TRIES)
        if not kept:
            raise ValueError(
                f"random= of {own} raises an error for made-up records, so no outcomes could be "
                "drawn. It is called for many draws of many records at once: let it broadcast its "
                "parameters, whose shapes are (draws, records) with 1 along some axes, and return "
                "an array of the shape size=."
            )
        for place, name in product(range(len(kept)), map(drawn_name, records.drawn)):
            both = alone[kept[place]][name], beside[name][place]
            # nan is a value as others are: with one, the test's statistic would be nan
            one, other = (np.nan_to_num(x, nan=np.inf).reshape(TRIES, -1) for x in both)
            if ks_2samp(one, other, method="asymp").statistic.max() > DISTANCE:
                raise ValueError(
                    f"random= of {own} draws otherwise for a made-up record beside others than for "
                    "the record alone, so that draws of one record would depend on other records. "
                    "Let each depend on the parameters of its own record: no sum, mean, maximum or "
                    "order over records. Without random= no outcomes are drawn."
                )


def both_outcomes(records: Records) -> Draw | None:
    """Give records that have one of two outcomes both, in place of draws; None elsewhere."""
    if records.outcomes is None or not records.outcomes[0].is_binary or records.local_latents:
        return None
    [leaf] = records.drawn

    def give(batch: Batch, z: np.ndarray, generator: np.random.Generator) -> Batch:
        observed = batch[leaf]
        both = np.broadcast_to(np.array(BOTH, observed.dtype), (len(observed), len(BOTH)))
        each = both.reshape(len(observed), len(BOTH), *observed.shape[1:])
        return {drawn_name(leaf): each}

    return give


def lengths(vectors: np.ndarray) -> np.ndarray:
    """Return the norms of vectors (rows, k, d), whatever their order in memory."""
    return row_norms(vectors.reshape(-1, vectors.shape[-1])).reshape(vectors.shape[:-1])


def probabilities(norms: np.ndarray) -> np.ndarray:
    """Return how likely drawn outcomes, or both, are whose scores have these norms, (rows, k)."""
    if norms.shape[1] != len(BOTH):
        return np.full(norms.shape, 1 / max(norms.shape[1], 1))
    of_other = norms[:, ::-1]
    total = of_other.sum(axis=1, keepdims=True)
    equal = np.full_like(of_other, 0.5)
    return np.asarray(np.divide(of_other, total, out=equal, where=total > 0))


class DrawnScores(NamedTuple):
    """Scores of a batch at a point; compiled once for all rounds."""

    outcomes: int  # how many a record has: the observed one, and the draws or both
    outcomes_in_units: int  # the same where records belong to units
    # which latents each vector of a record's scores reads, (channels, d); none where scores are
    # formed
    reach: np.ndarray
    dispersion: np.ndarray  # which latents are those of the dispersion of outcomes, (d,)
    parted: Callable[[Batch, np.ndarray], Along]  # (batch, z)
    draw: Draw | None
    draw_for_units: Draw | None  # in place of ``draw``, where records belong to units
    together: bool  # whether the records of a unit are scored together
    nodes: int  # at how many values of local latents each score is computed
    estimating: Estimating | None = None  # what a method makes of them; None: at the point
    survey: SurveyWeights | None = None  # weights of the records, which scores do not hold

    @property
    def d(self) -> int:
        """The number of latents."""
        return self.dispersion.size

    @property
    def channels(self) -> int:
        """How many vectors a record's scores are made of; 0 where scores are formed."""
        return len(self.reach)

    @property
    def width(self) -> int:
        """How many numbers the scores of a record are."""
        return self.outcomes * (self.channels or self.d) * self.nodes + self.channels * self.d

    def of_batch(self, batch: Batch, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return weights, (rows, outcomes, c), and vectors at a point, as in `Along`."""
        parts = self.parted(batch, z)
        return parts.weights(np.zeros(parts.vectors.shape[:2])), parts.vectors

    def formed(self, batch: Batch, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return weights as `of_batch`, and the scores themselves, (rows, outcomes, d)."""
        weights, vectors = self.of_batch(batch, z)
        return weights, combined(weights, vectors) if len(vectors) else weights

    def shares(self, batch: Batch) -> np.ndarray | None:
        """Return what of each record counts, (rows,), from 0 to 1; None where all of them do."""
        return None if self.survey is None else self.survey.shares(batch[self.survey.name])

    def estimated(self, parts: Along, root: np.ndarray | None) -> Estimated:
        """Return what a method makes of scores along predictors; without a root, at the point."""
        if self.estimating is None or root is None:
            return Estimated(parts.weights(np.zeros(parts.vectors.shape[:2])))
        return self.estimating.estimate(parts._replace(root=root))


def drawn_scores(
    records: Records,
    estimating: Estimating | None = None,
    dispersion: np.ndarray | None = None,
    survey: SurveyWeights | None = None,
) -> DrawnScores:
    """Compile the scores, and the draws where the model says how to draw; Python is fastest.

    A unit of several records has too many joint outcomes, so that they are always drawn. Scores
    along a predictor that reads latents of the ``dispersion``, (d,), and others are not averaged.
    """
    dispersion = np.zeros(records.size, bool) if dispersion is None else dispersion
    draw, both = compile_draws(records, DRAWS), both_outcomes(records)
    parted, reach, predictors = _compiled_scores(records)
    of_both = reach[:, dispersion].any(axis=1) & reach[:, ~dispersion].any(axis=1)
    if records.local_latents or of_both.any() or not 0 < predictors <= MOST_PREDICTORS:
        estimating = None
    in_units = 1 + (DRAWS if draw else 0)
    return DrawnScores(
        outcomes=1 + len(BOTH) if both else in_units,
        outcomes_in_units=in_units,
        reach=reach,
        dispersion=dispersion,
        parted=parted,
        draw=both or draw,
        draw_for_units=draw,
        together=records.of_units,
        nodes=nodes_of_quadrature(records),
        estimating=estimating,
        survey=survey,
    )


def _compiled_scores(
    records: Records,
) -> tuple[Callable[[Batch, np.ndarray], Along], np.ndarray, int]:
    """Compile scores; return also what their vectors read, and how many predictors records have."""
    names = records.drawn
    local = [SHARE, *records.local_latents] if records.local_latents else []
    shared = with_shares(records) if local else records
    try:
        channels = record_channels(shared, [*names, *local])
    except NoFrontierRuleError:
        return _formed(records, names), np.zeros((0, records.size), bool), 0
    return _parted(shared, channels, names), channels.reach, len(channels.predictors)


def is_yes_no(records: Records) -> bool:
    """Whether each record has one yes-no outcome, and one predictor."""
    return both_outcomes(records) is not None and has_one_predictor(records)


def has_one_predictor(records: Records) -> bool:
    """Whether each record has outcomes that can be drawn, and one predictor."""
    if records.outcomes is None or records.local_latents:
        return False
    try:
        return len(record_channels(records, records.drawn).predictors) == 1
    except NoFrontierRuleError:
        return False


def _formed(records: Records, names: Collection[str]) -> Callable[[Batch, np.ndarray], Along]:
    gradients, axes = each_gradient(records, "python"), records.batch.axes

    def parted(batch: Batch, point: np.ndarray) -> Along:
        each = _by_outcome(batch, names, gradients(_at_outcomes(batch, axes, names), point))
        return Along(np.empty((0, *each.shape[::2])), lambda shifts: each, False)

    return parted


def _parted(
    records: Records, channels: Channels, names: Collection[str]
) -> Callable[[Batch, np.ndarray], Along]:
    """Compile what outcomes do not change as one function, and the weights as another."""
    fixed = {f"fixed {k}": graph for k, graph in enumerate(channels.fixed)}
    first = on_batch(records, [], [*fixed.values(), *channels.vectors], "python")
    axes = records.batch.axes | dict(zip(fixed, channels.fixed.values(), strict=True))
    axes[SHIFTS] = 1
    given = {name: graph.type() for name, graph in fixed.items()}
    known = {graph: given[name] for name, graph in fixed.items()}
    for name, array in given.items():  # the rows of what is read, which are repeated
        known[records.batch.rows] = array.shape[axes[name]]
    given[SHIFTS] = shifts = pt.matrix(SHIFTS, dtype="float64", shape=(None, None))
    if not records.local_latents and len(channels.predictors) <= MOST_PREDICTORS:
        known |= shifted(known, channels.predictors, shifts)
    local = [checked(records, graph) for graph in local_densities(records)]
    graphs = graph_replace([channels.weights, *local], known, strict=False)
    below = set(ancestors(graphs))
    read = {name: x for name, x in (records.batch.inputs | given).items() if x in below}
    compiled = partial(on_batch, records, [], backend="python", read=read)
    if records.local_latents:
        weights, density, *_ = graphs
        second = marginal_scores(records, compiled(graphs[1:]), compiled([density, weights]))
    else:
        second = compiled(graphs[0])
    unread = no_latents(records, 0) | {SHARE: np.zeros(0)}

    def parted(batch: Batch, point: np.ndarray) -> Along:
        values = first(batch | unread, point)
        held = batch | dict(zip(fixed, values, strict=False))
        vectors = values[len(fixed) :]
        every = _at_outcomes(held, {name: axes[name] for name in read if name in held}, names)
        drawn = _drawn(batch, names)
        count = batch[drawn_name(drawn[0])].shape[1] + (UNDRAWN in batch) if drawn else 1

        def weights(shifts: np.ndarray) -> np.ndarray:
            repeated = np.tile(shifts, count)
            return _by_outcome(batch, names, second(every | {SHIFTS: repeated}, point))

        # one array is viewed, not copied
        stacked = np.stack(vectors) if vectors[1:] else vectors[0][None]
        return Along(stacked, weights, bool(drawn) and UNDRAWN not in batch)

    return parted


def without_weighing(values: np.ndarray) -> np.ndarray:
    """Leave out the draws that weights follow from, of values (rows, 1 + DRAWS, ...)."""
    return np.concatenate([values[:, :1], values[:, 1 + WEIGHING :]], axis=1)


def _drawn(batch: Batch, outcomes: Collection[str]) -> list[str]:
    return [name for name in outcomes if drawn_name(name) in batch]


def _at_outcomes(batch: Batch, axes: Mapping[str, int], outcomes: Collection[str]) -> Batch:
    """Repeat the arrays with these axes for all outcomes, and units; all observed ones first."""
    axes = {name: axis for name, axis in axes.items() if name in batch}
    each = {name: [*np.moveaxis(batch[drawn_name(name)], 1, 0)] for name in _drawn(batch, outcomes)}
    if not each:
        return {name: batch[name] for name in batch.keys() & {*axes, OWNER}}
    if UNDRAWN in batch:  # the observed one is not among them
        each = {name: [batch[name], *drawn] for name, drawn in each.items()}
    count = len(next(iter(each.values())))
    repeated = {
        name: np.concatenate(each.get(name, [batch[name]] * count), axis=axis)
        for name, axis in axes.items()
    }
    if OWNER in batch:
        owner = batch[OWNER]
        units = owner[-1] + 1 if owner.size else 0
        repeated[OWNER] = np.concatenate([owner + k * units for k in range(count)])
    return repeated


def _by_outcome(batch: Batch, outcomes: Collection[str], values: np.ndarray) -> np.ndarray:
    """Bring values of a repeated batch to the shape (rows, outcomes, c), the observed one first."""
    drawn, width = _drawn(batch, outcomes), values.shape[1]
    rows = len(batch[drawn[0]]) if drawn else len(values)
    each = np.array(values, "float64").reshape(-1, rows, width).swapaxes(0, 1)
    if UNDRAWN in batch:
        each[batch[UNDRAWN]] = np.nan
    elif drawn:  # the observed one is one of both
        observed = batch[drawn[0]].reshape(rows, 1)
        own = np.where(observed == BOTH[1], each[:, 1], each[:, 0])
        own[(observed[:, 0] != BOTH[0]) & (observed[:, 0] != BOTH[1])] = np.nan
        each = np.concatenate([own[:, None], each], axis=1)
    return each


class UnitSums(NamedTuple):
    """A unit's sums: scores; with survey weights weighted ones, scores, shares, their squares."""

    outcomes: int
    d: int
    is_weighted: bool

    @property
    def size(self) -> int:
        """The length of a unit's sums."""
        own = self.outcomes * self.d
        return 2 * own + 2 if self.is_weighted else own

    def rows(self, scores: np.ndarray, counting: np.ndarray | None) -> np.ndarray:
        """Return what records add, (rows, size), from scores (rows, outcomes, d)."""
        flat = scores.reshape(-1, self.outcomes * self.d)
        if counting is None:
            return flat
        share = counting[:, None]
        return np.concatenate([share * flat, flat, share, share**2], axis=1)

    def split(self, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        """Return units' scores, with weights the same without, and what of each counts, (units,).

        That is the average of its records' shares, weighted by themselves. The unit's scores times
        it are the sum of the weighted ones.
        """
        shape = (len(sums), self.outcomes, self.d)
        if not self.is_weighted:
            return sums.reshape(shape), None, None
        own = self.outcomes * self.d
        total, squares = sums[:, -2], sums[:, -1]
        counting = np.divide(squares, total, out=np.zeros_like(total), where=total != 0)
        counting = np.minimum(counting, 1.0)  # it is no larger, but for rounding
        each = np.where(counting == 0, 1.0, counting)[:, None]
        return (sums[:, :own] / each).reshape(shape), sums[:, own:-2].reshape(shape), counting


def size_of_scales(d: int, observed: int) -> int:
    """Return the length of the vector, which is also the square of its largest norm."""
    return 1 + 2 * d + observed


def split_scales(value: np.ndarray, d: int) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Split sums of `score_scales`: records; and, (d,), those whose score is not 0, and their bits.

    The last part are the bits of ``observed`` latents.
    """
    counts, bits, observed = np.split(value[1:], [d, 2 * d])
    return float(value[0]), counts, BITS * bits, BITS * observed


def score_scales(
    scores: DrawnScores, observed: Sequence[int] = (), unit: np.ndarray | float = 1.0
) -> RowContribution:
    """Contribute 1, and for every latent whether its score is not 0, and the score's magnitude.

    The magnitude is the binary logarithm of the root mean square over drawn outcomes in a public
    ``unit``, (d,), over `BITS`. That of the ``observed`` latents at the observed outcome follows.
    The context is a point. With survey weights all is multiplied by the record's share of the
    largest weight.

    **Privacy.** No entry is larger than 1, so the norm of a record's (or a unit's) vector is at
    most the root of `size_of_scales`.
    """
    sums = UnitSums(scores.outcomes_in_units, scores.d, scores.survey is not None)

    def prepare(batch: Batch, point: np.ndarray) -> tuple[Any, ...]:
        return *scores.formed(batch, point), scores.shares(batch)

    def vectors(weights: np.ndarray, each: np.ndarray, counting: np.ndarray | None) -> np.ndarray:
        chances = probabilities(lengths(weights[:, 1:]))
        return _magnitudes(each / unit, chances, list(observed), counting)

    def of_units(summed: np.ndarray, point: np.ndarray) -> np.ndarray:
        each, _, counting = sums.split(summed)
        return vectors(each, each, counting)

    return RowContribution(
        size=size_of_scales(scores.d, len(observed)),
        width=2 * scores.width + 4 * scores.d,
        rows=lambda prepared, point: vectors(*prepared),
        prepare=prepare,
        unit=UnitVector(
            size=sums.size,
            vectors=of_units,
            rows=lambda prepared, point: sums.rows(*prepared[1:]),
            draw=scores.draw_for_units,
        ),
        draw=scores.draw,
        together=scores.together,
        jumps=True,
    )


def _magnitudes(
    g: np.ndarray, chances: np.ndarray, observed: list[int], counting: np.ndarray | None
) -> np.ndarray:
    """Return records' vectors from scores (rows, outcomes, d), the observed one's first."""
    with np.errstate(all="ignore"):  # what is not finite adds nothing
        largest = np.abs(g).max(axis=1, keepdims=True)
        each = np.abs(g[:, 1:] if chances.size else g) / np.where(largest > 0, largest, 1.0)
        shares = chances if chances.size else np.ones(each.shape[:2])
        mean_square = (shares[:, :, None] * each**2).sum(axis=1)
        bits = np.log2(largest[:, 0]) + np.log2(mean_square) / 2
        of_observed = np.log2(np.abs(g[:, 0, observed]))
    some = (bits > -BITS).astype("float64")
    parts = [np.ones((len(g), 1)), some, some * np.clip(bits, -BITS, BITS) / BITS]
    vectors = np.concatenate([*parts, np.clip(of_observed, -BITS, BITS) / BITS], axis=1)
    finite = np.isfinite(g).all(axis=(1, 2))
    vectors = np.where(finite[:, None], vectors, np.nan)
    return vectors if counting is None else vectors * counting[:, None]
