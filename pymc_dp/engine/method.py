"""Rounds as a method: how they share the budget, what they release, and their posterior."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.accounting.plan import Full, ReleaseSpec
from pymc_dp.contributions.polya_gamma_and_sites import AVERAGED, Estimating
from pymc_dp.contributions.scores import DrawnScores, drawn_scores, score_scales, size_of_scales
from pymc_dp.contributions.whitened import (
    PRODUCTS,
    joint_norm,
    vector_size,
    whitened_scores,
)
from pymc_dp.engine.clip_norm_and_bias import Part
from pymc_dp.engine.conditional import NormalLikelihood
from pymc_dp.engine.constants import CONSTANTS
from pymc_dp.engine.curvature import dense, matrix_blocks, vector_blocks
from pymc_dp.engine.made_up import away_from_stationary, null_space_of
from pymc_dp.engine.outcomes import OutcomeScale, outcome_scale, shape_latents
from pymc_dp.engine.posterior import (
    NormalPrior,
    PriorAsWritten,
    drawn_or_wide,
    if_normal,
    prior_as_written,
)
from pymc_dp.engine.report import describe, doubts_of_chains, doubts_of_rounds
from pymc_dp.engine.rounds import (
    Known,
    Likelihood,
    State,
    begin,
    covariance,
    likelihoods,
    update,
)
from pymc_dp.engine.start import measured, near_prior, point_at, unit_of_scores
from pymc_dp.methods.method import (
    Both,
    Compiled,
    Doubt,
    FindStart,
    Method,
    Stage,
    chain,
    of_rounds,
)
from pymc_dp.methods.mixture.histogram import histogram_start
from pymc_dp.methods.mixture.model import lost_components
from pymc_dp.methods.normal import draw_gaussian, shrunk
from pymc_dp.methods.options import Options
from pymc_dp.methods.prior import Gradient, prior_gradient
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Query
from pymc_dp.tables.weights import SurveyWeights

SCALES, SCORES = "score scales", "whitened scores"
# releases of the shortest rounds: scales, then two of scores and curvatures
FEWEST_RELEASES = 3


def default_length(noisy: bool) -> int:
    """Return the number of releases: twice as many rounds without noise, as they cost no budget."""
    return (CONSTANTS.rounds if noisy else 2 * CONSTANTS.rounds) + 1


def check_length(releases: int) -> int:
    """Return how many releases rounds make; too few raise ValueError."""
    if releases < FEWEST_RELEASES:
        raise ValueError(
            f"{releases} releases are too few for the rounds that make the posterior noise-aware, "
            f"which need {FEWEST_RELEASES}: give a larger n=, or noise_aware=False."
        )
    return releases


class RoundTerms(NamedTuple):
    """How many rounds there are, and of what."""

    rounds: int
    number: int | None  # of records (or units), where it is declared
    of_units: bool  # whether a unit of several records is clipped as one
    estimating: Estimating | None = AVERAGED  # what a record adds; None for its score at the point
    survey: SurveyWeights | None = None  # weights of the records

    @classmethod
    def of(cls, options: Options, releases: int) -> "RoundTerms":
        """Count the rounds of so many releases: scales, and rounds."""
        survey = getattr(options, "weights", None)
        return cls(releases - 1, options.num_records, options.of_units, survey=survey)

    @property
    def products(self) -> float:
        """The part of products of scores in the joint vector, over the score's."""
        return 0.0 if self.survey is None else PRODUCTS

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of the budget of each round; scales have what is left."""
        grown = CONSTANTS.growth ** np.arange(self.rounds)
        return tuple(map(float, (1 - CONSTANTS.share_of_scales) * grown / grown.sum()))


@dataclass(frozen=True, eq=False)
class Rounds:
    """Rounds of the latents that records read: what they are of, compiled when it is needed."""

    records: Records
    terms: RoundTerms
    prior: Callable[[], NormalPrior]  # of the rounds
    slope: Callable[[], Gradient]  # of the author's own log prior
    written: PriorAsWritten | None  # None where the posterior is normal, and that of the rounds
    # the last state that was asked for, with its likelihoods: one pair at most
    latest: list[tuple[State, tuple[Likelihood, Likelihood]]] = field(default_factory=list)

    @cached_property
    def scale(self) -> OutcomeScale | None:
        """Return the latent of the scale of outcomes."""
        return outcome_scale(self.records)

    @cached_property
    def dispersion(self) -> np.ndarray:
        """Return which latents set the scale or the shape of outcomes, (d,); none if all do."""
        found, scale = shape_latents(self.records), self.scale
        if scale is not None:
            found = found | (np.arange(found.size) == scale.latent)
        return np.zeros_like(found) if found.all() else found

    @cached_property
    def scores(self) -> DrawnScores:
        """Compile the scores."""
        terms = self.terms
        return drawn_scores(self.records, terms.estimating, self.dispersion, terms.survey)

    @cached_property
    def known(self) -> Known:
        """Return what is known before the first release."""
        prior, scores, own = self.prior(), self.scores, self.dispersion
        share = CONSTANTS.dispersion_share if own.any() else 0.0
        parts = (
            Part(vector_blocks(~own), 1 - share, False),
            Part(vector_blocks(own), share, True),
        )
        return Known(
            prior_mean=vector_blocks(prior.mean),
            prior_precision=matrix_blocks(prior.precision),
            shares=self.terms.shares,
            number=self.terms.number if self.terms.survey is None else None,
            parts=parts if own.any() else parts[:1],
            scale=self.scale,
            null_space=null_space_of(self.records, scores),
            estimating=scores.estimating,
            is_centred=self.records.outcomes is not None,
            products=self.terms.products,
        )

    @cached_property
    def start(self) -> np.ndarray:
        """Return where rounds begin without a method before them, (d,): near the initial point."""
        records, slope = self.records, self.slope()
        start = near_prior(records, records.start, slope)
        return away_from_stationary(records, start, slope, self.scores)

    def likelihoods(self, state: State) -> tuple[Likelihood, Likelihood]:
        """Return the likelihoods of a state: draws, moments and doubts ask for the same ones."""
        if not self.latest or self.latest[0][0] is not state:
            self.latest[:] = [(state, likelihoods(self.known, state))]
        return self.latest[0][1]

    def draw(self, state: State, draws: int, rng: np.random.Generator) -> Both:
        """Draw the posterior, with the width of the noise and without it."""
        found, without = self.likelihoods(state)

        def by_latents(v: np.ndarray) -> dict[str, np.ndarray]:
            return dict(zip(self.records.point, self.records.split(v), strict=True))

        if self.written is not None:
            A, c = dense(found.A), found.c.reshape(-1)
            lost = dense(without.A) - A
            return self.written.draw(NormalLikelihood(c, A), lost, draws, rng)
        wide, narrow = (covariance(self.known, x) for x in (found, without))
        v = draw_gaussian(found.mean.reshape(-1), wide, draws, rng)
        less = shrunk(v, wide, narrow)
        return by_latents(v), None if less is None else by_latents(less)

    def doubts(self, state: State) -> tuple[Doubt, ...]:
        """List what is doubtful about the posterior."""
        noisy, _ = self.likelihoods(state)
        of_rounds = doubts_of_rounds(self.records, self.known, state, noisy, self.terms.of_units)
        of_chains = () if self.written is None else doubts_of_chains(self.written, noisy)
        return (*of_rounds, *of_chains)


def rounds_of(records: Records, terms: RoundTerms) -> Rounds:
    """Return rounds of a model, with the posterior in closed form where it is normal."""
    slope = cache(partial(prior_gradient, records, "python"))
    written = prior_as_written(records)
    if [*written.reduced.latents] == [*records.latents]:  # all are read, and none became groups
        normal = if_normal(slope(), records.start)
        if normal is not None:
            return Rounds(records, terms, lambda: normal, slope, None)

    def own() -> NormalPrior:
        _ = written.integrated  # what cannot be drawn fails here, before any budget is spent
        return written.normal

    of_all = cache(partial(prior_gradient, written.records, "python"))

    def of_read(z: np.ndarray) -> np.ndarray:  # others are at their start
        point = written.records.start.copy()
        point[written.places] = z
        return np.asarray(of_all()(point)[written.places])

    return Rounds(written.reduced, terms, own, lambda: of_read, written)


def normal_rounds_of(records: Records, terms: RoundTerms) -> Rounds:
    """Return rounds of all latents with a normal posterior, after a method that has them all."""
    slope = cache(partial(prior_gradient, records, "python"))

    def normal() -> NormalPrior:
        exact = if_normal(slope(), records.start)
        return exact or NormalPrior.of(drawn_or_wide(records, np.arange(records.size)))

    return Rounds(records, terms, normal, slope, None)


def stages_of_rounds(
    rounds: Rounds,
    share: float = 1.0,
    point: Callable[[Any], np.ndarray] | None = None,
) -> tuple[Stage, Stage]:
    """Return the stages: scales of scores, then rounds, which take ``share`` of the budget.

    ``point`` returns where the method before has ended.

    **Privacy.** A vector of magnitudes of scores (`score_scales`), then one joint vector for each
    round (`whitened_scores`), of all records; coordinates and clip norms are functions of earlier
    releases. All else is post-processing.
    """
    scales, scored = Stage(_scales(rounds, share)), Stage(_scores(rounds, share))
    if point is None:
        return scales, scored

    def after(state: Any) -> State:
        start = near_prior(rounds.records, point(state), rounds.slope())
        return begin(rounds.known, start)

    return scales._replace(hand_over=after), scored


def _scales(rounds: Rounds, share: float) -> Method:
    """Release the scales of scores."""
    d, own = rounds.records.size, share * CONSTANTS.share_of_scales
    # latents whose scores at observed outcomes are measured, too
    observed = [] if rounds.scale is None else [rounds.scale.latent]
    norm = size_of_scales(d, len(observed)) ** 0.5
    return Method(
        size=vector_size(rounds.dispersion, rounds.terms.survey is not None),
        init=lambda rng: begin(rounds.known, rounds.start),
        settings={},
        algorithms=(of_rounds(rounds.records, rounds.terms.estimating),),
        releases=(ReleaseSpec(SCALES, Full(), norm, count=1, share=own),),
        compile=lambda backend: Compiled(
            {SCALES: score_scales(rounds.scores, observed, unit_of_scores(rounds.known))},
            partial(measured, rounds.known),
            runs_on="python",
        ),
        query=lambda state, rng: Query(SCALES, state.at.point),
        posterior=lambda state, draws, rng: rounds.draw(state, draws, rng)[0],
        describe=lambda state: describe(
            rounds.records, rounds.known, state, rounds.likelihoods(state)
        ),
        trace=lambda state: {
            "mean_path": (("rows",), state.at.point),
            "noise_to_signal": ((), state.report.noise_to_signal),
        },
        doubts=rounds.doubts,
        defaults=(CONSTANTS,),
    )


def _scores(rounds: Rounds, share: float) -> Method:
    """Release scores and slopes in whitened coordinates."""
    norm = CONSTANTS.clip * rounds.records.size**0.5 * joint_norm(rounds.terms.products)

    def aware(state: State, draws: int, rng: np.random.Generator) -> Both | None:
        is_noisy = state.t > 1 and state.report.noise_unit > 0
        return rounds.draw(state, draws, rng) if is_noisy else None

    return _scales(rounds, share)._replace(
        releases=tuple(
            ReleaseSpec(SCORES, Full(), norm, count=1, share=share * own)
            for own in rounds.terms.shares
        ),
        compile=lambda backend: Compiled(
            {SCORES: whitened_scores(rounds.scores)},
            partial(update, rounds.known),
            runs_on="python",
        ),
        query=lambda state, rng: Query(SCORES, state.at, state.at.clip_norm),
        noise_aware=aware,
    )


def whitened_method(
    records: Records, terms: RoundTerms, find_start: FindStart = lambda: None
) -> Method:
    """Fit by rounds alone, from where histograms or else ``find_start`` find latents, if at all."""
    start = histogram_start(records, terms.of_units) or find_start()
    rounds = rounds_of(records, terms)
    stages: tuple[Stage, ...]
    if start is None:
        stages = stages_of_rounds(rounds)
    else:
        point = partial(point_at, rounds.records)
        (scales, begin), scores = stages_of_rounds(rounds, 1 - start.share, point)
        stages = *start.stages(scales, begin), scores
    whole = chain(*stages)
    # the last round has no share: it takes what the others leave, and a caller's noise multiplier
    *specs, last = (spec for stage in stages for spec in stage.method.releases)
    whole = whole._replace(releases=(*specs, replace(last, share=None)))
    if not records.mixtures:
        return whole

    def doubts(staged: Any) -> tuple[Doubt, ...]:
        slope = prior_gradient(records, "python")
        return *whole.doubts(staged), *lost_components(records, slope, whole.describe(staged))

    return whole._replace(doubts=doubts)
