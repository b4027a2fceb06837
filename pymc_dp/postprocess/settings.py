"""Values that predictors are set to, and what follows from the margins of each."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_dp.contributions.set_predictors import Place, Values

SMALLEST = 1e-9  # probabilities this near to 0 and 1 have finite odds


class Setting(NamedTuple):
    """Predictors set to values."""

    label: str
    values: Values


def read_settings(settings: Mapping[Place, Sequence[Any]]) -> list[Setting]:
    """Read a caller's settings: the first values of all predictors together, then the second."""
    if not isinstance(settings, Mapping) or not settings:
        raise TypeError(
            "settings= must be a mapping of predictors to the values that they are set to, such as "
            "{'treated': [0, 1]} or {('X', 2): [0, 1]} for a column of a matrix."
        )
    columns = {place: _values(place, values) for place, values in settings.items()}
    if len({len(values) for values in columns.values()}) != 1:
        raise ValueError("settings= must give equally many values of each predictor.")
    found = []
    for row in zip(*columns.values(), strict=True):
        values = dict(zip(columns, row, strict=True))
        found.append(Setting(", ".join(f"{_named(k)}={v}" for k, v in values.items()), values))
    if len({one.label for one in found}) < len(found):
        raise ValueError("settings= gives the same values twice: each setting must be another.")
    return found


def _values(place: Place, values: Sequence[Any]) -> list[Any]:
    if not isinstance(place, str):
        try:
            name, column = place
        except (TypeError, ValueError):
            name, column = None, None
        if not isinstance(name, str) or not isinstance(column, int | np.integer):
            raise TypeError(
                f"settings= has the key {place!r}: it must be the name of a predictor, or its name "
                "and the number of a column, such as ('X', 2)."
            )
    if isinstance(values, str) or np.ndim(values) != 1 or not len(values):
        raise ValueError(
            f"settings= must give `{_named(place)}` a list of values, such as [0, 1]; the first "
            "one is what contrasts compare with."
        )
    listed: list[Any] = np.asarray(values).tolist() if not isinstance(values, list) else values
    for value in listed:
        if isinstance(value, float) and not np.isfinite(value):
            raise ValueError(f"settings= sets `{_named(place)}` to {value}: it must be finite.")
    return listed


def _named(place: Place) -> str:
    return place if isinstance(place, str) else f"{place[0]}[{place[1]}]"


def describe(
    settings: Sequence[Setting], margins: np.ndarray, prob: float, *, shares: bool
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
    labels = [one.label for one in settings]
    found = {"margin": (("setting", "statistic"), _summary(margins, prob))}
    found |= {
        name: (("contrast", "statistic"), _summary(values, prob))
        for name, values in contrasts.items()
        if len(others)
    }
    found["margin_draws"] = (("setting", "margin_draw"), margins)
    coords: dict[str, Any] = {"setting": labels, "statistic": ["mean", "sd", "lower", "upper"]}
    if len(others):
        coords["contrast"] = [f"{label} against {labels[0]}" for label in labels[1:]]
    return xr.Dataset(found, coords, {"prob": prob})


def _summary(draws: np.ndarray, prob: float) -> np.ndarray:
    """Return mean, sd and an equal-tailed interval of each row, (rows, 4)."""
    ends = np.quantile(draws, [(1 - prob) / 2, (1 + prob) / 2], axis=1)
    return np.stack([draws.mean(axis=1), draws.std(axis=1), *ends], axis=1)
