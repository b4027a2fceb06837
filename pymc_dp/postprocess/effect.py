"""Predicted margins, contrasts and average treatment effects, by g-computation.

Over public rows they are post-processing. Over the fitted records they are one release: outcomes
are drawn, with predictors set, at points of the posterior, and what is released is, for each
setting, the average's projection on the linear functions of the latents: its mean and its slopes.
"""

from collections.abc import Container, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pymc.distributions.moments import mean
from pymc.exceptions import UndefinedMomentException
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BernoulliRV
from pytensor.tensor.random.op import RandomVariable

from pymc_dp.calibration.budget import Budget
from pymc_dp.checking.private_checks import (
    COUNT_SHARE,
    Fitted,
    as_in_fit,
    ask,
    drawn_leaf,
    open_fitted,
)
from pymc_dp.contributions import checks
from pymc_dp.contributions.checks import Nodes, Place, Range, Values
from pymc_dp.driver.fit import model_in_use
from pymc_dp.ledger.ledger import Ledger
from pymc_dp.model import Records
from pymc_dp.postprocess.predict import draws_of, predict
from pymc_dp.privacy.contribution import Noisy
from pymc_dp.results.report import warn_if_too_narrow
from pymc_dp.results.tree import with_guarantee
from pymc_dp.tables.formula import changed_copy, is_bambi, pymc_model
from pymc_dp.tables.given import refuse_bad_indices

SMALLEST = 1e-9  # probabilities this near to 0 and 1 have finite odds
POINTS, FEWEST_POINTS = 200, 20  # of the posterior, at which outcomes are drawn
# above this share of the points, directions fitted to them do not hold between them
MOST_DIRECTIONS = 0.25
DRAWS = 4000  # draws of margins
FLATTEST = 1e-6  # a direction narrower than this, over the widest, is rounding


def effect(
    idata: xr.DataTree,
    model: pm.Model,
    settings: Mapping[Place, Sequence[Any]],
    *,
    over: Any = None,
    weights: Any = None,
    outcome: str | None = None,
    bounds: tuple[float, float] | None = None,
    prob: float = 0.9,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    data: Mapping[str, Any] | None = None,
    neighbours: str | None = None,
    accountant: str = "pld",
    num_records: int | None = None,
    unit: str | None = None,
    ledger: Ledger | str | PathLike[str] | None = None,
    backend: str = "python",
    public: str | Sequence[str] = (),
) -> xr.DataTree:
    """Average a model's expected outcome with predictors set to given values, and compare.

    Parameters
    ----------
    idata, model : DataTree, pymc.Model or bambi.Model
        A result of `pymc_dp.fit`, and the model that was fitted.
    settings : mapping
        The values that predictors are set to, for every row: ``{"treated": [0, 1]}``. The key
        ``("X", 2)`` is a column of a matrix. The first values of all predictors belong together,
        then the second; contrasts compare with the first. What was computed from a predictor
        before the model, such as an interaction, does not follow it.
    over : mapping or DataFrame, optional
        Public rows, as `pymc_dp.predict` takes them; predictors that are set may be left out. The
        average over them costs nothing. Without it the average is over the fitted records, which is
        one more release.
    weights : array_like, optional
        Public weights of the rows of ``over``.
    outcome : str, optional
        Which observed variable. With ``over`` also a deterministic that is an expected outcome.
    bounds : tuple of two floats, optional
        Where outcomes are clipped to, for an average over the fitted records: public numbers. Not
        read for outcomes of yes or no.
    prob : float, default 0.9
        The probability of the intervals, which are equal-tailed.
    epsilon, delta, noise_multiplier, data, accountant, num_records, ledger, backend
        As in `pymc_dp.fit`, for the release alone.
    neighbours, unit : str, optional
        Of the release; those of the fit by default. With a unit the average is over persons, each
        the mean of its records.
    public
        As in `pymc_dp.predict`, for averages over public rows.

    Returns
    -------
    DataTree
        ``effect``: ``margin`` of each ``setting``, and for each other setting against the first
        ``difference``, ``ratio`` where outcomes are positive, and ``odds_ratio`` where they are yes
        or no; each with ``mean``, ``sd``, ``lower`` and ``upper`` along ``statistic``. Any other
        contrast follows from ``margin_draws``. The attribute ``epsilon_spent`` is what this call
        cost. Over the fitted records there is ``privacy`` as well, as from `pymc_dp.fit`.

    Raises
    ------
    ValueError, TypeError, NotImplementedError
        Records have latents of their own, or any other bad input: before any budget is spent.

    Warns
    -----
    PrivacyWarning
        The public rows may be the fitted ones, ``bounds`` may be records' own numbers, or the
        release protects something else than the fit.
    PosteriorWarning
        The posterior leaves the noise of its fit out.

    Notes
    -----
    **Privacy.** Over public rows: post-processing. Over the fitted records: one Gaussian release of
    all of them, of sensitivity sqrt(K + 1/2) for K settings under add-remove and zero-out
    neighbours, and sqrt(K) where the number of records is declared (docs/proofs/checks.md).

    **Intervals** hold the width of the posterior, and the noise of this release, but not the choice
    of the fitted records. Averages are taken as linear in the latents within the posterior. They
    are effects of a treatment only if every confounder is in the model.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> rng = np.random.default_rng(1)
    >>> treated = rng.integers(0, 2, 2000)
    >>> answered = (rng.random(2000) < 0.3 + 0.2 * treated).astype(int)
    >>> with pm.Model() as model:
    ...     a, b = pm.Normal("a", 0, 2), pm.Normal("b", 0, 2)
    ...     logit = a + b * pm.Data("treated", treated)
    ...     y = pm.Bernoulli("y", logit_p=logit, observed=answered)
    >>> terms = {"epsilon": 1, "delta": 1e-5}
    >>> idata = pymc_dp.fit(model=model, progressbar=False, **terms)
    >>> result = pymc_dp.effect(idata, model, {"treated": [0, 1]}, **terms)["effect"]
    >>> 0.1 < result["difference"].sel(statistic="mean").item() < 0.3
    True
    """
    chosen = _read_settings(settings)
    if not 0 < prob < 1:
        raise ValueError(f"prob={prob!r} must be between 0 and 1.")
    warn_if_too_narrow("the intervals of its effects", idata)
    if over is None:
        if weights is not None or public:
            raise ValueError("weights= and public= are for public rows: give these as over=.")
        relation, unit = as_in_fit(idata, neighbours, unit)
        terms = (relation, "full", accountant, num_records, unit)
        budget = Budget(epsilon, delta, noise_multiplier, *terms)
        model, sizes = model_in_use(model), idata["posterior"].sizes
        numbers = {} if bounds is None else {"bounds=": bounds}
        fitted = open_fitted(idata, model, data, budget, sizes["chain"] * sizes["draw"], numbers)
        return _record_margins(fitted, model, chosen, outcome, bounds, prob, ledger, backend)
    more = (epsilon, delta, noise_multiplier, bounds, data, neighbours, num_records, unit, ledger)
    if any(value is not None for value in more):
        raise ValueError(
            "Over public rows nothing is released: leave out epsilon=, delta=, noise_multiplier=, "
            "bounds=, data=, neighbours=, num_records=, unit= and ledger=."
        )
    margins, shares = _public_margins(idata, model, chosen, over, weights, outcome, public)
    result = describe(chosen, margins, prob, shares=shares)
    result.attrs |= {"over": "public rows", "epsilon_spent": 0.0}
    return xr.DataTree.from_dict({"effect": result})


def _read_settings(settings: Mapping[Place, Sequence[Any]]) -> Mapping[str, Values]:
    """Read a caller's settings by label: the first values of all predictors, then the second."""
    if not isinstance(settings, Mapping) or not settings:
        raise TypeError(
            "settings= must be a mapping of predictors to the values that they are set to, such as "
            "{'treated': [0, 1]} or {('X', 2): [0, 1]} for a column of a matrix."
        )
    columns = {place: _values(place, values) for place, values in settings.items()}
    if len({len(values) for values in columns.values()}) != 1:
        raise ValueError("settings= must give equally many values of each predictor.")
    each = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return {", ".join(f"{_named(k)}={v}" for k, v in one.items()): one for one in each}


def _values(place: Place, values: Sequence[Any]) -> list[Any]:
    pair = place if isinstance(place, tuple) and len(place) == 2 else (place, 0)
    if not isinstance(pair[0], str) or not isinstance(pair[1], int | np.integer):
        raise TypeError(
            f"settings= has the key {place!r}: it must be the name of a predictor, or its name "
            "and the number of a column, such as ('X', 2)."
        )
    if np.ndim(values) != 1 or not len(values):
        raise ValueError(
            f"settings= must give `{_named(place)}` a list of values, such as [0, 1]; the first "
            "one is what contrasts compare with."
        )
    for value in values:
        if isinstance(value, float | np.floating) and not np.isfinite(value):
            raise ValueError(f"settings= sets `{_named(place)}` to {value}: it must be finite.")
    return values if isinstance(values, list) else np.asarray(values).tolist()


def _named(place: Place) -> str:
    return place if isinstance(place, str) else f"{place[0]}[{place[1]}]"


def _public_margins(
    idata: xr.DataTree,
    model: Any,
    settings: Mapping[str, Values],
    rows: Any,
    weights: Any,
    outcome: str | None,
    public: str | Sequence[str],
) -> tuple[np.ndarray, bool]:
    """Average expected outcomes on rows, (settings, draws); and whether these are probabilities."""
    if not is_bambi(model):  # a data frame is no mapping, and its columns are
        rows = {name: np.asarray(rows[name]) for name in getattr(rows, "columns", rows)}
    share = _share(weights, {len(rows[name]) for name in rows})
    made, name, is_share = _with_expected(model, idata, rows, outcome)
    margins = []
    for one in settings.values():
        # `predict` refuses numbers that may come from the records, and warns of fitted rows
        changed = _set(rows, one, len(share))
        result = predict(idata, made, changed, var_names=name, public=public)
        array = draws_of(result["predictions"], [name])[name].astype("float64")
        margins.append(array.reshape(*array.shape[:2], -1).mean(axis=2) @ share)
    return np.stack(margins), is_share


def _share(weights: Any, lengths: set[int]) -> np.ndarray:
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError("over= must hold arrays of equal length, with at least one row.")
    [length] = lengths
    given = np.ones(length) if weights is None else np.asarray(weights, "float64")
    if given.shape != (length,) or not ((given >= 0) & (given < np.inf)).all() or not given.any():
        raise ValueError(
            f"weights= must be one finite number of at least 0 for each of {length} rows, and one "
            "of them above 0."
        )
    return np.asarray(given / given.sum())


def _with_expected(
    model: Any, idata: xr.DataTree, given: Container[str], outcome: str | None
) -> tuple[Any, str, bool]:
    """Return the model with its expected outcome as a deterministic, and the name of that."""
    made: pm.Model = pymc_model(model)
    posterior = idata["posterior"].to_dataset()
    for rv in made.free_RVs:
        if rv.name not in posterior:
            raise ValueError(
                f"`{rv.name}` belongs to single records or units, and the posterior does not hold "
                "it: an expected outcome would be that of the latents drawn for these rows. Draw "
                "outcomes of new persons by pymc_dp.predict and average them, or leave "
                f"`{rv.name}` out."
            )
    if is_bambi(model):
        return model, outcome or model.family.likelihood.parent, model.family.name == "bernoulli"
    name = _outcome(made, outcome)
    if name in {str(v.name) for v in made.deterministics}:
        return model, name, False
    made = changed_copy(made, lambda graph: None)
    rv, node = made[name], made[name].owner
    drawn, make = rv, node.op.make_node
    if isinstance(node.op, RandomVariable):  # as many as the parameters say, not as were fitted
        drawn = make(node.op.rng_param(node), None, *node.op.dist_params(node)).outputs[1]
    try:
        expected = mean(drawn)
    except (NotImplementedError, UndefinedMomentException):
        raise NotImplementedError(
            f"PyMC does not know the mean of `{name}`. Give the model a pm.Deterministic that is "
            "its expected value, and name it: outcome='...'."
        ) from None
    for other in made.observed_RVs:
        if other in ancestors([expected]) and other.name not in given:
            raise ValueError(f"over= lacks `{other.name}`, which the expected outcome depends on.")
    with made:
        new = pm.Deterministic(f"expected {name}", expected)
    return made, str(new.name), isinstance(node.op, BernoulliRV)


def _outcome(model: pm.Model, outcome: str | None) -> str:
    observed = [str(rv.name) for rv in model.observed_RVs]
    if outcome is None and len(observed) == 1:
        return observed[0]
    known = [*observed, *(str(v.name) for v in model.deterministics)]
    if outcome not in known:
        raise ValueError(f"outcome={outcome!r} must be one of {known}.")
    return outcome


def _set(rows: Any, setting: Values, number: int) -> Any:
    changed = rows.copy()
    for place, value in setting.items():
        if isinstance(place, str):
            changed[place] = np.full(number, value)
            if hasattr(rows, "columns") and place in rows:  # with the same levels
                changed[place] = changed[place].astype(rows[place].dtype)
            continue
        name, column = place
        if name not in rows or np.ndim(rows[name]) != 2 or column >= rows[name].shape[1]:
            raise ValueError(f"settings= names {place!r}, which is no column of over=.")
        array = np.array(changed[name])
        changed[name] = array.astype(np.result_type(array, np.asarray(value)))
        changed[name][:, column] = value
    return changed


def _record_margins(
    fitted: Fitted,
    model: pm.Model,
    settings: Mapping[str, Values],
    outcome: str | None,
    bounds: tuple[float, float] | None,
    prob: float,
    ledger: Ledger | str | PathLike[str] | None,
    backend: str,
) -> xr.DataTree:
    records, budget = fitted.records, fitted.budget
    if len(observed := sorted(records.drawn.values())) > 1:
        raise ValueError(
            f"The model observes {observed}: an average over the fitted records takes models of "
            "one outcome given its predictors. Average over public rows by over=."
        )
    instead = "Average over public rows by over=, with outcome= a deterministic."
    _, leaf = drawn_leaf(records, "outcome", outcome, instead)
    is_binary = bool(records.outcomes and records.outcomes[0].is_binary)
    limits = _limits(bounds, is_binary)
    _check_places(records, settings, leaf, budget.unit)
    _check_levels(model, settings, budget.unit)
    nodes, along = nodes_of(fitted.points)
    of_count = COUNT_SHARE if budget.num_records is None else 0.0
    size, points = nodes.basis.shape[1], len(nodes.points)
    values = [*settings.values()]
    noisy, made = ask(
        "expected outcomes",
        fitted,
        ledger,
        backend,
        make=lambda _: checks.on_nodes(records, leaf, values, limits, size, points, of_count),
        context=nodes,
        clip_norm=(len(settings) + of_count**2) ** 0.5,
    )
    margins = margin_draws(noisy, along, limits, budget.num_records)
    summary = describe(settings, margins, prob, shares=is_binary)
    summary.attrs |= {"over": "the fitted records", "epsilon_spent": made.epsilon}
    about = {"settings": {"bounds": list(limits), "points": points, "directions": size - 1}}
    return with_guarantee({"effect": summary}, records, made, about)


def _limits(bounds: tuple[float, float] | None, is_binary: bool) -> Range:
    if is_binary:
        return Range(0.0, 1.0)
    if bounds is None:
        raise ValueError(
            "The average over the fitted records needs bounds=(low, high), where outcomes are "
            "clipped to: public numbers, such as the ends of the scale; nothing from the data."
        )
    return checks.check_range("bounds", bounds)


def _check_places(
    records: Records, settings: Mapping[str, Values], leaf: str, unit: str | None
) -> None:
    known = sorted(records.batch.inputs.keys() - {leaf, unit} - records.unnamed.keys())
    for place, value in [pair for one in settings.values() for pair in one.items()]:
        name, column = (place, None) if isinstance(place, str) else place
        if name not in known:
            raise ValueError(
                f"settings= names `{name}`, but the predictors that have names are {known}. Make "
                f"it a pm.Data('{name}', ...); of a formula, average over public rows by over=."
            )
        lengths = [length for length in records.shapes[name] if length is not None]
        is_column = len(lengths) == 1 and column in range(lengths[0])
        if not is_column and (lengths or column is not None):
            raise ValueError(
                f"settings= names {place!r}, but a record's `{name}` has the shape {lengths}: name "
                f"one column of a matrix, such as ('{name}', 0), and what is no matrix by its name."
            )
        dtype, given = np.dtype(records.batch.inputs[name].type.dtype), np.asarray(value)
        whole = dtype.kind in "biu"
        if given.dtype.kind not in "biuf" or given.ndim or (whole and given.astype(dtype) != given):
            raise ValueError(f"settings= sets `{name}` to {value!r}, and it holds {dtype} numbers.")


def _check_levels(model: pm.Model, settings: Mapping[str, Values], unit: str | None) -> None:
    own = {str(v.name): v.get_value() for v in model.data_vars}
    for label, one in settings.items():
        named = ((k, k if isinstance(k, str) else k[0], v) for k, v in one.items())
        values = {k: v for k, name, v in named if name in own}
        try:
            refuse_bad_indices(model, checks.with_values(own, dict.fromkeys(own, 0), values), unit)
        except ValueError as error:
            raise ValueError(f"settings= has {label}. {error}") from None


def nodes_of(every: np.ndarray) -> tuple[Nodes, np.ndarray]:
    """Choose points, and functions that are orthonormal on them; return these at all draws, too."""
    if len(every) < FEWEST_POINTS:
        raise ValueError(f"The result has fewer than {FEWEST_POINTS} draws: fit with more draws=.")
    chosen = np.unique(np.linspace(0, len(every) - 1, POINTS).astype(int))
    points = every[chosen]
    centre, scale = points.mean(axis=0), points.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    left, lengths, right = np.linalg.svd((points - centre) / scale, full_matrices=False)
    kept = lengths > FLATTEST * lengths[0]
    root = len(points) ** 0.5
    functions = root * left[:, kept]
    along = functions
    if kept.sum() <= MOST_DIRECTIONS * len(points):
        along = root * ((every - centre) / scale) @ right[kept].T / lengths[kept]
    return Nodes(points, np.column_stack([np.ones(len(points)), functions])), along


def margin_draws(noisy: Noisy, along: np.ndarray, limits: Range, number: int | None) -> np.ndarray:
    """Draw margins, (settings, draws), from the posterior and from what the noise leaves open."""
    rng = np.random.default_rng(0)  # nothing here is secret
    draws = max(DRAWS, len(along))
    parts = noisy.value[:-1].reshape(-1, 1 + along.shape[1])
    slopes = shortened(parts[:, 1:], noisy.sd)
    spread = slopes @ along[np.arange(draws) % len(along)].T
    sums = parts[:, :1] + spread - noisy.sd * rng.normal(size=spread.shape)
    count = np.full(draws, float(number or 1))
    if number is None:
        count = (noisy.value[-1] - noisy.sd * rng.normal(size=draws)) / COUNT_SHARE
    means = sums / np.maximum(count, 1.0)
    return np.asarray(np.clip(limits.centre + limits.radius * means, *limits))


def shortened(slopes: np.ndarray, sd: float) -> np.ndarray:
    """Shorten noisy slopes, (settings, r), so that their products hold no noise on average."""
    r = slopes.shape[1]
    values, axes = np.linalg.eigh(slopes @ slopes.T)
    # noise adds r sd^2 to each eigenvalue: one standard deviation of that is left, so that
    # intervals are rather too wide
    excess = max(r - (2 * r) ** 0.5, 0.0) * sd**2
    shares = np.sqrt(np.clip(1 - excess / np.maximum(values, 1e-300), 0.0, 1.0))
    return np.asarray((axes * shares) @ axes.T @ slopes)


def describe(
    settings: Mapping[str, Values], margins: np.ndarray, prob: float, *, shares: bool
) -> xr.Dataset:
    """Summarise draws of margins, (settings, draws), and of contrasts to the first setting."""
    first, others = margins[:1], margins[1:]
    contrasts = {"difference": others - first}
    if shares or (margins > 0).all():
        contrasts["ratio"] = others / np.maximum(first, SMALLEST)
    if shares:
        odds = np.clip(margins, SMALLEST, 1 - SMALLEST)
        odds = odds / (1 - odds)
        contrasts["odds_ratio"] = odds[1:] / odds[:1]
    labels = [*settings]
    summaries = {
        "margin": (("setting", "statistic"), _summary(margins, prob)),
        "margin_draws": (("setting", "margin_draw"), margins),
    }
    coords: dict[str, Any] = {"setting": labels, "statistic": ["mean", "sd", "lower", "upper"]}
    if len(others):
        coords["contrast"] = [f"{label} against {labels[0]}" for label in labels[1:]]
        for name, values in contrasts.items():
            summaries[name] = (("contrast", "statistic"), _summary(values, prob))
    return xr.Dataset(summaries, coords, {"prob": prob})


def _summary(draws: np.ndarray, prob: float) -> np.ndarray:
    """Return mean, sd and an equal-tailed interval of each row, (rows, 4)."""
    ends = np.quantile(draws, [(1 - prob) / 2, (1 + prob) / 2], axis=1)
    return np.stack([draws.mean(axis=1), draws.std(axis=1), *ends], axis=1)
