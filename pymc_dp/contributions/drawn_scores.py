"""Scores of records at their observed outcomes, and at outcomes that the model draws for them."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from pymc_dp.contributions.channels import Channels, record_channels
from pymc_dp.contributions.consistent_clipping import lengths
from pymc_dp.contributions.estimating import (
    MOST_PREDICTORS,
    SHIFTS,
    Along,
    Estimated,
    Estimating,
    shifted,
)
from pymc_dp.contributions.frontier import NoFrontierRuleError
from pymc_dp.contributions.gradients import checked, each_gradient, on_batch
from pymc_dp.contributions.local_latents import (
    SHARE,
    local_densities,
    marginal_scores,
    no_latents,
    nodes_of_quadrature,
    with_shares,
)
from pymc_dp.contributions.outcomes import (
    BOTH,
    UNDRAWN,
    Draw,
    both_outcomes,
    compile_draws,
    drawn_name,
)
from pymc_dp.model import Records
from pymc_dp.model.graphs import pt
from pymc_dp.privacy.contribution import OWNER, Batch
from pymc_dp.tables.weights import SurveyWeights

# draws of a record's outcomes: those that its weight follows from, and those that centre its score
WEIGHING, CENTRING = 3, 8
DRAWS = WEIGHING + CENTRING


class Scores(NamedTuple):
    """Scores of a batch: the observed outcome's first, then those of the drawn ones, or of both."""

    weights: np.ndarray  # (rows, outcomes, c): a score is the sum of vectors, each times its weight
    vectors: np.ndarray  # (c, rows, d); none where the weights are the scores, and c is d

    @property
    def probabilities(self) -> np.ndarray:
        """How likely each outcome but the observed one is, shape (rows, outcomes - 1).

        Of two they follow from the scores, whose mean is zero.
        """
        drawn = self.weights[:, 1:]
        if drawn.shape[1] != len(BOTH):
            return np.full(drawn.shape[:2], 1 / max(drawn.shape[1], 1))
        return probabilities(lengths(drawn))


def probabilities(norms: np.ndarray) -> np.ndarray:
    """Return how likely each of two outcomes is, (rows, 2), whose scores have these norms."""
    of_other = norms[:, ::-1]
    total = of_other.sum(axis=1, keepdims=True)
    equal = np.full_like(of_other, 0.5)
    return np.asarray(np.divide(of_other, total, out=equal, where=total > 0))


class Parted(NamedTuple):
    """Scores of a batch as functions of the records' predictors."""

    vectors: np.ndarray  # (c, rows, d): slopes of the predictors
    # shifts of the predictors, (c, rows) -> (rows, outcomes, c)
    weights: Callable[[np.ndarray], np.ndarray]
    has_both: bool  # whether records have two outcomes, beside the observed one


PartedAt = Callable[[Batch, np.ndarray], Parted]  # (batch, z) -> scores along predictors


class DrawnScores(NamedTuple):
    """Scores of a batch at a point; compiled once for all rounds."""

    d: int
    outcomes: int  # how many a record has: the observed one, and the draws or both
    outcomes_in_units: int  # the same where records belong to units
    channels: int  # how many vectors a record's scores are made of; 0 where scores are formed
    reach: np.ndarray  # which latents each of these vectors reads, (channels, d)
    dispersion: np.ndarray  # which latents are those of the dispersion of outcomes, (d,)
    of_batch: Callable[[Batch, np.ndarray], Scores]
    draw: Draw | None
    draw_for_units: Draw | None  # in place of ``draw``, where records belong to units
    together: bool  # whether the records of a unit are scored together
    nodes: int  # at how many values of local latents each score is computed
    # the same scores, where predictors may be shifted; None where a score has none of its own
    parted: PartedAt | None = None
    estimating: Estimating | None = None  # what a method makes of them; None: at the point
    formed: int = 0  # how many numbers of a record these are sums of, where they are
    survey: SurveyWeights | None = None  # weights of the records, which scores do not hold

    @property
    def width(self) -> int:
        """How many numbers the scores of a record are."""
        scores = self.outcomes * (self.channels or self.d)
        return max(scores * self.nodes + self.channels * self.d, self.formed)

    def with_dispersion(self, dispersion: np.ndarray) -> "DrawnScores":
        """Say which latents are of the dispersion; a predictor that reads both is not averaged."""
        of_both = self.reach[:, dispersion].any(axis=1) & self.reach[:, ~dispersion].any(axis=1)
        estimating = None if of_both.any() else self.estimating
        return self._replace(dispersion=dispersion, estimating=estimating)

    def shares(self, batch: Batch) -> np.ndarray | None:
        """Return what of each record counts, (rows,), from 0 to 1; None where all of them do."""
        return None if self.survey is None else self.survey.shares(batch[self.survey.name])

    def estimated(self, found: Parted, root: np.ndarray | None) -> Estimated:
        """Return what a method makes of scores along predictors, whose covariance has this root.

        Without one they are taken at the point.
        """
        if self.estimating is None or root is None:
            return Estimated(found.weights(np.zeros(found.vectors.shape[:2])))
        return self.estimating.estimate(Along(found.weights, root, found.has_both))


def drawn_scores(
    records: Records, backend: str, estimating: Estimating | None = None
) -> DrawnScores:
    """Compile the scores, and the draws where the model says how to draw.

    A unit of several records has too many joint outcomes, so that they are always drawn.
    """
    draw = compile_draws(records, DRAWS)
    both = both_outcomes(records)
    names = records.drawn
    local = [SHARE, *records.local_latents] if records.local_latents else []
    shared = with_shares(records) if local else records
    try:
        channels = record_channels(shared, [*names, *local])
    except NoFrontierRuleError:
        of_batch, parted, estimating = _formed(records, names, backend), None, None
        reach = np.zeros((0, records.size), bool)
    else:
        parted, reach = _parted(shared, channels, names, backend), channels.reach
        of_batch = partial(_at_point, parted)
        if local or not 0 < len(channels.predictors) <= MOST_PREDICTORS:
            estimating = None
    in_units = 1 + (DRAWS if draw else 0)
    return DrawnScores(
        d=records.size,
        outcomes=1 + len(BOTH) if both else in_units,
        outcomes_in_units=in_units,
        channels=len(reach),
        reach=reach,
        dispersion=np.zeros(records.size, bool),
        of_batch=of_batch,
        draw=both or draw,
        draw_for_units=draw,
        together=records.of_units,
        nodes=nodes_of_quadrature(records),
        parted=parted,
        estimating=estimating,
    )


def _formed(
    records: Records, names: Collection[str], backend: str
) -> Callable[[Batch, np.ndarray], Scores]:
    gradients, axes = each_gradient(records, backend), records.batch.axes

    def scores(batch: Batch, point: np.ndarray) -> Scores:
        each = _by_outcome(batch, names, gradients(at_outcomes(batch, axes, names), point))
        return Scores(each, np.empty((0, *each.shape[::2])))

    return scores


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


def _at_point(parted: PartedAt, batch: Batch, z: np.ndarray) -> Scores:
    vectors, weights, _ = parted(batch, z)
    return Scores(weights(np.zeros(vectors.shape[:2])), vectors)


def _parted(records: Records, channels: Channels, names: Collection[str], backend: str) -> PartedAt:
    """Compile what outcomes do not change as one function, and the weights as another."""
    fixed = {f"fixed {k}": graph for k, graph in enumerate(channels.fixed)}
    first = on_batch(records, [], [*fixed.values(), *channels.vectors], backend)
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
    compiled = partial(on_batch, records, [], backend=backend, read=read)
    if records.local_latents:
        weights, density, *_ = graphs
        second = marginal_scores(records, compiled(graphs[1:]), compiled([density, weights]))
    else:
        second = compiled(graphs[0])

    unread = no_latents(records, 0) | {SHARE: np.zeros(0)}

    def parted(batch: Batch, point: np.ndarray) -> Parted:
        found = first(batch | unread, point)
        held = batch | dict(zip(fixed, found, strict=False))
        vectors = found[len(fixed) :]
        every = at_outcomes(held, {name: axes[name] for name in read if name in held}, names)

        def weights(shifts: np.ndarray) -> np.ndarray:
            repeated = np.tile(shifts, _count(batch, names))
            return _by_outcome(batch, names, second(every | {SHIFTS: repeated}, point))

        # one array is viewed, not copied
        stacked = np.stack(vectors) if vectors[1:] else vectors[0][None]
        return Parted(stacked, weights, bool(_drawn(batch, names)) and UNDRAWN not in batch)

    return parted


def without_weighing(values: np.ndarray) -> np.ndarray:
    """Leave out the draws that weights follow from, of values (rows, 1 + DRAWS, ...)."""
    return np.concatenate([values[:, :1], values[:, 1 + WEIGHING :]], axis=1)


def at_outcomes(batch: Batch, axes: Mapping[str, int], outcomes: Collection[str]) -> Batch:
    """Repeat a batch's arrays for all outcomes: all observed ones, then all first draws, and so on.

    ``axes`` are those of the records in the arrays that are read. A unit has as many copies, each
    with the records' outcomes of one draw.
    """
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


def _count(batch: Batch, outcomes: Collection[str]) -> int:
    """Return how often `at_outcomes` repeats a batch."""
    drawn = _drawn(batch, outcomes)
    return batch[drawn_name(drawn[0])].shape[1] + (UNDRAWN in batch) if drawn else 1


def _drawn(batch: Batch, outcomes: Collection[str]) -> list[str]:
    return [name for name in outcomes if drawn_name(name) in batch]


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
