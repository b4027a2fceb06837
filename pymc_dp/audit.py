"""What an attacker can show about a method's epsilon, by experiment: a lower bound."""

import dataclasses
import math
from typing import Any

import numpy as np
import pymc as pm
from rich.progress import track

from pymc_dp.attack import Claims, Sight, features, learn, lower_bound
from pymc_dp.canary import Neighbours, Seen, candidates, choose, columns_of, others, plant, usable
from pymc_dp.contributions import Contribution
from pymc_dp.fit import carry_out
from pymc_dp.methods.method import Compiled
from pymc_dp.prepare import Prepared, compile_prepared, prepare
from pymc_dp.query import Noisy, Query
from pymc_dp.records import Column
from pymc_dp.release import check_count

FEWEST_RUNS = 40
LEAST_CONFIDENCE = 0.9999
# where a claim is tested beside its own delta: noise that is short shows at a large one first
LARGE_DELTAS = np.geomspace(1e-3, 0.5, 12)


@dataclasses.dataclass(frozen=True)
class Audit:
    """What an attack on many runs of a method proves; prints as a sentence.

    Attributes
    ----------
    method : str
    epsilon_lower : float
        No smaller epsilon than this holds, up to the confidence.
    epsilon, delta : float
        The claim. A plan claims an epsilon at every delta: this is its own delta, unless another
        one is where the attack contradicts it.
    confidence : float
        One minus the probability that ``epsilon_lower`` is too large.
    runs : int
        Half of them taught the attacker, the other half judged.
    most : float
        The largest ``epsilon_lower`` that so many runs can prove.
    """

    method: str
    epsilon_lower: float
    epsilon: float
    delta: float
    confidence: float
    runs: int
    most: float

    @property
    def contradicted(self) -> bool:
        """Whether the claim is proved wrong."""
        return self.epsilon_lower > self.epsilon

    def __str__(self) -> str:
        verdict = "which contradicts" if self.contradicted else "which does not contradict"
        return (
            f"An attack on {self.runs} runs of {self.method} on made-up records shows that epsilon "
            f"is at least {self.epsilon_lower:.3g} at delta={self.delta:g} (confidence "
            f"{self.confidence:g}), {verdict} the claim of {self.epsilon:.3g}; so many runs could "
            f"show {self.most:.3g} at most."
        )


def audit(
    model: pm.Model | None = None,
    method: str = "dp_advi",
    n: int | None = 8,
    *,
    runs: int = 1000,
    rows: int = 10,
    confidence: float = LEAST_CONFIDENCE,
    random_seed: int | None = None,
    progressbar: bool = True,
    backend: str = "python",
    **settings: Any,
) -> Audit:
    """Attack a method's real code on made-up records, and say what epsilon that disproves.

    A record that stands out, the canary, is in the data of about half of the runs. The attacker
    knows all other records, sees every release with what was asked, and learns on one half of the
    runs how to tell; the other half is the judge.

    Parameters
    ----------
    model : pymc.Model, optional
        Inside ``with model:`` it may be left out. Its data are not read beyond their shapes.
    method : str
        A private method of `pymc_dp.fit`.
    n : int, optional
        Releases of a run; None for the method's own default.
    runs : int
        Fits, at least 40. Without an error among them, 1000 prove an epsilon of 3.2.
    rows : int
        Made-up records beside the canary; few, for those that a batch happens to hold hide it.
    confidence : float
        At least 0.9999, so that it does not cry wolf.
    random_seed : int, optional
        Drives the made-up records, the coins and the public draws; noise is never reproducible.
    progressbar : bool
    backend : {"python", "numba", "c", "jax"}
    **settings
        As in `pymc_dp.fit`: the budget, and options of the method. Batches that hold many of the
        records (``sample_rate=0.5``, ``sampling="full"``) let an attack show more.

    Returns
    -------
    Audit

    Raises
    ------
    ValueError
        There is no finite epsilon to audit, or a setting is out of its range.
    NotSeparableError
        The method does not fit the model.

    Notes
    -----
    **Privacy.** Spends nothing: no run sees the model's own data. The bound is from below, so it
    can disprove a claim and never prove one.

    Source: Jagielski, Ullman and Oprea (2020), with Clopper-Pearson bounds.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     y = pm.Bernoulli("y", p, observed=np.repeat([0, 1], [300, 700]))
    >>> found = pymc_dp.audit(model, epsilon=1, delta=1e-5, runs=40, progressbar=False)
    >>> found.contradicted
    False
    """
    check_count("rows", rows)
    _check_runs(runs, confidence)
    prepared = prepare(pm.modelcontext(model), method, n, **settings)
    rng = np.random.default_rng(random_seed)
    claims = _claims(prepared)
    compiled = compile_prepared(prepared, backend)
    pair = _neighbours(prepared, compiled, rng, rows)
    seed, present = int(rng.integers(2**32)), rng.permutation(np.arange(runs) % 2 == 0)
    coins = track(present, "Attacked fits", disable=not progressbar)
    attacked = [_attacked(prepared, compiled, pair, held, seed) for held in coins]
    lower, most = _judged(np.array(attacked), present, claims, 1 - confidence)
    k = int((lower - claims.epsilon).argmax()) if (lower > claims.epsilon).any() else 0
    return Audit(
        method=prepared.name,
        epsilon_lower=float(lower[k]),
        epsilon=float(claims.epsilon[k]),
        delta=float(claims.delta[k]),
        confidence=confidence,
        runs=runs,
        most=float(most[k]),
    )


def _check_runs(runs: int, confidence: float) -> None:
    check_count("runs", runs)
    if runs < FEWEST_RUNS:
        raise ValueError(f"runs={runs} prove nothing: give at least {FEWEST_RUNS}.")
    if not LEAST_CONFIDENCE <= confidence < 1:
        raise ValueError(
            f"confidence={confidence!r} must be below 1 and at least {LEAST_CONFIDENCE}: below "
            "that an audit cries wolf."
        )


def _claims(prepared: Prepared) -> Claims:
    """What the plan claims at its own delta, which comes first, and at larger ones."""
    plan = prepared.plan
    if plan.unit is not None:
        raise ValueError("An audit plants a single record: leave unit= out.")
    if plan.assumes_exact_draws or not math.isfinite(plan.epsilon()):
        raise ValueError(
            f"method={prepared.name!r} claims no finite epsilon under these settings, so there is "
            "nothing to audit."
        )
    deltas = np.append(plan.delta, LARGE_DELTAS)
    return Claims(deltas, plan.epsilon_profile(deltas))


def _judged(
    seen: np.ndarray, present: np.ndarray, claims: Claims, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """Learn on one half and judge on the other: what is proved at each delta, and what could be.

    Two rules are learned, one for the plan's own delta and one for all; they share ``alpha``. The
    bounds on a rule's error rates do not depend on delta, so they hold at all of them.
    """
    half = len(seen) // 2
    held = present[half:]
    counts = int(held.sum()), int((~held).sum())
    proved = []
    for aim in (Claims(claims.delta[:1], claims.epsilon[:1]), claims):
        guesses = learn(seen[:half], present[:half], aim, alpha / 2).guesses(seen[half:])
        errors = int((~guesses & held).sum()), int((guesses & ~held).sum())
        proved.append(lower_bound(*errors, *counts, claims.delta, alpha / 2))
    return np.max(proved, axis=0), lower_bound(0, 0, *counts, claims.delta, alpha / 2)


def _neighbours(
    prepared: Prepared, compiled: Compiled, rng: np.random.Generator, rows: int
) -> Neighbours:
    """Choose a canary by what candidates would contribute in a pilot run."""
    records, columns = prepared.records, prepared.columns
    if prepared.plan.neighbours == "replace_one":
        rows -= 1  # so that both data sets have as many as the caller said
    base, tried = others(records, rng, rows), candidates(records, rng)
    pilot = columns_of(columns, base, [*range(rows), 0])
    queries = [query for query, _ in _released(prepared, compiled, pilot, int(rng.integers(2**32)))]
    seen = [
        Seen(_contribution(compiled, query), query.context, _clip_norm(prepared, query))
        for query in queries
    ]
    base, tried = (usable(made, seen, columns) for made in (base, tried))
    return plant(columns, base, tried, choose(tried, seen, prepared.plan.neighbours))


def _released(
    prepared: Prepared, compiled: Compiled, columns: dict[str, Column], seed: int
) -> list[tuple[Query, Noisy]]:
    """Run a fit by the real driver and the real wall, and keep what it released."""
    seen: list[tuple[Query, Noisy]] = []

    def update(state: Any, query: Query, noisy: Noisy) -> Any:
        seen.append((query, noisy))
        return compiled.update(state, query, noisy)

    held = prepared._replace(columns=columns)
    spied = compiled._replace(update=update)
    carry_out(held, spied, np.random.default_rng(seed), range(prepared.plan.total))
    return seen


def _attacked(
    prepared: Prepared, compiled: Compiled, pair: Neighbours, held: bool, seed: int
) -> np.ndarray:
    """Run a fit with or without the canary and return what the attacker makes of it."""
    released = _released(prepared, compiled, pair.present if held else pair.absent, seed)
    return features([_sight(prepared, compiled, pair, query, noisy) for query, noisy in released])


def _sight(
    prepared: Prepared, compiled: Compiled, pair: Neighbours, query: Query, noisy: Noisy
) -> Sight:
    """Subtract what the attacker expects of the others.

    The clipping is his own: a fault of the wall's must not become his.
    """
    contribution = _contribution(compiled, query)
    with np.errstate(all="ignore"):
        at = contribution.prepare(pair.rows, query.context)
        norms = contribution.norms(at, query.context)
        weights = np.fmin(1.0, _clip_norm(prepared, query) / norms)
        weights[~np.isfinite(norms)] = 0.0
        known, canary = np.arange(len(norms)), np.arange(len(norms)) == pair.others
        instead = known > pair.others
        base = contribution.weighted_sum(at, query.context, weights * ~canary)
        shift = contribution.weighted_sum(at, query.context, weights * (1.0 * canary - instead))
    rest = noisy.value - noisy.sample_rate * base
    return Sight(query.name, rest / noisy.sd, shift / noisy.sd, noisy.sample_rate)


def _contribution(compiled: Compiled, query: Query) -> Contribution:
    found = compiled.contributions[query.name]
    if not isinstance(found, Contribution):
        raise ValueError(f"Release {query.name!r} is no sum over records, so no canary adds to it.")
    return found


def _clip_norm(prepared: Prepared, query: Query) -> float:
    planned = next(r.clip_norm for r in prepared.plan.releases if r.name == query.name)
    return planned if query.clip_norm is None else query.clip_norm
