"""Warnings about arrays that were computed from the outcomes beside which they stand.

Like `value_checks`, these read private values, and nothing comes of them but a warning to the
curator. Draws of outcomes leave such an array as it is, so that they are not like the observed
ones: what is clipped is centred wrongly, and the curvature is another.
"""

import warnings
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from pymc.distributions.censored import CensoredRV
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from scipy.sparse import issparse

from pymc_dp.errors import PosteriorWarning
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.split import Split
from pymc_dp.privacy.partitions import in_partitions
from pymc_dp.privacy.private_data import Column, Partition

BIASED = "so draws of outcomes are not like the observed ones, and the posterior may be biased."


def warn_of_outcomes_read(split: Split, columns: Mapping[str, Column]) -> None:
    """Warn where limits of censoring, or what correlated outcomes read, are made of outcomes."""
    model = split.hardened.model
    for rv in model.observed_RVs:
        for outcome in _read([model.rvs_to_values[rv]], columns):
            if isinstance(rv.owner.op, CensoredRV):
                _warn_of_limits(rv.name, outcome, _read(rv.owner.inputs[1:3], columns), columns)
            elif getattr(rv.owner.op, "ndim_supp", 0):
                _warn_of_copies(rv.name, outcome, _read([rv], columns), columns)


def _read(graphs: list[AnyVariable], columns: Mapping[str, Column]) -> list[str]:
    names = {str(v.name) for v in ancestors(graphs) if isinstance(v, SharedVariable)}
    return sorted(names & columns.keys())


def _warn_of_limits(
    name: str, outcome: str, limits: list[str], columns: Mapping[str, Column]
) -> None:
    for limit in limits:
        parts = in_partitions(columns).read(partial(_limits, outcome, limit), {outcome, limit})
        kept, censored = (set[float]().union(*each) for each in zip(*parts, strict=True))
        if len(kept) == 1 and len(censored) > 1 and not kept & censored:
            warnings.warn(
                f"`{name}` has a limit of its own at every censored outcome and one and the same "
                f"at all others: these limits follow from which outcomes were censored, {BIASED} "
                "Give every record the limit that it had before its outcome was known, such as the "
                "end of the study less its entry.",
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


def _warn_of_copies(
    name: str, outcome: str, read: list[str], columns: Mapping[str, Column]
) -> None:
    read = [x for x in read if not issparse(columns[x].values)]
    parts = in_partitions(columns).read(partial(_copies, outcome, read), {outcome, *read})
    if set.intersection(*parts):
        warnings.warn(
            f"One of the outcomes of `{name}` is also among the numbers that its distribution "
            f"reads, {BIASED} Observe this outcome by a variable of its own, and the others given "
            "it: of two normal ones, the second has the mean mu_2 + r (y_1 - mu_1) and an sd of "
            "its own, with r in place of the correlation.",
            PosteriorWarning,
            stacklevel=2,
        )


def _copies(outcome: str, read: list[str], partition: Partition) -> set[tuple[int, str, int]]:
    """Return which column of the outcomes is which one of the arrays that are read."""
    return {
        (i, name, j)
        for i, y in _vectors(partition.columns[outcome])
        for name in read
        for j, x in _vectors(partition.columns[name])
        if np.array_equal(x, y)
    }


def _vectors(column: Column) -> Iterator[tuple[int, np.ndarray]]:
    values = np.moveaxis(np.asarray(column.values), column.axis, -1)
    return enumerate(values.reshape(-1, column.rows))
