"""Arrays that were computed from the records before the model was built: warnings, and refusals.

Like `value_checks`, these read private values, and nothing else comes of them. Of arrays that
follow from the outcomes beside which they stand: draws of outcomes leave them as they are, so that
they are not like the observed ones, what is clipped is centred wrongly, and the curvature is
another.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from pymc.distributions.censored import CensoredRV
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import MultinomialRV
from pytensor.tensor.shape import Shape, Shape_i
from scipy.sparse import issparse

from pymc_dp.errors import NotSeparableError, PosteriorWarning, PrivacyWarning
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.harden import is_structural
from pymc_dp.model.outcomes import before_casts
from pymc_dp.model.split import Split
from pymc_dp.model.terms import simplify
from pymc_dp.privacy.partitions import in_partitions
from pymc_dp.privacy.private_data import Column, Columns, Partition

FEWEST_VALUES = 8


def _found_in_memory[Found: (str, tuple[str, str])](
    find: Callable[[Partition], set[Found]], columns: Columns
) -> list[Found]:
    """Find something in the arrays that are neither sparse nor in chunks, in order."""
    dense = {n: c for n, c in columns.items() if isinstance(c.values, np.ndarray)}
    return sorted(in_partitions(dense).read(find, dense)[0]) if dense else []


def warn_of_lags(columns: Columns) -> None:
    """Warn where an array repeats another one a row later, as the lags of a time series do."""
    for lag, of in _found_in_memory(_lags, columns):
        warnings.warn(
            f"Values of `{of}` stand in `{lag}` again, one row later, so one person's value may be "
            "in several rows, of which epsilon protects each alone. Of several series, write one "
            "row each, whose outcomes read one another as variables of the model.",
            PrivacyWarning,
            stacklevel=2,
        )


def _lags(partition: Partition) -> set[tuple[str, str]]:
    """Find arrays of which a column is that of another one, a row later; both vary unevenly."""
    vectors = [
        (name, x)
        for name, column in partition.columns.items()
        if len(column.values.shape) <= 2
        for _, x in _vectors(column)
    ]
    n = FEWEST_VALUES  # a column that varies has more: to hash all of them takes longer
    starts = {_key(x[:n]) for _, x in vectors}
    later = [v for v in vectors if _key(v[1][1 : n + 1]) in starts and _varies_unevenly(v[1])]
    heads = {_key(x[:-1]): name for name, x in vectors} if later else {}
    return {(lag, heads[key]) for lag, x in later if (key := _key(x[1:])) in heads}


def _key(values: np.ndarray) -> int:
    """Hash values: those of the same hash are taken to be the same."""
    return hash((np.asarray(values, "float64") + 0.0).tobytes())  # -0.0 + 0.0 is 0.0


def _varies_unevenly(x: np.ndarray) -> bool:
    # few values could repeat by chance
    many = len(np.unique(x)) > FEWEST_VALUES
    return many and bool(np.isfinite(x).all()) and not is_structural(x)


def warn_of_own_means(columns: Columns) -> None:
    """Warn where a column adds up to 0, as one does that was centred by its own mean."""
    for name in _found_in_memory(_centred, columns):
        warnings.warn(
            f"The mean of `{name}` is 0 to the last digit. If it was centred by its own mean, "
            "every record moves the values of all others, which epsilon does not cover, and an "
            "intercept is that at the mean. Centre by a public number.",
            PrivacyWarning,
            stacklevel=2,
        )


def _centred(partition: Partition) -> set[str]:
    """Find arrays of which a column adds up to 0, and not by chance or by a balanced design."""
    # whole numbers may by chance; such a design has every value on both sides of 0
    columns = partition.columns.items()
    vectors = [
        (name, x) for name, c in columns if c.values.dtype.kind == "f" for _, x in _vectors(c)
    ]
    with np.errstate(all="ignore"):
        zero = [(name, x) for name, x in vectors if abs(x.sum()) < 1e-10 * np.abs(x).sum()]
    return {
        name for name, x in zero if (x % 1).any() and not np.allclose(np.sort(x), -np.sort(x)[::-1])
    }


def check_outcomes_read(split: Split, columns: Columns) -> None:
    """Warn where limits of censoring are made of outcomes; refuse copies of outcomes."""
    model = split.hardened.model
    for rv in model.observed_RVs:
        if isinstance(rv.owner.op, MinibatchRandomVariable):  # it reads rows of its outcomes itself
            continue
        [value] = simplify([model.rvs_to_values[rv]])
        for outcome in _read([value], columns):
            if isinstance(rv.owner.op, CensoredRV):
                _warn_of_limits(rv.name, outcome, _read(rv.owner.inputs[1:3], columns), columns)
            elif before_casts(value).owner is None and (read := _read(model.observed_RVs, columns)):
                _refuse_copies(rv.name, outcome, read, columns)


def _read(graphs: list[AnyVariable], columns: Columns) -> list[str]:
    sizes = {v for v in ancestors(graphs) if isinstance(v.owner_op, Shape | Shape_i)}
    totals = {v.owner.inputs[2] for v in graphs if isinstance(v.owner_op, MultinomialRV)}
    # a size is no value: observed=pm.Data(...) has that of its own; nor is a total of counts
    read = ancestors(graphs, sizes | totals)
    return sorted({str(v.name) for v in read if isinstance(v, SharedVariable)} & columns.keys())


def _warn_of_limits(name: str, outcome: str, limits: list[str], columns: Columns) -> None:
    for limit in limits:
        parts = in_partitions(columns).read(partial(_limits, outcome, limit), {outcome, limit})
        kept, censored = (set[float]().union(*each) for each in zip(*parts, strict=True))
        if len(kept) == 1 and len(censored) > 1 and not kept & censored:
            warnings.warn(
                f"`{name}` has a limit of its own at every censored outcome and one and the same "
                "at all others: these limits follow from which outcomes were censored, so draws of "
                "outcomes are not like the observed ones, and the posterior may be biased. "
                "Give every record the limit that it had before its outcome was known: "
                "pymc_dp.censored_at(model, upper=...), the end of the study less its entry.",
                PosteriorWarning,
                stacklevel=2,
            )


def _limits(outcome: str, limit: str, partition: Partition) -> tuple[set[float], set[float]]:
    """Return some limits of outcomes that lie between them, and of those that lie at them."""
    y, limits = (np.asarray(partition.columns[name].values).ravel() for name in (outcome, limit))
    if y.shape != limits.shape:
        return set(), set()
    at = y == limits
    return set(np.unique(limits[~at])[:2].tolist()), set(np.unique(limits[at])[:2].tolist())


def _refuse_copies(name: str, outcome: str, read: list[str], columns: Columns) -> None:
    parts = in_partitions(columns).read(partial(_copies, outcome, read), {outcome, *read})
    equal, varying = zip(*parts, strict=True)
    if set.intersection(*equal) & set().union(*varying):
        raise NotSeparableError(
            f"One of the outcomes of `{name}` is also among the numbers that a distribution "
            "reads, so draws of outcomes are not like the observed ones, and the posterior would "
            "be biased. Let what depends on it read the variable that observes it, alone: "
            "t = pm.Normal('t', mu, sd, observed=...), and then b * t + r * (t - mu) in the mean "
            "of an outcome whose error is correlated with that of t."
        )


def _copies(
    outcome: str, read: list[str], partition: Partition
) -> tuple[set[tuple[int, str, int]], set[tuple[int, str, int]]]:
    """Return which column of the outcomes is which one that is read, and those that vary."""
    same = {
        (i, name, j): len(np.unique(y)) > 1
        for i, y in _vectors(partition.columns[outcome])
        for name in read
        for j, x in _vectors(partition.columns[name])
        if np.array_equal(x, y)
    }
    return set(same), {copy for copy, varies in same.items() if varies}


def _vectors(column: Column) -> Iterator[tuple[int, np.ndarray]]:
    if issparse(column.values):  # counts of words: no outcome of theirs is a predictor
        return
    values = np.moveaxis(np.asarray(column.values), column.axis, -1)
    yield from enumerate(values.reshape(-1, column.rows))
