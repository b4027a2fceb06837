"""Newton steps from private scores and curvatures, in coordinates that earlier releases whitened.

Noise is as large in every direction of the coordinates in which it is added. In those that make all
directions of the posterior alike it costs the same share of a standard deviation everywhere. The
first release finds the scale of each latent; every round then releases score and curvature in
coordinates that the rounds before have found, with more of the budget.
"""

import numpy as np

from pymc_dp.methods.gaussian.belief import (
    Curvature,
    CurvatureSpectrum,
    weakly_correlated,
)
from pymc_dp.methods.gaussian.clipped_share import (
    VarianceShare,
    expected_share,
    surely_moved,
    with_diagonal_at_least,
)
from pymc_dp.methods.gaussian.coordinates import unclipped_curvature, visible_directions
from pymc_dp.methods.gaussian.curvatures import Curvatures, curvatures
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.design import DesignVariance
from pymc_dp.methods.gaussian.expected_scores import Expected
from pymc_dp.methods.gaussian.local_posterior import LocalPosterior, local_posterior
from pymc_dp.methods.gaussian.long_steps import LatestStep, is_far, next_reach
from pymc_dp.methods.gaussian.mode import Mode
from pymc_dp.methods.gaussian.newton import newton_step
from pymc_dp.methods.gaussian.precision_of_q import (
    added_to_q,
    asking_for_precision,
    with_precision,
)
from pymc_dp.methods.gaussian.release import Release, unwhitened
from pymc_dp.methods.gaussian.reported import added_by_noise, covariance_of, reported
from pymc_dp.methods.gaussian.secant import Secant
from pymc_dp.methods.gaussian.state import (
    Known,
    Learnt,
    Released,
    Reported,
    Scored,
    State,
    prepared,
    prior_precision,
)
from pymc_dp.methods.gaussian.unseen import not_contradicted
from pymc_dp.privacy.query import Noisy, Query


def step(known: Known, state: State, query: Query, noisy: Noisy) -> State:
    """Take one round's release into account.

    Where its numbers are beyond what matrices can be computed with, the point stays.
    """
    score = Released(state.at, noisy.value[: state.at.point.size], noisy.sd)
    try:
        return _stepped(known, state._replace(released=(*state.released, score)), noisy)
    except (np.linalg.LinAlgError, ArithmeticError):
        learnt = _lost(state.learnt, state.prior_at_start)
        return state._replace(t=state.t + 1, noise_to_signal=noisy.noise_to_signal, learnt=learnt)


def _lost(learnt: Learnt, prior: np.ndarray) -> Learnt:
    """Say that the mode may be anywhere in the prior."""
    mode = learnt.mode._replace(covariance=np.linalg.inv(prior))
    latest = LatestStep.of(np.diag(prior) ** -0.5)._replace(step=np.zeros(len(prior)))
    noise = added_by_noise(learnt.covariance, mode.covariance, latest, prior)
    wide = Reported(mode.mean, learnt.covariance, noise)
    return learnt._replace(mode=mode, latest_step=latest, noise=noise, scored=(), reported=wide)


def _stepped(known: Known, state: State, noisy: Noisy) -> State:
    state, release = with_precision(state, unwhitened(noisy, state))
    state = state._replace(unseen=not_contradicted(release.curvature, state.unseen))
    expected = known.expected and known.expected(state.at)
    found = curvatures(state, release.curvature, expected, known)
    local = local_posterior(release, found, known, state)
    state = _counted(state, release, known)
    learnt = _learnt(state, release, local, found, expected, known)
    first = learnt.first or release.curvature
    learnt = learnt._replace(first=first, reported=reported(learnt, first, local, known))
    of_location = np.where(known.shapes, 0.0, local.gradient)
    far = is_far(local.whitened(of_location), local.whitened_noise_sd)
    state = state._replace(
        t=state.t + 1,
        held=known.shapes & far,
        noise_to_signal=noisy.noise_to_signal,
        reach=next_reach(local.reach, local.whitened(local.gradient), local.whitened_noise_sd),
        learnt=learnt,
    )
    unclipped = unclipped_curvature(local.spectrum, learnt.variance_share)
    unclipped = with_diagonal_at_least(unclipped, learnt.unclipped_diagonal)
    units = _units(local, learnt.point)
    squared_units, of_q = np.outer(units, units), None
    precision = squared_units * unclipped + local.prior_precision
    if known.estimating:
        added = added_to_q(state, local.spectrum, known.estimating.share(state.number))
        of_q = squared_units * added + local.prior_precision
    visible = visible_directions(local.spectrum, local.prior_precision)
    state = asking_for_precision(prepared(state, known, precision, visible, of_q), known)
    at, (mean, covariance, noise, _) = state.at, learnt.reported
    if not all(np.isfinite(x).all() for x in (at.point, at.whitening, mean, covariance, noise)):
        raise FloatingPointError("the next point, its coordinates or the posterior are not finite")
    return _less_sure(state, known)


def _counted(state: State, release: Release, known: Known) -> State:
    """Count the lengths of scores near the mode, and bound what clipping has left out.

    Far from it scores are longer than those of outcomes that the model draws there.
    """
    learnt, tails = state.learnt, state.tails
    is_first = learnt.curvature is None
    if not (is_first or state.reach > 1 or state.held.any()):
        spread = float(np.trace(learnt.likelihood_curvature @ learnt.distance_to_mode))
        off = (max(spread, 0.0) / state.number) ** 0.5
        tails = tuple(
            each.add(counts, release.counts_noise_sd, off)
            for each, counts in zip(tails, release.counts, strict=True)
        )
    misfit = max(each.misfit() for each in tails) if known.is_centred else np.nan
    state = state._replace(tails=tails, misfit=misfit)
    if state.noise_unit == 0:
        return state
    return state._replace(bias=state.bias_of(state.left(known.is_centred)))


def _less_sure(state: State, known: Known) -> State:
    """Let the rounds so far count less where the next one's bias is smaller than theirs."""
    if state.noise_unit == 0 or not state.tails[0].weight:
        return state
    learnt, of_next = state.learnt, state.bias_of(state.left(known.is_centred))
    more = np.sqrt(np.maximum(state.bias**2 - of_next**2, 0.0))
    if not more.any():
        return state
    H = learnt.likelihood_curvature
    wide = learnt.mode.covariance + _of_bias(more, learnt.covariance)
    scored = tuple(one._replace(noise=one.noise + _of_bias(more, H)) for one in learnt.scored)
    mode = learnt.mode._replace(covariance=wide)
    return state._replace(learnt=learnt._replace(mode=mode, scored=scored))


def _of_bias(bias: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Return the covariance of biases of so many units, (d,), where ``unit`` is that of one."""
    return np.asarray(np.outer(bias, bias) * unit)


def _learnt(
    state: State,
    release: Release,
    local: LocalPosterior,
    found: Curvatures,
    expected: Expected | None,
    known: Known,
) -> Learnt:
    """Move the mode, and update all estimates."""
    before, shifts = state.learnt, known.shifts
    mode, point, latest, change = newton_step(_widened(before, local), before.latest_step, local)
    spectrum = local.spectrum
    variance_share = _variance_share(before.variance_share, release, spectrum, expected)
    units, shared = _units(local, point), found.along_shifts
    to_end = np.outer(units, units)
    # what noise hides is left to the prior
    H = to_end * spectrum.matrix(0.0)
    if known.groups is not None:
        H = known.groups.positive(H, to_end * spectrum.noise)
    prior = local.prior_precision
    if local.scale is not None:  # the prior's curvature changes with the scale, too
        prior = prior_precision(local.prior_gradient, mode.mean, state.least_prior)
    design = _design(state, release, local, known)
    of_scores = variance_share.upper * H
    unit = covariance = covariance_of(H, prior, of_scores)
    if design is not None:
        covariance = covariance_of(H, prior, to_end * design.of(local.likelihood_curvature))
    if shifts is not None and shared is not None:
        of_shifts = shifts.T @ units / shifts.sum(axis=0)
        shared = _moved(shared, change, of_shifts)
    of_groups = local.changes_of_groups(latest.step)
    from_rounds, independent = (
        _moved(one, change, units).with_changed_scales(of_groups)
        for one in (found.from_rounds, found.independent)
    )
    return Learnt(
        start=before.start,
        mode=mode,
        point=point,
        latest_step=latest,
        secant=Secant(local.gradient, local.gradient_noise, latest.step, state.reach),
        first=before.first,
        curvature=from_rounds,
        along_shifts=shared,
        believed=local.believed,
        independent=independent,
        unclipped_diagonal=_unclipped_diagonal(before, release.curvature, local, variance_share),
        variance_share=variance_share,
        likelihood_curvature=H,
        covariance=covariance,
        # all rounds have the same bias, which pooling them leaves as it is
        noise=added_by_noise(
            covariance, mode.covariance + _of_bias(state.bias, unit), latest, prior
        ),
        scored=_scored(before, local, release, units),
        reported=before.reported,
        design=design and design.moved(change, units),
    )


def _design(
    state: State, release: Release, local: LocalPosterior, known: Known
) -> DesignVariance | None:
    """Learn the variance of weighted scores, from the second half of the rounds.

    Earlier ones are far from the mode, and have an eighth of the budget.
    """
    early = state.t <= len(known.shares.of_rounds) // 2
    if release.products is None or early:
        return None
    before, H = state.learnt, local.likelihood_curvature
    weak = weakly_correlated(np.linalg.inv(before.covariance))
    W = release.scales[:, None] * release.whitening
    return (before.design or DesignVariance()).add(release.products, H, W, weak)


def _scored(
    before: Learnt, local: LocalPosterior, release: Release, units: np.ndarray
) -> tuple[Scored, ...]:
    """Keep the scores of all rounds, in units of the scale of outcomes at the next point."""
    found = (*before.scored, Scored(local.point, release.score, release.score_noise))
    return tuple(one.in_units(units) for one in found)


def _widened(before: Learnt, local: LocalPosterior) -> Mode:
    """Return what was known of the mode before a round, or less if the path leads further on."""
    return before.mode._replace(mean=local.point).widened_along(
        local.point - before.start,
        local.gradient,
        local.total_curvature,
        local.gradient_noise,
        local.prior_precision,
    )


def _moved(found: Curvature, share: float, units: np.ndarray) -> Curvature:
    """Let a curvature change along a step: by a share that is not known, and with the scale."""
    return found.moved(share, DEFAULTS.floor_on_average).in_units(units)


def _units(local: LocalPosterior, end: np.ndarray) -> np.ndarray:
    """By how much the scale of outcomes is shorter at the end of a step, for each latent, (d,)."""
    if local.scale is None:
        return np.ones(len(end))
    return local.scale.units(local.point, end)


def _variance_share(
    before: VarianceShare, release: Release, spectrum: CurvatureSpectrum, expected: Expected | None
) -> VarianceShare:
    W = release.scales[:, None] * release.whitening
    trace = float(np.trace(W @ spectrum.matrix(DEFAULTS.floor_on_average) @ W.T))
    noise_sd = release.variance_noise_sd
    of_bound = expected_share(trace, release.squared_bound)
    share = expected.variance_share if expected else of_bound
    return before.add(release.whitened_variance, trace, noise_sd, share)


def _unclipped_diagonal(
    before: Learnt, found: Curvature, local: LocalPosterior, share: VarianceShare
) -> np.ndarray:
    """Bound the diagonal of the curvature without clipping from below; forget it after a move."""
    step = before.latest_step.step
    forgotten = max(local.squared_change(step), surely_moved(step, before.mode))
    near = 1 - np.maximum(forgotten, local.changes_of_groups(step))
    # by the inequality of Cauchy and Schwarz: slope^2 <= variance of clipped * that of unclipped
    seen = found.least_scales / share.upper
    return np.asarray(np.maximum(near * before.unclipped_diagonal, seen))
