"""Scores of marginal likelihoods: latents of single records or units are integrated out.

The score of a marginal likelihood is the mean of the joint score over the latents' own posterior
(Fisher's identity): d/dz log int p(y, u | z) du = E[d/dz log p(y, u | z) | y, z]. The mean is taken
by Gauss-Hermite quadrature around the mode of each unit (Liu and Pierce 1994; Pinheiro and Bates
1995): by products of nodes up to two latents, and for more by a rule of degree five in 2 k^2 + 1
nodes (Stroud 1971). Modes are found by Newton's method, each unit by itself.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from pymc_dp.model import Records
from pymc_dp.model.batch import RecordGraph
from pymc_dp.model.graphs import Tensor, pt
from pymc_dp.privacy.contribution import OWNER, Batch

MOST_LATENTS = 5
# nodes in each direction, by the number of latents
NODES = {1: 7, 2: 5}
SHARE = "share of the prior of local latents"

# a unit stops where another step would raise its log density by no more than rounding
ROUNDING = np.finfo(float).eps ** 0.5
MOST_STEPS = 40
# of the largest eigenvalue of a unit's curvature, the least that another may be
FLATTEST = 1e-8

Scores = Callable[[Batch, np.ndarray], np.ndarray]  # (batch, z) -> (rows, ...)
# a compiled function of a batch that has local latents and `SHARE`, and of a point z
Compiled = Callable[[Batch, np.ndarray], list[np.ndarray]]


def gauss_hermite(count: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes of Gauss-Hermite quadrature, (count^k, k), and weights, as `rule`."""
    one, weights = np.polynomial.hermite_e.hermegauss(count)
    each = np.array(list(product(weights / weights.sum(), repeat=k)))
    return np.array(list(product(one, repeat=k))), each.prod(axis=1)


def rule(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes (n, k) for standard normal latents, and their weights (n,), which sum to one."""
    if k in NODES:
        return gauss_hermite(NODES[k], k)
    r = (k + 2) ** 0.5  # Stroud's fully symmetric rule: the centre, axes and diagonals of planes
    axes = [s * r * np.eye(k)[i] for i in range(k) for s in (1, -1)]
    planes = [
        (s * np.eye(k)[i] + t * np.eye(k)[j]) * r / 2**0.5
        for i, j in combinations(range(k), 2)
        for s, t in product((1, -1), repeat=2)
    ]
    shares = [2 / (k + 2)] + [(4 - k) / (2 * r**4)] * len(axes) + [1 / r**4] * len(planes)
    return np.stack([np.zeros(k), *axes, *planes]), np.array(shares)


def size_of_locals(records: Records) -> int:
    """Return how many latents a single record, or a single unit, has."""
    return int(sum(np.prod(_core(records, name), dtype=int) for name in records.local_latents))


def _core(records: Records, name: str) -> tuple[int, ...]:
    axis, shape = records.local_latents[name], records.shapes[name]
    return tuple(int(n or 0) for n in (*shape[:axis], *shape[axis + 1 :]))


def nodes_of_quadrature(records: Records) -> int:
    """Return at how many latents the scores of a record are computed."""
    return len(rule(size_of_locals(records))[0]) if records.local_latents else 1


def rule_in_words(records: Records) -> str:
    """Name the quadrature rule for the local latents of a model."""
    k = size_of_locals(records)
    kind = "adaptive Gauss-Hermite quadrature" if k in NODES else "an adaptive rule of degree 5"
    return f"{kind} with {nodes_of_quadrature(records)} nodes"


def integrated(records: Records) -> dict[str, str]:
    """Say in the settings of a fit which latents were integrated out, and how."""
    names = ", ".join(records.local_latents)
    return {"integrated": f"{names} by {rule_in_words(records)}"} if names else {}


def with_shares(records: Records) -> Records:
    """Multiply the priors of local latents by an input: a unit counts its prior once in all."""
    many = len(records.local_latents)
    return records._replace(
        batch=_weighted(records.batch, many), single=_weighted(records.single, many)
    )


def _weighted(graph: RecordGraph, many: int) -> RecordGraph:
    share: Tensor = pt.tensor(SHARE, dtype="float64", shape=(graph.terms[0].type.shape[0],))
    axis, priors = {**graph.axis, share: 0}, []
    for term in graph.terms[-many:]:
        factor: Tensor = pt.shape_padright(share, term.type.ndim - 1)
        priors.append(factor * term)
        axis |= {factor: 0, priors[-1]: 0}
    inputs = {**graph.inputs, SHARE: share}
    return graph._replace(terms=(*graph.terms[:-many], *priors), inputs=inputs, axis=axis)


class Density(NamedTuple):
    """Log densities of units, with their first two derivatives in the local latents."""

    value: np.ndarray  # (units,)
    slope: np.ndarray  # (units, k)
    curvature: np.ndarray  # (units, k, k): minus the second derivative


def find_modes(
    density: Callable[[np.ndarray], Density], here: Density
) -> tuple[np.ndarray, np.ndarray]:
    """Climb from 0, where the density is ``here``, to the mode of each unit, (units, k), by itself.

    Return also the symmetric roots of the inverse curvatures there, (units, k, k).
    """
    u, length = np.zeros(here.slope.shape), np.ones(len(here.value))
    step, values, axes = _newton(here)
    climbing = np.isfinite(here.value)
    for _ in range(MOST_STEPS):
        climbing &= np.vecdot(here.slope, step) / 2 > ROUNDING
        if not climbing.any():
            break
        trial = u + np.where(climbing, length, 0.0)[:, None] * step
        there = density(trial)
        better = climbing & (there.value >= here.value)
        u = np.where(better[:, None], trial, u)
        of_units = (better, better[:, None], better[:, None, None])
        here = Density(*map(np.where, of_units, there, here))
        length = np.where(better, np.fmin(1.0, 4 * length), length / 4)
        step, values, axes = _newton(here)
    return u, np.asarray(np.einsum("uij,uj,ukj->uik", axes, values**-0.5, axes))


def _newton(here: Density) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return steps uphill, and eigenvalues, above 0, and eigenvectors of each unit's curvature."""
    k = here.slope.shape[1]
    finite = np.isfinite(here.curvature).all(axis=(1, 2))[:, None, None]
    curvature = np.where(finite, here.curvature, np.eye(k))
    scale = np.fmax(np.abs(curvature).max(axis=(1, 2), keepdims=True), np.finfo(float).tiny)
    values, axes = _decomposed(curvature / scale)
    values = np.abs(values * scale[:, 0])
    largest = values.max(axis=1, keepdims=True, initial=0.0)
    values = np.fmax(values, np.fmax(FLATTEST * largest, np.finfo(float).tiny ** 0.5))
    along = np.einsum("uij,ui->uj", axes, here.slope) / values
    return np.einsum("uij,uj->ui", axes, along), values, axes


def _decomposed(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Decompose each matrix by itself where one of them has no decomposition: it gets nan."""
    try:
        values, axes = np.linalg.eigh(matrices)
    except np.linalg.LinAlgError:
        if len(matrices) == 1:
            return np.full(matrices.shape[:2], np.nan), np.full(matrices.shape, np.nan)
        each = [_decomposed(matrix[None]) for matrix in matrices]
        values, axes = map(np.concatenate, zip(*each, strict=True))
    return values, axes


class _Joint(NamedTuple):
    """A batch at one point z, with the records of each unit."""

    records: Records
    batch: Batch
    z: np.ndarray
    owner: np.ndarray  # (rows,): the unit of each
    good: np.ndarray  # (rows,): whether the record is finite; others count as missing

    def given(self, u: np.ndarray) -> Batch:
        """Complete the batch by the latents of units, (units, k), and by the priors' shares."""
        members = np.bincount(self.owner, self.good)
        share = np.where(self.good, 1 / np.fmax(members, 1)[self.owner], 0.0)
        return self.batch | {SHARE: share} | _by_name(self.records, u[self.owner])

    def sums(self, each: np.ndarray) -> np.ndarray:
        """Add up the good records of each unit."""
        flat = np.where(self.good[:, None], each.reshape(len(each), -1), 0.0)
        summed = [np.bincount(self.owner, column) for column in flat.T]
        return np.stack(summed, axis=1).reshape(-1, *each.shape[1:])


def marginal_scores(records: Records, derivatives: Compiled, scores: Compiled) -> Scores:
    """Return every record's part of the score of its unit's marginal likelihood, (rows, c).

    ``derivatives`` are the compiled `local_densities`; ``scores`` computes joint log densities
    (rows,), and joint scores, or what these are linear in, (rows, c). A record that is not finite
    is nan, and missing in its unit.

    **Privacy.** A record's part depends on the records of its own unit alone: every unit is
    searched, stopped and weighted by itself.
    """
    nodes, weights = rule(size_of_locals(records))

    def marginal(batch: Batch, z: np.ndarray) -> np.ndarray:
        joint, start = _joint(records, derivatives, batch, z)
        modes, spread = find_modes(partial(_density, joint, derivatives), start)
        points = modes + np.einsum("uij,nj->nui", spread, nodes)
        values, each = zip(*[scores(joint.given(u), z) for u in points], strict=True)
        # the posterior weight of each node, (nodes, units), from log densities there
        log = np.stack([joint.sums(value) for value in values])
        log = log + (nodes**2).sum(axis=1)[:, None] / 2
        shares = weights[:, None] * np.exp(log - log.max(axis=0))
        shares = shares / shares.sum(axis=0)
        total = sum(w[joint.owner, None] * x for w, x in zip(shares, each, strict=True))
        return np.where(joint.good[:, None], total, np.nan)

    return marginal


def _joint(
    records: Records, derivatives: Compiled, batch: Batch, z: np.ndarray
) -> tuple[_Joint, Density]:
    """Find the records that are finite, and the density of their units where latents are 0."""
    owner = owners(records, batch)
    rows = len(owner)
    joint = _Joint(records, batch, z, owner, np.ones(rows, bool))
    start = np.zeros((owner[-1] + 1, size_of_locals(records)))
    found = derivatives(joint.given(start), z)
    good = np.all([np.isfinite(x.reshape(rows, -1)).all(axis=1) for x in found], axis=0)
    if good.all():
        return joint, Density(*(joint.sums(x) for x in found))
    joint = joint._replace(good=good)
    return joint, _density(joint, derivatives, start)


def owners(records: Records, batch: Batch) -> np.ndarray:
    """Return the unit of every record of a batch, in order; without units, its own number."""
    if OWNER in batch:
        return batch[OWNER]
    name, axis = next((n, k) for n, k in records.batch.axes.items() if n in batch)
    return np.arange(np.shape(batch[name])[axis])


def no_latents(records: Records, rows: int) -> Batch:
    """Return local latents of the right shapes, all 0."""
    return _by_name(records, np.zeros((rows, size_of_locals(records))))


def _density(joint: _Joint, derivatives: Compiled, u: np.ndarray) -> Density:
    return Density(*(joint.sums(x) for x in derivatives(joint.given(u), joint.z)))


def _by_name(records: Records, rows: np.ndarray) -> Batch:
    """Cut latents, shape (rows, k), into arrays by name, with the records along their axis."""
    named, start = {}, 0
    for name, axis in records.local_latents.items():
        core = _core(records, name)
        size = int(np.prod(core, dtype=int))
        part = rows[:, start : start + size].reshape(len(rows), *core)
        named[name] = np.moveaxis(part, 0, axis)
        start += size
    return named


def local_densities(records: Records) -> list[Tensor]:
    """Return records' joint log densities, slopes (rows, k) and curvatures (rows, k, k), if any."""
    names = records.local_latents
    if not names:
        return []
    latents = [records.batch.inputs[name] for name in names]
    value: Tensor = records.batch.log_likelihood()
    slope = _flat(pt.grad(value.sum(), latents, disconnected_inputs="ignore"), names.values())
    columns = [
        _flat(pt.grad(-slope[:, i].sum(), latents, disconnected_inputs="ignore"), names.values())
        for i in range(size_of_locals(records))
    ]
    return [value, slope, pt.stack(columns, axis=1)]


def _flat(parts: list[Tensor], axes: Iterable[int]) -> Tensor:
    rows = [pt.moveaxis(part, axis, 0) for part, axis in zip(parts, axes, strict=True)]
    return pt.concatenate([row.reshape((row.shape[0], -1)) for row in rows], axis=1)
