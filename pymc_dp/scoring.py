"""A private score as the last release of a fit: how well its posterior predicts the records.

A method with a score is a method like any other, so that plan, wall, driver and result know nothing
of it.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from pymc_dp.contributions import Contribution
from pymc_dp.contributions.contribution import Batch
from pymc_dp.contributions.gradients import checked, on_batch
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.refusal import require_shared_latents
from pymc_dp.query import Noisy, Query
from pymc_dp.records import Records
from pymc_dp.release import Release, with_shares

NAME = "log predictive density"
# posterior draws behind a record's log predictive density, where a method has as many
DRAWS = 30
# of what a fit spends, on the scale of squared signal over noise
SHARE = 0.2


class Scored(NamedTuple):
    """A fit on its way to its score."""

    fit: Any
    left: int
    score: float | None


class Range(NamedTuple):
    """Where a record's log predictive density is clipped to."""

    low: float
    high: float

    @property
    def centre(self) -> float:
        """What is taken off every record: the same for all settings, it changes no ranking."""
        return (self.low + self.high) / 2

    @property
    def radius(self) -> float:
        """The largest distance from the centre: what one record can add to the score."""
        return (self.high - self.low) / 2


def with_score(records: Records, method: Method, limits: Range) -> Method:
    """Let a method end with the release of its score.

    Raises
    ------
    NotSeparableError
        Records have latents of their own, over which no density is known in closed form.

    Notes
    -----
    **Privacy.** One more release of all records: the sum of their log predictive densities, each
    clipped to ``limits`` and less their centre, so that its sensitivity is half their distance.
    """
    require_shared_latents(
        records,
        ", so that a record has no log predictive density in closed form to score it by: tune "
        "cannot compare settings of this model.",
    )
    total = sum(release.count for release in method.releases)
    return method._replace(
        releases=with_shares(
            method.releases, {Release(NAME, "full", 1.0, limits.radius, 1.0, 1): SHARE}
        ),
        compile=partial(_compile, records, method, limits),
        init=lambda rng: Scored(method.init(rng), total, None),
        query=partial(_query, records, method),
        posterior=_of_fit(method.posterior),
        noise_aware=method.noise_aware and _of_fit(method.noise_aware),
        describe=_of_fit(method.describe),
        trace=_of_fit(method.trace),
        rehearsal=lambda rng: (
            *(Scored(state, total, None) for state in method.trials(rng)),
            Scored(method.init(rng), 0, None),
        ),
    )


def _of_fit(function: Callable) -> Callable:
    return lambda state, *args: function(state.fit, *args)


def _query(records: Records, method: Method, state: Scored, rng: np.random.Generator) -> Query:
    if state.left:
        return method.query(state.fit, rng=rng)
    values = method.draw(state.fit, DRAWS, rng)
    parts = [np.reshape(values[name], (len(values[name]), -1)) for name in records.point]
    return Query(NAME, np.concatenate(parts, axis=1))


def _compile(records: Records, method: Method, limits: Range, backend: str) -> Compiled:
    inner = method.compile(backend)
    contributions = {**inner.contributions, NAME: _densities(records, limits, backend)}
    return Compiled(contributions, partial(_update, inner.update))


def _update(update: Callable, state: Scored, query: Query, noisy: Noisy) -> Scored:
    if query.name == NAME:
        return state._replace(score=float(noisy.value[0]))
    return Scored(update(state.fit, query, noisy), state.left - 1, None)


def _densities(records: Records, limits: Range, backend: str) -> Contribution:
    """Contribute log mean p(record | z) over the draws z, clipped and centred.

    A record whose density is not a number is as badly predicted as any can be.
    """
    log_density = on_batch(records, [], checked(records, records.batch.log_likelihood()), backend)

    def prepare(batch: Batch, points: np.ndarray) -> np.ndarray:
        each = np.stack([log_density(batch, z) for z in points])
        found = logsumexp(each, axis=0) - math.log(len(points))
        found = np.where(np.isnan(found), limits.low, found)
        return np.clip(found, limits.low, limits.high) - limits.centre

    return Contribution(
        1,
        DRAWS,
        norms=lambda scores, points: np.abs(scores),
        weighted_sum=lambda scores, points, weights: np.atleast_1d(weights @ scores),
        prepare=prepare,
    )
