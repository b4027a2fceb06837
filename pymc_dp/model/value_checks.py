"""The checks that read private values before any noise is added.

Nothing else may, beside the wall and the checks of `tables`. What comes of them is a refusal, or a
warning to the curator, and no number of theirs enters a plan, a graph or a result. A fit is
therefore conditional on their acceptance (docs/guarantee.md). Most read one table, `arrays`; they
stand in the order of `check_values`.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from pymc.distributions.censored import CensoredRV
from pymc.distributions.continuous import TruncatedNormalRV
from pymc.distributions.truncated import TruncatedRV
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.random.basic import MultinomialRV
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedSubtensor
from scipy.sparse import issparse

from pymc_dp.accounting.plan import unit_label
from pymc_dp.errors import NotSeparableError, PosteriorWarning, PrivacyWarning
from pymc_dp.model.batch import RecordGraph, before_casts
from pymc_dp.model.compilation import as_written, function
from pymc_dp.model.graphs import AnyVariable, tensor_constants
from pymc_dp.model.harden import is_structural
from pymc_dp.model.separation_proof import counted_rows, gather_layout
from pymc_dp.model.split import Split, simplify
from pymc_dp.privacy.private_data import Column, Columns, Partition, UnitBlocks, Units, units_of
from pymc_dp.privacy.wall import in_partitions

SMALL_GROUP = 5
FEWEST_PAIRS = 8  # fewer could be equal by chance
ROWS = 2**16  # of one evaluation
# from the start, on the latents' own scale; nearly none, since there a gamma's shape may be 1
DISTANCES = (1e-6, 0.3, 0.3, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0)
AS_MANY = (
    "along an axis as there are records, or units, or one less. Give it another length, or take "
    "neighbours='zero_out' or 'replace_one', where the number of records, or units, is public."
)


class Array(NamedTuple):
    """An array of the records in memory."""

    name: str  # in words
    values: np.ndarray  # by record, (records, ...)
    # "observed", "read" by a likelihood, "beside" it as an index, limit or condition, or "weight"
    role: str
    vectors: np.ndarray  # its columns, shape (number, records)


def arrays(split: Split, columns: Columns) -> dict[str, Array]:
    """Return the arrays that are neither sparse nor in chunks, by the names of their columns."""
    leaves, roles, table = split.record_leaves, _roles(split), {}
    for name, x in columns.items():
        if isinstance(x.values, np.ndarray):
            words = f"`{name}`" if name not in leaves or leaves[name].declared else leaves[name]
            role = roles.get(name, "beside") if name in leaves else "weight"
            table[name] = Array(str(words), np.moveaxis(x.values, x.axis, 0), role, _vectors(x))
    return table


def _vectors(column: Column) -> np.ndarray:
    """Return the columns of an array that is not sparse, shape (number, records)."""
    by_record = np.moveaxis(np.asarray(column.values), column.axis, 0)
    return by_record.reshape(column.rows, -1).T


def _roles(split: Split) -> dict[str, str]:
    """Say which arrays are observed, and which are read other than as limits and indices."""
    model = split.hardened.model
    values = simplify([model.rvs_to_values[rv] for rv in model.observed_RVs])
    likelihood = [*model.observed_RVs, *model.potentials]
    beside: set[AnyVariable] = set()  # limits, conditions and indices
    for variable in ancestors(likelihood):
        node: Any = variable.owner
        if getattr(variable.type, "dtype", "") == "bool":
            beside.add(variable)
        elif isinstance(node and node.op, CensoredRV | AdvancedSubtensor):
            beside.update(node.inputs[1:])
        elif isinstance(node and node.op, TruncatedNormalRV):
            beside.update(node.inputs[-2:])
        elif isinstance(node and node.op, TruncatedRV):  # its limits come among its parameters
            beside.update(simplify([x for x in node.inputs if simplify([x])[0].owner is None]))
    read = _names(v for v in ancestors(likelihood, blockers=beside) if v not in beside)
    return dict.fromkeys(read, "read") | dict.fromkeys(_names(ancestors(values)), "observed")


def _names(variables: Iterable[AnyVariable]) -> set[str]:
    return {str(v.name) for v in variables if isinstance(v, SharedVariable)}


@np.errstate(all="ignore")  # what is not finite is said in words
def check_values(
    split: Split,
    graph: RecordGraph,
    released: Mapping[str, AnyVariable],
    point: Mapping[str, np.ndarray],
    data: Partition,
    numbers: Mapping[str, Iterable[float]] | None,
    number_is_public: bool,
) -> None:
    """Refuse or warn of what the records are; ``numbers`` are public ones, None without noise."""
    table, groups = arrays(split, data.columns), [*check_groups(split, data)]
    refuse_centres(split, data.columns)
    refuse_copies(split, released, data.columns)
    lags = [*check_lags(table, data.units)]
    limits = [*check_outcomes_read(split, table, data.columns)]
    refuse_as_many(split, point, data, number_is_public)
    for text in (*limits, *not_finite(table), *impossible_outcomes(split, graph, point, table)):
        warnings.warn(text, PosteriorWarning, stacklevel=2)
    texts = [*groups, *lags, *doubts(table, data.units)]
    if numbers is not None:
        rows = next(iter(data.columns.values())).rows
        counts = {rows} if not number_is_public or data.units is not None else set()
        counts |= set() if number_is_public else {data.number}
        private = {n: x for n, x in table.items() if n not in split.hardened.public}
        texts += statistics_of_records(numbers, private, counts)
    for text in texts:
        warnings.warn(text, PrivacyWarning, stacklevel=2)


def check_groups(split: Split, data: Partition) -> Iterator[str]:
    """Refuse latents that are indexed by the unit itself; name those of small groups."""
    axes, names = split.axes, {leaf.variable: k for k, leaf in split.record_leaves.items()}
    latent = axes.inputs().keys() - names.keys()
    for name in data.columns.keys() & {k for k, role in _roles(split).items() if role == "read"}:
        _check_design(name, data)
    for node in toposort(list(split.terms.values())):
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
            yield from _check_sizes(node.inputs[0].name, sizes, data.units)


def _check_design(name: str, data: Partition) -> None:
    """Refuse a matrix that gives every unit, or all but one, a coefficient of its own."""
    column, units = data.columns[name], data.units
    if len(column.values.shape) != 2 or not 1 < data.number <= column.spec.width + 1:
        return
    parts = in_partitions({name: column}, units).read(partial(_used, name))
    single = np.bincount(np.concatenate([used for _, used in parts])) == 1
    # no unit lies in two partitions
    if sum(len(np.unique(owners[single[used]])) for owners, used in parts) >= data.number - 1:
        raise NotSeparableError(
            f"`{name}` has a column of its own for every single {_unit(units)}, or for all but "
            f"one: what it multiplies is a local latent, which no fit can release. {_advice(units)}"
        )


def _used(name: str, partition: Partition) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of a unit and a coefficient that it uses."""
    column, units = partition.columns[name], partition.units
    rows, used = (column.values.T if column.axis else column.values).nonzero()
    owners = rows if units is None else units.codes[rows]
    return np.divmod(np.unique(owners * np.int64(column.spec.width) + used), column.spec.width)


def _advice(units: Units | UnitBlocks | None) -> str:
    """Say how a latent of single units is written so that it can be integrated out."""
    index = (
        "Name in unit= what indexes it, a pm.Data or a factor of a formula, or give it one entry a "
        "record and no index: method='dp_advi' then"
    )
    if units is not None:
        index = f"Index it by `{units.name}`, which unit= names, and method='dp_advi'"
    return f"{index} integrates it out. Or use coarser groups."


def _unit(units: Units | UnitBlocks | None) -> str:
    return unit_label(units and units.name)


def _sizes(
    indices: list[AnyVariable], names: Mapping[AnyVariable, str], partition: Partition
) -> tuple[np.ndarray, np.ndarray]:
    """Return the groups, (indices, groups), and how many records, or units, each has."""
    columns = {v: partition.columns[names[v]] for v in ancestors(indices) if v in names}
    inputs = {v: v.type.clone(dtype=x.dtype)() for v, x in columns.items()}
    codes = [np.asarray(x.values, x.dtype) for x in columns.values()]
    new = clone_replace(indices, inputs, rebuild_strict=False)
    values = as_written([*inputs.values()], new)(*codes)
    pairs = np.stack([np.ravel(index) for index in values])
    if partition.units is not None:  # count the groups of the distinct pairs
        pairs = np.unique(np.vstack([pairs, partition.units.codes]), axis=1)[:-1]
    groups, counts = np.unique(pairs, axis=1, return_counts=True)
    return groups, counts


def _check_sizes(
    name: str | None,
    sizes: list[tuple[np.ndarray, np.ndarray]],
    units: Units | UnitBlocks | None,
) -> Iterator[str]:
    """Refuse groups of single units; say where they are small."""
    # no unit lies in two partitions
    groups, counts = (np.concatenate(parts, axis=-1) for parts in zip(*sizes, strict=True))
    places = np.unique(groups, axis=1, return_inverse=True)[1]
    totals = np.bincount(places.ravel(), weights=counts)
    what = f"`{name}`" if name else "a latent"
    if totals.size > 1 and totals.max() == 1:
        raise NotSeparableError(
            f"{what} has an entry for every single {_unit(units)}, so it is a local latent: "
            f"no fit can release it. {_advice(units)}"
        )
    if totals.min() < SMALL_GROUP:
        yield (
            f"{what} is indexed by groups of fewer than {SMALL_GROUP} {_unit(units)}s; private "
            "noise will drown them, and their names must be public. Where these are persons: "
            f"{_advice(units)}"
        )


def refuse_as_many(
    split: Split, point: Mapping[str, np.ndarray], data: Partition, number_is_public: bool
) -> None:
    """Refuse what has as many entries as there are records or units, or one less."""
    # an array of the records with as many columns would couple them; as the length of a latent, or
    # of an array without a name, the number would be released, or enter the model
    rows = next(iter(data.columns.values())).rows
    numbers = {data.number, rows}
    for name, column in data.columns.items():
        public = number_is_public and name in split.hardened.public
        # one more is an intercept
        if not public and _as_many(column.spec.shape, numbers | {n + 1 for n in numbers}):
            raise NotSeparableError(
                f"`{name}` has as many columns as there are records or units, or one less or more: "
                "each row would be made of all records. Compute columns from one record each, such "
                "as kernels at a few public places, and index latents of persons by the array that "
                "unit= names. If there are few records, add rows."
            )
    # the number of rows that belong to units of several is never public
    private = numbers - ({data.number} if number_is_public else set())
    for name, value in split.shared.items():
        if _as_many(point[str(value.name)].shape, private):
            raise NotSeparableError(f"`{name}` has as many entries {AS_MANY}")
    unnamed = {
        variable: leaf.value.shape
        for variable, leaf in split.hardened.leaves.items()
        if not leaf.declared and variable not in split.axes.axis
    }
    for name, graphs in ({n: [g] for n, g in split.terms.items()} | split.before_data).items():
        read = set(ancestors(graphs))
        # PyTensor writes `arange(y.shape[0])` as numbers where it knows the length
        lengths = [unnamed[v] for v in unnamed.keys() & read]
        lengths += [np.shape(x.data) for x in tensor_constants(read) if np.size(x.data) > 1]
        if any(_as_many(shape, private) for shape in lengths):
            raise NotSeparableError(f"`{name}` reads an array with as many entries {AS_MANY}")


def _as_many(shape: Iterable[int | None], numbers: set[int]) -> bool:
    """Whether a length is such a number, or one less; of a length of 1 it says nothing."""
    return any(n is not None and n > 1 and not numbers.isdisjoint((n, n + 1)) for n in shape)


def refuse_copies(split: Split, released: Mapping[str, AnyVariable], columns: Columns) -> None:
    """Refuse what may be records outside the likelihood, where no noise is added to them."""
    rows = next(iter(columns.values())).rows
    own = [column.values for column in columns.values() if isinstance(column.values, np.ndarray)]
    for name, array in _outside_the_likelihood(split, released):
        if rows in array.shape or any(np.may_share_memory(array, x) for x in own):
            raise NotSeparableError(
                f"The prior, the initial value or the formula of `{name}` holds a number for each "
                "record, or the records' own array, to which no noise is added there: write "
                "public numbers, in a pm.Data that public= names if they are as many."
            )


def _outside_the_likelihood(
    split: Split, released: Mapping[str, AnyVariable]
) -> Iterator[tuple[str, np.ndarray]]:
    public = split.hardened.public
    leaves = {v: x.value for v, x in split.hardened.leaves.items() if x.name not in public}
    priors = [(name, np.asarray(x)) for name, x in split.hardened.initvals.items()]
    for name, graphs in split.before_data.items():
        priors += [(name, leaves[v]) for v in ancestors(graphs) if v in leaves]
    for name, graph in released.items():
        priors += [(name, leaves[v]) for v in ancestors([graph]) if v in leaves]
    return ((name, x) for name, x in priors if x.dtype.kind in "biuf" and not is_structural(x))


def refuse_centres(split: Split, columns: Columns) -> None:
    """Refuse an array of one number that is the centre of a column, as `pm.gp.HSGP` keeps it."""
    model = split.hardened.model
    for rv in (*model.observed_RVs, *model.potentials):
        arrays = [x.data for x in tensor_constants(ancestors([rv])) if np.ndim(x.data)]
        numbers = [x.item() for x in arrays if x.size == 1 and x.dtype.kind == "f" and x.any()]
        for name, column in columns.items() if numbers else ():
            if _has_centre(name, column, numbers):
                raise NotSeparableError(
                    f"The likelihood of `{rv.name}` holds the centre of the records of `{name}` as "
                    "a number: every record moves it. For pm.gp.HSGP, call gp.prior_linearized "
                    "with a public grid first, which fixes the centre, and give a public L=."
                )


def _has_centre(name: str, column: Column, numbers: list[float]) -> bool:
    """Whether a number is the column's centre, or beyond the ends of a column that was centred."""
    if issparse(column.values) or column.dtype != "float64":
        return False
    parts = in_partitions({name: column}).read(partial(_range, name))
    lows, highs, sums = map(np.stack, zip(*parts, strict=True))
    low, high = lows.min(axis=0), highs.max(axis=0)
    centres = np.append((low + high) / 2, sums.sum(axis=0) / column.rows)
    ends = high[np.isclose(low, -high, rtol=1e-12, atol=0) & (0 < high)]
    return any(np.isclose(centres, x, rtol=1e-9, atol=0).any() or (ends < x).any() for x in numbers)


def _range(name: str, partition: Partition) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the least and the largest values of the records, and their sum."""
    column = partition.columns[name]
    values = column.values.toarray() if issparse(column.values) else column.values
    values, axis = np.asarray(values, "float64"), column.axis
    low = values.min(axis=axis, initial=np.inf)
    return low, values.max(axis=axis, initial=-np.inf), values.sum(axis=axis)


def check_lags(table: Mapping[str, Array], units: Units | UnitBlocks | None) -> Iterator[str]:
    """Refuse what holds a unit's outcomes of the row before, or after; name a time series."""
    outcomes = {name: x for name, x in table.items() if x.role == "observed"}
    if not outcomes or isinstance(units, UnitBlocks):
        return
    rows = len(next(iter(outcomes.values())).values)
    series = units_of(np.zeros(rows), "") if units is None else units
    same_unit = np.diff(series.codes[series.order]) == 0
    before, after = series.order[:-1][same_unit], series.order[1:][same_unit]
    others = {name: x for name, x in table.items() if x.role in ("read", "beside")}
    uneven = {name: [y for y in x.vectors if not is_structural(y)] for name, x in outcomes.items()}
    for outcome, name in product(outcomes, others):
        pairs = product(others[name].vectors, uneven[outcome])
        if not any(
            _repeats(x[after], y[before]) or _repeats(x[before], y[after]) for x, y in pairs
        ):
            continue
        if units is not None:
            raise NotSeparableError(
                f"`{name}` holds outcomes of `{outcome}` in other rows of the same `{units.name}`. "
                "Draws of outcomes would leave it as it is, and the posterior would be biased. "
                "Write one row for each unit, and observe each outcome by a variable that reads "
                'the one before: y2 = pm.Normal("y2", a + r * y1, sd, observed=...).'
            )
        yield (
            f"Values of `{outcome}` stand in `{name}` again, in the row before or after, so one "
            "person's value may be in several rows, of which epsilon protects each alone. Of "
            "several series, write one row each, whose outcomes read one another as variables."
        )


def _repeats(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether a column repeats another one, or most of its values where they are many."""
    number, same = len(y), np.count_nonzero(x == y)
    if number < FEWEST_PAIRS or 2 * same <= number:
        return False
    values = len(np.unique(y))
    return 2 * values > number or (values > 1 and bool(same == number))


def check_outcomes_read(
    split: Split, table: Mapping[str, Array], columns: Columns
) -> Iterator[str]:
    """Refuse copies of outcomes; name limits of censoring that are made of outcomes."""
    # draws of outcomes leave such arrays as they are: what is clipped would be centred wrongly
    model = split.hardened.model
    for rv in model.observed_RVs:
        if isinstance(rv.owner.op, MinibatchRandomVariable):  # it reads rows of its outcomes itself
            continue
        [value] = simplify([model.rvs_to_values[rv]])
        for outcome in _read([value], columns):
            if isinstance(rv.owner.op, CensoredRV):
                for limit in _read(rv.owner.inputs[1:3], columns):
                    if {outcome, limit} <= table.keys():
                        y, limits = (table[name].values.ravel() for name in (outcome, limit))
                        yield from _doubt_of_limits(rv.name, y, limits)
            elif before_casts(value).owner is None and (read := _read(model.observed_RVs, columns)):
                _refuse_copies(rv.name, outcome, read, columns)


def _read(graphs: list[AnyVariable], columns: Columns) -> list[str]:
    sizes = {v for v in ancestors(graphs) if isinstance(v.owner_op, Shape | Shape_i)}
    totals = {v.owner.inputs[2] for v in graphs if isinstance(v.owner_op, MultinomialRV)}
    # a size is no value: observed=pm.Data(...) has that of its own; nor is a total of counts
    return sorted(_names(ancestors(graphs, sizes | totals)) & columns.keys())


def _doubt_of_limits(name: str, y: np.ndarray, limits: np.ndarray) -> Iterator[str]:
    at = y == limits if y.shape == limits.shape else np.zeros(limits.shape, bool)
    seen, censored = np.unique(limits[~at]), np.unique(limits[at])
    if len(seen) == 1 and len(censored) > 1 and seen[0] not in censored:
        yield (
            f"`{name}` has a limit of its own at every censored outcome and one and the same at "
            "all others: draws of outcomes are not like the observed ones, and the posterior may "
            "be biased. Give every record the limit that it had before its outcome was known: "
            "pymc_dp.censored_at(model, upper=...), the end of the study less its entry."
        )


def _refuse_copies(name: str, outcome: str, read: list[str], columns: Columns) -> None:
    parts = in_partitions(columns).read(partial(_copies, outcome, read), {outcome, *read})
    everywhere = set.intersection(*map(set, parts))
    if any(part[copy] for part in parts for copy in everywhere):
        raise NotSeparableError(
            f"One of the outcomes of `{name}` is also among the numbers that a distribution reads: "
            "draws of outcomes leave it as it is, and the posterior would be biased. Let what "
            "depends on it read the variable that observes it, t = pm.Normal('t', mu, sd, "
            "observed=...), alone: b * t + r * (t - mu) where errors are correlated."
        )


def _copies(
    outcome: str, read: list[str], partition: Partition
) -> dict[tuple[int, str, int], bool]:
    """Return which column of the outcomes is which one that is read, and whether it varies."""
    # of sparse counts of words no outcome is a predictor
    columns = {name: x for name, x in partition.columns.items() if not issparse(x.values)}
    return {
        (i, name, j): len(np.unique(y)) > 1
        for i, y in enumerate(_vectors(columns[outcome]) if outcome in columns else ())
        for name in columns.keys() & set(read)
        for j, x in enumerate(_vectors(columns[name]))
        if np.array_equal(x, y)
    }


def not_finite(table: Mapping[str, Array]) -> Iterator[str]:
    """Name arrays with values that are not finite: the likelihood of a record with one is nan."""
    for x in table.values():
        is_read = x.role in ("observed", "read") and x.values.dtype.kind == "f"
        if is_read and np.isinf(x.values).any():
            yield (
                f"{x.name} has infinite values, and a record with one adds nothing to the fit. Put "
                "a public number in their place, or drop these records before."
            )
        if is_read and np.isnan(x.values).any():
            yield (
                f"{x.name} has missing values, nan. Unless the model replaces them, a record with "
                "one adds nothing to the fit. Observe a predictor by a variable of its own, "
                "pm.Normal('x', ..., observed=x); or drop these records."
            )


def impossible_outcomes(
    split: Split, graph: RecordGraph, point: Mapping[str, np.ndarray], table: Mapping[str, Array]
) -> list[str]:
    """Name outcomes whose log likelihood is finite neither near the start nor further away."""
    impossible = set[str]()
    if table.keys() >= graph.inputs.keys() - {str(v.name) for v in split.local.values()}:
        with suppress(Exception):  # of an author's own operation, which a rehearsal will meet
            impossible.update(_impossible(split, graph, point, table))
    return [
        f"`{name}` has values that cannot occur under the model, whatever its latents are, and a "
        "record with one adds nothing to the fit, as if it were not there. Look for labels that do "
        "not count from 0, zeros or ones under a pm.Gamma, pm.LogNormal or pm.Beta, counts above "
        "their trials, and values beyond limits. Choose a distribution that has these values "
        "(pm.HurdleGamma has zeros), or change or drop such records by a public rule."
        for name in split.terms
        if name in impossible
    ]


def _impossible(
    split: Split, graph: RecordGraph, point: Mapping[str, np.ndarray], table: Mapping[str, Array]
) -> Iterator[str]:
    """Yield the terms with an entry that is not finite at any point, in blocks of rows."""
    shared, axes, rng = split.shared_values(point), graph.axes, np.random.default_rng(0)
    terms = {n: x for n, x in zip(split.terms, graph.terms, strict=True) if n not in split.local}
    data = {name: table[name].values for name in graph.inputs if name in table}
    variables = graph.inputs | shared
    # where a latent of the first record starts stands for all of them
    starts = {n: point[n] for n in shared}
    starts |= {n: np.take(point[n], [0], axes[n]) for n in graph.inputs if n not in data}
    points = [
        {n: x + distance * rng.standard_normal(x.shape) for n, x in starts.items()}
        for distance in DISTANCES
    ]

    def are_finite(compute: Any, at: slice, z: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        values = {n: np.moveaxis(x[at], 0, axes[n]) for n, x in data.items()}
        values |= {n: x if n in shared else np.repeat(x, len(whole), axes[n]) for n, x in z.items()}
        every = [values[n].astype(v.type.dtype) for n, v in variables.items()]
        return [np.isfinite(x) for x in compute(*every)]

    # graphs as they are written compile at once; a fit's rewritten ones are stabler
    graphs = [*variables.values()], [*terms.values()]
    quick, stable = as_written(*graphs), None
    for first in range(0, len(next(iter(data.values()))), ROWS):
        at = slice(first, first + ROWS)
        finite = [np.isfinite(x[at]).reshape(len(x[at]), -1).all(axis=1) for x in data.values()]
        whole = np.logical_and.reduce(finite)
        if all(x[whole].all() for x in are_finite(quick, at, points[0])):
            continue
        stable = stable or function(*graphs, "python")
        at_each = [are_finite(stable, at, z) for z in points]
        for name, *at_points in zip(terms, *at_each, strict=True):
            if not np.any(at_points, axis=0)[whole].all():
                yield name


def doubts(table: Mapping[str, Array], units: Units | UnitBlocks | None) -> Iterator[str]:
    """Name arrays that may be made of all records, of columns that are persons, or of few ones."""
    codes = units.codes if isinstance(units, Units) else None
    for name, array in table.items():
        x = array.values
        if x.dtype.kind == "f" and any(map(_is_centred, array.vectors)):
            yield (
                f"The mean of {array.name} is 0 to the last digit. If it was centred by its own "
                "mean, every record moves the values of all others, which epsilon does not cover, "
                "and an intercept is that at the mean. Centre by a public number."
            )
        if array.role == "read" and any(_is_rare(column, codes) for column in array.vectors):
            yield (
                f"{array.name} has a column that is 1 for fewer than {SMALL_GROUP} {_unit(units)}s "
                "and 0 for all others, as a rare level has: private noise will drown its "
                "coefficient, and that it exists must be public. Merge levels by a public rule."
            )
        is_matrix = array.role == "observed" and x.dtype.kind == "f" and x.ndim == 2
        # counts, such as those of words, often have more columns than records
        if is_matrix and len(x) < x.shape[1] and (x[np.isfinite(x)] % 1).any():
            yield (
                f"`{name}` has more columns than rows, and a record is a row: where columns are "
                "persons, epsilon protects none of them. Then observe the transposed matrix."
            )
        # up to the rounding of files
        targets = {"have a mean of 1": len(x), "add up to 1": 1, "add up to 100": 100}
        for what, target in targets.items() if array.role == "weight" else ():
            if (x % 1).any() and abs(x.sum() / target - 1) < 1e-5:
                yield (
                    f"weights={array.name} {what}, as weights do that were divided by their own "
                    "mean or sum. Then every record moves the weights of all others, which epsilon "
                    "does not cover: give the weights of the design, or divide by a public number."
                )


def _is_centred(x: np.ndarray) -> bool:
    """Whether numbers add up to 0, as they do where their own mean was taken from them."""
    # whole numbers may add up to 0 by chance, and others by their symmetry
    is_small = abs(x.sum()) < 1e-7 * np.abs(x).sum() and (x % 1).any()  # in single precision, too
    return bool(is_small and not np.allclose(np.sort(x), -np.sort(x)[::-1]))


def _is_rare(x: np.ndarray, codes: np.ndarray | None) -> bool:
    """Whether a column is 1 for a few records, or units, and 0 for all others."""
    at = np.flatnonzero(x)
    owners = np.unique(at if codes is None else codes[at])
    return 0 < at.size < x.size and owners.size < SMALL_GROUP and bool((x[at] == 1).all())


def statistics_of_records(
    numbers: Mapping[str, Iterable[float]], table: Mapping[str, Array], counts: Iterable[int]
) -> list[str]:
    """Name the public numbers that equal statistics of the records, to six digits."""
    # numbers of two significant digits or fewer people choose, and an end that five records share
    # is that of a scale: these are not compared
    exact = {what: [x for x in xs if float(f"{x:.2g}") != x] for what, xs in numbers.items()}
    known: list[tuple[str, float]] = [("the number of records or units", n) for n in counts]
    known += [
        (f"{statistic} of {x.name}", value)
        for x in (table.values() if any(exact.values()) else ())
        if x.values.dtype.kind in "biuf" and x.role != "beside"
        for column in x.vectors
        if np.isfinite(column).any()
        for statistic, value in _statistics(column[np.isfinite(column)].astype("float64"))
    ]
    equal = {
        what: text
        for text, value in reversed(known)
        for what, given in exact.items()
        if np.isclose(given, value, rtol=1e-6, atol=0).any()
    }
    return [
        f"{what} equals {text}. If it was taken from the records, no noise was added to it: give a "
        "number that is known without them, such as a round one. If it is public, all is well."
        for what, text in equal.items()
    ]


def _statistics(column: np.ndarray) -> Iterator[tuple[str, float]]:
    for what, end in (("the smallest value", column.min()), ("the largest value", column.max())):
        if np.count_nonzero(column == end) < SMALL_GROUP:
            yield what, end
    yield "the mean", column.mean()
    yield "the standard deviation", column.std()
    yield "the standard deviation", column.std(ddof=min(1, column.size - 1))
