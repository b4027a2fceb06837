"""One more release of all records, which says how well a fit predicts them: `ppc` and `score`.

First what such releases share: a fitted model is opened, split into its records again, and one
noisy sum is made like a fit's. Then `ppc`, then `score`.
"""

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from scipy import stats

from pymc_dp.accounting.plan import Full, ReleaseSpec
from pymc_dp.calibration.budget import Budget
from pymc_dp.contributions import checks
from pymc_dp.driver.fit import model_in_use, separation
from pymc_dp.driver.run import Setup, compile_method, run_releases
from pymc_dp.errors import PrivacyWarning
from pymc_dp.ledger.ledger import Ledger, open_ledger
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.options import require_shared_latents
from pymc_dp.model import PrivateData, Records, constrained
from pymc_dp.model.columns import read_tables
from pymc_dp.model.harden import MASK
from pymc_dp.postprocess.predict import draws_of, refuse_another_model
from pymc_dp.privacy.contribution import Batch, Noisy, Query, RowContribution, UnitVector
from pymc_dp.privacy.private_data import joined
from pymc_dp.results.tree import Outcome, privacy_of, with_guarantee

# replicates of a data set, and draws that outcomes are ranked among
REPLICATES, RANKED_AMONG = 8, 40
FEWEST_DRAWS = 4
RANKS = "ranks"
MOST_BINS = 1000
DRAWS = 100  # draws behind a record's log predictive density
COUNT_SHARE = 0.5**0.5  # a record's entry in the count of records, over the bound on its others
# what the square of a score adds, over that of the score: it says how records vary
SQUARE_SHARE = 0.5
Fits = Mapping[str, tuple[xr.DataTree, Any]]


class Fitted(NamedTuple):
    """Graphs of a model with latents on their own scales, its data, and released draws."""

    records: Records
    data: PrivateData
    points: np.ndarray  # (draws, records.size)
    public: tuple[str, ...]  # what the fit declared public
    budget: Budget  # of one more release


def as_in_fit(idata: xr.DataTree, neighbours: str | None, unit: str | None) -> tuple[str, Any]:
    """Return the neighbours and the unit of one more release: those of the fit, by default."""
    attrs = privacy_of(idata).attrs
    return neighbours or attrs["neighbours"], attrs.get("unit") if unit is None else unit


def open_fitted(
    idata: xr.DataTree,
    model: pm.Model | None,
    data: Mapping[str, Any] | None,
    budget: Budget,
    draws: int,
    numbers: Mapping[str, tuple[float, ...]] = MappingProxyType({}),
) -> Fitted:
    """Split a model into its records again, and take draws of its posterior as points."""
    privacy = privacy_of(idata).attrs
    if budget.noisy and not math.isfinite(privacy["epsilon"]):
        raise ValueError(
            f"The guarantee of this result is {privacy['guarantee']!r}. What is computed from it "
            "would be no more private: give a private result, or epsilon=inf here as well."
        )
    fits, asked = (privacy["neighbours"], privacy.get("unit")), (budget.neighbours, budget.unit)
    if budget.noisy and fits != asked:
        warnings.warn(
            "The fit has neighbours={!r} and unit={!r}, and this release {!r} and {!r}: what their "
            "epsilons protect is not the same, and they do not add up. Leave neighbours= and unit= "
            "out to take those of the fit.".format(*fits, *asked),
            PrivacyWarning,
            stacklevel=3,
        )
    public = tuple(json.loads(privacy["declared_public"]))
    model = model_in_use(model)
    separated = separation(model, budget, public=public, data=data, numbers=numbers)
    records, checked = separated(constrained(model))
    require_shared_latents(
        records, ", so that nothing of a single record follows from the posterior alone."
    )
    if masks := [name for name in records.batch.inputs if name.startswith(MASK)]:
        raise ValueError(
            f"The model has {masks[0]!r}: what fills the gap would count as an outcome. Check the "
            "records that are complete, by data=, with a model without missing entries."
        )
    return Fitted(records, checked(), _points(records, idata, draws), public, budget)


def _points(records: Records, idata: xr.DataTree, most: int) -> np.ndarray:
    """Take evenly spaced draws: neighbours in a chain resemble each other."""
    shapes = {name: start.shape for name, start in records.point.items()}
    draws = draws_of(idata["posterior"], shapes)
    refuse_another_model(shapes, {n for n, x in draws.items() if x.shape[1:] == shapes[n]})
    parts = [draws[name].reshape(len(draws[name]), -1) for name in shapes]
    every = np.concatenate(parts, axis=1).astype("float64")
    chosen = np.unique(np.linspace(0, len(every) - 1, most).astype(int))
    return np.asarray(every[chosen])


def drawn_leaf(records: Records, argument: str, name: str | None, instead: str) -> tuple[str, str]:
    """Return an observed variable and its data; ``instead`` is what to do where none is drawn."""
    if records.outcomes is None:
        raise ValueError(
            "The model does not say how its outcomes are drawn, record by record: a pm.Potential "
            f"has a density alone. {instead}"
        )
    leaves = {variable: leaf for leaf, variable in records.drawn.items()}
    if name is None and len(leaves) == 1:
        [name] = leaves
    if name not in leaves:
        raise ValueError(f"{argument}={name!r} must be one of {sorted(leaves)}.")
    return name, leaves[name]


def ask(
    name: str,
    fitted: Fitted,
    ledger: Ledger | str | PathLike[str] | None,
    backend: str,
    *,
    make: Callable[[str], RowContribution],
    context: Any,
    clip_norm: float,
) -> tuple[Noisy, Outcome]:
    """Release one noisy sum; all bad input is refused before any budget is spent.

    **Privacy.** One Gaussian release of all records by the wall, from the plan that the ledger sets
    aside. An interrupted one is paid for, unless the interrupt came before it was booked.
    """
    # what is compiled is sent to workers, and may hold no data
    method = Method(
        size=0,  # `plan` alone reads it, and shows none of this method
        releases=(ReleaseSpec(name, Full(), clip_norm, count=1),),
        compile=lambda backend: Compiled(
            {name: averaged_by_unit(make(backend))}, lambda state, query, noisy: noisy
        ),
        init=lambda rng: None,
        query=lambda state, rng: Query(name, context),
        # no posterior follows from it
        posterior=lambda state, draws, rng: {},
        describe=lambda state: xr.Dataset(),
        trace=lambda state: {},
        settings={},
        algorithms=(),
    )
    plan = fitted.budget.settle(method.releases)
    setup = Setup(name, fitted.records, fitted.data, method, plan)
    ledger, rng = open_ledger(ledger), np.random.default_rng(0)
    compiled = compile_method(setup, backend)
    states, outcome = run_releases(setup, compiled, rng, range(1), ledger=ledger)
    if states[-1] is None:
        raise KeyboardInterrupt(
            f"The release of {name!r} was interrupted: count its budget as spent, unless the "
            "fit has a ledger; the ledger's report says whether it was booked."
        )
    return states[-1], outcome._replace(public=fitted.public)


def averaged_by_unit(contribution: RowContribution) -> RowContribution:
    """Let a unit's vector be the mean of its records': each unit counts once.

    **Privacy.** A mean lies in every ball, and in every convex set, that holds what it is of: the
    bound of a record's vector is that of a unit's.
    """

    def with_one(prepared: Any, context: Any) -> np.ndarray:
        vectors = contribution.rows(prepared, context)
        return np.column_stack([vectors, np.ones(len(vectors))])

    def mean(sums: np.ndarray, context: Any) -> np.ndarray:
        return np.asarray(sums[:, :-1] / np.maximum(sums[:, -1:], 1.0))

    unit = UnitVector(contribution.size + 1, mean, rows=with_one)
    return contribution._replace(unit=unit)


def ppc(
    idata: xr.DataTree,
    model: pm.Model,
    *,
    statistic: str = "ranks",
    bins: int | Sequence[float] | None = None,
    var_name: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    data: Mapping[str, Any] | None = None,
    neighbours: str | None = None,
    accountant: str = "pld",
    unit: str | None = None,
    ledger: Ledger | str | PathLike[str] | None = None,
    backend: str = "python",
) -> xr.DataTree:
    """Release a private posterior predictive check: a histogram of outcomes beside predicted ones.

    Parameters
    ----------
    idata, model : DataTree, pymc.Model
        A result of `pymc_dp.fit`, and the model that was fitted.
    statistic : {"ranks", "histogram"}
        Ranks of outcomes among those that the posterior predicts for the same record, which are
        uniform where the model is right; or the outcomes themselves.
    bins : int or sequence of float, optional
        For ranks their number, 10 by default. For a histogram the edges, which must be public: no
        quantiles of the data. What lies outside has bins of its own.
    var_name : str, optional
        Which observed variable, where there are several.
    epsilon, delta, noise_multiplier, data, accountant, ledger, backend
        As in `pymc_dp.fit`, for this release alone.
    neighbours, unit : str, optional
        Those of the fit. With a unit a person counts once, by the shares of its records.

    Returns
    -------
    DataTree
        ``ppc`` by bin, from ``lower`` to ``upper``: ``observed`` and ``expected`` numbers of
        records, their ``difference``, ``replicated`` numbers for some posterior draws, the noise's
        standard deviation on each (``..._noise_sd``), and ``tail_probability``, that of so large a
        difference under the model; as an attribute that of all bins together. And ``privacy``.

    Raises
    ------
    ValueError, TypeError
        Records have latents of their own, the model does not say how outcomes are drawn, or any
        other bad input: all of it before any budget is spent.

    Notes
    -----
    **Privacy.** One Gaussian release of all records, of sensitivity sqrt(3) under add-remove and
    zero-out neighbours, and twice that under replace-one (docs/proofs/checks.md). Draws for private
    predictors are made behind the wall. The result counts as public, and costs what its fit did.

    **Tails** are known from eight replicates: those below one in a thousand say no more than that.
    On the records that were fitted they are rather too large.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=np.repeat([0, 1], [300, 700]))
    >>> terms = {"epsilon": 1, "delta": 1e-5}
    >>> idata = pymc_dp.fit(model=model, progressbar=False, **terms)
    >>> result = pymc_dp.ppc(idata, model, statistic="histogram", bins=[0.5], **terms)
    >>> result["ppc"]["observed"].values.round(-2)
    array([300., 700.])
    """
    relation, unit = as_in_fit(idata, neighbours, unit)
    budget = Budget(epsilon, delta, noise_multiplier, relation, "full", accountant, None, unit)
    edges = _edges(statistic, bins)
    number = len(edges) - 1
    fitted = open_fitted(idata, model, data, budget, REPLICATES + RANKED_AMONG)
    records, points = fitted.records, fitted.points
    if len(points) < FEWEST_DRAWS:
        raise ValueError(f"The result has fewer than {FEWEST_DRAWS} draws: fit with more draws=.")
    instead = "pymc_dp.score compares such models."
    variable, leaf = drawn_leaf(records, "var_name", var_name, instead)
    replicates = min(REPLICATES, len(points) // 2)
    # the draws of replicates come first, spread over all draws
    first = np.unique(np.linspace(0, len(points) - 1, replicates).astype(int))
    sort, of_replicates = checks.sort_by_edges(edges[1:-1].tolist()), points[first]
    if statistic == RANKS:
        sort, others = checks.sort_by_rank(number, replicates), np.delete(points, first, axis=0)
        of_replicates = np.concatenate([of_replicates, others])
    draws = len(of_replicates)
    noisy, outcome = ask(
        "outcomes and replicates",
        fitted,
        ledger,
        backend,
        make=lambda _: checks.beside_replicates(records, leaf, sort, number, replicates, draws),
        context=of_replicates,
        clip_norm=checks.REPLICATES_NORM,
    )
    result = _describe_bins(noisy, edges, replicates, checks.outcomes_in(records, leaf))
    settings = {"statistic": statistic, "bins": number, "replicates": replicates}
    result.attrs |= {"statistic": statistic, "variable": variable}
    return with_guarantee({"ppc": result}, records, outcome, {"settings": settings})


def _edges(statistic: str, bins: int | Sequence[float] | None) -> np.ndarray:
    """Return the public edges of bins, (bins + 1,)."""
    if statistic == RANKS:
        bins = 10 if bins is None else bins
        if not isinstance(bins, int | np.integer):
            raise ValueError("statistic='ranks' takes a number of bins, of equal width.")
        edges = np.linspace(0, 1, max(int(bins), 0) + 1)
    elif statistic == "histogram":
        inner = np.asarray([] if bins is None else bins, "float64")
        if inner.ndim != 1 or not inner.size or not np.isfinite(inner).all():
            raise ValueError(
                "statistic='histogram' needs bins=, the finite edges between bins, as public "
                "numbers: such as bins=[-1, 0, 1]. None of them may come from the data."
            )
        if not (np.diff(inner) > 0).all():
            raise ValueError(f"bins={inner.tolist()} must increase.")
        edges = np.concatenate([[-np.inf], inner, [np.inf]])
    else:
        raise ValueError(f"statistic={statistic!r} is unknown: use 'ranks' or 'histogram'.")
    if not 2 <= len(edges) - 1 <= MOST_BINS:
        raise ValueError(f"bins= makes {len(edges) - 1} bins: it must be 2 to {MOST_BINS}.")
    return edges


def _describe_bins(noisy: Noisy, edges: np.ndarray, replicates: int, width: int) -> xr.Dataset:
    bins = len(edges) - 1
    parts = noisy.value.reshape(2 + replicates, bins)
    difference, expected, spread = parts[0], parts[1], parts[2:] * replicates**0.5
    spread = spread - spread.mean(axis=0)  # but for the noise it is 0
    tail = _tails(difference, expected, spread, noisy.sd, width)
    return xr.Dataset(
        {
            "lower": ("bin", edges[:-1]),
            "upper": ("bin", edges[1:]),
            "observed": ("bin", expected + difference),
            "observed_noise_sd": 2**0.5 * noisy.sd,
            "expected": ("bin", expected),
            "expected_noise_sd": noisy.sd,
            "difference": ("bin", difference),
            "difference_noise_sd": noisy.sd,
            "replicated": (("replicate", "bin"), expected + spread),
            "replicated_noise_sd": replicates**0.5 * noisy.sd,
            "tail_probability": ("bin", tail),
        },
        {"bin": np.arange(bins), "replicate": np.arange(replicates)},
        {"tail_probability": min(1.0, bins * float(tail.min()))},
    )


def _tails(
    difference: np.ndarray, expected: np.ndarray, spread: np.ndarray, sd: float, width: int
) -> np.ndarray:
    """Two-sided tail of each difference, (bins,), among replicates with as much noise."""
    replicates = len(spread)
    number = max(float(expected.sum()), 1.0)
    share = np.clip(expected / number, 0.5 / number, 1 - 0.5 / number)
    independent = number * share * (1 - share) / width
    noise = replicates * sd**2
    between = (spread**2).sum(axis=0) / (replicates - 1) - noise
    # variances are those of independent outcomes, times how much larger those between replicates
    # are over all bins
    pooled = independent * max(1.0, float(between.sum() / independent.sum()))
    # a bin whose own variance is larger by two standard errors has its own
    error = (2 / (replicates - 1)) ** 0.5 * (pooled + noise)
    excess = np.maximum(pooled, between - 2 * error * independent / pooled) - independent
    variance = (independent + excess) * (1 + 1 / replicates) + sd**2
    # Welch and Satterthwaite: what exceeds independent outcomes is known from few replicates
    freedom = (replicates - 1) * (variance / np.maximum(excess, 1e-3 * variance)) ** 2
    return np.asarray(2 * stats.t(freedom).sf(np.abs(difference) / variance**0.5))


def score(
    idata: xr.DataTree | Fits,
    model: pm.Model | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    data: Mapping[str, Any] | None = None,
    score_range: tuple[float, float] = (-4.0, 0.0),
    largest_difference: float = 1.0,
    neighbours: str | None = None,
    accountant: str = "pld",
    num_records: int | None = None,
    unit: str | None = None,
    ledger: Ledger | str | PathLike[str] | None = None,
    backend: str = "python",
) -> xr.DataTree:
    """Release how well posteriors predict records: their mean log predictive density.

    Records that were fitted flatter the model that adapts most: hold some out, and give these.

    Parameters
    ----------
    idata : DataTree, or mapping of str to (result, model)
        A result of `pymc_dp.fit`. Several are scored on the same records in one release, which says
        more about their differences than one release each.
    model : pymc.Model
        The model that was fitted; left out for several.
    epsilon, delta, noise_multiplier, accountant, ledger, backend
        As in `pymc_dp.fit`, for this release alone.
    neighbours, unit : str, optional
        Those of the fit, of several the first one. With a unit the scores are those of persons,
        each the mean of its records'.
    data : mapping, optional
        The records, in place of the model's own, as in `pymc_dp.fit`, with the fit's unit. Several
        models need it: each takes the arrays that it knows.
    score_range : tuple of two floats
        Where a record's log predictive density is clipped to. The default suits outcomes of about
        unit scale, one or two a record.
    largest_difference : float
        Where the difference of a record's density under another model and under the first one is
        clipped to, on both sides. The noise on differences is in proportion to it.
    num_records : int, optional
        The number of these records, or of persons with ``unit=``, if it is public. Otherwise a
        noisy count takes its place.

    Returns
    -------
    DataTree
        ``score`` by model: ``mean`` log density of a record and ``difference`` to the first
        model's, each with ``..._noise_sd``, of the privacy noise, and ``..._sampling_sd``, for the
        choice of records, rather too large; ``number`` of records. And ``privacy``.

    Raises
    ------
    ValueError, TypeError
        Records have latents of their own, or any other bad input: before any budget is spent.

    Notes
    -----
    **Privacy.** One Gaussian release of all records, of sensitivity sqrt(5 K / 4 + 1/2) for K
    models under add-remove and zero-out neighbours, and sqrt(5 K / 4) where the number is declared
    (docs/proofs/checks.md). The results count as public, and cost what their own fits did.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=np.repeat([0, 1], [300, 700]))
    >>> terms = {"epsilon": 1, "delta": 1e-5}
    >>> idata = pymc_dp.fit(model=model, progressbar=False, **terms)
    >>> held_out = {"y": np.repeat([0, 1], [320, 680])}
    >>> result = pymc_dp.score(idata, model, data=held_out, **terms)
    >>> -0.8 < result["score"]["mean"].item() < -0.5
    True
    """
    fits = _fits(idata, model, data)
    first, _ = next(iter(fits.values()))
    relation, unit = as_in_fit(first, neighbours, unit)
    terms = (relation, "full", accountant, num_records, unit)
    budget = Budget(epsilon, delta, noise_multiplier, *terms)
    if not 0 < largest_difference < math.inf:
        raise ValueError(f"largest_difference={largest_difference!r} must be above 0 and finite.")
    limits = checks.check_range("score_range", score_range)
    of_count = COUNT_SHARE if num_records is None else 0.0
    fitted = _open(fits, data, budget)
    public = sorted({name for each in fitted.values() for name in each.public})
    columns = joined({name: each.data for name, each in fitted.items()})
    together = next(iter(fitted.values()))._replace(data=columns, public=tuple(public))
    records = {name: (each.records, [*each.data.spec]) for name, each in fitted.items()}
    noisy, outcome = ask(
        "log predictive densities",
        together,
        ledger,
        backend,
        make=partial(_scores, records, limits, largest_difference, of_count),
        context=tuple(each.points for each in fitted.values()),
        # scores lie between -1 and 1, their squares between 0 and 1
        clip_norm=(len(fitted) * (1 + SQUARE_SHARE**2) + of_count**2) ** 0.5,
    )
    settings = {
        "score_range": list(limits),
        "largest_difference": largest_difference,
        "draws": [len(each.points) for each in fitted.values()],
    }
    number, number_sd = float(num_records or 1), 0.0
    if of_count:
        number, number_sd = noisy.value[-1] / of_count, noisy.sd / of_count
    scales = [limits.radius, *[largest_difference] * (len(fitted) - 1)]
    scored = _describe_scores(noisy, number, number_sd, limits.centre, np.array(scales))
    groups = {"score": scored.assign_coords(model=[*fitted])}
    return with_guarantee(groups, together.records, outcome, {"settings": settings})


def _fits(idata: xr.DataTree | Fits, model: pm.Model | None, data: Any) -> Fits:
    if not isinstance(idata, Mapping) or isinstance(idata, xr.DataTree):
        return {"model": (idata, model)}
    if model is not None or data is None or not idata:
        raise ValueError(
            "Several models are given as {'name': (result, model), ...} without model=, and with "
            "data=: the records that all of them are to predict, row by row the same."
        )
    return idata


def _open(fits: Fits, data: Mapping[str, Any] | None, budget: Budget) -> dict[str, Fitted]:
    of_each = dict.fromkeys(fits, data)
    if len(fits) > 1:
        data = read_tables(data) or {}
        for name, (_, model) in fits.items():
            made = model_in_use(model)
            known = {str(v.name) for v in (*made.data_vars, *made.observed_RVs)}
            of_each[name] = {key: values for key, values in data.items() if key in known}
        for name in sorted(data.keys() - {key for own in of_each.values() for key in own or ()}):
            raise ValueError(f"data= names `{name}`, which is an array of none of the models.")
    return {name: open_fitted(*fit, of_each[name], budget, DRAWS) for name, fit in fits.items()}


def _scores(
    models: Mapping[str, tuple[Records, list[str]]],
    limits: checks.Range,
    most: float,
    of_count: float,
    backend: str,
) -> RowContribution:
    """Contribute a record's density under the first model, differences to it, and a count."""
    # a model comes with the names of its columns, among those of the joined records
    each = [
        (name, columns, checks.predictive_density(records, limits, backend))
        for name, (records, columns) in models.items()
    ]

    def prepare(batch: Batch, points: Sequence[np.ndarray]) -> np.ndarray:
        densities = [
            density({column: batch[f"{name}/{column}"] for column in columns}, z)
            for (name, columns, density), z in zip(each, points, strict=True)
        ]
        return np.stack(densities, axis=1)

    def rows(densities: np.ndarray, points: Sequence[np.ndarray]) -> np.ndarray:
        first = (densities[:, :1] - limits.centre) / limits.radius
        others = np.clip((densities[:, 1:] - densities[:, :1]) / most, -1.0, 1.0)
        scores = np.concatenate([first, others], axis=1)
        count = np.full_like(first, of_count)
        return np.concatenate([scores, SQUARE_SHARE * scores**2, count], axis=1)

    return RowContribution(2 * len(each) + 1, DRAWS * len(each), rows, prepare)


def _describe_scores(
    noisy: Noisy, number: float, number_sd: float, centre: float, scales: np.ndarray
) -> xr.Dataset:
    """Turn sums into means, with their noise's standard deviation to first order."""
    sd = noisy.sd
    divisor = max(number, number_sd, 1.0)
    scores, squares = np.split(noisy.value[:-1] / divisor, 2)
    noise = np.hypot(sd, scores * number_sd) / divisor
    # a variance of records and one standard deviation of its noise, at most that of the range
    spread = (squares + sd / divisor) / SQUARE_SHARE - scores**2
    sampling = np.sqrt(np.clip(spread, 0.0, 1.0) / divisor)
    first, *others = np.stack([scores, noise, sampling], axis=1) * scales[:, None]
    difference, its_noise, its_sampling = np.stack([np.zeros(3), *others], axis=1)
    return xr.Dataset(
        {
            "mean": ("model", centre + first[0] + difference),
            "mean_noise_sd": ("model", np.hypot(first[1], its_noise)),
            "mean_sampling_sd": ("model", first[2] + its_sampling),
            "difference": ("model", difference),
            "difference_noise_sd": ("model", its_noise),
            "difference_sampling_sd": ("model", its_sampling),
            "number": number,
            "number_noise_sd": number_sd,
        }
    )
