"""A private score as the last release of a fit: how well its posterior predicts the records.

The score is a stage that follows the fit, so that plan, wall, driver and result treat both as one
method.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.accounting.release import ReleaseSpec
from pymc_dp.contributions.predictive_density import Range, predictive_density
from pymc_dp.methods.method import Compiled, Method, Stage, Staged, chain
from pymc_dp.methods.options import require_shared_latents
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch, RowContribution
from pymc_dp.privacy.query import Query
from pymc_dp.sampling.samplers import Full

NAME = "log predictive density"


class Defaults(NamedTuple):
    """Tuned constants of the score; public numbers."""

    draws: int = 30  # behind a record's log predictive density, where a method has as many
    share: float = 0.2  # of what a fit spends, on the scale of squared signal over noise


DEFAULTS = Defaults()


class Scored(NamedTuple):
    """The last state of a fit, and its score once it is released."""

    fit: Any
    score: float | None = None


def with_score(records: Records, method: Method, limits: Range) -> Method:
    """Let a method end with the release of its score, for models whose records share all latents.

    **Privacy.** One more release of all records: the sum of their log predictive densities, each
    clipped to ``limits`` and less their centre, so that its sensitivity is half their distance.
    """
    require_shared_latents(
        records,
        ", so that a record has no log predictive density in closed form to score it by: tune "
        "cannot compare settings of this model.",
    )
    scoring = method._replace(
        releases=(ReleaseSpec(NAME, Full(), limits.radius, count=1, share=DEFAULTS.share),),
        compile=lambda backend: Compiled(
            {NAME: _densities(records, limits, backend)},
            lambda state, query, noisy: state._replace(score=float(noisy.value[0])),
        ),
        query=partial(_query, records, method),
        posterior=_of_fit(method.posterior),
        noise_aware=method.noise_aware and _of_fit(method.noise_aware),
        doubts=_of_fit(method.doubts),
        describe=_of_fit(method.describe),
        trace=_of_fit(method.trace),
        defaults=(DEFAULTS,),
    )
    return chain(method, Stage(scoring, Scored))


def score_of(last: Staged) -> float | None:
    """Return the score of a fit's last state; none if the fit was interrupted."""
    return last.state.score if last.stage else None


def _of_fit(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda state, *args: function(state.fit, *args)


def _query(records: Records, method: Method, state: Scored, rng: np.random.Generator) -> Query:
    values = method.draw(state.fit, DEFAULTS.draws, rng)
    parts = [np.reshape(values[name], (len(values[name]), -1)) for name in records.point]
    return Query(NAME, np.concatenate(parts, axis=1))


def _densities(records: Records, limits: Range, backend: str) -> RowContribution:
    """Contribute log mean p(record | z) over the draws z, clipped and centred."""
    # the centre is the same for all settings: taking it off changes no ranking
    densities = predictive_density(records, limits, backend)

    def prepare(batch: Batch, points: np.ndarray) -> np.ndarray:
        return densities(batch, points) - limits.centre

    return RowContribution(1, DEFAULTS.draws, lambda scores, points: scores[:, None], prepare)
