"""Where rounds begin in latents of which no record has information of its own at the initial point.

Of a product of latents that all start at 0, such as the weights of two layers of a network, every
score is 0 at the start, whatever the records are. Rounds would stay there, and report the prior.
And the score of a skewness that starts at 0 is a multiple of that of the location, for every record
and outcome: the Fisher information is singular there, so that rounds cannot tell the two from each
other, and noise decides where they go.
"""

from collections.abc import Callable

import numpy as np

from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.contributions.drawn_scores import DrawnScores
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.state import Gradient, prior_precision
from pymc_dp.methods.gaussian.unseen import ROUNDING, ROWS, balanced, made_up, readable
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch


def away_from_stationary(
    records: Records, start: np.ndarray, prior_gradient: Gradient, scores: DrawnScores
) -> np.ndarray:
    """Move latents in which the likelihood is stationary at a start, (d,), to a random point near.

    It is normal around the start, with the prior's standard deviation there, or with 1 if that is
    larger: a flat prior has none. Latents whose scores depend on those of others at the start move
    by one to two times that, where their information is no longer small.

    **Privacy.** A function of the model's graph, and of the shapes and types of its columns.
    """

    def width_at(point: np.ndarray) -> np.ndarray:
        precision = prior_precision(prior_gradient, point, DEFAULTS.least_prior_precision)
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

    def dependent_at(point: np.ndarray) -> np.ndarray:
        return _dependent(scores, few, point)

    singular = singular_latents(dependent_at, start, elsewhere)
    if not singular.any():
        return start
    steps = rng.choice([-1, 1], start.size) * rng.uniform(1, 2, start.size)
    return np.where(singular, start + width_at(start) * steps, start)


def stationary(
    scores: DrawnScores, tables: tuple[Batch, ...], start: np.ndarray, elsewhere: np.ndarray
) -> np.ndarray:
    """Return in which latents no row has a score as long as they all stay at the start, (d,).

    Rows have scores in them elsewhere. A latent that moves once others have moved is none of them:
    the spread of effects that start at 0, say.
    """
    least = ROUNDING * _sizes(scores, tables, elsewhere)
    known = np.isfinite(least)  # a made-up outcome may be impossible
    still = np.asarray((known & (least > 0)).any(axis=0))
    while still.any():
        sizes = _sizes(scores, tables, np.where(still, start, elsewhere))
        moved = still & (known & ~(sizes <= least)).any(axis=0)
        if not moved.any():
            break
        still = still & ~moved
    return np.asarray(still)


def singular_latents(
    dependent_at: Callable[[np.ndarray], np.ndarray], start: np.ndarray, elsewhere: np.ndarray
) -> np.ndarray:
    """Return the fewest latents that make the Fisher information singular at their start, (d,).

    It stays so wherever all others are, and is not so elsewhere. ``dependent_at`` says which
    latents have a part in its null space at a point.

    >>> def location_and_skewness(z):  # and one more
    ...     return np.array([z[1] == 0, z[1] == 0, False])
    >>> singular_latents(location_and_skewness, np.zeros(3), np.ones(3))
    array([False,  True, False])
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

    It is that of outcomes which the model draws at the point for made-up records. Where too few of
    these have finite scores no latent has.
    """
    d, rng = point.size, np.random.default_rng(0)
    drawn_rows = rows | scores.draw(rows, point, rng) if scores.draw else rows
    with np.errstate(all="ignore"):
        weights, vectors = scores.of_batch(drawn_rows, point)
    drawn = weights[:, 1:]
    every = np.einsum("noc,cnd->ond", drawn, vectors) if scores.channels else drawn.swapaxes(0, 1)
    of_outcomes = readable((*every,))
    if len(of_outcomes) < 2 * d:
        return np.zeros(d, bool)
    matrix, _ = balanced(of_outcomes)
    _, values, directions = np.linalg.svd(matrix, full_matrices=False)
    null = directions[values <= ROUNDING * values[0]]
    return np.asarray((np.abs(null) > ROUNDING**0.5).any(axis=0))


def _sizes(scores: DrawnScores, tables: tuple[Batch, ...], point: np.ndarray) -> np.ndarray:
    """Return how large each row's score is in each latent, (rows, d)."""
    with np.errstate(all="ignore"):
        return np.concatenate([_of_rows(scores, rows, point) for rows in tables])


def _of_rows(scores: DrawnScores, rows: Batch, point: np.ndarray) -> np.ndarray:
    weights, vectors = scores.of_batch(rows, point)
    of_observed = np.abs(weights[:, 0])
    if not scores.channels:
        return np.asarray(of_observed)
    return np.asarray(np.einsum("nc,cnd->nd", of_observed, np.abs(vectors)))
