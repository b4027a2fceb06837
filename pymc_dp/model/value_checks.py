"""The checks that read private values before any noise is added.

Nothing else may, beside the wall and the checks of `tables`. They return nothing: what comes of
them is a refusal, or a warning to the curator, and no number of theirs enters a plan, a graph or a
result. A fit is therefore conditional on their acceptance (docs/guarantee.md).

- `check_groups` and `refuse_as_many` read designs, and how many columns and entries there are.
- `refuse_copies` and `refuse_centres` refuse arrays and numbers of a model that were taken from the
  records before they were a graph.
- `warn_of_lags`, `warn_of_own_means` and `check_outcomes_read` look for arrays that were computed
  from the records before the model was built, such as those that follow from the outcomes beside
  which they stand: draws of outcomes leave them as they are, so that they are not like the observed
  ones, what is clipped is centred wrongly, and the curvature is another.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
from pymc.distributions.censored import CensoredRV
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.maker import function
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.random.basic import MultinomialRV
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedSubtensor
from scipy.sparse import csr_matrix, issparse, vstack

from pymc_dp.accounting.plan import unit_label
from pymc_dp.errors import NotSeparableError, PosteriorWarning, PrivacyWarning
from pymc_dp.model.axis import counted_rows, gather_layout
from pymc_dp.model.batch import before_casts
from pymc_dp.model.graphs import AnyVariable, Node, tensor_constants
from pymc_dp.model.harden import is_structural
from pymc_dp.model.modes import PYTHON
from pymc_dp.model.split import Split, simplify
from pymc_dp.privacy.partitions import in_partitions
from pymc_dp.privacy.private_data import Column, Columns, Partition, UnitBlocks, Units

SMALL_GROUP = 5
FEWEST_VALUES = 8
AS_MANY = (
    "along an axis as there are records, or units, or one less, and that number is private. Give "
    "it another length. Under neighbours='zero_out' or 'replace_one' the number of records, or "
    "with unit= that of units, is public."
)
AS_MANY_COLUMNS = (
    "as there are records or units, or one less, or an intercept more, as a kernel matrix and an "
    "indicator of every person have: each row would be made of all records. Compute columns from "
    "one record each, such as kernels at a few public places or the basis of pm.gp.HSGP, and let "
    "latents of persons be indexed by the array that unit= names. If there are few records, as in "
    "a template, and the columns are measurements, add rows or leave a column out."
)
Sizes = tuple[np.ndarray, np.ndarray]  # groups, (indices, groups), and the size of each


def check_groups(split: Split, data: Partition) -> None:
    """Refuse latents that are indexed by the unit itself; warn where groups are small."""
    terms, axes = split.terms, split.axes
    names = {leaf.variable: name for name, leaf in split.record_leaves.items()}
    latent = axes.inputs().keys() - names.keys()
    for node in toposort(list(terms.values())):
        for design, latents in _products(node):
            if design in names and latents not in axes.axis:
                _check_design(names[design], data)
        if not isinstance(node.op, AdvancedSubtensor) or node.inputs[0] in axes.axis:
            continue
        indices = [
            index
            for index in gather_layout(node).arrays.values()
            if index in axes.axis
            and counted_rows(index) is None
            and index.type.broadcastable.count(False) == 1
            and latent.isdisjoint(ancestors([index]))  # a latent is no group
        ]
        if indices:
            read = {names[leaf] for leaf in names.keys() & set(ancestors(indices))}
            sizes = in_partitions(*data).read(partial(_sizes, indices, names), read)
            _check_sizes(node.inputs[0].name, _added(sizes), data.units)


def _products(node: Node) -> list[tuple[AnyVariable, AnyVariable]]:
    """Return the operands of a product of matrices, either first."""
    if not isinstance(getattr(node.op, "core_op", node.op), Dot):
        return []
    left, right = (
        x.owner.inputs[0] if isinstance(x.owner_op, DimShuffle) else x for x in node.inputs
    )
    return [(left, right), (right, left)]


def _check_design(name: str, data: Partition) -> None:
    """Refuse a matrix that gives every unit, or all but one, a coefficient of its own."""
    column, units = data.columns[name], data.units
    if len(column.values.shape) != 2 or not 1 < data.number <= column.spec.width + 1:
        return
    parts = in_partitions({name: column}, units).read(partial(_used, name))
    used = vstack(parts).tocsr() if issparse(parts[0]) else np.vstack(parts)
    alone = np.flatnonzero(np.asarray(used.sum(axis=0)).ravel() == 1)
    if np.count_nonzero(np.asarray(used[:, alone].sum(axis=1))) >= data.number - 1:
        raise NotSeparableError(
            f"`{name}` has a column of its own for every single {_unit(units)}, or for all but "
            "one, so what it multiplies is a local latent: no fit can release it. "
            f"{_advice(units)}"
        )


def _used(name: str, partition: Partition) -> Any:
    """Return which coefficients each unit uses; the check above is of data of few units alone."""
    column, units = partition.columns[name], partition.units
    used = column.values != 0
    used = used.T if column.axis else used
    if units is None:
        return used
    # one row a unit, with ones at its records
    members = csr_matrix((np.ones(units.records), units.order, units.starts))
    return (members @ used) > 0


def _advice(units: Units | UnitBlocks | None) -> str:
    """Say how a latent of single units is written so that it can be integrated out."""
    if units is not None:
        return (
            f"Index it by `{units.name}`, the array that unit= names, and method='dp_advi' "
            "integrates it out; or use coarser groups."
        )
    return (
        "Name in unit= what indexes it, a pm.Data or a factor of a formula, or give it one entry "
        "a record and no index: method='dp_advi' then integrates it out. Or use coarser groups."
    )


def _unit(units: Units | UnitBlocks | None) -> str:
    return unit_label(units and units.name)


def _values(
    indices: list[AnyVariable], names: Mapping[AnyVariable, str], columns: Columns
) -> list[np.ndarray]:
    if all(index in names for index in indices):
        return [np.asarray(columns[names[index]].values) for index in indices]
    names = {leaf: name for leaf, name in names.items() if name in columns}
    inputs = {leaf: leaf.type() for leaf in names}
    fn = function(
        list(inputs.values()), indices, givens=inputs, mode=PYTHON, on_unused_input="ignore"
    )
    codes = [np.asarray(columns[name].values, leaf.type.dtype) for leaf, name in names.items()]
    return list(fn(*codes))


def _sizes(
    indices: list[AnyVariable], names: Mapping[AnyVariable, str], partition: Partition
) -> Sizes:
    """Count the records of every group, or its units: they are the groups of the distinct pairs."""
    pairs = np.stack([index.ravel() for index in _values(indices, names, partition.columns)])
    if partition.units is not None:
        pairs = np.unique(np.vstack([pairs, partition.units.codes]), axis=1)[:-1]
    groups, counts = np.unique(pairs, axis=1, return_counts=True)
    return groups, counts


def _added(sizes: list[Sizes]) -> np.ndarray:
    """Add up the sizes that groups have in each partition; no unit lies in two of them."""
    groups, counts = (np.concatenate(parts, axis=-1) for parts in zip(*sizes, strict=True))
    places = np.unique(groups, axis=1, return_inverse=True)[1]
    return np.bincount(places.ravel(), weights=counts)


def _check_sizes(name: str | None, sizes: np.ndarray, units: Units | UnitBlocks | None) -> None:
    """Refuse groups of single units; warn where they are small."""
    what = f"`{name}`" if name else "a latent"
    if sizes.size > 1 and sizes.max() == 1:
        raise NotSeparableError(
            f"{what} has an entry for every single {_unit(units)}, so it is a local latent: "
            f"no fit can release it. {_advice(units)}"
        )
    if sizes.min() < SMALL_GROUP:
        warnings.warn(
            f"{what} is indexed by groups of fewer than {SMALL_GROUP} {_unit(units)}s; private "
            "noise will drown them, and their names must be public. Where these are persons: "
            f"{_advice(units)}",
            PrivacyWarning,
            stacklevel=2,
        )


def refuse_as_many(
    split: Split, shapes: Mapping[str, tuple[int, ...]], data: Partition, number_is_public: bool
) -> None:
    """Refuse what has as many entries as there are records or units, or one less.

    An array of the records with as many columns, such as a matrix of kernels or of persons, would
    couple them. As the length of a shared latent, or of an array without a name, the number would
    be released, or enter the model; ``number_is_public`` is of units: of rows that belong to units
    of several it is never public. ``shapes`` are those of the latents' unconstrained values.
    """
    rows = next(iter(data.columns.values())).rows
    numbers = {data.number, rows}
    for name, column in data.columns.items():
        public = number_is_public and name in split.hardened.public
        as_many = _as_many(column.spec.shape, numbers) or _has_intercept(name, data, numbers)
        if not public and as_many:
            raise NotSeparableError(f"`{name}` has as many columns {AS_MANY_COLUMNS}")
    private = numbers - ({data.number} if number_is_public else set())
    for name in split.shared:
        if _as_many(shapes[name], private):
            raise NotSeparableError(f"`{name}` has as many entries {AS_MANY}")
    hardened = split.hardened
    arrays = {
        variable: leaf.value.shape
        for variable, leaf in hardened.leaves.items()
        if not leaf.declared
        and leaf.name not in hardened.public
        and variable not in split.axes.axis
    }
    for name, graphs in ({n: [g] for n, g in split.terms.items()} | split.before_data).items():
        read = set(ancestors(graphs))
        # PyTensor writes `arange(y.shape[0])` as numbers where it knows the length
        lengths = [arrays[v] for v in arrays.keys() & read]
        lengths += [np.shape(x.data) for x in tensor_constants(read) if np.size(x.data) > 1]
        if any(_as_many(shape, private) for shape in lengths):
            raise NotSeparableError(f"`{name}` reads an array with as many entries {AS_MANY}")


def _has_intercept(name: str, data: Partition, numbers: set[int]) -> bool:
    """Whether one column stands beside as many as there are records or units, and is constant."""
    column = data.columns[name]
    if len(column.spec.shape) != 2 or column.spec.width - 1 not in numbers:
        return False
    ends = np.stack(in_partitions({name: column}, data.units).read(partial(_ends, name)))
    return bool((ends[:, 0].min(axis=0) == ends[:, 1].max(axis=0)).any())


def _ends(name: str, partition: Partition) -> np.ndarray:
    column = partition.columns[name]
    values = column.values.toarray() if issparse(column.values) else column.values
    return np.stack([values.min(axis=column.axis), values.max(axis=column.axis)])


def _as_many(shape: Iterable[int | None], numbers: set[int]) -> bool:
    """Whether a length is such a number, or one less; of a length of 1 it says nothing."""
    return any(n is not None and n > 1 and not numbers.isdisjoint((n, n + 1)) for n in shape)


def refuse_copies(split: Split, released: Mapping[str, AnyVariable], columns: Columns) -> None:
    """Refuse arrays of the records outside the likelihood, where no noise is added to them.

    They stand there by a view of their memory, or by their values. A prior may hold regular numbers
    such as ones, which records can have by chance; ``released`` are the graphs of what leaves.
    """
    for name, array in _outside_the_likelihood(split, released):
        for of, column in columns.items():
            views = isinstance(column.values, np.ndarray)
            if (views and np.may_share_memory(array, column.values)) or _repeats(array, of, column):
                raise NotSeparableError(
                    f"The prior, the initial value or the formula of `{name}` holds values of the "
                    f"records' `{of}`, to which no noise is added there. Write public numbers in "
                    "their place."
                )


def _outside_the_likelihood(
    split: Split, released: Mapping[str, AnyVariable]
) -> Iterator[tuple[str, np.ndarray]]:
    leaves, public = split.hardened.leaves, split.hardened.public
    priors = [(name, np.asarray(x)) for name, x in split.hardened.initvals.items()]
    for name, graphs in split.before_data.items():
        found = {v: leaves[v] for v in ancestors(graphs) if v in leaves}
        priors += [(name, leaf.value) for leaf in found.values() if leaf.name not in public]
    yield from ((name, x) for name, x in priors if x.dtype.kind in "biuf" and not is_structural(x))
    for name, graph in released.items():
        for leaf in (leaves[v] for v in ancestors([graph]) if v in leaves):
            if leaf.name not in public:
                yield name, leaf.value


def _repeats(array: np.ndarray, name: str, column: Column) -> bool:
    """Whether an array has the values of a column along one of its axes."""
    axes = [k for k, length in enumerate(array.shape) if length == column.rows]
    if not axes or issparse(column.values):
        return False
    parts = in_partitions({name: column}).read(partial(_rows, name))
    values = set(map(bytes, np.concatenate(parts).T.copy()))
    rows = (np.moveaxis(array, k, -1).reshape(-1, column.rows) for k in axes)
    return any(bytes(x.astype("float64") + 0.0) in values for found in rows for x in found)


def _rows(name: str, partition: Partition) -> np.ndarray:
    column = partition.columns[name]
    values = np.moveaxis(np.asarray(column.values, "float64"), column.axis, 0)
    return values.reshape(column.rows, -1) + 0.0  # of two zeros, whose bytes differ, the positive


def refuse_centres(model: pm.Model, columns: Columns) -> None:
    """Refuse numbers that a library took from the records before they were a graph.

    `pm.gp.HSGP` centres by the first inputs that it is given, and keeps the centre as a number.
    An array of one number that is the mean or the middle of a column is such a number.
    """
    for rv in (*model.observed_RVs, *model.potentials):
        single = [
            float(variable.data.item())
            for variable in ancestors([rv])
            if isinstance(variable, Constant)
            and getattr(variable, "ndim", 0) > 0
            and np.size(variable.data) == 1
            and variable.type.dtype.startswith("float")
        ]
        for name, column in columns.items():
            if any(_is_centre(number, name, column) for number in single if number):
                raise NotSeparableError(
                    f"The likelihood of `{rv.name}` holds the centre of the records of `{name}` as "
                    "a number: every record moves it. For pm.gp.HSGP, call gp.prior_linearized "
                    "with a public grid first, which fixes the centre, and give L= as a public "
                    "number."
                )


def _is_centre(number: float, name: str, column: Column) -> bool:
    """Whether the number is the column's centre, or the reach of a column that was centred."""
    if issparse(column.values) or column.dtype != "float64":
        return False
    lows, highs, sums = zip(*in_partitions({name: column}).read(partial(_range, name)), strict=True)
    low, high = np.min(lows, axis=0), np.max(highs, axis=0)
    centres = np.append((low + high) / 2, np.sum(sums, axis=0) / column.rows)
    centred = np.isclose(low, -high, rtol=1e-12, atol=0) & (0 < high) & (high < number)
    return bool(np.isclose(centres, number, rtol=1e-9, atol=0).any() or centred.any())


def _range(name: str, partition: Partition) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    column = partition.columns[name]
    values, axis = np.asarray(column.values, "float64"), column.axis
    low = values.min(axis=axis, initial=np.inf)
    return low, values.max(axis=axis, initial=-np.inf), values.sum(axis=axis)


def _read_in_memory[Found: (str, tuple[str, str])](
    find: Callable[[Partition], set[Found]], columns: Columns
) -> list[Found]:
    """Find something in the arrays that are neither sparse nor in chunks, in order."""
    dense = {n: c for n, c in columns.items() if isinstance(c.values, np.ndarray)}
    return sorted(in_partitions(dense).read(find, dense)[0]) if dense else []


def warn_of_lags(columns: Columns) -> None:
    """Warn where an array repeats another one a row later, as the lags of a time series do."""
    for lag, of in _read_in_memory(_lags, columns):
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
    for name in _read_in_memory(_centred, columns):
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
