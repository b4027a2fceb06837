"""Newton's last steps: from a private fit to a posterior that includes the privacy noise.

A few releases of scores and curvatures at the fitted point, each of all records, move the mean to
where the posterior's score vanishes.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_dp.contributions.curvature import MANY, At, curves, score_and_curvature
from pymc_dp.contributions.lengths import lengths
from pymc_dp.methods.method import Compiled, Draws, Method
from pymc_dp.methods.newton_step import RELEASES, Slope, State, begin, measured, step
from pymc_dp.query import Noisy, Query
from pymc_dp.records import Records
from pymc_dp.release import Release, with_shares

LENGTHS, NEWTON = "lengths", "newton"
# shares of the budget: most of it moves the posterior to its place. With many latents curvatures
# are rough and the way is long, so the first method keeps more
LENGTHS_SHARE, NEWTON_SHARE, NEWTON_SHARE_OF_MANY = 0.08, 0.79, 0.5


class Believed(NamedTuple):
    """What a first method ends with: mean (d,) and covariance (d, d), on the real line."""

    mean: np.ndarray
    covariance: np.ndarray


def steps_before(n: int) -> int:
    """Return how many of ``n`` releases are left for what comes first.

    Raises
    ------
    ValueError
        None is.
    """
    last = 1 + RELEASES
    if n <= last:
        raise ValueError(
            f"n={n} leaves no release before the last {last}, which make the posterior "
            "noise-aware: give a larger n=, or noise_aware=False."
        )
    return n - last


def with_last_steps(
    first: Method,
    records: Records,
    prior: Callable[[str], Slope],
    believed: Callable[[Any], Believed],
    typical: float,
) -> Method:
    """Append Newton steps to a method.

    Parameters
    ----------
    first : Method
        Its states have their number of releases as ``t``.
    records : Records
    prior : backend -> (z -> gradient of the prior's log density)
    believed : state of ``first`` -> Believed
    typical : float
        A public guess at the typical norm of a score.

    Notes
    -----
    **Privacy.** A histogram, to which a record (or a unit) adds one one, and `RELEASES` vectors of
    score and upper triangle of the curvature (off-diagonals times sqrt 2), clipped jointly. All
    take all records, and share one plan with the releases of ``first``. The clip norm of the
    vectors is a function of the histogram. All else is post-processing.
    """
    last = _Last(first, records, believed, typical, sum(r.count for r in first.releases))
    at_start = At(np.zeros(0), typical, typical**2)
    share = NEWTON_SHARE if records.size <= MANY else NEWTON_SHARE_OF_MANY
    return first._replace(
        releases=with_shares(
            first.releases,
            {
                Release(LENGTHS, "full", 1.0, 1.0, 1.0, 1): LENGTHS_SHARE,
                Release(NEWTON, "full", 1.0, at_start.clip_norm, 1.0, RELEASES): share,
            },
        ),
        compile=partial(_compile, last, prior),
        query=last.query,
        posterior=_by_state(first.posterior, partial(_draw, records, 0.0)),
        noise_aware=partial(_noise_aware, records),
        describe=_by_state(first.describe, partial(_describe, records)),
        trace=_by_state(first.trace, partial(_trace, typical)),
        rehearsal=last.trials,
    )


class _Last(NamedTuple):
    """The last steps of one fit, and what they follow."""

    first: Method
    records: Records
    believed: Callable[[Any], Believed]
    typical: float
    steps: int

    def begin(self, state: Any) -> State:
        return begin(*self.believed(state), self.typical, state.noise_to_signal)

    def query(self, state: Any, rng: np.random.Generator) -> Query:
        if not isinstance(state, State):
            return self.first.query(state, rng=rng)
        if state.t == 0:
            return Query(LENGTHS, state.at.point)
        return Query(NEWTON, state.at, state.at.clip_norm)

    def trials(self, rng: np.random.Generator) -> Sequence[Any]:
        begun = self.begin(self.first.init(rng))
        return (*self.first.trials(rng), begun, begun._replace(t=1))


def _compile(last: _Last, prior: Callable[[str], Slope], backend: str) -> Compiled:
    contributions, update = last.first.compile(backend)
    slope, typical = prior(backend), last.typical
    # a few passes over the records: any faster backend would take longer to compile
    bent = curves(last.records, "python")
    added = {
        LENGTHS: lengths(last.records, bent, typical),
        NEWTON: score_and_curvature(last.records, bent),
    }

    def update_either(state: Any, query: Query, noisy: Noisy) -> Any:
        if query.name == LENGTHS:
            return measured(state, noisy, typical)
        if query.name == NEWTON:
            return step(slope, state, noisy)
        state = update(state, query, noisy)
        return last.begin(state) if state.t == last.steps else state

    return Compiled({**contributions, **added}, update_either)


def _by_state(first: Callable, last: Callable) -> Callable:
    """Until the last steps have begun, the first method answers."""
    return lambda state, *rest: (last if isinstance(state, State) else first)(state, *rest)


def _draw(
    records: Records, noise: float, state: State, draws: int, rng: np.random.Generator
) -> Draws:
    covariance = state.covariance + noise * state.noise
    v = rng.multivariate_normal(state.average.mean, covariance, draws, method="cholesky")
    return dict(zip(records.point, records.split(v), strict=True))


def _noise_aware(
    records: Records, state: Any, draws: int, rng: np.random.Generator
) -> Draws | None:
    """Draw with the noise; that of a fit which was stopped before is not known."""
    if not isinstance(state, State) or state.t < 2:
        return None
    return _draw(records, 1.0, state, draws, rng)


def _describe(records: Records, state: State) -> xr.Dataset:
    labels = records.labels
    square = ("rows", "columns")
    return xr.Dataset(
        {
            "mean_vector": ("rows", state.average.mean),
            "standard_deviation": ("rows", np.sqrt(np.diag(state.covariance))),
            "covariance_matrix": (square, state.covariance),
            "noise_covariance": (square, state.noise),
        },
        {"rows": labels, "columns": labels},
    )


def _trace(typical: float, state: State) -> dict[str, tuple[tuple[str, ...], Any]]:
    return {
        "mean_path": (("rows",), state.at.point),
        "noise_to_signal": ((), state.noise_to_signal),
        "clip_factor": ((), state.at.longest / typical),
    }
