"""What data hold that a fit should not take: refusals, and sentences for the curator.

Like `model.value_checks`, all of this reads private values before any noise is added, and nothing
comes of it but a refusal or a sentence to whoever holds the data. In the order of a set-up:

- indices of groups that pick another group than they say, or none (`refuse_bad_indices`);
- predictors of a person's rows that are outcomes of the same person (`refuse_lags`);
- values, levels and columns that add nothing to a fit or little but names, and numbers in use as
  public that equal one of the records (`infinite_values` to `numbers_of_records`);
- records that cannot occur under the model, such as a zero where outcomes are gamma: their log
  likelihood is no number wherever the latents are (`impossible_outcomes`).

A record whose index lies outside its array adds nothing to a release, and a negative one counts
from the end: neither is what the model says. Clipping of a person's score is centred by outcomes
that the model draws for all of the person's rows. A copy of an outcome beside them stays as it was
observed, so that the score and what is subtracted from it are not of one distribution, however many
persons there are. Records that cannot occur add nothing to a release, and the posterior is that of
the other records; PyMC's samplers do not start from such data. One record must not end a fit, so a
sentence to the curator says it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pymc.distributions.censored import CensoredRV
from pymc.distributions.continuous import TruncatedNormalRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.compile.maker import function
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors, graph_inputs, toposort
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.subtensor import AdvancedSubtensor
from scipy.stats import rankdata

from pymc_dp.accounting.plan import unit_label
from pymc_dp.errors import NotSeparableError
from pymc_dp.model import Records
from pymc_dp.model.axis import index_arrays
from pymc_dp.model.graphs import AnyVariable, Tensor, pt, stored_value
from pymc_dp.model.harden import harden
from pymc_dp.model.modes import PYTHON, as_written, without_c
from pymc_dp.model.value_checks import SMALL_GROUP

FEWEST_PAIRS = 8  # fewer could be equal by chance
ROWS = 2**16  # of one evaluation
# distances from the start, on the latents' own scale. The first is nearly none: at the start itself
# a shape may be 1, where a gamma has a zero; the others give records another chance
DISTANCES = (1e-6, 0.3, 0.3, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0)
Densities = Callable[..., list[np.ndarray]]
Arrays = dict[str, np.ndarray]
Point = tuple[np.ndarray, Arrays]  # shared latents, and what those of every record are


class Pick(NamedTuple):
    """Entries that records pick from an array."""

    index: Tensor
    array: Tensor
    axis: int


def refuse_bad_indices(model: pm.Model, data: Mapping[str, Any] | None, unit: str | None) -> None:
    """Refuse indices that are negative, or beyond their array; ``data`` replaces a model's own.

    The codes of a ``unit`` may be any numbers, and have checks of their own.
    """
    given = {v: data[v.name] for v in model.data_vars if data is not None and v.name in data}
    for pick in _picks(model):
        inside = {v for v in ancestors([pick.index]) if v.name}
        read = {v: x for v, x in given.items() if v in inside}
        of_unit = unit is not None and any(v.name == unit for v in inside)
        if not of_unit and all(isinstance(x, np.ndarray) for x in read.values()):
            _check_pick(pick, read)


def _picks(model: pm.Model) -> Iterator[Pick]:
    """Yield once what is picked by an index that is computed from data alone."""
    picked = set()
    for node in toposort([*model.basic_RVs, *model.potentials, *model.deterministics]):
        arrays = index_arrays(node) if isinstance(node.op, AdvancedSubtensor) else {}
        if any(index.type.dtype == "bool" for index in arrays.values()):
            continue
        for axis, index in arrays.items():
            pick = Pick(index, node.inputs[0], axis)
            if index.type.ndim > 0 and _is_data(index) and pick not in picked:
                picked.add(pick)
                yield pick


def _is_data(index: Tensor) -> bool:
    inputs = list(graph_inputs([index]))
    return all(isinstance(x, SharedVariable | Constant) for x in inputs) and not any(
        isinstance(x.type, RandomType) for x in inputs
    )


def _check_pick(pick: Pick, given: Mapping[Tensor, np.ndarray]) -> None:
    # the types of data= may be wider than those of the model
    replaced = {v: pt.constant(x.astype(v.type.dtype)) for v, x in given.items()}
    length = pick.array.shape[pick.axis]
    try:
        with without_c():
            index, size = function(
                [], [pick.index, length], givens=replaced, mode=PYTHON, on_unused_input="ignore"
            )()
    except Exception:  # of an author's own operation, or of shapes, which other checks refuse
        return
    names = [f"`{v.name}`" for v in ancestors([pick.index]) if v.name and v in given]
    names = names or [f"`{v.name}`" for v in graph_inputs([pick.index]) if v.name]
    what = f"The index {' and '.join(names)}" if names else "An index"
    of = f"`{pick.array.name}`" if pick.array.name else "a latent"
    if index.size and index.min() < 0:
        raise ValueError(
            f"{what} of {of} has negative numbers, as pandas writes for missing labels, and they "
            "would count from the last entry: drop these records, or make a level for them."
        )
    if index.size and index.max() >= size:
        raise ValueError(
            f"{what} of {of} has numbers beyond its last entry: number the groups from 0, and "
            "give the latent an entry for every one."
        )


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
                    raise NotSeparableError(_as_lags(name, rv.name, unit))


def _as_lags(array: str, outcome: str, unit: str) -> str:
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


def impossible_outcomes(
    model: pm.Model, records: Records, data: Mapping[str, Any] | None
) -> list[str]:
    """Name outcomes whose log likelihood is finite neither near the start nor further away.

    ``records`` are those of ``model``, whose own values ``data`` replaces. Arrays that are not in
    memory, and sparse ones, are not read. Rows with values that are not finite are left to other
    checks.
    """
    arrays = _in_memory(model, records, data)
    if arrays is None:
        return []
    inputs = [*records.batch.inputs.values(), *records.latents.values()]
    terms = dict(zip(records.term_names, records.batch.terms, strict=True))
    names = [name for name in terms if name not in records.local_latents]
    graphs = [terms[name] for name in names]
    # graphs as they are written compile at once; a fit's rewritten ones are stabler, and are made
    # only where the first are not finite
    makers = (partial(as_written, inputs, graphs), partial(rewritten, inputs, graphs))
    try:
        points = list(_points(records.start, _of_first_record(model, records)))
        impossible = set(_impossible(makers, names, records, arrays, points))
    except Exception:  # of an author's own operation, which a rehearsal will meet
        return []
    return [
        f"`{name}` has values that cannot occur under the model, whatever its latents are, and a "
        "record with one adds nothing to the fit, as if it were not there; PyMC's own samplers "
        "would not start. Look for labels that do not count from 0, zeros or ones under a "
        "pm.Gamma, pm.LogNormal or pm.Beta, counts above their trials, and values beyond the "
        "limits of a bounded, censored or truncated distribution. Choose a distribution that has "
        "these values (pm.HurdleGamma has zeros), or change or drop such records by a public rule."
        for name in names
        if name in impossible
    ]


def _in_memory(model: pm.Model, records: Records, data: Mapping[str, Any] | None) -> Arrays | None:
    """Return the values of all columns, or nothing if one of them is no array in memory."""
    own = {} if data is not None else {x.name: x.value for x in harden(model).leaves.values()}
    given = own if data is None else data
    names = [name for name in records.batch.inputs if name not in records.local_latents]
    found = {name: given.get(name) for name in names}
    in_memory = all(type(x) is np.ndarray for x in found.values())
    return {name: np.asarray(x) for name, x in found.items()} if in_memory else None


def _impossible(
    makers: tuple[Callable[[], Densities], ...],
    names: list[str],
    records: Records,
    arrays: Arrays,
    points: list[Point],
) -> Iterator[str]:
    """Yield the terms with an entry that is not finite at any point, in blocks of rows."""
    make_quick, make_stable = makers
    quick, stable = make_quick(), None
    for block in _blocks(records, arrays):
        whole = _is_finite_row(records, block)
        if all(x[whole].all() for x in _finite(records, quick, block, points[:1])):
            continue
        stable = stable or make_stable()
        possible = _finite(records, stable, block, points)
        yield from (name for name, x in zip(names, possible, strict=True) if not x[whole].all())


def _of_first_record(model: pm.Model, records: Records) -> Arrays:
    """Return where latents of records start: that of the first stands for all of them.

    Some are shares, or positive, where a method keeps latents on their own scale.
    """
    point = model.initial_point(0) if records.local_latents else {}
    return {
        # the model has no latent for missing values, which may be any numbers
        name: np.take(point[name], [0], axis) if name in point else np.zeros(())
        for name, axis in records.local_latents.items()
    }


def _points(start: np.ndarray, local: Arrays) -> Iterator[Point]:
    """Yield public points around the start."""
    rng = np.random.default_rng(0)
    for distance in DISTANCES:
        z, shift = distance * rng.standard_normal(start.size), distance * rng.standard_normal()
        yield start + z, {name: x + shift for name, x in local.items()}


def _blocks(records: Records, arrays: Arrays) -> Iterator[Arrays]:
    axes = records.batch.axes
    rows = next(x.shape[axes[name]] for name, x in arrays.items())
    for first in range(0, rows, ROWS):
        at = slice(first, first + ROWS)
        yield {k: x[(slice(None),) * axes[k] + (at,)] for k, x in arrays.items()}


def _is_finite_row(records: Records, block: Arrays) -> np.ndarray:
    """Whether all values of a record are finite, (rows,)."""
    by_record = [np.moveaxis(x, records.batch.axes[name], 0) for name, x in block.items()]
    finite = [np.isfinite(x).reshape(len(x), -1).all(axis=1) for x in by_record]
    return np.asarray(np.logical_and.reduce(finite))


def _finite(
    records: Records, densities: Densities, block: Arrays, points: Iterable[Point]
) -> list[np.ndarray]:
    """Say of each entry of each term whether its log likelihood is finite at one of the points."""
    at_each = [_entries(records, densities, block, z, local) for z, local in points]
    return [np.isfinite(np.stack(term)).any(axis=0) for term in zip(*at_each, strict=True)]


def _entries(
    records: Records, densities: Densities, block: Arrays, z: np.ndarray, local: Arrays
) -> list[np.ndarray]:
    """Return the log likelihoods of a block at one point; ``local`` is that of every record."""
    rows = next(x.shape[records.batch.axes[name]] for name, x in block.items())
    values = []
    for name, variable in records.batch.inputs.items():
        shape = tuple(rows if n is None else n for n in records.shapes[name])
        found = block[name] if name in block else np.broadcast_to(local[name], shape)
        values.append(found.astype(variable.type.dtype))
    latents = zip(records.split(z), records.latents.values(), strict=True)
    return densities(*values, *(x.astype(v.type.dtype) for x, v in latents))


def rewritten(inputs: list[Any], graphs: list[Any]) -> Densities:
    """Make a function of graphs as a fit rewrites them."""
    with without_c():
        fn: Densities = function(inputs, graphs, mode=PYTHON, on_unused_input="ignore")
    return fn
