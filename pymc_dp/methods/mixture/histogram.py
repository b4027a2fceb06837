"""A start for mixtures whose outcomes are numbers: two histograms of the outcomes.

The bins of the first one are as likely as each other under the prior, and those of the second under
the first. Components are found as the latents whose outcomes have such a histogram. Finding
them is post-processing, so that all of the prior may be searched.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.optimize import minimize

from pymc_dp.accounting.release import ReleaseSpec
from pymc_dp.accounting.samplers import Full
from pymc_dp.contributions.gradients import each_gradient, on_batch
from pymc_dp.contributions.outcome_histogram import CLIP_NORM, outcome_histogram
from pymc_dp.contributions.outcomes import compile_draws, drawn_name
from pymc_dp.methods.gaussian.expected_scores import made_up_outcomes, outcomes_alone
from pymc_dp.methods.gaussian.private_start import PrivateStart, Values, reported_as
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.mixture.defaults import DEFAULTS
from pymc_dp.methods.prior import prior_gradient
from pymc_dp.model import Records
from pymc_dp.model.compile import function
from pymc_dp.model.priors import draw_of_prior
from pymc_dp.privacy.query import Noisy, Query

HISTOGRAM = "outcome histogram"


class State(NamedTuple):
    """State of the histograms: public numbers, and what follows from releases."""

    t: int
    edges: np.ndarray  # between the bins of the next histogram, (bins - 1,)
    found: Values  # where the latents were found; nothing before the last histogram


class Mixture(NamedTuple):
    """A mixture of numbers as functions on the real line, compiled before any release."""

    records: Records
    leaf: str
    latents: (
        np.ndarray
    )  # drawn from the prior, (draws, d); the first are those of the initial point
    outcomes: np.ndarray  # drawn for them, sorted
    # outcomes, latents -> log densities (rows,), and their slopes (rows, d)
    density: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    # latents -> log prior density, and its slope
    prior: Callable[[np.ndarray], tuple[float, np.ndarray]]

    @classmethod
    def of(cls, records: Records) -> Self | None:
        """Return None where nothing draws the prior, or the outcomes."""
        [leaf] = records.drawn
        draw, count = compile_draws(records, DEFAULTS.outcomes), DEFAULTS.prior_draws
        try:
            drawn = draw_of_prior(records.prior_draws, count)
        except (NotImplementedError, ValueError, ArithmeticError):
            return None  # a flat prior
        latents = np.concatenate([x.reshape(count, -1) for x in drawn], axis=1).astype("float64")
        latents = np.concatenate([records.start[None], latents])
        latents = latents[np.isfinite(latents).all(axis=1)]
        rng, one = np.random.default_rng(0), made_up_outcomes(records, 1)
        if draw is None:
            return None
        outcomes = [draw(one, z, rng)[drawn_name(leaf)].ravel() for z in latents]
        pooled = np.sort(np.concatenate(outcomes).astype("float64"))
        terms = on_batch(records, [], records.batch.log_likelihood(), "python")
        slopes = each_gradient(records, "python")
        log_prior = function(list(records.latents.values()), records.prior, "python")
        slope_of_prior = prior_gradient(records, "python")

        def density(y: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            batch = {leaf: y.astype(one[leaf].dtype)}
            return terms(batch, z), slopes(batch, z)

        def prior(z: np.ndarray) -> tuple[float, np.ndarray]:
            return float(log_prior(*records.split(z))), slope_of_prior(z)

        return cls(records, leaf, latents, pooled[np.isfinite(pooled)], density, prior)

    @property
    def whole_numbers(self) -> bool:
        """Whether outcomes are integers."""
        return not self.records.batch.inputs[self.leaf].type.dtype.startswith("float")


def of_numbers(records: Records, of_units: bool) -> bool:
    """Whether records hold the outcomes of a mixture, which are numbers, and nothing else."""
    if not records.mixtures or not outcomes_alone(records, of_units) or not records.prior_draws:
        return False
    return [len(records.shapes[leaf]) for leaf in records.drawn] == [1]


def histogram_start(records: Records, of_units: bool) -> PrivateStart | None:
    """Return a start for a mixture of numbers, where records hold nothing else.

    **Privacy.** Two releases, of all records each: `outcome_histogram` has their sensitivity. They
    share a part of the budget in the plan of the fit.
    """
    mixture = Mixture.of(records) if of_numbers(records, of_units) else None
    return mixture and PrivateStart(DEFAULTS.histogram_share, partial(_before, mixture))


def _before(
    mixture: Mixture, method: Method, begin: Callable[[Values], Any]
) -> tuple[Method, Callable[[State], Any]]:
    bins, share = DEFAULTS.bins, DEFAULTS.histogram_share
    own = method._replace(
        size=bins,
        releases=(ReleaseSpec(HISTOGRAM, Full(), CLIP_NORM, count=2, share=share),),
        compile=lambda backend: Compiled(
            {HISTOGRAM: outcome_histogram(mixture.leaf, bins)}, partial(_update, mixture)
        ),
        init=lambda rng: State(0, _evenly(mixture.outcomes, np.ones(len(mixture.outcomes))), {}),
        query=lambda state, rng: Query(HISTOGRAM, state.edges),
        defaults=(DEFAULTS,),
    )

    def found(state: State) -> Any:
        return begin(state.found)

    return reported_as(own, method, found), found


def _evenly(outcomes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the edges of bins that hold equal weights of sorted outcomes.

    >>> _evenly(np.arange(1000.0), np.ones(1000))[:3].round()
    array([ 8., 23., 39.])
    """
    shares = np.cumsum(weights) / weights.sum()
    wanted = (np.arange(DEFAULTS.bins - 1) + 0.5) / (DEFAULTS.bins - 1)
    return np.asarray(np.interp(wanted, shares, outcomes))


def _update(mixture: Mixture, state: State, query: Query, noisy: Noisy) -> State:
    """Make finer bins where the first histogram has records; find the latents by the second."""
    counts, edges = np.asarray(noisy.value), state.edges
    if state.t:
        z = _likeliest(_Fitted(mixture, edges, counts, noisy.sd))
        values = mixture.records.split(z)
        return State(2, edges, dict(zip(mixture.records.point, values, strict=True)))
    seen = np.where(counts > DEFAULTS.visible_bin * noisy.sd, counts, 0.0)
    points = _points(mixture, edges)
    each = np.bincount(points.owner, minlength=len(counts))
    weights = (seen / np.maximum(each, 1))[points.owner]
    return State(1, _evenly(points.values, weights) if weights.any() else edges, {})


class _Points(NamedTuple):
    """Some outcomes in every bin."""

    values: np.ndarray  # sorted
    owner: np.ndarray  # the bins that they lie in
    width: np.ndarray  # how long a part of the line, or how many whole numbers, each stands for


def _points(mixture: Mixture, edges: np.ndarray) -> _Points:
    low, high = mixture.outcomes[0], mixture.outcomes[-1]
    ends = np.concatenate([[min(low, edges[0])], edges, [max(high, edges[-1])]])
    most, each = DEFAULTS.points, np.arange(DEFAULTS.points)
    if mixture.whole_numbers:
        ends = np.floor(ends)
        ends[0] -= 1
    length = np.diff(ends)[:, None]
    if mixture.whole_numbers:
        values = ends[:-1, None] + 1 + np.where(length < most, each, (each + 0.5) * length // most)
        width = np.broadcast_to(np.maximum(length / most, 1.0), values.shape)
        kept = each < length
    else:
        values = ends[:-1, None] + length * (each + 0.5) / most
        width = np.broadcast_to(length / most, values.shape)
        kept = np.broadcast_to(length > 0, values.shape)
    owner = np.broadcast_to(np.arange(len(length))[:, None], values.shape)
    return _Points(values[kept], owner[kept], width[kept])


class _Fitted:
    """How well latents explain the second histogram."""

    def __init__(
        self, mixture: Mixture, edges: np.ndarray, counts: np.ndarray, noise_sd: float
    ) -> None:
        self.mixture, self.counts = mixture, counts
        self.points = _points(mixture, edges)
        self.variance = noise_sd**2 + np.maximum(counts, 1.0)

    def loss(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the log posterior, and its slope."""
        values, owner, width = self.points
        with np.errstate(all="ignore"):
            logs, slopes = self.mixture.density(values, z)
            log_prior, of_prior = self.mixture.prior(z)
        each = width * np.exp(np.minimum(np.nan_to_num(logs, nan=-np.inf), 700.0))
        shares, counts = np.bincount(owner, each, len(self.counts)), self.counts
        # the number of records that explains the counts best
        squares = max(float(shares @ (shares / self.variance)), np.finfo(float).tiny)
        number = max(float(shares @ (counts / self.variance)) / squares, 1.0)
        off = number * shares - counts
        along = number * (off / self.variance)[owner] * each
        slope = np.where(along[:, None] == 0, 0.0, along[:, None] * slopes).sum(axis=0) - of_prior
        value = float((off**2 / self.variance).sum() / 2 - log_prior)
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            return 1e300, np.zeros_like(z)
        return value, slope


def _likeliest(fitted: _Fitted) -> np.ndarray:
    """Go downhill from the best of the draws from the prior."""
    starts = fitted.mixture.latents
    order = np.argsort([fitted.loss(z)[0] for z in starts])[: DEFAULTS.descents]
    found = [minimize(fitted.loss, starts[k], jac=True, method="L-BFGS-B") for k in order]
    return np.asarray(min(found, key=lambda each: float(each.fun)).x)
