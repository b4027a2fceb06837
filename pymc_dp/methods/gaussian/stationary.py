"""Where rounds begin in latents of which no record has a score at the initial point.

Of a product of latents that all start at 0, such as the weights of two layers of a network, every
score is 0 at the start, whatever the records are. Rounds would stay there, and report the prior.
"""

import numpy as np

from pymc_dp.contributions.drawn_scores import DrawnScores
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.state import Gradient, prior_precision
from pymc_dp.methods.gaussian.unseen import ROUNDING, ROWS, made_up
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch


def away_from_stationary(
    records: Records, start: np.ndarray, prior_gradient: Gradient, scores: DrawnScores
) -> np.ndarray:
    """Move latents in which the likelihood is stationary at a start, (d,), to a random point near.

    It is normal around the start, with the prior's standard deviation there, or with 1 if that is
    larger: a flat prior has none.

    **Privacy.** A function of the model's graph, and of the shapes and types of its columns.
    """
    rng = np.random.default_rng(0)
    elsewhere = start + rng.normal(size=start.size)
    rows = made_up(records, rng, ROWS)
    # an outcome that is just the mean has no score: each row has a second one
    others = rows | {name: 1 - rows[name] for name in records.drawn if name in rows}
    still = stationary(scores, (rows, others), start, elsewhere)
    if not still.any():
        return start
    precision = prior_precision(prior_gradient, start, DEFAULTS.least_prior_precision)
    width = np.minimum(np.diag(precision) ** -0.5, 1.0)
    return np.where(still, start + width * rng.normal(size=start.size), start)


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
