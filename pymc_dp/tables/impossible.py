"""Records that cannot occur under the model, such as a zero where outcomes are gamma.

Their log likelihood is no number wherever the latents are. They add nothing to a release, and the
posterior is that of the other records; PyMC's samplers do not start from such data. One record
must not end a fit, so a sentence to the curator says it. Like the value checks of ``model``, this
reads private values, and nothing else comes of it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
from pytensor.compile.maker import function

from pymc_dp.model import Records
from pymc_dp.model.harden import harden
from pymc_dp.model.modes import PYTHON, as_written, without_c

ROWS = 2**16  # of one evaluation
# distances from the start, on the latents' own scale. The first is nearly none: at the start itself
# a shape may be 1, where a gamma has a zero; the others give records another chance
DISTANCES = (1e-6, 0.3, 0.3, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0)

Densities = Callable[..., list[np.ndarray]]
Arrays = dict[str, np.ndarray]
Point = tuple[np.ndarray, Arrays]  # shared latents, and what those of every record are


def impossible_outcomes(
    model: pm.Model, records: Records, data: Mapping[str, Any] | None
) -> list[str]:
    """Name outcomes whose log likelihood is finite neither near the start nor further away.

    ``records`` are those of ``model``, whose own values ``data`` replaces. Arrays that are not in
    memory, and sparse ones, are not read. Rows with values that are not finite are left to other
    checks.
    """
    arrays = _arrays(model, records, data)
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


def _arrays(model: pm.Model, records: Records, data: Mapping[str, Any] | None) -> Arrays | None:
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
