"""The columns of a table: a model of each given those before it, and their fits in one budget."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pymc_dp.calibration.budget import Budget
from pymc_dp.driver.explain import WHILE_RUNNING, calibrate
from pymc_dp.driver.explain import epsilon as epsilon_of
from pymc_dp.driver.fit import fit, set_up
from pymc_dp.model.graphs import Tensor, pt
from pymc_dp.synthetic.synthesize import synthesize
from pymc_dp.tables.public_table import Column

# the noise grows by so much until plans, whose epsilons are rounded, keep to the budget together
GROWTH, MOST_TRIES = 1.01, 4
ONE: dict[str, Any] = {"sample_rate": 1.0, "n": 1, "sampling": "full"}
METHOD = "dp_advi"
# what belongs to one model, or to one fit
REFUSED = ("noise_multiplier", "model", "method", "n", "data", "public_start", "unit", "checkpoint")
TERMS = ("neighbours", "accountant", "num_records")
# what the columns before one offer it: numbers between -1 and 1, and codes of categories
Before = tuple[dict[str, Tensor], dict[str, Tensor]]


class Columns:
    """The columns of a table, in an order in which each is modelled given those before it.

    Parameters
    ----------
    columns : mapping of str to Column
        By name. Put categories, which have many latents, first, and what depends on the others,
        such as an outcome, last.

    Notes
    -----
    A column depends on those before it by main effects: slopes of numbers, which are scaled to
    -1 to 1 by their public range, and an effect of each category, which sum to 0. Priors are
    normal, with the standard deviation 1, or 2 for log odds.

    **Privacy.** Every record is prepared by itself, by the public numbers of its columns.

    Examples
    --------
    >>> import numpy as np, pandas as pd, pymc_dp
    >>> from pymc_dp import Column
    >>> rng = np.random.default_rng(0)
    >>> frame = pd.DataFrame({"age": rng.uniform(18, 90, 2000)})
    >>> frame["voted"] = np.where(rng.random(2000) < frame["age"] / 100, "yes", "no")
    >>> columns = pymc_dp.Columns(
    ...     {"age": Column.number(18, 90), "voted": Column.yes_no("no", "yes")}
    ... )
    >>> fits = columns.fit(frame, epsilon=1, delta=1e-5, progressbar=False)
    >>> tables = columns.synthesize(fits, n=500, m=3)
    >>> [table.shape for table in tables]
    [(500, 2), (500, 2), (500, 2)]
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        if not columns:
            raise ValueError("columns= is empty: name one column or more.")
        for name, column in columns.items():
            if not isinstance(column, Column):
                raise TypeError(
                    f"The column `{name}` is {column!r}: describe it by pymc_dp.Column, such as "
                    "pymc_dp.Column.number(0, 100)."
                )
        self._types = dict(columns)

    def __repr__(self) -> str:
        return f"Columns({self._types!r})"

    def model(self, frame: Any) -> pm.Model:
        """Build one model of all columns of a data frame.

        Raises
        ------
        ValueError
            A column is missing, or holds values that its type does not have.
        """
        return self._model(self._values(frame))

    def fit(
        self, frame: Any, *, epsilon: float, delta: float, **settings: Any
    ) -> dict[str, xr.DataTree]:
        """Fit every column given those before it, within one budget.

        Parameters
        ----------
        frame : DataFrame
            The private records.
        epsilon, delta : float
            The budget of all fits together.
        **settings
            Other keywords of `pymc_dp.fit`.

        Returns
        -------
        dict of str to DataTree
            By column. `pymc_dp.compose` says what all of them cost.

        Raises
        ------
        ValueError, TypeError, NotSeparableError
            Bad input to any of the fits, all of it before the first release.

        Notes
        -----
        **Privacy.** All settings are fixed in advance from the columns' types, so that the
        fits compose; their plans are composed before the first fit. A fit has a share of the
        budget in proportion to its latents, of which columns share none.
        """
        for name in REFUSED:
            if name in settings:
                raise ValueError(f"Fits of columns take no {name}=.")
        values = self._values(frame)
        models = {name: self._model(values, name) for name in self._types}
        each = _epsilons(models, epsilon, delta, settings)
        return {
            name: fit(model=model, method=METHOD, epsilon=each[name], delta=delta, **settings)
            for name, model in models.items()
        }

    def synthesize(
        self,
        fits: Mapping[str, xr.DataTree] | xr.DataTree,
        *,
        n: int,
        m: int = 20,
        random_seed: int | None = None,
    ) -> list[pd.DataFrame]:
        """Draw synthetic data sets as data frames, with the columns' own levels, at no cost.

        Parameters
        ----------
        fits : mapping or DataTree
            Of `fit`, or a fit of `model`.
        n, m, random_seed
            As in `pymc_dp.synthesize`.

        Returns
        -------
        list of DataFrame
            As many as ``m``, of ``n`` records each.
        """
        results = fits if isinstance(fits, xr.DataTree) else [*fits.values()]
        model = self._model({name: column.made_up() for name, column in self._types.items()})
        drawn = synthesize(results, model, n=n, m=m, random_seed=random_seed)
        sets = drawn["synthetic"].to_dataset()
        return [
            pd.DataFrame(
                {name: x.labelled(sets[name][k].to_numpy()) for name, x in self._types.items()}
            )
            for k in range(m)
        ]

    def _values(self, frame: Any) -> dict[str, np.ndarray]:
        for name in self._types:
            if name not in frame:
                raise ValueError(f"The data frame lacks the column `{name}`.")
        return {name: column.codes(name, frame[name]) for name, column in self._types.items()}

    def _model(self, values: Mapping[str, np.ndarray], last: str | None = None) -> pm.Model:
        """Model each column given the variables before it, or ``last`` alone given their values."""
        before: Before = {}, {}
        numbers, groups = before
        with pm.Model() as model:
            for name, column in self._types.items():
                if numbers:
                    model.add_coord(f"predictors of {name}", [*numbers])
                if column.kind in ("ordered", "categories"):
                    model.add_coord(f"levels of {name}", [str(x) for x in column.levels])
                own = values[name]
                variable = own if name == last else pm.Data(f"values of {name}", own)
                if last in (None, name):
                    variable = _observed(name, column, before, variable)
                if name == last:
                    break
                if column.kind == "categories":
                    groups[name] = variable
                    continue
                numbers[name] = number = _scaled(column, variable)
                if column.squared:  # Legendre's polynomial, hardly correlated with the number
                    numbers[f"{name} squared"] = 1.5 * number**2 - 0.5
        return model


def _scaled(column: Column, variable: Tensor) -> Tensor:
    if column.kind == "ordered":
        scores = column.scores()
        steps = np.diff(scores)
        if np.allclose(steps, steps[0]):
            return -1.0 + float(steps[0]) * variable
        above = [float(step) * pt.ge(variable, k + 1) for k, step in enumerate(steps)]
        return sum(above, start=-1.0 + 0.0 * variable)
    return (variable - column.centre) / column.half_range


def _effects(
    name: str, before: Before, sd: float, levels: tuple[str, ...] = (), start: Any = 0.0
) -> Any:
    """Add slopes and effects to ``start``, of each level where ``levels`` names their dimension."""
    numbers, groups = before
    total = start
    if numbers:
        of_each: Any = pm.ZeroSumNormal if levels else pm.Normal
        slopes = of_each(f"{name} slopes", sigma=sd, dims=(f"predictors of {name}", *levels))
        total = total + pt.stack([*numbers.values()], axis=1) @ slopes
    for other, codes in groups.items():
        dims = (f"levels of {other}", *levels)
        effect = pm.ZeroSumNormal(f"{name} by {other}", 1, n_zerosum_axes=len(dims), dims=dims)
        total = total + effect[codes]
    return total


def _observed(name: str, column: Column, before: Before, values: Any) -> Tensor:
    """Add a column to the model in use, given the columns before it."""
    if column.kind in ("ordered", "categories"):
        levels = f"levels of {name}"
        logits = pm.ZeroSumNormal(f"{name} intercepts", 2, dims=levels)
        if column.kind == "categories":
            logits = _effects(name, before, 1, (levels,), logits)
        elif any(before):
            # adjacent categories: scores are predictors times levels, so that fitted regressions on
            # them are those of the records, whatever the distribution
            effects = _effects(name, before, 2)
            logits = logits + pt.stack([x * effects for x in column.scores()], axis=-1)
        return pm.Categorical(name, logit_p=logits, observed=values)
    if column.kind == "yes_no":
        logit = pm.Normal(f"{name} intercept", 0, 2) + _effects(name, before, 2)
        return pm.Bernoulli(name, logit_p=logit, observed=values)
    if column.kind == "number":
        mean = pm.Normal(f"{name} intercept", 0, 1) + _effects(name, before, 1)
        sd = pm.HalfNormal(f"{name} sd", 1)
        return pm.Normal(name, column.unscaled(mean), column.half_range * sd, observed=values)
    intercept = pm.Normal(f"{name} intercept", 0, 1.5)
    if column.kind == "count":
        log_mean = -1.5 + intercept + _effects(name, before, 1)
        shape = pm.LogNormal(f"{name} shape", 0, 1)
        mean = column.high * pt.exp(log_mean)
        return pm.NegativeBinomial(name, mu=mean, alpha=shape, observed=values)
    log_scale = intercept + _effects(name, before, 1)
    times = pm.Weibull.dist(pm.LogNormal(f"{name} shape", 0, 0.5), column.high * pt.exp(log_scale))
    return pm.Censored(name, times, lower=None, upper=column.high, observed=values)


def _epsilons(
    models: Mapping[str, pm.Model], epsilon: float, delta: float, settings: Mapping[str, Any]
) -> dict[str, float]:
    """Return the epsilon of every fit, so that all of them keep to the budget together."""
    Budget(epsilon, delta)
    if epsilon == math.inf:
        return dict.fromkeys(models, epsilon)
    terms = {key: settings[key] for key in TERMS if key in settings}
    of_plan = {key: x for key, x in settings.items() if key not in {*WHILE_RUNNING, "backend"}}
    parts = shares(models)
    noise = calibrate(epsilon=epsilon, delta=delta, **ONE, **terms)
    for _ in range(MOST_TRIES):
        each = {
            name: epsilon_of(noise_multiplier=noise / share**0.5, delta=delta, **ONE, **terms)
            for name, share in parts.items()
        }
        plans = [
            set_up(models[x], METHOD, None, epsilon=each[x], delta=delta, **of_plan).plan
            for x in models
        ]
        together = tuple(one for plan in plans for one in plan.releases)
        if replace(plans[0], releases=together).epsilon() <= epsilon:
            return each
        noise *= GROWTH
    raise ValueError(f"No fits of all columns keep to epsilon={epsilon:g}: give a larger one.")


def shares(models: Mapping[str, pm.Model]) -> dict[str, float]:
    """Return each model's share of all latents: noise then widens all of them by one factor."""
    sizes = {name: sum(map(np.size, x.initial_point().values())) for name, x in models.items()}
    return {name: size / sum(sizes.values()) for name, size in sizes.items()}
