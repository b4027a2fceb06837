"""Newton's last steps: from a private fit to a posterior that includes the privacy noise.

A few releases of scores and curvatures at the fitted point, each of all records, move the mean to
where the posterior's score vanishes. Their noise is known, and so is what it does to the mean:
Sigma = V + V S V / J with S the covariance of a score's noise.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_dp.contributions.curvature import At, bend, curves, score_and_curvature, split
from pymc_dp.contributions.lengths import Histogram, lengths
from pymc_dp.contributions.symmetric import floored
from pymc_dp.methods.blocks.averaging import Average
from pymc_dp.methods.method import Compiled, Draws, Method
from pymc_dp.query import Noisy, Query
from pymc_dp.records import Records
from pymc_dp.release import Release, with_shares

LENGTHS, NEWTON = "lengths", "newton"
RELEASES = 3
# shares of the budget: most of it moves the posterior to its place
LENGTHS_SHARE, NEWTON_SHARE = 0.08, 0.79
# the share of the records whose curvatures may be shortened, and how much longer than the root of
# theirs the longest scores are: their bias would move the posterior, and no covariance covers it
STEEPER, LOOSE = 0.1, 1.6
# shares of the noise's spectral edge that eigenvalues of curvatures are raised to: in steps, which
# must not follow noise, and in the posterior, which takes what is likely where noise hides them
FLOOR, LEAST = 0.5, 0.1
# a step moves by at most this many prior standard deviations, on average
TRUST = 1.0

Slope = Callable[[np.ndarray], np.ndarray]


class State(NamedTuple):
    """Where the last steps stand: released values and what follows from them.

    Attributes
    ----------
    t : int
    at : At
        Where the next release is asked.
    average : Average
        Of the means that full steps ended at.
    curvature, variance : (d, d), float
        Average of released curvatures, and the noise's variance on an entry.
    covariance : (d, d)
        The posterior's, as the records alone make it.
    noise_to_signal : float
        Of the latest release.
    share : float
        Of the curvature that is left where the steepest records' are shortened.
    """

    t: int
    at: At
    average: Average
    curvature: np.ndarray
    variance: float
    covariance: np.ndarray
    noise_to_signal: float
    share: float


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
    return first._replace(
        releases=with_shares(
            first.releases,
            {
                Release(LENGTHS, "full", 1.0, 1.0, 1.0, 1): LENGTHS_SHARE,
                Release(NEWTON, "full", 1.0, at_start.clip_norm, 1.0, RELEASES): NEWTON_SHARE,
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
        mean, covariance = self.believed(state)
        nothing = np.zeros((mean.size, mean.size))
        at = At(mean, self.typical, self.typical**2)
        unchanged = state.noise_to_signal
        return State(0, at, Average.start(mean), nothing, 0.0, covariance, unchanged, 1.0)

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
            return _measured(state, noisy, typical)
        if query.name == NEWTON:
            return _update(slope, state, noisy)
        state = update(state, query, noisy)
        return last.begin(state) if state.t == last.steps else state

    return Compiled({**contributions, **added}, update_either)


def _by_state(first: Callable, last: Callable) -> Callable:
    """Until the last steps have begun, the first method answers."""
    return lambda state, *rest: (last if isinstance(state, State) else first)(state, *rest)


def _measured(state: State, noisy: Noisy, unit: float) -> State:
    """Take how steep records are, and so how long scores may be, from the histogram."""
    roots = Histogram(noisy.value, noisy.sd, unit)
    root = roots.above(STEEPER)
    at = At(state.at.point, LOOSE * root, root**2)
    return state._replace(t=1, at=at, share=roots.kept(root), noise_to_signal=noisy.noise_to_signal)


def _update(slope: Slope, state: State, noisy: Noisy) -> State:
    """Average the curvature and take a full step."""
    at, d = state.at, state.at.point.size
    latest, rho = split(noisy.value, at), 1 / state.t
    curvature = (1 - rho) * state.curvature + rho * latest.curvature / state.share
    fresh = (noisy.sd / at.scale / state.share) ** 2
    variance = (1 - rho) ** 2 * state.variance + rho**2 * fresh
    prior = floored(bend(slope, at.point), 0.0)
    edge = (2 * d * variance) ** 0.5
    V = np.linalg.inv(prior + floored(curvature, FLOOR * edge))
    mean = at.point + _within(prior, V @ (latest.score + slope(at.point)))
    return State(
        t=state.t + 1,
        at=at._replace(point=mean),
        average=state.average.add(mean, noisy.sd**2 * V @ V, 1.0, rho),
        curvature=curvature,
        variance=variance,
        covariance=np.linalg.inv(prior + floored(curvature, LEAST * edge)),
        noise_to_signal=noisy.noise_to_signal,
        share=state.share,
    )


def _within(prior: np.ndarray, move: np.ndarray) -> np.ndarray:
    size = np.sqrt(np.mean(np.diag(prior) * move**2))
    return move * min(1.0, TRUST / max(size, 1e-300))


def _draw(
    records: Records, noise: float, state: State, draws: int, rng: np.random.Generator
) -> Draws:
    covariance = state.covariance + noise * state.average.noise
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
            "noise_covariance": (square, state.average.noise),
        },
        {"rows": labels, "columns": labels},
    )


def _trace(typical: float, state: State) -> dict[str, tuple[tuple[str, ...], Any]]:
    return {
        "mean_path": (("rows",), state.at.point),
        "noise_to_signal": ((), state.noise_to_signal),
        "clip_factor": ((), state.at.longest / typical),
    }
