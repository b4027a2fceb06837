"""Rounds in whitened coordinates as a method."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.doubts import doubts_of_chains
from pymc_dp.methods.gaussian.hyperpriors import Hyperpriors, hyperpriors
from pymc_dp.methods.gaussian.likelihood import likelihood
from pymc_dp.methods.gaussian.private_start import FindStart, point_at
from pymc_dp.methods.gaussian.schedule import RoundTerms
from pymc_dp.methods.gaussian.stages import stages_of_rounds
from pymc_dp.methods.gaussian.state import Gradient, State
from pymc_dp.methods.method import Both, Method, OnRealLine, Stage, chain
from pymc_dp.methods.mixture.histogram import histogram_start
from pymc_dp.methods.mixture.model import lost_components
from pymc_dp.methods.prior import prior_gradient
from pymc_dp.model import Records


def whitened_method(
    records: Records,
    prior: Callable[[str], Gradient],
    terms: RoundTerms,
    find_start: FindStart = lambda: None,
) -> Method:
    """Fit by rounds alone.

    They begin at the initial point, or where histograms, else what ``find_start`` returns, find
    the latents. Latents that no record reads are drawn with the others, in the end.
    """
    start = histogram_start(records, terms.of_units) or find_start()
    hyper, draw, of_rounds, slope = hyperpriors(records), None, records, prior
    start_width = DEFAULTS.start_width
    if hyper is not None:
        of_rounds, slope = hyper.reduced, partial(_slope_of, hyper)
        draw = partial(_draw_with_hyperpriors, hyper)
        start_width = 1.0  # the prior of the rounds is wider than the model's already

    def stages(**begin: Any) -> list[Stage]:
        settings = {"draw": draw, "start_width": start_width, **begin}
        found = stages_of_rounds(of_rounds, slope, terms, **settings)
        return [_with_doubts_of_chains(stage, hyper) for stage in found] if hyper else [*found]

    if start is None:
        (first, _), *others = stages()
    else:
        (scales, begin), *rounds = stages(share=1 - start.share, point=partial(point_at, of_rounds))
        first, hand_over = start.before(scales, begin)
        others = [Stage(scales, hand_over), *rounds]
    whole = chain(first, *others)
    every = (first, *(stage.method for stage in others))
    # the last round has no share: it takes what the others leave, and a caller's noise multiplier
    *specs, last = (spec for method in every for spec in method.releases)
    return whole._replace(
        releases=(*specs, dataclasses.replace(last, share=None)),
        doubts=lambda staged: (
            *whole.doubts(staged),
            *lost_components(records, prior("python"), whole.describe(staged)),
        ),
    )


def by_rounds(terms: RoundTerms, find_start: FindStart = lambda: None) -> OnRealLine:
    """Release scores and curvatures like `dp_advi`, whatever the scales of the data are.

    What a record adds is the method's own, as `RoundTerms.estimating` says.
    """

    def build(records: Records) -> Method:
        return whitened_method(records, partial(prior_gradient, records), terms, find_start)

    return OnRealLine(build)


def _with_doubts_of_chains(stage: Stage, hyper: Hyperpriors) -> Stage:
    doubts = stage.method.doubts
    method = stage.method._replace(
        doubts=lambda state: (*doubts(state), *doubts_of_chains(hyper, state))
    )
    return stage._replace(method=method)


def _slope_of(hyper: Hyperpriors, backend: str) -> Gradient:
    """Return the slope of the normal prior; what cannot be drawn in the end fails here."""
    _ = hyper.integrated  # compiled here, before any budget is spent
    return hyper.prior.gradient


def _draw_with_hyperpriors(
    hyper: Hyperpriors, state: State, draws: int, rng: np.random.Generator
) -> Both:
    without = likelihood(state, hyper.prior, 0.0)
    known = likelihood(state, hyper.prior, 1.0) if state.noise_unit else without
    lost = without.precision - known.precision
    found, hyper.mixing[state.learnt.mode.mean.tobytes()] = hyper.draw(known, lost, draws, rng)
    return found
