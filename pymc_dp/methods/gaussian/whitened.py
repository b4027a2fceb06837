"""Rounds in whitened coordinates as a method."""

import dataclasses
from collections.abc import Callable
from functools import partial

import numpy as np

from pymc_dp.methods.chain import chain
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.doubts import doubts_of_chains
from pymc_dp.methods.gaussian.hyperpriors import Hyperpriors, hyperpriors
from pymc_dp.methods.gaussian.likelihood import likelihood
from pymc_dp.methods.gaussian.schedule import RoundCounts
from pymc_dp.methods.gaussian.stages import stages_of_rounds
from pymc_dp.methods.gaussian.state import Gradient, State
from pymc_dp.methods.method import Draws, Method, OnRealLine
from pymc_dp.methods.prior import prior_gradient
from pymc_dp.model import Records


def whitened_method(
    records: Records,
    prior: Callable[[str], Gradient],
    number: int | None,
    counts: RoundCounts,
) -> Method:
    """Fit by rounds alone, from the model's initial point.

    Latents that no record reads are drawn with the others, in the end.
    """
    hyper, draw, start_width = hyperpriors(records), None, DEFAULTS.start_width
    if hyper is not None:
        records, prior = hyper.reduced, partial(_slope_of, hyper)
        draw = partial(_draw_with_hyperpriors, hyper)
        start_width = 1.0  # the prior of the rounds is wider than the model's already
    scales, *rounds = stages_of_rounds(
        records, prior, number, counts, draw=draw, start_width=start_width
    )
    whole = chain(scales.method, *rounds)
    # the last round has no share: it takes what the others leave, and a caller's noise multiplier
    *others, last = (spec for stage in (scales, *rounds) for spec in stage.method.releases)
    whole = whole._replace(releases=(*others, dataclasses.replace(last, share=None)))
    if hyper is None:
        return whole
    return whole._replace(
        doubts=lambda staged: (*whole.doubts(staged), *doubts_of_chains(hyper, staged.state))
    )


def by_rounds(number: int | None, counts: RoundCounts) -> OnRealLine:
    """Release scores and curvatures like `dp_advi`, whatever the scales of the data are.

    With n records the fixed points of variational updates and of expectation propagation differ
    from the posterior's mode by a share 1/n of its width; noise and clipping differ by far more.
    """

    def build(records: Records) -> Method:
        return whitened_method(records, partial(prior_gradient, records), number, counts)

    return OnRealLine(build)


def _slope_of(hyper: Hyperpriors, backend: str) -> Gradient:
    """Return the slope of the normal prior; what cannot be drawn in the end fails here."""
    _ = hyper.integrated  # compiled here, before any budget is spent
    return hyper.prior.gradient


def _draw_with_hyperpriors(
    hyper: Hyperpriors, noise: float, state: State, draws: int, rng: np.random.Generator
) -> Draws:
    found, mixing = hyper.draw(likelihood(state.learnt, hyper.prior, noise), draws, rng)
    mode = state.learnt.mode.mean.tobytes()
    hyper.mixing[mode] = max(mixing, hyper.mixing.get(mode, mixing))
    return found
