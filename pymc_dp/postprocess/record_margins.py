"""Expected outcomes averaged over the fitted records: one more release.

Outcomes are drawn, with predictors set, at points of the posterior. What is released is, for each
setting, the average's projection on the linear functions of the latents: its mean over the
posterior, and its slope along each direction.
"""

import math
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dp.calibration.budget import Budget
from pymc_dp.checking.release import ask, drawn_leaves, open_fitted
from pymc_dp.contributions.predictive_density import Range
from pymc_dp.contributions.set_predictors import Nodes, on_nodes, with_values
from pymc_dp.ledger.ledger import Ledger
from pymc_dp.model import Records
from pymc_dp.postprocess.settings import Setting, describe
from pymc_dp.privacy.query import Noisy
from pymc_dp.results.build import with_guarantee
from pymc_dp.tables.checks import refuse_bad_indices

NAME = "expected outcomes"
# points of the posterior at which outcomes are drawn
POINTS = 200
FEWEST_POINTS = 20
# above this share of the points, directions fitted to them do not hold between them
MOST_DIRECTIONS = 0.25
COUNT_SHARE = 0.5**0.5  # what a record adds to their count, over what it can add to an average
DRAWS = 4000  # draws of margins
FLATTEST = 1e-6  # a direction narrower than this, over the widest, is rounding


def record_margins(
    idata: xr.DataTree,
    model: pm.Model,
    settings: Sequence[Setting],
    outcome: str | None,
    bounds: tuple[float, float] | None,
    prob: float,
    data: Mapping[str, Any] | None,
    budget: Budget,
    ledger: Ledger | str | PathLike[str] | None,
    backend: str,
) -> xr.DataTree:
    """Release the averages, and describe them with the noise in their intervals."""
    sizes = idata["posterior"].sizes
    every = sizes["chain"] * sizes["draw"]
    numbers = {} if bounds is None else {"bounds=": bounds}
    fitted = open_fitted(idata, model, data, budget, every, numbers)
    records, leaf = fitted.records, _leaf(fitted.records, outcome)
    is_binary = bool(records.outcomes and records.outcomes[0].is_binary)
    limits = _limits(bounds, is_binary)
    _check_places(records, settings, leaf, budget.unit)
    _check_levels(model, settings, budget.unit)
    nodes, along = nodes_of(fitted.points)
    of_count = COUNT_SHARE if budget.num_records is None else 0.0
    size, points = nodes.basis.shape[1], len(nodes.points)
    values = [one.values for one in settings]
    noisy, made = ask(
        NAME,
        fitted,
        budget,
        ledger,
        backend,
        compile_one=lambda _: on_nodes(records, leaf, values, limits, size, points, of_count),
        context=nodes,
        size=len(settings) * size + 1,
        clip_norm=(len(settings) + of_count**2) ** 0.5,
    )
    margins = margin_draws(noisy, along, len(settings), limits, of_count, budget.num_records)
    found = describe(settings, margins, prob, shares=is_binary)
    found.attrs |= {"over": "the fitted records", "epsilon_spent": made.epsilon}
    settings_of_release = {"bounds": list(limits), "points": points, "directions": size - 1}
    return with_guarantee({"effect": found}, records, made, {"settings": settings_of_release})


def _leaf(records: Records, outcome: str | None) -> str:
    instead = "Average over public rows by over=, with outcome= a deterministic."
    leaves = drawn_leaves(records, instead)
    if len(leaves) != 1:
        raise ValueError(
            f"The model observes {sorted(leaves)}: an average over the fitted records takes models "
            "of one outcome given its predictors. Average over public rows by over=."
        )
    if outcome is not None and outcome not in leaves:
        raise ValueError(f"outcome={outcome!r} must be one of {sorted(leaves)}, or left out.")
    [leaf] = leaves.values()
    return leaf


def _limits(bounds: tuple[float, float] | None, is_binary: bool) -> Range:
    if is_binary:
        return Range(0.0, 1.0)
    if bounds is None:
        raise ValueError(
            "The average over the fitted records needs bounds=(low, high), where outcomes are "
            "clipped to: public numbers, such as the ends of the scale; nothing from the data."
        )
    low, high = bounds
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"bounds={bounds!r} must be two finite numbers, the smaller one first.")
    return Range(float(low), float(high))


def _check_places(
    records: Records, settings: Sequence[Setting], leaf: str, unit: str | None
) -> None:
    """Refuse predictors that the model does not have, and values that they cannot take."""
    known = sorted(records.batch.inputs.keys() - {leaf, unit} - records.unnamed.keys())
    for place, value in [pair for one in settings for pair in one.values.items()]:
        name, column = (place, None) if isinstance(place, str) else place
        if name not in known:
            raise ValueError(
                f"settings= names `{name}`, but the predictors that have names are {known}. Make "
                f"it a pm.Data('{name}', ...); of a formula, average over public rows by over=."
            )
        lengths = [length for length in records.shapes[name] if length is not None]
        if [column is not None and 0 <= column < length for length in lengths] != (
            [] if column is None else [True]
        ):
            raise ValueError(
                f"settings= names {place!r}, but a record's `{name}` has the shape {lengths}: name "
                f"one column of a matrix, such as ('{name}', 0), and what is no matrix by its name."
            )
        dtype, given = np.dtype(records.batch.inputs[name].type.dtype), np.asarray(value)
        whole = dtype.kind in "biu"
        if given.dtype.kind not in "biuf" or given.ndim or (whole and given.astype(dtype) != given):
            raise ValueError(f"settings= sets `{name}` to {value!r}, and it holds {dtype} numbers.")


def _check_levels(model: pm.Model, settings: Sequence[Setting], unit: str | None) -> None:
    """Refuse codes of levels that the model does not have."""
    own = {str(v.name): v.get_value() for v in model.data_vars}
    for one in settings:
        named = ((k, k if isinstance(k, str) else k[0], v) for k, v in one.values.items())
        values = {k: v for k, name, v in named if name in own}
        try:
            refuse_bad_indices(model, with_values(own, dict.fromkeys(own, 0), values), unit)
        except ValueError as error:
            raise ValueError(f"settings= has {one.label}. {error}") from None


def nodes_of(every: np.ndarray) -> tuple[Nodes, np.ndarray]:
    """Choose points, and functions of the latents that are orthonormal on them.

    Return also these functions, but for the constant one, at as many draws as there are, (draws,
    r). They are linear in the latents.
    """
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


def margin_draws(
    noisy: Noisy,
    along: np.ndarray,
    settings: int,
    limits: Range,
    of_count: float,
    number: int | None,
) -> np.ndarray:
    """Draw margins, (settings, draws), from the posterior and from what the noise leaves open."""
    rng = np.random.default_rng(0)  # nothing here is secret
    draws = max(DRAWS, len(along))
    parts = noisy.value[:-1].reshape(settings, -1)
    slopes = without_noise(parts[:, 1:], noisy.sd)
    spread = slopes @ along[np.arange(draws) % len(along)].T
    sums = parts[:, :1] + spread - noisy.sd * rng.normal(size=(settings, draws))
    count = np.full(draws, float(number or 1))
    if of_count:
        count = (noisy.value[-1] - noisy.sd * rng.normal(size=draws)) / of_count
    means = sums / np.maximum(count, 1.0)
    return np.asarray(np.clip(limits.centre + limits.radius * means, *limits))


def without_noise(slopes: np.ndarray, sd: float) -> np.ndarray:
    """Shorten noisy slopes, (settings, r), so that their products hold no noise on average.

    Noise adds ``r sd^2`` to each eigenvalue of the products; one standard deviation of that is
    left, so that intervals are rather too wide.
    """
    r = slopes.shape[1]
    values, axes = np.linalg.eigh(slopes @ slopes.T)
    excess = max(r - (2 * r) ** 0.5, 0.0) * sd**2
    shares = np.sqrt(np.clip(1 - excess / np.maximum(values, 1e-300), 0.0, 1.0))
    return np.asarray((axes * shares) @ axes.T @ slopes)
