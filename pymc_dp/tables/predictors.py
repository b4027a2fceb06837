"""What of the records' numbers adds nothing to a fit, or little but names, or is in use as public.

Like the value checks of ``model``, this reads private values, and nothing comes of it but a
sentence to the curator.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pymc as pm
from pymc.distributions.censored import CensoredRV
from pymc.distributions.continuous import TruncatedNormalRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.accounting.plan import unit_label
from pymc_dp.model.graph_types import AnyVariable, stored_value
from pymc_dp.model.value_checks import SMALL_GROUP


def infinite_values(model: pm.Model, data: Mapping[str, Any] | None) -> list[str]:
    """Name the arrays with infinite values: the likelihood of a record with one is nan."""
    arrays = [*_read(model, data), *_observed(model, data)]
    found = {what for what, x in arrays if x.dtype.kind == "f" and np.isinf(x).any()}
    return [
        f"{what} has infinite values, and a record with one adds nothing to the fit, as if it were "
        "not there. Put a public number in their place, or drop these records before."
        for what in sorted(found)
    ]


def missing_values(model: pm.Model) -> list[str]:
    """Name the predictors with missing values: the likelihood of a record with one is nan.

    Outcomes may be missing, pm.Data takes no nan, and ``data=`` is read elsewhere.
    """
    found = {what for what, x in _read(model, None) if x.dtype.kind == "f" and np.isnan(x).any()}
    return [
        f"{what} has missing values, nan. Unless the model replaces them, a record with one adds "
        "nothing to the fit. Observe the predictor by a variable of its own, "
        "pm.Normal('x', ..., observed=x), which the likelihood reads; or drop these records."
        for what in sorted(found)
    ]


def rare_levels(model: pm.Model, data: Mapping[str, Any] | None, unit: str | None) -> list[str]:
    """Name the arrays with a column that is 1 for a few records, or units, and 0 for all others."""
    named = {v.name: x for v in model.data_vars for _, x in _array(v, data)}
    rows = {x.shape[0] for _, x in _observed(model, data) if x.ndim}
    found = {
        what
        for what, x in _read(model, data)
        if x.ndim <= 2 and x.shape[0] in rows and _is_rare(x.reshape(len(x), -1), named.get(unit))
    }
    return [
        f"{what} has a column that is 1 for fewer than {SMALL_GROUP} {unit_label(unit)}s and 0 for "
        "all others, as a level has that seldom occurs: private noise will drown its coefficient, "
        "and that the level exists must be public. Merge levels by a public rule."
        for what in sorted(found)
    ]


def more_columns_than_records(model: pm.Model, data: Mapping[str, Any] | None) -> list[str]:
    """Name outcomes, matrices of measurements, that may have the records in their columns.

    Counts, such as those of words, often have more columns than records.
    """
    matrices = {what: x for what, x in _observed(model, data) if x.ndim == 2}
    return [
        f"{what} has more columns than rows, and a record is a row: where a column is one "
        "person's, epsilon does not protect that person. Then observe the transposed matrix."
        for what, x in sorted(matrices.items())
        if x.shape[1] > x.shape[0] and x.dtype.kind == "f" and (x[np.isfinite(x)] % 1).any()
    ]


def numbers_of_records(
    numbers: Mapping[str, Iterable[float]],
    model: pm.Model,
    data: Mapping[str, Any] | None,
    *,
    public: Iterable[str] = (),
    weights: Mapping[str, np.ndarray] | None = None,
    counts: Iterable[int] = (),
) -> list[str]:
    """Name the public numbers that are statistics of the records; all such comparisons are here.

    ``numbers`` are compared, by what they are, with the smallest and the largest value, the mean
    and the standard deviation of every column of what is observed, read or in ``weights``, and with
    ``counts``, private numbers of records or units; all to six digits.

    Not compared are numbers of two significant digits or fewer, such as 0, .25, 5 and 1200, which
    people choose, and which the ends of scales are; an end that five records share, which is that
    of a scale or a cut, and which one record does not move; what follows from these statistics by
    another formula; arrays of numbers; and columns that are sparse, in files or in chunks.
    """
    exact = {k: np.array([x for x in found if not _is_round(x)]) for k, found in numbers.items()}
    exact = {what: found for what, found in exact.items() if found.size}
    known = [("the number of records or units", np.array([n])) for n in counts] if exact else []
    for name, x in _of_records(model, data, public, weights or {}) if exact else ():
        for column in x.reshape(len(x), -1).T:
            for statistic, values in _statistics(column[np.isfinite(column)].astype("float64")):
                known.append((f"{statistic} of {name}", values))
    found = {
        what: text
        for text, values in reversed(known)
        for what, given in exact.items()
        if np.isclose(given[:, None], values, rtol=1e-6, atol=0).any()
    }
    return [
        f"{what} equals {text}. If it was taken from the records, it stands there without noise, "
        "which epsilon does not cover: give a number that is known without them, such as the end "
        "of a scale or a round one. If it is public by itself, all is well."
        for what, text in found.items()
    ]


def _is_round(number: float) -> bool:
    """Whether a number has two significant digits or fewer.

    >>> _is_round(1200), _is_round(0.25), _is_round(365)
    (True, True, False)
    """
    return float(f"{number:.2g}") == number


def _of_records(
    model: pm.Model,
    data: Mapping[str, Any] | None,
    public: Iterable[str],
    weights: Mapping[str, np.ndarray],
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays that have a row for every record, and are not declared public."""
    declared, observed = {f"`{name}`" for name in public}, list(_observed(model, data))
    rows = {x.shape[0] for _, x in observed}
    for name, x in (*observed, *_read(model, data)):
        if x.dtype.kind in "biuf" and x.shape[0] in rows and name not in declared:
            yield name.replace("An array", "an array"), x
    yield from ((f"`{name}`", x) for name, x in weights.items())


@np.errstate(all="ignore")
def _statistics(column: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    if not column.size:
        return
    for what, end in (("the smallest value", column.min()), ("the largest value", column.max())):
        if np.count_nonzero(column == end) < SMALL_GROUP:
            yield what, np.array([end])
    n = column.size
    yield "the mean", np.array([column.mean()])
    yield "the standard deviation", column.std() * np.sqrt([1.0, n / max(n - 1, 1)])


def _is_rare(x: np.ndarray, units: Any) -> bool:
    """Whether a column of zeros and ones has ones, of fewer records or units than a group needs."""
    if x.dtype.kind not in "biuf":
        return False
    for column in x.T:
        at = np.flatnonzero(column)
        if 0 < at.size and (column[at] == 1).all() and at.size < len(column):
            of_units = units is not None and units.shape == column.shape
            if np.unique(units[at] if of_units else at).size < SMALL_GROUP:
                return True
    return False


def _read(model: pm.Model, data: Mapping[str, Any] | None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays that likelihoods compute with, neither limits, conditions nor indices."""
    likelihood = [*model.observed_RVs, *model.potentials]
    blockers = list(_compared(ancestors(likelihood)))
    for variable in ancestors(likelihood, blockers=blockers):
        if variable not in blockers:
            yield from _array(variable, data)


def _compared(graph: Iterable[AnyVariable]) -> Iterator[AnyVariable]:
    """Yield what a graph compares numbers with, or picks entries by."""
    for variable in graph:
        node: Any = variable.owner
        if getattr(variable.type, "dtype", "") == "bool":
            yield variable
        elif isinstance(node and node.op, CensoredRV | AdvancedSubtensor):
            yield from node.inputs[1:]
        elif isinstance(node and node.op, TruncatedNormalRV):
            yield from node.inputs[-2:]
        elif isinstance(node and node.op, TruncatedRV):  # its limits come among its parameters
            yield from (x for x in node.inputs if x.owner is None)


def _observed(model: pm.Model, data: Mapping[str, Any] | None) -> Iterator[tuple[str, np.ndarray]]:
    for rv in model.observed_RVs:
        yield from _array(model.rvs_to_values[rv], data, rv.name)


def _array(
    variable: Any, data: Mapping[str, Any] | None, name: str | None = None
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield what a variable holds, or what ``data`` puts in its place, if that is an array."""
    name = name or variable.name
    if data is not None and name in data:
        found = data[name]
    elif isinstance(variable, SharedVariable):
        found = stored_value(variable)
    else:
        found = getattr(variable, "data", None)
    if isinstance(found, np.ndarray) and found.ndim and not isinstance(found, np.memmap):
        yield f"`{name}`" if name else "An array of the model", np.asarray(found)
