"""The state of rounds in whitened coordinates: released values, and what follows from them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.estimating import Estimating
from pymc_dp.contributions.joint_vector import At
from pymc_dp.methods.gaussian.belief import Curvature, symmetric
from pymc_dp.methods.gaussian.clipped_share import VarianceShare
from pymc_dp.methods.gaussian.coordinates import (
    noise_of_score,
    norm_bounds,
    root_of,
    whitened_direction,
    whitening,
)
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.design import DesignVariance
from pymc_dp.methods.gaussian.expected_scores import Expected
from pymc_dp.methods.gaussian.group_curvature import Groups
from pymc_dp.methods.gaussian.long_steps import LatestStep
from pymc_dp.methods.gaussian.mode import Mode
from pymc_dp.methods.gaussian.noise_floor import Spectrum
from pymc_dp.methods.gaussian.outcome_scale import OutcomeScale
from pymc_dp.methods.gaussian.schedule import BudgetShares
from pymc_dp.methods.gaussian.secant import Secant
from pymc_dp.methods.gaussian.tails import DISPERSION_SHARES, Left, Norms, Part, Tails, norms_of
from pymc_dp.methods.prior import prior_curvature

Gradient = Callable[[np.ndarray], np.ndarray]


class Known(NamedTuple):
    """What is known before the first release."""

    prior_gradient: Gradient
    shares: BudgetShares
    number: int | None  # of records (or units), where it is declared
    scale: OutcomeScale | None
    unseen: np.ndarray  # directions in which no record has a score, (d, k)
    shapes: np.ndarray  # which latents set the shape of outcomes and not their mean, (d,)
    dispersion: np.ndarray  # these, and the scale, unless there are no others, (d,)
    constant: np.ndarray  # with which the curvature of the log likelihood does not change, (d,)
    is_centred: bool  # whether draws centre clipped scores
    estimating: Estimating | None  # what records add; None for scores at the point
    # what the model expects of scores where nothing but outcomes are data
    expected: Callable[[At], Expected | None] | None = None
    shifts: np.ndarray | None = None  # directions of the first rounds, (d, m), if they had others
    groups: Groups | None = None  # arrays of which a record reads one place
    # how many times as wide as the prior the belief about the mode starts, in variance
    start_width: float = DEFAULTS.start_width


class Reported(NamedTuple):
    """The posterior that results are made of."""

    mean: np.ndarray  # (d,): the mode, or beyond it where curvatures have fallen on the path
    covariance: np.ndarray  # from the records alone
    noise: np.ndarray  # what the privacy noise adds to it
    curvature_left: float = 1.0  # share of the curvature at the mode that is left at the mean


class Scored(NamedTuple):
    """A round's score of the likelihood, and where it was made."""

    point: np.ndarray  # (d,)
    score: np.ndarray  # (d,)
    noise: np.ndarray  # covariance of its privacy noise, (d, d)

    def in_units(self, units: np.ndarray) -> "Scored":
        """Return the score where latents are multiplied by these units, (d,), as curvatures are."""
        squares = units**2
        return Scored(self.point, squares * self.score, np.outer(squares, squares) * self.noise)


class Released(NamedTuple):
    """A round's score as it was released."""

    at: At
    score: np.ndarray  # in the units of the vector, (d,)
    noise_sd: float


class Learnt(NamedTuple):
    """Estimates that follow from the releases made so far."""

    start: np.ndarray  # where these rounds began, (d,)
    mode: Mode
    point: np.ndarray  # where the next round begins, (d,)
    latest_step: LatestStep  # of the mode's mean
    secant: Secant | None  # what the latest round's score was, before this step
    first: Curvature | None  # of the log likelihood, from the first round alone
    curvature: Curvature | None  # of the log likelihood, from all rounds
    along_shifts: Curvature | None  # the same along shifts alone, where first rounds took these
    believed: Curvature | None  # of the posterior, with noise for all that is not known of it
    independent: Curvature  # a guess from the scales of scores, as if latents were independent
    # a lower bound of the curvature's diagonal without clipping, (d,): the largest that was seen
    # since the point last moved
    unclipped_diagonal: np.ndarray
    variance_share: VarianceShare
    # H, (d, d), at the scale of outcomes of the next point; about 0 where noise hides it
    likelihood_curvature: np.ndarray
    covariance: np.ndarray  # the posterior's at the mode, from the records alone
    noise: np.ndarray  # what the privacy noise adds to it
    scored: tuple[Scored, ...]  # the rounds
    reported: Reported
    design: DesignVariance | None = None  # of weighted scores; None where rounds release none

    @property
    def distance_to_mode(self) -> np.ndarray:
        """Second moments of how far the mode may be, (d, d): what long steps left of it counts."""
        return self.mode.covariance + np.diag(self.latest_step.unfinished**2)

    def score_variance(self, H: np.ndarray, share: float) -> np.ndarray:
        """Return the variance of the sum of scores: of weighted ones, or a share of H."""
        return share * H if self.design is None else self.design.of(H)


class State(NamedTuple):
    """State of the rounds: released values and what follows from them."""

    t: int  # releases made
    at: At  # of the next round
    number: float  # of records (or units), declared, or counted and visible beside its noise
    number_sd: float  # of the noise on it, as a share
    counted: float  # the number as it was released or declared, which noise may have made negative
    noise_unit: float  # noise multiplier of a release that would take the whole budget
    noise_to_signal: float  # of the latest release
    reach: float  # how many whitened units the next step may be long; 1 near the mode
    least_prior: np.ndarray  # precisions of priors without an end, (d,)
    prior_at_start: np.ndarray  # the prior's precision where the rounds began, (d, d)
    scale: OutcomeScale | None  # of the outcomes, where the first release shows what it needs
    unseen: np.ndarray  # as in `Known`
    # latents of the shape of outcomes, (d,): they keep still while the location is far
    held: np.ndarray
    tails: tuple[Tails, ...]  # lengths of each part of scores, from rounds near the mode
    # how far outcomes are from those of the model, over what chance explains; nan if not known
    misfit: float
    # what clipping may leave in the latest round's score, in posterior sds: as a bound, (d,)
    bias: np.ndarray
    visible: float  # directions in which the records' curvature is visible, as norms count them
    learnt: Learnt
    released: tuple[Released, ...] = ()  # the scores of all rounds
    precision: Curvature | None = None  # what records add to that of q, where it is not the slope

    @property
    def is_misfit(self) -> bool:
        """Whether outcomes are not distributed as the model says."""
        return self.misfit > 1

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of scores: those of the location, and of the dispersion if there are any."""
        d, dispersion = self.at.point.size, self.at.dispersion
        if dispersion is None:
            return (Part.location(self.visible, d),)
        own = int(dispersion.latents.sum())
        return Part.location(max(self.visible - own, 1.0), d - own), Part.dispersion(own)

    def left(self, is_centred: bool) -> tuple[Left, ...]:
        """Say what clipping leaves out of each part of scores."""
        return tuple(
            tails.left(self.number, part, is_centred)
            for tails, part in zip(self.tails, self.parts, strict=True)
        )

    def bias_of(self, left: tuple[Left, ...]) -> np.ndarray:
        """Bound what the next round leaves out, in posterior sds, (d,)."""
        at = self.at
        location = left[0].bias(at.score_bound, at.longest_unweighted)
        if at.dispersion is None:
            return np.full(at.point.size, location)
        own = left[1].bias(at.dispersion.bound, at.longest_unweighted)
        return np.where(at.dispersion.latents, own, location)


def prior_precision(
    prior_gradient: Gradient, point: np.ndarray, least: float | np.ndarray
) -> np.ndarray:
    """Return the curvature of the log prior, and ``least``, by latents, for priors without an end.

    Each latent has its own unit in what is made positive definite.

    >>> wide = np.array([1e-18, 1.0, 0.0])
    >>> prior_precision(lambda z: -wide * z, np.zeros(3), 1e-24).diagonal()
    array([1.e-18, 1.e+00, 1.e-24])
    """
    curvature = prior_curvature(prior_gradient, point)
    scale = np.sqrt(np.maximum(abs(curvature).max(axis=0), least))
    units = np.outer(scale, scale)
    floored = Spectrum.of(curvature / units).floored(DEFAULTS.least_prior_precision)
    return symmetric(units * floored + np.diag(np.full(point.size, least)))


def prepared(
    state: State,
    known: Known,
    precision: np.ndarray,
    visible: float,
    of_q: np.ndarray | None = None,
) -> State:
    """Set the point, the coordinates, the posterior q and the bounds of the next round.

    ``of_q`` is the precision of q, (d, d), if it is not that of the coordinates.
    """
    learnt = state.learnt
    units = np.where(state.held, DEFAULTS.fixed_precision**0.5, 1.0)
    held = np.outer(units, units)
    W = whitening(held * precision, state.number, known.dispersion)
    # a constant curvature is the same everywhere: all rounds' matrices say what it is along a path
    is_constant = known.constant.any()
    direction = None if is_constant else whitened_direction(W, learnt.point - learnt.start)
    root = root_of(W, held * (precision if of_q is None else of_q)) if known.estimating else None
    at = state.at._replace(point=learnt.point, whitening=W, direction=direction, root=root)
    return bounded(state._replace(at=at, visible=visible), known)


def bounded(state: State, known: Known) -> State:
    """Set the bounds of the next round."""
    shares = known.shares.of_rounds
    own = shares[min(state.t, len(shares)) - 1]
    so_far = shares[: max(state.t, 1)]
    public = state.at.point.size, state.number, state.noise_unit, so_far
    of_score, of_curvature, of_weights = norm_bounds(*public, state.visible)
    sizes = [part.squares for part in state.parts]
    norms = Norms(*(of_score * size**0.5 for size in sizes))
    if norms.dispersion:
        norms = norms._replace(share=sizes[1] / sum(sizes))
    if state.tails[0].weight and state.noise_unit:
        noise = noise_of_score(state.number, state.noise_unit, so_far)
        norms = norms_of(state.left(known.is_centred), noise)
    if norms.dispersion and state.held.any():  # its score is left out
        norms = norms._replace(share=DISPERSION_SHARES[0])
    at = state.at._replace(
        score_bound=state.reach * norms.location,
        curvature_bound=of_curvature,
        weight_bound=of_weights,
        ratio=own.ratio,
        products=own.products,
    )
    if at.dispersion is not None:
        bound = state.reach * norms.dispersion
        at = at._replace(dispersion=at.dispersion._replace(bound=bound, share=norms.share))
    return state._replace(at=at)
