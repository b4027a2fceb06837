"""A start for mixtures whose outcomes are numbers: two histograms of the outcomes.

The bins of the first one are as likely as each other under the prior, and those of the second under
the first. The start is at the latents whose outcomes explain such a histogram best.
"""

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import NamedTuple, Self

import numpy as np
from scipy.optimize import minimize

from pymc_dp.accounting.plan import Full, ReleaseSpec
from pymc_dp.contributions.checks import HISTOGRAM_NORM, outcome_histogram
from pymc_dp.contributions.gradients import each_gradient, on_batch
from pymc_dp.contributions.scores import UNDRAWN, compile_draws, drawn_name
from pymc_dp.engine.outcomes import outcomes_alone
from pymc_dp.methods.method import Compiled, PrivateStart, Values
from pymc_dp.methods.prior import finite_draws, prior_gradient
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch, Noisy, Query


class Defaults(NamedTuple):
    """Tuned constants of the histograms; public numbers, none of them fitted to data."""

    # of two histograms: their share of the budget, bins and outcomes tried in each, and counts this
    # many standard deviations of the noise above 0 that are of records
    histogram_share: float = 0.1
    bins: int = 64
    points: int = 4
    visible_bin: float = 2.0
    # draws of the prior, outcomes of each, and those of which latents are improved
    prior_draws: int = 300
    outcomes: int = 20
    descents: int = 6
    as_low: float = 1.0  # log posterior densities that differ by so much are as likely


DEFAULTS = Defaults()

HISTOGRAM = "outcome histogram"


class State(NamedTuple):
    """State of the histograms: public numbers, and what follows from releases."""

    t: int
    edges: np.ndarray  # between the bins of the next histogram, (bins - 1,)
    start: Values  # of the latents; nothing before the last histogram


class ScalarMixture(NamedTuple):
    """A mixture of numbers as functions on the real line, compiled before any release."""

    records: Records
    leaf: str
    dtype: str  # of the outcomes
    draws: np.ndarray  # of all latents from the prior, (n, d); the first is the initial point
    outcomes: np.ndarray  # drawn for them, sorted
    # (outcomes, latents) -> log densities, (rows,), and of the prior; slopes, (rows, d) and (d,)
    evaluate: Callable[[Batch, np.ndarray], tuple[np.ndarray, ...]]

    @classmethod
    def of(cls, records: Records) -> Self | None:
        """Compile; return None where nothing draws the prior, or the outcomes."""
        draw = compile_draws(records, DEFAULTS.outcomes)
        drawn = finite_draws(records.prior_draws, DEFAULTS.prior_draws)
        if draw is None or drawn is None:
            return None
        [leaf], latents = records.drawn, np.concatenate([records.start[None], drawn])
        dtype = str(records.batch.inputs[leaf].type.dtype)
        rng, one = np.random.default_rng(0), {leaf: np.zeros(1, dtype)}
        drawn_for = [draw(one, z, rng) for z in latents]
        outcomes = [each[drawn_name(leaf)].ravel() for each in drawn_for if not each[UNDRAWN].any()]
        pooled = np.sort(np.concatenate([np.empty(0), *outcomes]))
        pooled = pooled[np.isfinite(pooled)]
        if not pooled.size:
            return None
        densities = on_batch(records, [], [records.batch.log_likelihood(), records.prior], "python")
        slopes, of_prior = each_gradient(records, "python"), prior_gradient(records, "python")
        return cls(
            records,
            leaf,
            dtype,
            latents,
            pooled,
            lambda batch, z: (*densities(batch, z), slopes(batch, z), of_prior(z)),
        )


def of_numbers(records: Records, of_units: bool) -> bool:
    """Whether records hold the outcomes of a mixture, which are numbers, and nothing else."""
    others = records.local_latents or records.observes_public or not records.prior_draws
    if not records.mixtures or others or not outcomes_alone(records, of_units):
        return False
    return [len(records.shapes[leaf]) for leaf in records.drawn] == [1]


def histogram_start(records: Records, of_units: bool) -> PrivateStart | None:
    """Return a start for a mixture of numbers, where records hold nothing else.

    **Privacy.** Two releases, of all records each: `outcome_histogram` has their sensitivity. They
    share a part of the budget in the plan of the fit.
    """
    mixture = ScalarMixture.of(records) if of_numbers(records, of_units) else None
    if mixture is None:
        return None
    bins, share = DEFAULTS.bins, DEFAULTS.histogram_share
    fields = {
        "size": bins,
        "releases": (ReleaseSpec(HISTOGRAM, Full(), HISTOGRAM_NORM, count=2, share=share),),
        "compile": lambda backend: Compiled(
            {HISTOGRAM: outcome_histogram(mixture.leaf, bins)}, partial(update, mixture), "python"
        ),
        "init": lambda rng: first_state(mixture),
        "query": lambda state, rng: Query(HISTOGRAM, state.edges),
        "defaults": (DEFAULTS,),
    }
    return PrivateStart(share, fields, attrgetter("start"))


def first_state(mixture: ScalarMixture) -> State:
    """Begin with bins that are as likely as each other under the prior."""
    outcomes = mixture.outcomes
    return State(0, _evenly(outcomes, np.ones(len(outcomes))), {})


def _evenly(outcomes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the edges of bins that hold equal weights of sorted outcomes."""
    shares = np.cumsum(weights) / weights.sum()
    wanted = (np.arange(DEFAULTS.bins - 1) + 0.5) / (DEFAULTS.bins - 1)
    return np.asarray(np.interp(wanted, shares, outcomes))


def update(mixture: ScalarMixture, state: State, query: Query, noisy: Noisy) -> State:
    """Make finer bins where the first histogram has records; estimate the latents by the second."""
    counts, edges = np.asarray(noisy.value), state.edges
    if state.t:
        likeliest = _likeliest(mixture, edges, counts, noisy.sd)
        values = mixture.records.split(likeliest)
        return State(2, edges, dict(zip(mixture.records.point, values, strict=True)))
    seen = np.where(counts > DEFAULTS.visible_bin * noisy.sd, counts, 0.0)
    points = _points(mixture, edges)
    each = np.bincount(points.owner, minlength=len(counts))
    weights = (seen / np.maximum(each, 1))[points.owner]
    return State(1, _evenly(points.values, weights) if weights.any() else edges, {})


class _Points(NamedTuple):
    values: np.ndarray  # sorted
    owner: np.ndarray  # the bins that they lie in
    width: np.ndarray  # how long a part of the line, or how many whole numbers, each stands for


def _points(mixture: ScalarMixture, edges: np.ndarray) -> _Points:
    """Spread a few outcomes evenly over every bin; of whole numbers all, where these are fewer."""
    drawn, most, each = mixture.outcomes, DEFAULTS.points, np.arange(DEFAULTS.points)
    whole_numbers = not mixture.dtype.startswith("float")
    ends = np.concatenate([[min(drawn[0], edges[0])], edges, [max(drawn[-1], edges[-1])]])
    if whole_numbers:
        ends = np.floor(ends)
        ends[0] -= 1
    length = np.diff(ends)[:, None]
    if whole_numbers:
        places = 1 + np.where(length < most, each, (each + 0.5) * length // most)
        width, kept = np.maximum(length / most, 1.0), each < length
    else:
        places = length * (each + 0.5) / most
        width, kept = length / most, length > 0
    values, owner, width, kept = np.broadcast_arrays(
        ends[:-1, None] + places, np.arange(len(length))[:, None], width, kept
    )
    return _Points(values[kept], owner[kept], width[kept])


def _likeliest(
    mixture: ScalarMixture, edges: np.ndarray, counts: np.ndarray, noise_sd: float
) -> np.ndarray:
    """Go downhill from the initial point and the best draws of the prior."""
    variance, points = noise_sd**2 + np.maximum(counts, 1.0), _points(mixture, edges)
    loss = partial(_loss, mixture, points, counts, variance)
    initial, *drawn = mixture.draws
    best = np.argsort([loss(z)[0] for z in drawn])[: DEFAULTS.descents]
    starts = [initial, *(drawn[k] for k in best)]
    of_author, *others = [minimize(loss, z, jac=True, method="L-BFGS-B") for z in starts]
    lowest = min(others, key=lambda each: float(each.fun), default=of_author)
    as_low = of_author.fun <= lowest.fun + DEFAULTS.as_low
    return np.asarray((of_author if as_low else lowest).x)


def _loss(
    mixture: ScalarMixture, points: _Points, counts: np.ndarray, variance: np.ndarray, z: np.ndarray
) -> tuple[float, np.ndarray]:
    """Minus the log posterior density, given counts of these variances, and its slope."""
    batch = {mixture.leaf: points.values.astype(mixture.dtype)}
    with np.errstate(all="ignore"):
        logs, log_prior, slopes, of_prior = mixture.evaluate(batch, z)
        each = points.width * np.exp(np.minimum(np.nan_to_num(logs, nan=-np.inf), 700.0))
        shares = np.bincount(points.owner, each, len(counts))
        # the number of records that explains the counts best
        squares = max(float(shares @ (shares / variance)), np.finfo(float).tiny)
        number = max(float(shares @ (counts / variance)) / squares, 1.0)
        off = (number * shares - counts) / variance
        value = float((off**2 * variance).sum() / 2 - log_prior)
        along = (number * off[points.owner] * each)[:, None]
        slope = np.where(along == 0, 0.0, along * slopes).sum(axis=0) - of_prior
    if not np.isfinite(value) or not np.isfinite(slope).all():
        return 1e300, np.zeros_like(z)
    return value, slope
