"""What made-up records show of a model: its null space, and points at which its scores vanish.

An intercept and the effects of all groups may rise and fall together: the likelihood knows their
sums alone. Noise hides this from the releases, but not from the scores of made-up records. Nor a
start at which a score vanishes whatever the records are, such as that of two layers of a network,
or at which the Fisher information is singular.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Add, Cast, Exp, Log, Log1p, Mul, Neg, Sqrt, Sub, TrueDiv
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Shape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.contributions.scores import DrawnScores
from pymc_dp.engine.constants import CONSTANTS
from pymc_dp.methods.prior import Gradient, prior_precision
from pymc_dp.model import Records
from pymc_dp.model.graphs import AnyVariable, Node
from pymc_dp.privacy.contribution import Batch

# what does not bring values together, and has no thresholds
SMOOTH = (Add, Sub, Mul, TrueDiv, Neg, Cast, Exp, Log, Log1p, Sqrt)
ROWS = 1000  # of made-up records
MAGNITUDES = (-1.0, 4.0)  # of numbers, as powers of ten
IN_TURN = 1 / 3  # the share of integers that reach all groups in turn, so that none is missed
BALANCED = 4  # times that rows and columns of scores are scaled
# singular values that are 0, as a share of the largest
ROUNDING = 1e-10


def null_space_of(records: Records, scores: DrawnScores) -> np.ndarray:
    """Return an orthonormal basis of the directions in which no record has a score, (d, k).

    It has no vectors where made-up records do not read all latents, nor where the model compares
    columns, or computes with several, before it does with latents: what is not so for ``age < 65``
    may be so for all ages that were made up.

    **Privacy.** A function of the model's graph, and of the shapes and types of its columns.
    """
    d, none = records.size, np.zeros((records.size, 0))
    if d > MANY_LATENTS or records.local_latents or computes_with_columns(records):
        return none
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(2):  # at one point they are looked for, and at another one they must not fail
        point = records.start + rng.normal(size=d)
        with np.errstate(all="ignore"):
            weights, vectors = scores.of_batch(made_up(records, rng, ROWS + 20 * d), point)
        parts.append(readable(vectors if scores.channels else np.swapaxes(weights, 0, 1)))
    every, unit = balanced(np.concatenate(parts))
    first, last = np.split(every, [len(parts[0])])
    if len(first) < 2 * d or not first.any(axis=0).all():
        return none
    found = null_space(first)
    # what no record shows at some points, it may at others
    fails = (abs(last @ found) > ROUNDING**0.5).any()
    return none if fails else np.asarray(np.linalg.qr(found / unit[:, None])[0])


def null_space(rows: np.ndarray) -> np.ndarray:
    """Return directions, (d, k), that no row sees, up to rounding."""
    _, values, directions = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(directions[values <= ROUNDING * values[0]].T)


def computes_with_columns(records: Records) -> bool:
    """Whether columns meet others, or thresholds, before latents or outcomes; indices may."""
    varying = set(records.latents.values())
    varying |= {x for name, x in records.batch.inputs.items() if name in records.drawn}
    columns, computed = set(records.batch.inputs.values()) - varying, set[AnyVariable]()
    for node in toposort(records.batch.terms):
        if isinstance(node.op, Shape):
            continue
        if varying.isdisjoint(node.inputs):
            if not columns.isdisjoint(node.inputs):
                columns.update(node.outputs)
                same = _is_harmless(node, columns) and computed.isdisjoint(node.inputs)
                computed.update(() if same else node.outputs)
            continue
        varying.update(node.outputs)
        picks = isinstance(node.op, AdvancedSubtensor)
        if not computed.isdisjoint(node.inputs[:1] if picks else node.inputs):
            return True
    return False


def _is_harmless(node: Node, columns: set[AnyVariable]) -> bool:
    """Whether numbers of columns stay as different as they were: views, and smooth functions."""
    if isinstance(node.op, Elemwise):
        one = sum(x in columns for x in node.inputs) == 1
        return one and isinstance(node.op.scalar_op, SMOOTH)
    return isinstance(node.op, DimShuffle | Subtensor | Join)


def readable(parts: np.ndarray) -> np.ndarray:
    """Return the rows, (n, d), of arrays (k, rows, d) that are finite and not all 0."""
    found = np.concatenate(parts)
    return np.asarray(found[np.isfinite(found).all(axis=1) & found.any(axis=1)])


def balanced(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale rows and columns to entries of 1 at most; return also the columns' units, (d,)."""
    unit = np.ones(values.shape[1])
    for _ in range(BALANCED):
        values = values / abs(values).max(axis=1, keepdims=True)
        column = abs(values).max(axis=0, initial=0.0)
        column[column == 0] = 1.0
        values, unit = values / column, unit * column
    return values, unit


def made_up(records: Records, rng: np.random.Generator, rows: int) -> Batch:
    """Make records up whose numbers have many magnitudes, and whose indices reach all groups.

    Outcomes are 0 or 1, which most likelihoods allow. In every other record real ones lie between,
    and integers may be of any magnitude: an index beyond the last group is clipped.
    """
    most = max(x.size for x in records.point.values())
    types = {name: x.type.dtype for name, x in records.batch.inputs.items()}
    every_other = rng.random(rows) < 0.5

    def column(name: str) -> np.ndarray:
        shape, axis = [rows if n is None else n for n in records.shapes[name]], records.batch.axes
        other = every_other.reshape([rows if k == axis[name] else 1 for k in range(len(shape))])
        real = types[name].startswith("float")
        if name in records.drawn:
            outcomes = rng.integers(0, 2, shape)
            return np.where(other, rng.uniform(size=shape), outcomes) if real else outcomes
        if real:
            return np.asarray(rng.normal(size=shape) * 10 ** rng.uniform(*MAGNITUDES, shape))
        large = other & (rng.random(shape) < 0.5)
        longest = np.where(large, 10 ** MAGNITUDES[1], most + 2)
        # small ones more often: arrays that are indexed together have different lengths
        drawn = rng.integers(0, np.exp(rng.uniform(np.log(2), np.log(longest), shape)))
        in_turn = rng.permutation(np.arange(drawn.size) % most).reshape(shape)
        return np.where(rng.random(shape) < IN_TURN, in_turn, drawn)

    return {name: column(name).astype(dtype) for name, dtype in types.items()}


def away_from_stationary(
    records: Records, start: np.ndarray, prior_gradient: Gradient, scores: DrawnScores
) -> np.ndarray:
    """Move latents in which the likelihood is stationary at a start, (d,), to a random point near.

    They move by about the prior's standard deviation there, or by 1 if that is larger, and latents
    whose scores depend on those of others by one to two times that.

    **Privacy.** A function of the model's graph, and of the shapes and types of its columns.
    """

    def width_at(point: np.ndarray) -> np.ndarray:
        precision = prior_precision(prior_gradient, point, CONSTANTS.flat_precision)
        return np.asarray(np.minimum(np.diag(precision) ** -0.5, 1.0))

    rng = np.random.default_rng(0)
    elsewhere = start + rng.normal(size=start.size)
    rows = made_up(records, rng, ROWS)
    # an outcome that is just the mean has no score: each row has a second one
    others = rows | {name: 1 - rows[name] for name in records.drawn if name in rows}
    still = stationary(scores, (rows, others), start, elsewhere)
    if still.any():
        start = np.where(still, start + width_at(start) * rng.normal(size=start.size), start)
    if scores.draw is None or records.local_latents or start.size > MANY_LATENTS:
        return start
    few = made_up(records, rng, ROWS // 10 + 20 * start.size)
    singular = singular_latents(partial(_dependent, scores, few), start, elsewhere)
    if not singular.any():
        return start
    steps = rng.choice([-1, 1], start.size) * rng.uniform(1, 2, start.size)
    return np.where(singular, start + width_at(start) * steps, start)


def stationary(
    scores: DrawnScores, tables: tuple[Batch, ...], start: np.ndarray, elsewhere: np.ndarray
) -> np.ndarray:
    """Return in which latents no row has a score as long as they all stay at the start, (d,).

    A latent that moves once others have moved is none: the spread of effects that start at 0, say.
    """
    least = ROUNDING * _sizes(scores, tables, elsewhere)
    known = np.isfinite(least)  # a made-up outcome may be impossible
    still = np.asarray((known & (least > 0)).any(axis=0))
    while still.any():
        sizes = _sizes(scores, tables, np.where(still, start, elsewhere))
        moved = still & (known & ~(sizes <= least)).any(axis=0)
        if not moved.any():
            break
        still &= ~moved
    return still


def singular_latents(
    dependent_at: Callable[[np.ndarray], np.ndarray], start: np.ndarray, elsewhere: np.ndarray
) -> np.ndarray:
    """Return the fewest latents that make the Fisher information singular at their start, (d,).

    It stays so wherever all others are, and is not so elsewhere. ``dependent_at`` says which
    latents have a part in its null space at a point.
    """
    every = dependent_at(start)
    if every.any():  # most models have none, and elsewhere outcomes are slow to draw
        every = every & ~dependent_at(elsewhere)
    while every.any():
        stay = every & dependent_at(np.where(every, start, elsewhere))
        if (stay == every).all():
            break
        every = stay
    fewest = every.copy()
    for latent in np.flatnonzero(every):
        fewer = fewest & (np.arange(start.size) != latent)
        if dependent_at(np.where(fewer, start, elsewhere))[every].all():
            fewest = fewer
    return fewest


def _dependent(scores: DrawnScores, rows: Batch, point: np.ndarray) -> np.ndarray:
    """Return which latents have a part in the null space of the Fisher information, (d,).

    It is that of drawn outcomes of made-up records, where enough of them have finite scores.
    """
    d, rng = point.size, np.random.default_rng(0)
    drawn_rows = rows | scores.draw(rows, point, rng) if scores.draw else rows
    with np.errstate(all="ignore"):
        _, every = scores.formed(drawn_rows, point)
    of_outcomes = readable(every[:, 1:].swapaxes(0, 1))
    if len(of_outcomes) < 2 * d:
        return np.zeros(d, bool)
    null = null_space(balanced(of_outcomes)[0])
    return np.asarray((np.abs(null) > ROUNDING**0.5).any(axis=1))


def _sizes(scores: DrawnScores, tables: tuple[Batch, ...], point: np.ndarray) -> np.ndarray:
    """Return how large each row's score is in each latent, (rows, d)."""
    found = []
    with np.errstate(all="ignore"):
        for rows in tables:
            weights, vectors = scores.of_batch(rows, point)
            each = np.abs(weights[:, 0])
            each = np.einsum("nc,cnd->nd", each, np.abs(vectors)) if scores.channels else each
            found.append(each)
    return np.concatenate(found)
