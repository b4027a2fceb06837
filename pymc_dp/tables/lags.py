"""Refuse predictors of a person's rows that are outcomes of the same person.

Clipping of a person's score is centred by outcomes that the model draws for all of the person's
rows. A copy of an outcome beside them stays as it was observed, so that the score and what is
subtracted from it are not of one distribution, however many persons there are. Like the value
checks of ``model``, this reads private values, and nothing comes of it but a refusal.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from scipy.stats import rankdata

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.graph_types import AnyVariable, stored_value

FEWEST_PAIRS = 8  # fewer could be alike by chance


def refuse_lags(model: pm.Model, data: Mapping[str, Any] | None, unit: str | None) -> None:
    """Refuse arrays that hold a unit's outcomes of the row before, or after; ``data`` as in a fit.

    Whatever increases with the outcome holds it as well, such as its logarithm.
    """
    found = {v.name: v for v in model.data_vars}
    if unit is None or unit not in found:
        return
    codes = _values(found[unit], data or {}, unit)
    if not isinstance(codes, np.ndarray) or codes.ndim != 1:
        return
    order = np.argsort(codes, kind="stable")
    together = codes[order][1:] == codes[order][:-1]
    before, after = order[:-1][together], order[1:][together]
    # what an observed variable reads is not what it observes, which has its name in ``data``
    outcomes = {rv.name for rv in model.observed_RVs}
    others = {name: x for name, x in (data or {}).items() if name not in outcomes}
    likelihood = {str(v.name): v for v in (*model.observed_RVs, *model.potentials)}
    read = [(name, x) for name, x in _columns(likelihood, others, len(codes)) if name != unit]
    for rv in model.observed_RVs:
        for _, y in _columns({rv.name: model.rvs_to_values[rv]}, data, len(codes)):
            for name, x in read:
                if _repeats(x[after], y[before]) or _repeats(x[before], y[after]):
                    raise NotSeparableError(_message(name, rv.name, unit))


def _message(array: str, outcome: str, unit: str) -> str:
    return (
        f"`{array}` holds outcomes of `{outcome}` in other rows of the same `{unit}`, which unit= "
        "names. Outcomes that the model draws to centre clipping would leave it as it is, and the "
        "posterior would be biased. Write one row for each unit, and observe the outcomes one by "
        "one, each by a variable that reads the variable before it: "
        'y2 = pm.Normal("y2", a + r * y1, sd, observed=...).'
    )


def _columns(
    graphs: Mapping[str, AnyVariable], data: Mapping[str, Any] | None, rows: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the columns of arrays that graphs read, with one number for each row, by their names.

    An array without a name has that of the variable whose graph reads it.
    """
    for reader, graph in graphs.items():
        for variable in ancestors([graph]):
            if isinstance(variable, SharedVariable | Constant):
                values = _values(variable, data or {}, reader)
                yield from ((str(variable.name or reader), x) for x in _as_columns(values, rows))


def _values(variable: AnyVariable, data: Mapping[str, Any], reader: str) -> Any:
    """Return an array of the model, or what a fit is given in its place."""
    if variable.name in data or (not variable.name and reader in data):
        return data[variable.name or reader]
    constant: Any = variable
    return stored_value(variable) if isinstance(variable, SharedVariable) else constant.data


def _as_columns(values: Any, rows: int) -> Iterable[np.ndarray]:
    if not isinstance(values, np.ndarray) or values.ndim not in (1, 2) or len(values) != rows:
        return []
    return values.reshape(rows, -1).T if values.dtype.kind in "biuf" else []


def _repeats(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether a column repeats values of another one, or increases or decreases with them.

    >>> y = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 0.0, 9.0, 7.0])
    >>> _repeats(np.log1p(y), y), _repeats(np.where(y > 6, 0.0, y), y), _repeats(y[::-1], y)
    (True, True, False)
    """
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    number = len(y)
    if number < FEWEST_PAIRS or (y == y[0]).all() or (x == x[0]).all():
        return False
    if 2 * len(np.unique(y)) > number and 2 * np.count_nonzero(x == y) > number:
        return True  # gaps in a unit's rows part the rest
    one, other = rankdata(x, "dense"), rankdata(y, "dense")
    return bool((one == other).all() or (one + other == other.max() + 1).all())
