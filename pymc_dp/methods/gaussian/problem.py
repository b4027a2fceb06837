"""What rounds are of: the coordinates in which they release scores, and what is known of these."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.drawn_scores import DrawnScores, drawn_scores
from pymc_dp.methods.gaussian.constant_curvature import constant_latents
from pymc_dp.methods.gaussian.doubts import doubts_of_rounds
from pymc_dp.methods.gaussian.expected_scores import expected_scores
from pymc_dp.methods.gaussian.group_curvature import Groups
from pymc_dp.methods.gaussian.outcome_scale import OutcomeScale
from pymc_dp.methods.gaussian.outcome_shape import shape_latents
from pymc_dp.methods.gaussian.schedule import BudgetShares, RoundTerms
from pymc_dp.methods.gaussian.shifts import Shifts, groups_that_never_meet
from pymc_dp.methods.gaussian.start import apart, begin, near_prior_mode
from pymc_dp.methods.gaussian.state import Gradient, Known, State
from pymc_dp.methods.gaussian.stationary import away_from_stationary
from pymc_dp.methods.gaussian.unseen import unseen_among, unseen_directions
from pymc_dp.methods.method import Algorithm, Both, Doubt, Kind, of_rounds
from pymc_dp.model import Records

Draw = Callable[[State, int, np.random.Generator], Both]  # (state, draws, rng) -> draws

GROUPS_TOGETHER = (
    "The fit ended while all groups of an array moved together, so what sets groups apart is that "
    "of the prior: let it make all of its releases."
)


class Problem(NamedTuple):
    """The coordinates that rounds release scores of: those of all latents, or of shifts."""

    records: Records
    d: int  # the number of coordinates
    start: Callable[[], np.ndarray]  # where rounds begin without a method before them, (d,)
    scores: Callable[[], DrawnScores]
    known: Callable[[], Known]
    dispersion: Callable[[], np.ndarray]  # as in `Known`
    observed: tuple[int, ...]  # coordinates whose scores at observed outcomes are released, too
    begin: Callable[[np.ndarray], State]  # start -> first state
    draw: Draw
    algorithm: Algorithm
    is_weighted: bool  # whether records have survey weights
    of_units: bool  # whether a unit of several records is clipped as one
    # state -> that of all latents: which results are made of, and where their rounds begin
    reported: Callable[[State], State] = lambda state: state

    def doubts(self, state: State) -> tuple[Doubt, ...]:
        """List what is doubtful about the posterior."""
        state = self.reported(state)
        if state.learnt.curvature is None and state.learnt.along_shifts is not None:
            return (Doubt(Kind.UNFINISHED, (), GROUPS_TOGETHER),)
        return doubts_of_rounds(self.records, state, self.of_units)


def problem_of_latents(
    records: Records,
    prior: Callable[[str], Gradient],
    terms: RoundTerms,
    scale: OutcomeScale | None,
    shares: BudgetShares,
    draw: Draw,
    start_width: float,
) -> Problem:
    """Return the problem of all latents."""
    slope = cache(lambda: prior("python"))
    # some passes over the records: any faster backend would take longer to compile
    shapes = cache(lambda: shape_latents(records))
    dispersion = cache(lambda: dispersion_latents(shapes(), scale))
    scores = cache(
        lambda: (
            drawn_scores(records, "python", terms.estimating)
            .with_dispersion(dispersion())
            ._replace(survey=terms.survey)
        )
    )
    return Problem(
        records=records,
        d=records.size,
        start=cache(lambda: _first_point(records, slope(), scores())),
        scores=scores,
        known=cache(
            lambda: Known(
                slope(),
                shares,
                terms.counted,
                scale,
                unseen_directions(records, scores()),
                shapes(),
                dispersion(),
                constant_latents(records),
                records.outcomes is not None,
                scores().estimating,
                None if terms.survey else expected_scores(records, scores(), terms.of_units),
                start_width=start_width,
            )
        ),
        dispersion=dispersion,
        observed=() if scale is None else (scale.latent,),
        begin=lambda start: begin(
            start,
            slope(),
            terms.counted,
            dispersion(),
            shares.of_rounds[0].products,
            scores().estimating,
        ),
        draw=draw,
        algorithm=of_rounds(records, terms.estimating),
        is_weighted=terms.survey is not None,
        of_units=terms.of_units,
    )


def dispersion_latents(shapes: np.ndarray, scale: OutcomeScale | None) -> np.ndarray:
    """Return which latents set the scale or the shape of outcomes, (d,); none if all do."""
    found = shapes.copy()
    if scale is not None:
        found[scale.latent] = True
    return np.zeros_like(found) if found.all() else found


def _first_point(records: Records, slope: Gradient, scores: DrawnScores) -> np.ndarray:
    """Start at the initial point, or where it is far from the prior's mode or a saddle near it."""
    start = near_prior(records, records.start, slope)
    return away_from_stationary(records, start, slope, scores)


def near_prior(records: Records, start: np.ndarray, slope: Gradient) -> np.ndarray:
    """Start near the mode of the prior where it holds public observations.

    Without them it may have no mode: that of groups and of their spread rises without end as the
    spread falls, and only records keep it up.
    """
    return near_prior_mode(start, slope) if records.observes_public else start


def problem_of_shifts(problem: Problem, V: np.ndarray, rounds: int, number: int | None) -> Problem:
    """Return the problem in which all groups of an array shift together."""

    @cache
    def shifts() -> Shifts:
        return Shifts(problem.start(), V)

    @cache
    def dispersion() -> np.ndarray:
        return np.asarray(problem.dispersion() @ V > 0)

    @cache
    def known() -> Known:
        of_latents = problem.known()
        return Known(
            prior_gradient=shifts().gradient(of_latents.prior_gradient),
            shares=of_latents.shares.parted(rounds)[0],
            number=number,
            scale=shifts().scale(of_latents.scale),
            unseen=unseen_among(of_latents.unseen, V),
            shapes=of_latents.shapes @ V > 0,
            dispersion=dispersion(),
            constant=of_latents.constant @ V > 0,
            is_centred=of_latents.is_centred,
            estimating=of_latents.estimating,
            start_width=of_latents.start_width,
        )

    observed = tuple(int(np.flatnonzero(V[latent])[0]) for latent in problem.observed)
    return problem._replace(
        d=V.shape[1],
        start=lambda: np.zeros(V.shape[1]),
        scores=cache(lambda: shifts().scores(problem.scores())),
        known=known,
        dispersion=dispersion,
        observed=observed,
        begin=lambda start: begin(
            start,
            known().prior_gradient,
            number,
            dispersion(),
            known().shares.of_rounds[0].products,
            known().estimating,
        ),
        reported=lambda state: apart(problem.known(), shifts(), state),
    )


def problem_after_shifts(problem: Problem, groups: Groups, shares: BudgetShares) -> Problem:
    """Return the problem of rounds that know what those of shifts have found."""

    @cache
    def known() -> Known:
        apart = groups_that_never_meet(problem.records, groups)
        return problem.known()._replace(shares=shares, shifts=groups.shifts, groups=apart)

    return problem._replace(known=known)
