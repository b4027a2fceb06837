"""What an attacker can show about a method's epsilon, by experiment: a lower bound.

Fits of made-up records are run by the real driver and the real wall, with and without one record
that stands out, the canary. The attacker learns a rule from what it observes, and its guesses prove
the bound.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import pymc as pm
from rich.progress import track
from scipy.stats import beta

from pymc_dp.accounting.plan import Neighbours, check_count
from pymc_dp.driver.fit import set_up
from pymc_dp.driver.run import Setup, compile_method, run_releases
from pymc_dp.methods.conjugate import probe_rows
from pymc_dp.methods.method import Compiled
from pymc_dp.model import Column, PrivateData, Records
from pymc_dp.privacy.contribution import Batch, Contribution, Noisy, Query, take_rows, with_draws
from pymc_dp.privacy.private_data import ColumnSpec

FEWEST_RUNS = 40
LEAST_CONFIDENCE = 0.9999
# where a claim is tested beside its own delta: noise that is short shows at a large one first
LARGE_DELTAS = np.geomspace(1e-3, 0.5, 12)
# how large candidates are, and what whole numbers they hold
SCALES = (0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 3.0, -3.0, 10.0, -10.0)
WHOLE_NUMBERS = (0, 1, 2, 5)
BACKGROUND_SCALE = 0.01
LARGEST_NORM = 10.0  # a canary whose norm is many times the clip norm shows whether it is clipped
# pairs whose distance is this share of the largest are as good for an attack
SHARE_OF_LARGEST = 0.95
# features are cut at this many interquartile ranges before they are combined
LARGEST_FEATURE = 20.0
TIE_BREAK = 1e-3  # how much a rule's advantage counts where no rule proves anything yet


@dataclasses.dataclass(frozen=True)
class Audit:
    """What an attack on many runs of a method proves; prints as a sentence."""

    method: str
    epsilon_lower: float  # no smaller epsilon than this holds, up to the confidence
    epsilon: float  # the claim
    delta: float  # the plan's own, unless another one is where the attack contradicts its claim
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

    A record that stands out, the canary, is in the data of half of the runs. The attacker knows all
    other records, sees every release with what was asked, and learns on half of the runs how to
    tell; the others are the judge.

    Parameters
    ----------
    model : pymc.Model, optional
        Inside ``with model:`` it may be left out. Its data are not read beyond their shapes.
    method, n, progressbar, backend, **settings
        As in `pymc_dp.fit`, for each run of a private method; ``n=None`` is the method's default.
        Batches that hold many of the records (``sample_rate=0.5``, ``sampling="full"``) show more.
    runs : int
        Fits, at least 40. Without an error among them, 1000 prove an epsilon of 3.2.
    rows : int
        Made-up records beside the canary; few, for those that a batch happens to hold hide it.
    canary : dict, optional
        A record in place of the one that a pilot run chooses: for every array that goes by records,
        as `pymc_dp.explain` lists them, its value or row of values. Make it up, or take a public
        one: no epsilon covers what an audit shows of a private record.
    confidence : float
        At least 0.9999, so that a sound claim is hardly ever contradicted.
    random_seed : int, optional
        Drives the made-up records, the coins and the public draws; noise is never reproducible.

    Returns
    -------
    Audit

    Raises
    ------
    NotSeparableError
        The method does not fit the model.
    ValueError
        There is no finite epsilon to audit, or a setting is out of its range.

    Notes
    -----
    **Privacy.** Spends nothing: no run sees the model's own data. A lower bound can disprove a
    claim and never prove one. Source: Jagielski, Ullman and Oprea (2020).

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=np.repeat([0, 1], [300, 700]))
    >>> found = pymc_dp.audit(model, epsilon=1, delta=1e-5, runs=40, progressbar=False)
    >>> found.contradicted
    False
    """
    check_count("rows", rows)
    check_count("runs", runs)
    if runs < FEWEST_RUNS:
        raise ValueError(f"runs={runs} prove nothing: give at least {FEWEST_RUNS}.")
    if not LEAST_CONFIDENCE <= confidence < 1:
        why = "or audits contradict sound claims too often"
        raise ValueError(f"confidence={confidence!r}: give {LEAST_CONFIDENCE} to 1, {why}.")
    prepared = set_up(pm.modelcontext(model), method, n, **settings)
    rng, (deltas, claimed) = np.random.default_rng(random_seed), _claims(prepared)
    fit = AttackedFit(prepared, compile_method(prepared, backend))
    pair = fit.neighbours(rng, rows, canary)
    seed, present = int(rng.integers(2**32)), rng.permutation(np.arange(runs) % 2 == 0)
    coins = track(present, "Attacked fits", disable=not progressbar)
    attacked = [fit.attack(pair, with_canary, seed) for with_canary in coins]
    lower, most = _judge(np.array(attacked), present, (deltas, claimed), 1 - confidence)
    k = int((lower - claimed).argmax()) if (lower > claimed).any() else 0
    shown, claim, delta, can = (float(x[k]) for x in (lower, claimed, deltas, most))
    return Audit(prepared.name, shown, claim, delta, confidence, runs, can)


Claims = tuple[np.ndarray, np.ndarray]  # deltas, and the epsilon at each, which hold all at once


def _claims(prepared: Setup) -> Claims:
    """Return what the plan claims at its own delta, which comes first, and at larger ones."""
    plan = prepared.plan
    if plan.unit is not None:
        raise ValueError("An audit adds a single record: leave unit= out.")
    if not plan.all_sums or not math.isfinite(plan.epsilon()):
        raise ValueError(f"method={prepared.name!r} claims no finite epsilon: nothing to audit.")
    deltas = np.append(plan.delta, LARGE_DELTAS)
    return deltas, plan.epsilon_profile(deltas)


class AskedRelease(NamedTuple):
    """What an attacker knows about one release."""

    contribution: Contribution
    context: Any
    clip_norm: float

    def prepared(self, rows: Batch) -> tuple[Any, np.ndarray]:
        """Prepare made-up records, and return the norm of each."""
        # where a contribution makes secret draws for a record, the attacker makes some of their own
        drawn = with_draws(self.contribution, rows, self.context, np.random.default_rng(0))
        at = self.contribution.prepare(drawn, self.context)
        return at, self.contribution.norms(at, self.context)


class Pair(NamedTuple):
    """Two neighbouring data sets, and all their records as one batch that the attacker knows."""

    present: PrivateData  # present, absent: the data with and without the canary
    absent: PrivateData
    rows: Batch  # the other records, then the canary, then what takes its place, if anything does
    others: int  # how many other records there are


class Observation(NamedTuple):
    """One release, as an attacker sees it, in units of the claimed noise."""

    name: str  # the release
    rest: np.ndarray  # what was released less what is expected of all other records
    shift: np.ndarray  # what the canary adds if it is in the batch
    sample_rate: float  # how likely it is in the batch


def candidates(records: Records, rng: np.random.Generator) -> Batch:
    """Make up records of all scales and whole numbers."""
    scales, whole = (grid.ravel() for grid in np.meshgrid(SCALES, WHOLE_NUMBERS))
    rows = probe_rows(records, rng, whole.tolist())
    for name, shape in records.shapes.items():
        if rows[name].dtype.kind == "f":
            along = [-1 if length is None else 1 for length in shape]
            rows[name] = rows[name] * np.reshape(scales, along)
    return rows


def contributing(rows: Batch, seen: list[AskedRelease], spec: Mapping[str, ColumnSpec]) -> Batch:
    """Drop records that a release would leave out."""
    with np.errstate(all="ignore"):
        norms = [one.prepared(rows)[1] for one in seen]
    return take_rows(rows, spec, np.flatnonzero(np.isfinite(norms).all(axis=0)))


def choose_canary(
    tried: Batch, seen: list[AskedRelease], neighbours: Neighbours, first: int | None
) -> list[int]:
    """Choose which of the ``first`` candidates contributes most, or in the farthest pair."""
    lengths, vectors = [], []
    for one in seen:
        at, norms = one.prepared(tried)
        clipping = np.diag(1 / np.fmax(norms, one.clip_norm))
        lengths.append(np.fmin(norms / one.clip_norm, LARGEST_NORM))
        each = [one.contribution.weighted_sum(at, one.context, weights) for weights in clipping]
        vectors.append(np.array(each))
    length = np.mean(lengths, axis=0)[:first]
    if neighbours is not Neighbours.REPLACE_ONE:
        return [int(length.argmax())]
    distance = np.mean([np.linalg.norm(v[:first, None] - v, axis=2) for v in vectors], axis=0)
    # of pairs that are nearly as distant, the one with the longest canary: it shows clipping
    far = np.where(distance >= SHARE_OF_LARGEST * distance.max(), length[:, None], -np.inf)
    canary, instead = np.unravel_index(far.argmax(), far.shape)
    return [int(canary), int(instead)]


def record_of(canary: Mapping[str, Any], spec: Mapping[str, ColumnSpec]) -> Batch:
    """Read a caller's record as a batch of one."""
    if {*canary} != {*spec}:
        raise ValueError(f"canary= must have a value for each of {sorted(spec)}, and no others.")
    rows = {}
    for name, column in spec.items():
        value = np.asarray(canary[name], "float64")
        if value.shape != tuple(filter(None, column.shape)) or not np.isfinite(value).all():
            raise ValueError(f"canary=`{name}` needs one finite number for each of its columns.")
        with np.errstate(all="ignore"):
            stored = value.astype(column.dtype)
        if not np.allclose(stored.astype("float64"), value, rtol=1e-6):
            raise ValueError(f"canary=`{name}` has a value that no {column.dtype} holds.")
        rows[name] = np.expand_dims(stored, column.axis)
    return rows


def neighbouring_data(
    spec: Mapping[str, ColumnSpec], base: Batch, tried: Batch, chosen: list[int]
) -> Pair:
    """Put the chosen records behind the others."""
    added = take_rows(tried, spec, np.array(chosen))
    rows = {n: np.concatenate([base[n], added[n]], axis=spec[n].axis) for n in spec}
    name, column = next(iter(spec.items()))
    count = base[name].shape[column.axis]
    others = np.arange(count)
    instead = np.arange(count + 1, count + len(chosen))
    present, absent = (data_of(spec, rows, np.append(others, last)) for last in ([count], instead))
    return Pair(present, absent, rows, count)


def data_of(spec: Mapping[str, ColumnSpec], rows: Batch, kept: np.ndarray) -> PrivateData:
    """Make data of some made-up rows."""
    taken = take_rows(rows, spec, kept)
    return PrivateData({n: Column(taken[n], c.axis, c.dtype) for n, c in spec.items()})


class AttackedFit(NamedTuple):
    """A fit that is run again and again on made-up records, with and without a canary."""

    setup: Setup
    compiled: Compiled

    def neighbours(
        self, rng: np.random.Generator, rows: int, canary: Mapping[str, Any] | None
    ) -> Pair:
        """Take the given canary, or choose one by what candidates contribute in a pilot run."""
        records, spec = self.setup.records, self.setup.data.spec
        if self.setup.plan.neighbours is Neighbours.REPLACE_ONE:
            rows -= 1  # so that both data sets have as many as the caller said
        # near zero records contribute little, where a model lets them
        base = probe_rows(records, rng, rng.integers(0, 2, rows).tolist())
        base |= {k: v * BACKGROUND_SCALE for k, v in base.items() if v.dtype.kind == "f"}
        tried = candidates(records, rng)
        pilot = data_of(spec, base, np.array([*range(rows), 0]))
        released = self._released(pilot, int(rng.integers(2**32)))
        seen = [self._asked(query) for query, _ in released]
        base, tried = (contributing(made, seen, spec) for made in (base, tried))
        first: int | None = None
        if canary is not None:
            own, first = contributing(record_of(canary, spec), seen, spec), 1
            if any(own[name].shape[column.axis] == 0 for name, column in spec.items()):
                raise ValueError("canary= adds nothing to a release: give one that can occur.")
            tried = {n: np.concatenate([own[n], tried[n]], axis=spec[n].axis) for n in spec}
        chosen = choose_canary(tried, seen, self.setup.plan.neighbours, first)
        return neighbouring_data(spec, base, tried, chosen)

    def _released(self, data: PrivateData, seed: int) -> list[tuple[Query, Noisy]]:
        """Run a fit by the real driver and the real wall, and keep what it released."""
        seen: list[tuple[Query, Noisy]] = []

        def update(state: Any, query: Query, noisy: Noisy) -> Any:
            seen.append((query, noisy))
            return self.compiled.update(state, query, noisy)

        setup = self.setup._replace(data=data)
        spied = self.compiled._replace(update=update)
        run_releases(setup, spied, np.random.default_rng(seed), range(self.setup.plan.total))
        return seen

    def attack(self, pair: Pair, with_canary: bool, seed: int) -> np.ndarray:
        """Run a fit with or without the canary; return the attacker's features of it."""
        released = self._released(pair.present if with_canary else pair.absent, seed)
        return features([self._observation(pair, query, noisy) for query, noisy in released])

    def _observation(self, pair: Pair, query: Query, noisy: Noisy) -> Observation:
        """Subtract what the attacker expects of the others."""
        # the attacker clips by itself: a fault of the wall's must not become the attacker's
        asked = self._asked(query)
        with np.errstate(all="ignore"):
            at, norms = asked.prepared(pair.rows)
            weights = np.fmin(1.0, asked.clip_norm / norms)
            weights[~np.isfinite(norms)] = 0.0
            place = np.arange(len(norms))
            canary, instead = place == pair.others, place > pair.others
            base, shift = (
                asked.contribution.weighted_sum(at, asked.context, weights * kept)
                for kept in (~canary, 1.0 * canary - instead)
            )
        rest = noisy.value - noisy.sample_rate * base
        return Observation(query.name, rest / noisy.sd, shift / noisy.sd, noisy.sample_rate)

    def _asked(self, query: Query) -> AskedRelease:
        found = cast(Contribution, self.compiled.contributions[query.name])  # `_claims` saw sums
        planned = next(r.clip_norm for r in self.setup.plan.releases if r.name == query.name)
        clip_norm = planned if query.clip_norm is None else query.clip_norm
        return AskedRelease(found, query.context, clip_norm)


def _judge(
    seen: np.ndarray, present: np.ndarray, claims: Claims, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """Learn on one half and judge on the other: what is proved at each delta, and what could be."""
    # two rules, for the plan's own delta and for all, share `alpha`: the bounds on a rule's error
    # rates do not depend on delta, so they hold at all of them
    half = len(seen) // 2
    judged = present[half:]
    counts = int(judged.sum()), int((~judged).sum())
    proved = []
    deltas, claimed = claims
    for aim in ((deltas[:1], claimed[:1]), claims):
        guesses = learn(seen[:half], present[:half], aim, alpha / 2)(seen[half:])
        errors = int((~guesses & judged).sum()), int((guesses & ~judged).sum())
        proved.append(lower_bound(*errors, *counts, deltas, alpha / 2))
    return np.max(proved, axis=0), lower_bound(0, 0, *counts, deltas, alpha / 2)


def features(observations: list[Observation]) -> np.ndarray:
    """Numbers that the canary moves, shape (7,): each shows another fault."""
    length = np.array([np.linalg.norm(s.shift) for s in observations])
    along = np.array([s.rest @ s.shift for s in observations]) / np.fmax(length, 1e-300)
    rate = np.array([s.sample_rate for s in observations])
    ratio = np.logaddexp(np.log1p(-np.fmin(rate, 1 - 1e-12)), np.log(rate) + length * along)
    ratio = ratio - np.log1p(rate * np.expm1(np.fmin(length**2 / 2, 50.0)))
    of_all = [ratio.sum(), (length * along).sum(), along.max(), along[0], (along**2).sum()]
    # differences of successive releases, from which noise that is used twice drops out
    latest: dict[str, Observation] = {}
    change, size, jump = 0.0, 0.0, 0.0
    for b in observations:
        if a := latest.get(b.name):
            rest, shift = b.rest - a.rest, b.shift - a.shift
            change += float(rest @ shift)
            size += float(shift @ shift)
            jump = max(jump, abs(float(rest @ b.shift)))
        latest[b.name] = b
    return np.array([*of_all, change / max(size, 1e-300), jump])


Rule = Callable[[np.ndarray], np.ndarray]  # features (runs, 7) -> whether the canary is in


def learn(seen: np.ndarray, present: np.ndarray, claims: Claims, alpha: float) -> Rule:
    """Find the rule that would exceed a claim most on these runs, shape (runs, features)."""
    low, centre, high = np.quantile(seen, [0.25, 0.5, 0.75], axis=0)
    scale = np.where(high > low, high - low, 1.0)

    def scaled(seen: np.ndarray) -> np.ndarray:
        return np.asarray(np.clip((seen - centre) / scale, -LARGEST_FEATURE, LARGEST_FEATURE))

    with_canary, without = scaled(seen[present]), scaled(seen[~present])
    spread = np.cov(with_canary.T) + np.cov(without.T) + 1e-3 * np.eye(seen.shape[1])
    weights = np.linalg.solve(spread, with_canary.mean(axis=0) - without.mean(axis=0))
    scores = np.column_stack([seen, scaled(seen) @ weights])
    _, threshold, which, sign = max(
        (*_best_threshold(sign * scores[:, which], present, claims, alpha), which, sign)
        for which in range(scores.shape[1])
        for sign in (1.0, -1.0)
    )
    return lambda x: sign * np.column_stack([x, scaled(x) @ weights])[:, which] > threshold


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
    deltas, claimed = claims
    proved = (lower_bound(*errors, *counts, deltas, alpha) - claimed).max(axis=1)
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
