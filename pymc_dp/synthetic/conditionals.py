"""The distribution of a column given the columns before it: main effects of each."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_dp.model.graph_types import Tensor, pt
from pymc_dp.synthetic.column_types import Column

Values = Any  # the values of a column, or the data that later columns read as well


class Before(NamedTuple):
    """What the columns before one offer as predictors."""

    numbers: dict[str, Tensor]  # between -1 and 1
    groups: dict[str, Tensor]  # codes of categories

    def offer(self, name: str, column: Column, variable: Tensor) -> None:
        """Make a column a predictor of those after it."""
        if column.kind == "categories":
            self.groups[name] = variable
            return
        number = _scaled(column, variable)
        self.numbers[name] = number
        if column.squared:  # Legendre's polynomial, which is hardly correlated with the number
            self.numbers[_square(name)] = 1.5 * number**2 - 0.5


def coords_of(columns: Mapping[str, Column]) -> dict[str, list[str]]:
    """Name the predictors of each column, and the levels of categories."""
    coords: dict[str, list[str]] = {}
    numbers: list[str] = []
    for name, column in columns.items():
        coords |= {_predictors(name): list(numbers)} if numbers else {}
        if column.kind in ("ordered", "categories"):
            coords[_levels(name)] = [str(x) for x in column.levels]
        if column.kind != "categories":
            numbers += [name, _square(name)] if column.squared else [name]
    return coords


def observe(name: str, column: Column, before: Before, values: Values) -> Tensor:
    """Add a column to the model in use, given the columns before it."""
    return OUTCOMES[column.kind](name, column, before, values)


def _predictors(name: str) -> str:
    return f"predictors of {name}"


def _levels(name: str) -> str:
    return f"levels of {name}"


def _square(name: str) -> str:
    return f"{name} squared"


def _scaled(column: Column, variable: Tensor) -> Tensor:
    if column.kind == "ordered":
        scores = column.scores()
        steps = np.diff(scores)
        if np.allclose(steps, steps[0]):
            return -1.0 + float(steps[0]) * variable
        above = [float(step) * pt.ge(variable, k + 1) for k, step in enumerate(steps)]
        return sum(above, start=-1.0 + 0.0 * variable)
    middle, half = (column.low + column.high) / 2, (column.high - column.low) / 2
    return (variable - middle) / half


def _effects(name: str, before: Before, sd: float) -> Any:
    total: Any = 0.0
    if before.numbers:
        slopes = pm.Normal(f"{name} slopes", 0, sd, dims=_predictors(name))
        total = total + pt.stack([*before.numbers.values()], axis=1) @ slopes
    for other, codes in before.groups.items():
        effect = pm.ZeroSumNormal(f"{name} by {other}", 1, dims=_levels(other))
        total = total + effect[codes]
    return total


def _intercept(name: str, sd: float) -> Any:
    return pm.Normal(f"{name} intercept", 0, sd)


def _number(name: str, column: Column, before: Before, values: Values) -> Tensor:
    middle, half = (column.low + column.high) / 2, (column.high - column.low) / 2
    mean = _intercept(name, 1) + _effects(name, before, 1)
    sd = pm.HalfNormal(f"{name} sd", 1)
    return pm.Normal(name, middle + half * mean, half * sd, observed=values)


def _count(name: str, column: Column, before: Before, values: Values) -> Tensor:
    log_mean = -1.5 + _intercept(name, 1.5) + _effects(name, before, 1)
    shape = pm.LogNormal(f"{name} shape", 0, 1)
    mean = column.high * pt.exp(log_mean)
    return pm.NegativeBinomial(name, mu=mean, alpha=shape, observed=values)


def _waiting_time(name: str, column: Column, before: Before, values: Values) -> Tensor:
    log_scale = _intercept(name, 1.5) + _effects(name, before, 1)
    shape = pm.LogNormal(f"{name} shape", 0, 0.5)
    times = pm.Weibull.dist(shape, column.high * pt.exp(log_scale))
    return pm.Censored(name, times, lower=None, upper=column.high, observed=values)


def _yes_no(name: str, column: Column, before: Before, values: Values) -> Tensor:
    logit = _intercept(name, 2) + _effects(name, before, 2)
    return pm.Bernoulli(name, logit_p=logit, observed=values)


def _ordered(name: str, column: Column, before: Before, values: Values) -> Tensor:
    """Let neighbouring levels differ in log odds by a line: the model of adjacent categories.

    Its scores are predictors times levels, so that fitted regressions on them are those of the
    records, whatever the distribution.
    """
    logits = pm.ZeroSumNormal(f"{name} intercepts", 2, dims=_levels(name))
    if before.numbers or before.groups:
        effects = _effects(name, before, 2)
        logits = logits + pt.stack([x * effects for x in column.scores()], axis=-1)
    return pm.Categorical(name, logit_p=logits, observed=values)


def _categories(name: str, column: Column, before: Before, values: Values) -> Tensor:
    own = _levels(name)
    logits = pm.ZeroSumNormal(f"{name} intercepts", 2, dims=own)
    if before.numbers:
        dims = _predictors(name), own
        slopes = pm.ZeroSumNormal(f"{name} slopes", 1, dims=dims)
        logits = logits + pt.stack([*before.numbers.values()], axis=1) @ slopes
    for other, codes in before.groups.items():
        dims = _levels(other), own
        effect = pm.ZeroSumNormal(f"{name} by {other}", 1, n_zerosum_axes=2, dims=dims)
        logits = logits + effect[codes]
    return pm.Categorical(name, logit_p=logits, observed=values)


OUTCOMES: dict[str, Callable[[str, Column, Before, Values], Tensor]] = {
    "number": _number,
    "count": _count,
    "waiting_time": _waiting_time,
    "yes_no": _yes_no,
    "ordered": _ordered,
    "categories": _categories,
}
