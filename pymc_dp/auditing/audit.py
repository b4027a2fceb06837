"""What an attacker can show about a method's epsilon, by experiment: a lower bound."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from rich.progress import track

from pymc_dp.accounting.plan import check_count
from pymc_dp.auditing.attack import Claims, learn, lower_bound
from pymc_dp.auditing.attacked_fit import AttackedFit
from pymc_dp.driver.fit import set_up
from pymc_dp.driver.run import Setup, compile_method

FEWEST_RUNS = 40
LEAST_CONFIDENCE = 0.9999
# where a claim is tested beside its own delta: noise that is short shows at a large one first
LARGE_DELTAS = np.geomspace(1e-3, 0.5, 12)


@dataclasses.dataclass(frozen=True)
class Audit:
    """What an attack on many runs of a method proves; prints as a sentence."""

    method: str
    epsilon_lower: float  # no smaller epsilon than this holds, up to the confidence
    # epsilon, delta: the claim. A plan claims an epsilon at every delta: this is its own delta,
    # unless another one is where the attack contradicts it
    epsilon: float
    delta: float
    confidence: float  # one minus the probability that epsilon_lower is too large
    runs: int  # the attacker learned on half of them, and was judged on the other half
    most: float  # the largest epsilon_lower that so many runs can prove

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
    canary: Mapping[str, Any] | None = None,
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
    canary : dict, optional
        A record of your own in place of the one that a pilot run chooses: for every array that goes
        by records, as `pymc_dp.explain` lists them, the value or the row of values. Make it up, or
        take a public one: what an audit shows of a private record, no epsilon covers. Under
        replace-one neighbours a made-up record, far from it, takes its place.
    confidence : float
        At least 0.9999, so that a sound claim is hardly ever contradicted.
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
    prepared = set_up(pm.modelcontext(model), method, n, **settings)
    rng = np.random.default_rng(random_seed)
    claims = _claims(prepared)
    fit = AttackedFit(prepared, compile_method(prepared, backend))
    pair = fit.neighbours(rng, rows, canary)
    seed, present = int(rng.integers(2**32)), rng.permutation(np.arange(runs) % 2 == 0)
    coins = track(present, "Attacked fits", disable=not progressbar)
    attacked = [fit.attack(pair, with_canary, seed) for with_canary in coins]
    lower, most = _judge(np.array(attacked), present, claims, 1 - confidence)
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
            "that audits contradict sound claims too often."
        )


def _claims(prepared: Setup) -> Claims:
    """What the plan claims at its own delta, which comes first, and at larger ones."""
    plan = prepared.plan
    if plan.unit is not None:
        raise ValueError("An audit adds a single record: leave unit= out.")
    if not plan.all_sums or not math.isfinite(plan.epsilon()):
        raise ValueError(
            f"method={prepared.name!r} claims no finite epsilon under these settings, so there is "
            "nothing to audit."
        )
    deltas = np.append(plan.delta, LARGE_DELTAS)
    return Claims(deltas, plan.epsilon_profile(deltas))


def _judge(
    seen: np.ndarray, present: np.ndarray, claims: Claims, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """Learn on one half and judge on the other: what is proved at each delta, and what could be."""
    # two rules are learned, one for the plan's own delta and one for all; they share `alpha`. The
    # bounds on a rule's error rates do not depend on delta, so they hold at all of them.
    half = len(seen) // 2
    judged = present[half:]
    counts = int(judged.sum()), int((~judged).sum())
    proved = []
    for aim in (Claims(claims.delta[:1], claims.epsilon[:1]), claims):
        guesses = learn(seen[:half], present[:half], aim, alpha / 2)(seen[half:])
        errors = int((~guesses & judged).sum()), int((guesses & ~judged).sum())
        proved.append(lower_bound(*errors, *counts, claims.delta, alpha / 2))
    return np.max(proved, axis=0), lower_bound(0, 0, *counts, claims.delta, alpha / 2)
