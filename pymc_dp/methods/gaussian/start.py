"""Where rounds begin, and what their first release says: the scale of every latent's score."""

import numpy as np

from pymc_dp.contributions.estimating import Estimating
from pymc_dp.contributions.joint_vector import At, Dispersion
from pymc_dp.contributions.score_scales import BINS
from pymc_dp.methods.gaussian.belief import Curvature, no_wider, symmetric
from pymc_dp.methods.gaussian.clipped_share import VarianceShare
from pymc_dp.methods.gaussian.coordinates import root_of, whitening
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.directions import known_along
from pymc_dp.methods.gaussian.latent_scales import sums_of_squares, visible_bins
from pymc_dp.methods.gaussian.long_steps import LatestStep
from pymc_dp.methods.gaussian.mode import Mode
from pymc_dp.methods.gaussian.shifts import Shifts
from pymc_dp.methods.gaussian.state import (
    Gradient,
    Known,
    Learnt,
    Reported,
    State,
    prepared,
    prior_precision,
)
from pymc_dp.methods.gaussian.tails import Tails
from pymc_dp.privacy.query import Noisy

HIDDEN = 1e-9  # the curvature of a latent of which nothing is seen


def near_prior_mode(start: np.ndarray, prior_gradient: Gradient) -> np.ndarray:
    """Follow Newton's steps of the prior alone, where public observations pull far from a start.

    >>> (
    ...     near_prior_mode(np.zeros(1), lambda z: 100 * (5 - z)).round(6),
    ...     near_prior_mode(np.zeros(1), lambda z: 1 - z),
    ... )
    (array([5.]), array([0.]))
    """
    point = start
    for _ in range(DEFAULTS.most_iterations):
        try:
            precision = prior_precision(prior_gradient, point, DEFAULTS.least_prior_precision)
            step = np.linalg.solve(precision, prior_gradient(point))
        except np.linalg.LinAlgError:
            return start  # the prior has no mode
        if not step @ precision @ step > len(start):
            return point if np.isfinite(step).all() else start
        point = point + step
    return start


def begin(
    start: np.ndarray,
    prior_gradient: Gradient,
    number: float | None,
    dispersion: np.ndarray,
    products: float,
    estimating: Estimating | None,
) -> State:
    """Start at a point, knowing no more than the prior's curvature there."""
    least = np.full(len(start), DEFAULTS.least_prior_precision)
    state = _at_start(start, prior_gradient, number or 1.0, least, DEFAULTS.start_width)
    state = in_parts(state, dispersion, products)
    if estimating is None:
        return state
    # this q is for the probe before a fit alone: rounds have one of their own
    root = root_of(state.at.whitening, np.eye(len(start)))
    return state._replace(at=state.at._replace(root=root))


def in_parts(state: State, dispersion: np.ndarray, products: float = 0.0) -> State:
    """Clip scores of the dispersion, (d,), by themselves, if there are any.

    ``products`` are as in `At`; later rounds have those of their shares.
    """
    state = state._replace(at=state.at._replace(products=products))
    if not dispersion.any():
        return state
    at = state.at._replace(dispersion=Dispersion(dispersion, bound=1.0, share=0.5))
    return state._replace(at=at, tails=(Tails.nothing(),) * 2)


def _at_start(
    start: np.ndarray, prior_gradient: Gradient, number: float, least: np.ndarray, width: float
) -> State:
    d, precision = len(start), prior_precision(prior_gradient, start, least)
    covariance = np.linalg.inv(precision)
    nothing, W = np.zeros((d, d)), whitening(np.eye(d), 1.0, np.zeros(d, bool))
    mode = Mode(start, width * covariance)
    learnt = Learnt(
        start=start,
        mode=mode,
        point=start,
        latest_step=LatestStep.of(np.zeros(d)),
        secant=None,
        first=None,
        curvature=None,
        along_shifts=None,
        believed=None,
        independent=Curvature(nothing, np.eye(d)),
        unclipped_diagonal=np.zeros(d),
        variance_share=VarianceShare(),
        likelihood_curvature=nothing,
        covariance=covariance,
        noise=nothing,
        scored=(),
        reported=Reported(start, covariance, nothing),
    )
    return State(
        t=0,
        # the direction is for the probe before a fit alone: the first round has none
        at=At(start, W, 1.0, 1.0, 1.0, direction=np.full(d, d**-0.5)),
        number=number,
        number_sd=0.0,
        counted=number,
        noise_unit=0.0,
        noise_to_signal=np.nan,
        reach=1.0,
        least_prior=least,
        prior_at_start=precision,
        scale=None,
        unseen=np.zeros((d, 0)),
        held=np.zeros(d, bool),
        tails=(Tails.nothing(),),
        misfit=np.nan,
        bias=np.zeros(d),
        visible=float(d),
        learnt=learnt,
    )


def measured(known: Known, state: State, noisy: Noisy) -> State:
    """Learn the scale of every latent's score, and how many records there are."""
    point = state.learnt.mode.mean
    d = point.size
    every = noisy.value.reshape(-1, BINS)
    counts = every[:d]
    sums = sums_of_squares(counts, noisy.sd)
    counted, sd = (known.number, 0.0) if known.number else _number(counts, noisy.sd)
    number = max(counted, 2 * sd, 1.0)
    number_sd = sd / number
    # a prior without an end is as wide as so many records' scales, but no narrower than it was
    records = np.where(sums > 0, np.minimum(sums / number, 1.0), 1.0)
    least = DEFAULTS.least_prior_precision * records
    independent = _independent(sums)
    scale = known.scale
    if scale is not None and not scale.is_seen(visible_bins(counts, noisy.sd).any(axis=1)):
        scale = None
    if scale is not None:
        prior = np.diag(prior_precision(known.prior_gradient, point, least))
        scores = np.diag(independent.estimate) / prior
        expected = 1 + float(scores[scale.location].sum()) / number
        initial, point = point, scale.started(point, every[d], noisy.sd, expected)
        independent = independent.in_units(scale.units(initial, point))
    nowhere_clipped = state.at._replace(
        point=point, whitening=np.eye(d), score_bound=np.inf, curvature_bound=np.inf, direction=None
    )
    of_model = known.expected and known.expected(nowhere_clipped)
    if of_model:
        independent = of_model.of(number, number_sd)
    state = _at_start(point, known.prior_gradient, number, least, known.start_width)
    state = in_parts(state, known.dispersion)._replace(
        t=1,
        number_sd=number_sd,
        counted=counted,
        # the sensitivity is the root of the number of histograms, and noise falls with the root of
        # a release's share
        noise_unit=noisy.sd / len(every) ** 0.5 * known.shares.of_scales**0.5,
        noise_to_signal=noisy.noise_to_signal,
        scale=scale,
        unseen=known.unseen,
        held=known.shapes,
        learnt=state.learnt._replace(independent=independent),
    )
    precision = independent.estimate + prior_precision(known.prior_gradient, point, least)
    return prepared(state, known, precision, visible=float(d))


def apart(known: Known, shifts: Shifts, found: State) -> State:
    """Start rounds of all latents where those of shifts have ended."""
    point, least = shifts.point(found.learnt.point), shifts.directions @ found.least_prior
    state = _at_start(point, known.prior_gradient, found.number, least, known.start_width)
    state = in_parts(state, known.dispersion, found.at.products)._replace(
        t=found.t,
        noise_unit=found.noise_unit,
        noise_to_signal=found.noise_to_signal,
        scale=None if found.scale is None else known.scale,
        unseen=known.unseen,
        held=known.shapes & found.held.any(),
    )
    if found.t == 0:
        return state
    try:
        return _knowing_shifts(known, shifts, found, state)
    except (np.linalg.LinAlgError, ArithmeticError):
        precision = state.prior_at_start
        return prepared(state, known, precision, visible=float(point.size))


def _knowing_shifts(known: Known, shifts: Shifts, found: State, state: State) -> State:
    learnt, point, V = found.learnt, state.learnt.point, shifts.directions
    H = learnt.independent.estimate if learnt.curvature is None else learnt.likelihood_curvature
    # as if all groups of an array had as many records
    of_groups = np.diag(H) / learnt.variance_share.curvature_share / V.sum(axis=0)
    independent, along_shifts = _independent(V @ of_groups), None
    if learnt.curvature is not None:  # it changes as groups part
        along_shifts = learnt.curvature._replace(estimate=H)
        along_shifts = along_shifts.moved(DEFAULTS.nonlinearity**2, DEFAULTS.floor_on_average)
    believed = state.prior_at_start / known.start_width
    mode = Mode(point, _with_groups_apart(V, found, believed))
    covariance = _posterior_of_shifts(known, shifts, learnt)
    own = state.learnt._replace(
        start=mode.mean,
        mode=mode,
        independent=independent,
        along_shifts=along_shifts,
        covariance=covariance,
        reported=state.learnt.reported._replace(
            mean=shifts.point(learnt.reported.mean), covariance=covariance
        ),
    )
    if along_shifts is not None:
        independent = known_along(independent, V, along_shifts)
    precision = independent.estimate + state.prior_at_start
    state = state._replace(learnt=own)
    return prepared(state, known, precision, visible=float(point.size))


def _posterior_of_shifts(known: Known, shifts: Shifts, learnt: Learnt) -> np.ndarray:
    """Return a covariance, (d, d): what sets groups apart is as wide as the prior at the start."""
    V, found = shifts.directions, learnt.reported
    prior = prior_precision(known.prior_gradient, shifts.start, DEFAULTS.least_prior_precision)
    away = np.eye(len(V)) - (V / V.sum(axis=0)) @ V.T
    of_groups = away @ np.linalg.inv(prior) @ away
    return no_wider(symmetric(V @ (found.covariance + found.noise) @ V.T + of_groups), prior)


def _with_groups_apart(V: np.ndarray, found: State, prior: np.ndarray) -> np.ndarray:
    """Return the covariance of the mode where groups no longer shift together, (d, d).

    Shifts tell nothing of what sets groups apart. And effects of what differs between groups alone
    are known as from one record of each group.
    """
    K, learnt = found.learnt.likelihood_curvature, found.learnt
    sizes = V.sum(axis=0)
    apart = np.eye(len(V)) - (V / sizes) @ V.T
    of_groups = np.linalg.inv(K * sizes[sizes > 1].min() / found.number + V.T @ prior @ V)
    of_shifts = learnt.distance_to_mode + of_groups
    return symmetric(apart @ np.linalg.inv(prior) @ apart + V @ of_shifts @ V.T)


def _independent(diagonal: np.ndarray) -> Curvature:
    """Return the curvature of independent latents, with noise for all correlations."""
    d, diagonal = len(diagonal), np.where(diagonal > 0, diagonal, HIDDEN)
    # correlations of so much bring eigenvalues of the curvature to the edge of their noise
    correlation = max(DEFAULTS.correlation, DEFAULTS.correlation_by_latent * d)
    return Curvature(np.diag(diagonal), correlation / (2 * d) ** 0.5 * np.diag(diagonal))


def _number(counts: np.ndarray, noise_sd: float) -> tuple[float, float]:
    """Count the records, to whom every latent's counts add up; return the noise on that, too."""
    return float(counts.sum()) / len(counts), noise_sd * (BINS / len(counts)) ** 0.5
