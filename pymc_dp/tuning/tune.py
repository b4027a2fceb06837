"""Private selection among settings: the whole search is one (epsilon, delta) release.

Source: Papernot and Steinke (2022). Of a secret number of runs, each with a setting drawn at
random, the best by a noisy score is released. The score is the last release of each fit: a stage
that follows it, so that plan, wall, driver and result treat both as one method.
"""

import inspect
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from operator import attrgetter
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dp.accounting.accountants import Selection, draw_runs
from pymc_dp.accounting.plan import GAUSSIAN, MOST, Full, ReleaseSpec, checked_number
from pymc_dp.calibration.budget import calibrate_selection, warn_if_weak
from pymc_dp.contributions.checks import Range, check_range, predictive_density
from pymc_dp.driver.fit import check_seed, number_of_draws, set_up_method
from pymc_dp.driver.result import make_result, rehearse_result
from pymc_dp.driver.run import Setup, build_wall, compile_method, run_releases
from pymc_dp.ledger.ledger import Ledger, open_ledger
from pymc_dp.methods.method import Compiled, Method, Stage, Staged, chain, reported_as
from pymc_dp.methods.options import require_shared_latents
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Query, RowContribution
from pymc_dp.privacy.randomness import SecretRandom
from pymc_dp.results.tree import Outcome

# in a setting or among the options these would be a second budget
BUDGET = {"epsilon", "delta", "noise_multiplier", "accountant", "neighbours", "unit"}
RUNS_PER_SETTING = 3.0
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


def tune(
    model: pm.Model,
    settings: Sequence[Mapping[str, Any]],
    *,
    epsilon: float,
    delta: float,
    method: str = "dp_advi",
    runs: float | None = None,
    score_range: tuple[float, float] = (-4.0, 0.0),
    neighbours: str = "add_remove",
    unit: str | None = None,
    ledger: Ledger | str | PathLike[str] | None = None,
    public: Iterable[str] = (),
    data: Mapping[str, Any] | None = None,
    public_start: Mapping[str, Any] | None = None,
    random_seed: int | None = None,
    draws: int | None = None,
    backend: str = "python",
    **options: Any,
) -> xr.DataTree:
    """Fit a model with several settings and return the best fit, privately as a whole.

    Each of a secret number of runs draws one of the settings, fits the model and releases a noisy
    score, the sum of the records' log predictive densities. Only the best fit leaves.

    Parameters
    ----------
    model : pymc.Model
    settings : sequence of dict
        At least two sets of keywords of `pymc_dp.fit`, which are public and stand in the result.
    epsilon, delta : float
        The budget of the whole search.
    runs : float, optional
        The mean number of runs, above 1; three for every setting if it is left out.
    score_range : tuple of two floats
        As in `pymc_dp.score`.
    method, neighbours, unit, ledger, public, data, public_start, random_seed, draws, backend
        As in `pymc_dp.fit`. In a ledger the search is one release.
    **options
        Keywords of `pymc_dp.fit` that all settings share.

    Returns
    -------
    DataTree
        As from `pymc_dp.fit`; epsilon is that of the whole search.

    Raises
    ------
    NotSeparableError, ValueError, TypeError
        As from `pymc_dp.fit`, before any budget is spent; also of records with own latents.

    Notes
    -----
    **Privacy.** The returned tree is (epsilon, delta)-differentially private, the choice included
    (Papernot and Steinke 2022). The number of runs and the losers are not released; running time
    may show them and is not covered.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=np.repeat([0, 1], [300, 700]))
    >>> settings = [{"clip_norm": 0.5}, {"clip_norm": 2.0}]
    >>> idata = pymc_dp.tune(model, settings, n=20, epsilon=1, delta=1e-5)
    >>> idata["privacy"].attrs["epsilon"] <= 1
    True
    """
    public = tuple(public)
    limits = check_range("score_range", score_range)
    _check_settings(settings, options)
    random_seed, ledger = check_seed(random_seed), open_ledger(ledger)
    shared = {"method": method, "n": None, **options, "public": public, "data": data}
    shared |= {"epsilon": epsilon, "delta": delta, "neighbours": neighbours, "unit": unit}
    shared |= {"public_start": public_start, "accountant": "rdp_dp_accounting"}
    fits = [_prepare(model, {**shared, **setting}, limits) for setting in settings]
    counts = [number_of_draws(draws, fit) for fit in fits]
    runs = RUNS_PER_SETTING * len(settings) if runs is None else runs
    selection = _calibrate(fits, runs, epsilon)
    fits = [fit._replace(plan=plan) for fit, plan in zip(fits, selection.plans, strict=True)]
    compiled = [compile_method(fit, backend) for fit in fits]
    for fit, parts, count in zip(fits, compiled, counts, strict=True):
        # what the wall refuses, and what no result can hold, must be refused before it is paid for
        warn_if_weak(fit.plan)
        build_wall(fit, parts)
        rehearse_result(fit, count)
    what = f"tune of {len(fits)} settings"
    with nullcontext() if ledger is None else ledger.reserve(what, selection) as booking:
        i, states, outcome, rng = _best_of(fits, compiled, selection.runs, random_seed)
        if booking is not None:
            booking()  # of processes forked from the search, the first alone returns a result
    as_text = partial(json.dumps, default=lambda x: getattr(x, "__name__", type(x).__name__))
    texts = [as_text(dict(setting)) for setting in settings]
    outcome = outcome._replace(
        public=public,
        selection=replace(selection, chosen=i),
        selected={"selected": texts[i], "selected_from": json.dumps(texts)},
    )
    return make_result(fits[i], states, outcome, counts[i], rng)


def _check_settings(settings: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> None:
    several = not isinstance(settings, Mapping) and len(settings) > 1
    if not several or not all(isinstance(setting, Mapping) for setting in settings):
        hint = "such as [{'clip_norm': 1.0}, {'clip_norm': 4.0}]; pymc_dp.fit takes one"
        raise ValueError(f"settings= must be a sequence of at least two dicts, {hint}.")
    each = {f"settings[{i}]": setting for i, setting in enumerate(settings)}
    for where, keywords in {"tune": options, **each}.items():
        for name in sorted(BUDGET.intersection(keywords)):
            raise ValueError(
                f"{where} has {name}=, but the budget is that of the whole search, accounted in "
                "Rényi divergences: give epsilon=, delta=, neighbours= and unit= to tune alone."
            )
    of_tune = set(inspect.signature(tune).parameters) - {"method"}
    for where, setting in each.items():
        # settings are written into the result, where data must not be
        for name in sorted(of_tune.intersection(setting)):
            raise ValueError(f"{where} has {name}=, which is no setting: give it to tune itself.")


def _prepare(model: pm.Model, keywords: dict[str, Any], limits: Range) -> Setup:
    """Prepare one setting, with its score; its plan has no releases yet."""
    method, n = keywords.pop("method"), keywords.pop("n")
    fit, _ = set_up_method(model, method, n, **keywords)
    if any(spec.mechanism != GAUSSIAN for spec in fit.method.releases):
        raise ValueError(f"method={method!r} has no epsilon that is proved: tune cannot use it.")
    return fit._replace(method=with_score(fit.records, fit.method, limits))


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
        defaults=(DEFAULTS,),
    )
    own = reported_as(scoring, method, attrgetter("fit"))
    return chain(Stage(method), Stage(own, Scored))


def _densities(records: Records, limits: Range, backend: str) -> RowContribution:
    """Contribute log mean p(record | z) over the draws z, clipped and centred."""
    # the centre is the same for all settings: taking it off changes no ranking
    densities = predictive_density(records, limits, backend)
    return RowContribution(
        size=1,
        width=DEFAULTS.draws,
        rows=lambda scores, points: scores[:, None],
        prepare=lambda batch, points: densities(batch, points) - limits.centre,
    )


def _query(records: Records, method: Method, state: Scored, rng: np.random.Generator) -> Query:
    values = method.draw(state.fit, DEFAULTS.draws, rng)
    parts = [np.reshape(values[name], (len(values[name]), -1)) for name in records.point]
    return Query(NAME, np.concatenate(parts, axis=1))


def _calibrate(fits: Sequence[Setup], runs: float, epsilon: float) -> Selection:
    if not 1 < (checked_number("runs", runs) or 0) <= MOST:
        raise ValueError(f"runs={runs!r} must be above 1: it is the mean number of runs.")
    if math.isinf(epsilon):  # `set_up_method` has refused every other bad value
        raise ValueError(f"epsilon={epsilon!r} must be finite.")
    return calibrate_selection([(x.plan, x.method.releases) for x in fits], float(runs), epsilon)


# the number of a setting, and what its result is made of
Run = tuple[int, list[Any], Outcome, np.random.Generator]


def _best_of(
    fits: Sequence[Setup], compiled: Sequence[Compiled], runs: float, seed: int | None
) -> Run:
    """Make a secret number of runs and keep one: nothing of the others may be seen."""
    secret = SecretRandom()
    number = draw_runs(runs, secret.generator)
    # asked for its generator anew each time, since the last run may have forked the process
    settings = (int(secret.generator.integers(len(fits))) for _ in range(number))
    each = (_run(fits, compiled, i, seed) for i in settings)
    return max(each, key=lambda run: run[1][-1].state.score)


def _run(fits: Sequence[Setup], compiled: Sequence[Compiled], i: int, seed: int | None) -> Run:
    # every run has the same public draws: a seed of its own would reveal which run was selected
    rng = np.random.default_rng(seed)
    states, outcome = run_releases(fits[i], compiled[i], rng, range(fits[i].plan.total))
    last: Staged = states[-1]
    if not last.stage or last.state.score is None:
        raise KeyboardInterrupt("The search was interrupted; its budget is spent.")
    return i, states, outcome, rng
