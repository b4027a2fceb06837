"""What a method gives to the driver loop."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_dp.contributions import Contribution
from pymc_dp.contributions.posterior_draw import PosteriorDraw
from pymc_dp.query import Noisy, Query
from pymc_dp.release import Release

Draws = dict[str, np.ndarray]


class Compiled(NamedTuple):
    """The parts of a method that need compiled functions.

    Attributes
    ----------
    contributions : {release name: Contribution, or PosteriorDraw}
    update : (state, query, noisy) -> state
    """

    contributions: Mapping[str, Contribution | PosteriorDraw]
    update: Callable[[Any, Query, Noisy], Any]


class Method(NamedTuple):
    """A private method for one model: pure functions of released states.

    Attributes
    ----------
    size : int
        Length of the vector that a release hands out.
    releases : tuple of Release
        What the method will ask for, with noise multipliers relative to each other.
    compile : backend -> Compiled
    init : rng -> state
    query : (state, rng) -> Query
    posterior : (state, draws, rng) -> {latent's value variable: (draws, ...) array}
        As wide as the records alone make it.
    noise_aware : the same, or None
        As wide as records and privacy noise together make it. None where the caller declined it;
        it returns None for states of which the noise is not known, as after an early stop.
    describe : state -> Dataset
        The ``fit`` group: the released parameters.
    trace : state -> {name: (dims, array)}
        What of a state goes to ``fit_stats`` after a release.
    settings : dict
        The method's own settings, for the result.
    rehearsal : rng -> states
        One state for each kind of release, to try its graphs at; the initial one if None.
    most_draws : int, optional
        How many posterior draws there are where the releases themselves are the draws.
    """

    size: int
    releases: tuple[Release, ...]
    compile: Callable[[str], Compiled]
    init: Callable[[np.random.Generator], Any]
    query: Callable[..., Query]
    posterior: Callable[[Any, int, np.random.Generator], Draws]
    describe: Callable[[Any], xr.Dataset]
    trace: Callable[[Any], dict[str, tuple[tuple[str, ...], Any]]]
    settings: dict[str, Any]
    noise_aware: Callable[[Any, int, np.random.Generator], Draws | None] | None = None
    rehearsal: Callable[[np.random.Generator], Sequence[Any]] | None = None
    most_draws: int | None = None

    def draw(self, state: Any, draws: int, rng: np.random.Generator) -> Draws:
        """Draw the posterior with the privacy noise, where it is asked for and known."""
        aware = self.noise_aware and self.noise_aware(state, draws, rng)
        return aware or self.posterior(state, draws, rng)

    def trials(self, rng: np.random.Generator) -> Sequence[Any]:
        """States at which each kind of release can be tried before the first is made."""
        return self.rehearsal(rng) if self.rehearsal else (self.init(rng),)


def runs(values: Sequence[tuple], build: Callable[..., Release]) -> tuple[Release, ...]:
    """Group equal neighbours of a schedule into releases with their counts.

    >>> from pymc_dp.release import Release
    >>> def build(rate, clip, count):
    ...     return Release("score", "poisson", rate, clip, 1.0, count)
    >>> [r.count for r in runs([(0.1, 1.0), (0.1, 1.0), (0.2, 1.0)], build)]
    [2, 1]
    """
    releases, start = [], 0
    for stop in range(1, len(values) + 1):
        if stop == len(values) or values[stop] != values[start]:
            releases.append(build(*values[start], stop - start))
            start = stop
    return tuple(releases)
