"""Guess from what a fit released whether a record was in it, and what the guesses prove."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.stats import beta

# features are cut at this many interquartile ranges before they are combined
LARGEST_FEATURE = 20.0
TIE_BREAK = 1e-3  # how much a rule's advantage counts where no rule proves anything yet


class Observation(NamedTuple):
    """One release, as an attacker sees it, in units of the claimed noise."""

    name: str  # the release
    rest: np.ndarray  # what was released less what is expected of all other records
    shift: np.ndarray  # what the canary adds if it is in the batch
    sample_rate: float  # how likely it is in the batch


def features(observations: list[Observation]) -> np.ndarray:
    """Numbers that the canary moves, shape (7,): each shows another fault.

    The log likelihood ratio of correct releases, the plain sum of inner products, the largest, the
    first, and their energy; then the same of differences of successive releases, from which noise
    that is used twice drops out.
    """
    length = np.array([np.linalg.norm(s.shift) for s in observations])
    along = np.array([s.rest @ s.shift for s in observations]) / np.fmax(length, 1e-300)
    rate = np.array([s.sample_rate for s in observations])
    ratio = np.logaddexp(np.log1p(-np.fmin(rate, 1 - 1e-12)), np.log(rate) + length * along)
    ratio = ratio - np.log1p(rate * np.expm1(np.fmin(length**2 / 2, 50.0)))
    latest: dict[str, Observation] = {}
    change, size, jump = 0.0, 0.0, 0.0
    for b in observations:
        if a := latest.get(b.name):
            rest, shift = b.rest - a.rest, b.shift - a.shift
            change += float(rest @ shift)
            size += float(shift @ shift)
            jump = max(jump, abs(float(rest @ b.shift)))
        latest[b.name] = b
    return np.array(
        [
            ratio.sum(),
            (length * along).sum(),
            along.max(),
            along[0],
            (along**2).sum(),
            change / max(size, 1e-300),
            jump,
        ]
    )


class Claims(NamedTuple):
    """What is claimed: ``epsilon[k]`` at ``delta[k]``, all at once."""

    delta: np.ndarray
    epsilon: np.ndarray


Rule = Callable[[np.ndarray], np.ndarray]  # features (runs, 7) -> whether the canary is in


def learn(seen: np.ndarray, present: np.ndarray, claims: Claims, alpha: float) -> Rule:
    """Find the rule that would exceed a claim most on these runs, shape (runs, features)."""
    low, centre, high = np.quantile(seen, [0.25, 0.5, 0.75], axis=0)
    scale = np.where(high > low, high - low, 1.0)

    def cut(seen: np.ndarray) -> np.ndarray:
        return np.asarray(np.clip((seen - centre) / scale, -LARGEST_FEATURE, LARGEST_FEATURE))

    with_canary, without = cut(seen[present]), cut(seen[~present])
    spread = np.cov(with_canary.T) + np.cov(without.T) + 1e-3 * np.eye(seen.shape[1])
    weights = np.linalg.solve(spread, with_canary.mean(axis=0) - without.mean(axis=0))
    scores = np.column_stack([seen, cut(seen) @ weights])
    _, threshold, which, sign = max(
        (*_best_threshold(sign * scores[:, which], present, claims, alpha), which, sign)
        for which in range(scores.shape[1])
        for sign in (1.0, -1.0)
    )
    return lambda x: sign * np.column_stack([x, cut(x) @ weights])[:, which] > threshold


def _best_threshold(
    score: np.ndarray, present: np.ndarray, claims: Claims, alpha: float
) -> tuple[float, float]:
    """By how much the best threshold would exceed a claim, and that threshold."""
    order = np.argsort(score, kind="stable")
    ordered, with_canary = score[order], present[order]
    false_negatives = np.cumsum(with_canary)[:-1]
    false_positives = (~with_canary).sum() - np.cumsum(~with_canary)[:-1]
    counts = with_canary.sum(), (~with_canary).sum()
    errors = false_negatives[:, None], false_positives[:, None]
    proved = (lower_bound(*errors, *counts, claims.delta, alpha) - claims.epsilon).max(axis=1)
    advantage = 1 - false_negatives / counts[0] - false_positives / counts[1]
    value = np.where(ordered[1:] > ordered[:-1], proved + TIE_BREAK * advantage, -np.inf)
    k = int(value.argmax())
    return float(value[k]), float((ordered[k] + ordered[k + 1]) / 2)


def lower_bound(
    false_negatives: np.ndarray | int,
    false_positives: np.ndarray | int,
    present: int,
    absent: int,
    delta: np.ndarray | float,
    alpha: float,
) -> np.ndarray:
    """Least epsilon that such errors allow, wrong with probability ``alpha`` at most.

    Clopper-Pearson bounds at ``alpha / 2`` on both error rates hold together; whatever is
    (epsilon, delta)-differentially private has ``1 - delta <= fnr + exp(epsilon) * fpr``, and the
    same with the rates exchanged (Kairouz, Oh and Viswanath 2015).

    >>> round(float(lower_bound(0, 0, 250, 250, 1e-5, 1e-4)), 2)
    3.21
    """
    fnr = _upper(false_negatives, present, alpha / 2)
    fpr = _upper(false_positives, absent, alpha / 2)
    one = np.log(np.fmax(1 - delta - fnr, 1e-300) / fpr)
    other = np.log(np.fmax(1 - delta - fpr, 1e-300) / fnr)
    return np.asarray(np.fmax(0.0, np.fmax(one, other)))


def _upper(errors: np.ndarray | int, trials: int, alpha: float) -> np.ndarray:
    errors = np.asarray(errors)
    bound = beta.ppf(1 - alpha, errors + 1, np.fmax(trials - errors, 1))
    return np.where(errors < trials, bound, 1.0)
