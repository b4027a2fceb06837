"""Which latents are jointly normal given the others, from the graph of the log prior."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from pytensor.graph.replace import clone_replace, vectorize_graph

from pymc_dp.compiling.compile import function
from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.methods.gaussian.integrated import Entries, Integrated, differ
from pymc_dp.methods.prior import with_identities
from pymc_dp.model import Records
from pymc_dp.model.graphs import AnyVariable, Tensor, pt

LogPrior = Callable[[np.ndarray], np.ndarray]  # points, (n, size) -> (n,)

# a difference counts as 0 up to this share of what is subtracted, and up to its root in a log
# density; its square is about double precision
ROUNDING = 1e-7
PLACES = 16  # at which there are differences


def integrated(records: Records, prior_draws: np.ndarray) -> Integrated:
    """Find latents that are jointly normal given the others, from ``prior_draws``, (n, size).

    At most `MANY_LATENTS` coordinates are: they cost a matrix in every step.
    """
    places = dict(zip(records.point, records.split(np.arange(records.size)), strict=True))
    draws = prior_draws[: 4 * PLACES]
    chosen = _jointly_normal(log_prior_of(records), places, draws)
    u = _among(places, chosen)
    theta = np.setdiff1d(np.arange(records.size), u)
    graphs = Graphs.of(records, chosen)
    # the initial point is the prior's mean: near it gradients are small, and rounding is
    gradients, near = graphs.compiled_gradients(), records.start[u]
    steps = np.maximum(draws[:, u].std(axis=0), np.finfo(float).tiny)
    precisions = _precisions(gradients, draws[:PLACES, theta], near, steps)
    filled = _filled(precisions)
    is_last = _alike(filled, np.einsum("nii->ni", precisions))
    order = np.argsort(is_last, kind="stable")
    in_graphs, slope = np.argsort(order), graphs.compiled_slope()
    return Integrated(
        u=u[order],
        theta=theta,
        near=near[order],
        steps=steps[order],
        entries=_together(filled[np.ix_(order, order)]),
        dense=int((~is_last).sum()),
        gradients=lambda others, at: gradients(others, at[..., in_graphs])[..., order],
        slope=lambda others, at, weights: slope(others, at[..., in_graphs], weights),
    )


def _jointly_normal(
    log_prior: LogPrior, places: Mapping[str, np.ndarray], draws: np.ndarray
) -> tuple[str, ...]:
    """Name latents in which the log prior is quadratic at all values of the others."""
    chosen: tuple[str, ...] = ()
    for name in places:
        u = _among(places, (*chosen, name))
        if len(u) <= MANY_LATENTS and _is_quadratic(log_prior, u, draws):
            chosen = (*chosen, name)
    return chosen


def log_prior_of(records: Records) -> LogPrior:
    """Compile the log prior of points, (n, size)."""
    every = Graphs.of(records, ())
    compiled = function([every.theta, every.u], every.log_prior[:, 0], "python")
    return lambda z: np.asarray(compiled(z, np.zeros((len(z), 1, 0))))


def _among(places: Mapping[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    return np.concatenate([np.zeros(0, int), *[places[name].ravel() for name in names]])


def _is_quadratic(log_prior: LogPrior, u: np.ndarray, draws: np.ndarray) -> bool:
    """Whether the log prior is quadratic in some coordinates: third differences are 0.

    Where it ends, as potentials may, it is not.
    """
    start, *others = np.split(draws, 4)
    corners = [start]
    signs = np.ones(1)
    for other in others:
        move = np.zeros_like(start)
        move[:, u] = other[:, u] - start[:, u]
        corners, signs = [*corners, *[x + move for x in corners]], np.append(signs, -signs)
    z = np.concatenate(corners)
    with np.errstate(all="ignore"):
        values = log_prior(z).reshape(len(corners), len(start))
        if not np.isfinite(values).all():
            return False
        third, size = abs(signs @ values), abs(values).max(axis=0)
    # where a spread is almost 0 others have hardly a density, and rounding hides all differences
    largest = ROUNDING**0.5
    shown = ROUNDING**2 * size < largest
    least = np.minimum(ROUNDING * size, largest)
    return bool(shown.any() and (third <= least)[shown].all())


def _precisions(
    gradients: Any, theta: np.ndarray, near: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    """Return the precision of latents, (n, k, k)."""
    points = near + np.concatenate([np.zeros((1, len(near))), np.diag(steps)])
    found = gradients(theta, np.broadcast_to(points, (len(theta), *points.shape)))
    return np.asarray((found[:, :1] - found[:, 1:]) / steps[:, None])


def _filled(precisions: np.ndarray) -> np.ndarray:
    """Find where the precision is not 0, (k, k)."""
    size = abs(precisions)
    own = np.einsum("nii->ni", size) ** 0.5
    filled = (size > ROUNDING * own[:, :, None] * own[:, None, :]).any(axis=0)
    return np.asarray(filled | filled.T | np.eye(len(filled), dtype=bool))


def _alike(filled: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
    """Find the largest set of latents whose joint precision is a factor times I, (k,).

    Groups of one spread are one. Theta decides the factor: latents whose precision is fixed may
    have units far apart, and then rounding hides small eigenvalues.
    """
    unequal = differ(diagonal[:, :, None], diagonal[:, None, :]).any(axis=0)
    alike = ~(unequal | filled) | np.eye(len(filled), dtype=bool)
    changing = differ(diagonal, diagonal[0]).any(axis=0)
    sets = [row for row in alike[changing] if alike[np.ix_(row, row)].all()]
    return max(sets, key=np.sum, default=np.zeros(len(filled), bool))


def _together(filled: np.ndarray) -> Entries:
    """Assign columns of a symmetric matrix, (k, k), to differences; entries are shown once.

    In the precision of groups and their mean, one shows all columns but that of the mean.

    Source: Coleman and Moré (1984), Estimation of sparse Hessian matrices and graph coloring.
    """
    wanted, difference = filled.copy(), np.zeros(len(filled), int)
    shown: list[tuple[np.ndarray, np.ndarray]] = []  # rows wanted of a difference, and rows in it
    for column in np.argsort(-filled.sum(axis=0), kind="stable"):
        own, its = wanted[:, column], filled[:, column]
        at = 0
        while at < len(shown) and ((own & shown[at][1]) | (its & shown[at][0])).any():
            at += 1
        of_others = shown.pop(at) if at < len(shown) else (np.zeros_like(own), np.zeros_like(its))
        shown.insert(at, (of_others[0] | own, of_others[1] | its))
        difference[column] = at
        wanted[column, own & (np.arange(len(own)) != column)] = False
    rows, columns = np.nonzero(wanted)
    return Entries(rows, columns, difference[columns])


class Graphs(NamedTuple):
    """The log prior at many values of the chosen latents, for each value of the others."""

    theta: Tensor  # (n, D - k)
    u: Tensor  # (n, m, k)
    log_prior: Tensor  # (n, m)

    @classmethod
    def of(cls, records: Records, chosen: Sequence[str]) -> Self:
        """Replace the latents of the model's log prior."""
        theta, u = pt.matrix("theta", dtype="float64"), pt.tensor3("u", dtype="float64")
        others = [name for name in records.point if name not in chosen]
        # first many u, and then many theta: what reads theta alone is computed once for each
        one, some = pt.vector("one", dtype="float64"), pt.matrix("some", dtype="float64")
        at_start = dict(zip(records.latents.values(), records.point.values(), strict=True))
        [prior] = with_identities([records.prior], at_start)
        [log_prior] = clone_replace([prior], cut_points(records, others, one))
        log_prior = vectorize_graph(log_prior, cut_points(records, chosen, some))
        log_prior = log_prior + pt.zeros(some.shape[:1])
        return cls(theta, u, vectorize_graph(log_prior, {one: theta, some: u}))

    def compiled_gradients(self) -> Any:
        """Compile the gradients, of theta and u."""
        gradients = pt.grad(self.log_prior.sum(), self.u, disconnected_inputs="ignore")
        return function([self.theta, self.u], gradients, "python")

    def compiled_slope(self) -> Any:
        """Compile the log prior at the first u, and the slope in theta of weighted sums."""
        weights = pt.matrix("weights", dtype="float64")
        total = (weights * self.log_prior).sum()
        slope = pt.grad(total, self.theta, disconnected_inputs="ignore")
        return function([self.theta, self.u, weights], [self.log_prior[:, 0], slope], "python")


def cut_points(
    records: Records, names: Sequence[str], points: Tensor
) -> dict[AnyVariable, AnyVariable]:
    """Cut points, (..., size), into the values of latents."""
    values, at = {}, 0
    for name in names:
        latent, start = records.latents[name], records.point[name]
        part = points[..., at : at + start.size]
        part = part.reshape((*[part.shape[k] for k in range(part.ndim - 1)], *start.shape))
        values[latent] = part.astype(latent.type.dtype)
        at += start.size
    return values
