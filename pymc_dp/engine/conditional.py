"""Latents that are normal given the others, integrated out of a posterior.

Means and coefficients of groups, and values of Gaussian processes, are normal given the spreads and
length scales in their priors. What remains is a density of the spreads alone. Chains of both would
hardly move: given a spread that is almost 0 its groups are all but fixed.

The steps: which latents are jointly normal, by differences of the log prior; their precision, whose
form is an arrow (some dense rows, then a diagonal); the log density of the others, with its slope.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from pytensor.graph.replace import clone_replace, vectorize_graph

from pymc_dp.contributions.channels import MANY_LATENTS, coordinates_of
from pymc_dp.engine.sampler import LogDensity
from pymc_dp.methods.prior import made_once, vectorized, with_identities
from pymc_dp.model import Records
from pymc_dp.model.compilation import function
from pymc_dp.model.graphs import AnyVariable, Tensor, pt


class Conditional(NamedTuple):
    """The normal distribution of u given each of n values of the others."""

    mean: np.ndarray  # (n, k)
    covariance: np.ndarray  # (n, r, r) of the first of u
    slopes: np.ndarray  # (n, k - r, r) of the mean of the last of u, in the first
    variances: np.ndarray  # (n, k - r) of the last along the axes, given the first
    axes: np.ndarray  # (k - r, k - r)
    log_determinant: np.ndarray  # (n,) of the precision

    @classmethod
    def of(cls, linear: np.ndarray, first: np.ndarray, last: np.ndarray, axes: np.ndarray) -> Self:
        """Return exp(l'u - u' A u / 2), from l, (n, k), and from A.

        A has the ``first`` columns, (n, k, r), and behind them the diagonal ``last``, (n, k - r),
        along the axes.
        """
        r, variances = first.shape[2], 1 / last
        slopes = -axes @ (variances[:, :, None] * (axes.T @ first[:, r:]))
        transposed = slopes.swapaxes(1, 2)
        covariance, log_determinant = _inverted(first[:, :r] + transposed @ first[:, r:])
        mean = _times(covariance, linear[:, :r] + _times(transposed, linear[:, r:]))
        of_last = (linear[:, r:] @ axes * variances) @ axes.T + _times(slopes, mean)
        log_determinant = log_determinant + np.log(last).sum(axis=1)
        mean = np.append(mean, of_last, axis=1)
        return cls(mean, covariance, slopes, variances, axes, log_determinant)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw once from each, (n, k)."""
        values, vectors = np.linalg.eigh(self.covariance)
        first = _times(vectors, np.sqrt(np.maximum(values, 0.0)) * rng.normal(size=values.shape))
        sd = np.sqrt(np.maximum(self.variances, 0.0))
        last = (sd * rng.normal(size=sd.shape)) @ self.axes.T + _times(self.slopes, first)
        return np.asarray(self.mean + np.append(first, last, axis=1))

    def covariances(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return entries of the covariance, (n, m); between the last ones, variances alone."""
        r, between = self.covariance.shape[2], self.slopes @ self.covariance
        entries = np.zeros((*self.mean.shape, r + 1))
        entries[:, :r, :r], entries[:, r:, :r] = self.covariance, between
        entries[:, r:, r] = self.variances @ (self.axes**2).T + (between * self.slopes).sum(axis=2)
        return entries[:, np.maximum(rows, columns), np.minimum(np.minimum(rows, columns), r)]


def _times(matrices: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    return np.asarray(np.einsum("nij,nj->ni", matrices, vectors))


def _inverted(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return inverses of matrices, (n, k, k), and logarithms of determinants.

    These are not numbers where a matrix is not positive definite, and the inverse is then I.
    """
    k = A.shape[-1]
    unit = np.sqrt(np.einsum("nii->ni", A))
    units = unit[:, :, None] * unit[:, None, :]
    scaled = A / units
    fine = np.isfinite(scaled).all(axis=(1, 2))
    scaled[~fine] = np.eye(k)
    sign, log_determinant = np.linalg.slogdet(scaled)
    fine &= sign > 0
    scaled[~fine] = np.eye(k)
    inverse = np.linalg.inv(scaled) / np.where(fine[:, None, None], units, 1.0)
    return inverse, np.where(fine, log_determinant + 2 * np.log(unit).sum(axis=1), np.nan)


ROUNDING = 1e-6  # as a share of a precision, of differences of gradients


class NormalLikelihood(NamedTuple):
    """The likelihood exp(h'x - x' Lambda x / 2)."""

    linear: np.ndarray  # h, (d,)
    precision: np.ndarray  # Lambda, (d, d)

    def among(self, places: np.ndarray, size: int) -> "NormalLikelihood":
        """Return it as a function of ``size`` coordinates, of which x has these places."""
        h, Lambda = np.zeros(size), np.zeros((size, size))
        h[places], Lambda[np.ix_(places, places)] = self
        return NormalLikelihood(h, Lambda)


class Entries(NamedTuple):
    """Where the precision of u, (k, k), is not 0, and which difference of gradients shows it."""

    rows: np.ndarray
    columns: np.ndarray
    difference: np.ndarray


class Integrated(NamedTuple):
    """A log prior, log p(theta, u), that is quadratic in u."""

    u: np.ndarray  # (k,) coordinates of the latents that are integrated out
    theta: np.ndarray  # (D - k,) those of the others
    near: np.ndarray  # (k,) a point u_0
    steps: np.ndarray  # (k,) of u, after which gradients show the precision
    entries: Entries
    dense: int  # r: behind the first r of u the precision is a factor times I
    # theta (n, D - k) and u (n, m, k) -> gradients of the log prior in u, (n, m, k)
    gradients: Callable[[np.ndarray, np.ndarray], np.ndarray]
    # the same and weights (n, m) -> log prior at the first u, (n,), and the slope in theta,
    # (n, D - k), of the weighted sum
    slope: Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

    def log_density(self, likelihood: NormalLikelihood) -> LogDensity:
        """Return the log posterior of theta, up to a constant, and its gradient.

        It is log p + h'z - z' Lambda z / 2 - log|A| / 2 at the mode of u, with A the curvature in
        u. The gradient is the mean over u of that in theta (Fisher's identity).
        """
        given = self.conditional(likelihood)

        def density(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            found = given(theta)
            value, slope = self.slope(theta, *self._average(found))
            z = self._joined(theta, found.mean)
            score = likelihood.linear - z @ likelihood.precision
            value = value + (z * (likelihood.linear + score)).sum(axis=1) / 2
            return value - found.log_determinant / 2, slope + score[:, self.theta]

        return density

    def conditional(self, likelihood: NormalLikelihood) -> Callable[[np.ndarray], Conditional]:
        """Return the posterior of u as a function of theta, (n, D - k)."""
        r, last = self.dense, self.u[self.dense :]
        values, vectors = np.linalg.eigh(likelihood.precision[np.ix_(last, last)])

        def given(theta: np.ndarray) -> Conditional:
            near = np.broadcast_to(self.near, (len(theta), len(self.u)))
            slope, P = self._of_prior(theta, near)
            if not _is_one_factor(P[:, r:, r]):
                return self._replace(dense=len(self.u)).conditional(likelihood)(theta)
            A = P[:, :, :r] + likelihood.precision[np.ix_(self.u, self.u[:r])]
            score = likelihood.linear - self._joined(theta, near) @ likelihood.precision
            linear, of_last = slope + score[:, self.u], values + P[:, r : r + 1, r]
            found = Conditional.of(linear, A, of_last, vectors)
            return found._replace(mean=near + found.mean)

        return given

    def _of_prior(self, theta: np.ndarray, near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradient in u, and of the precision the first columns and the diagonal."""
        (rows, columns, difference), r = self.entries, self.dense
        gradients = self.gradients(
            theta, np.concatenate([near[:, None], near[:, None] + self._moves()], axis=1)
        )
        change = gradients[:, 0, rows] - gradients[:, 1 + difference, rows]
        P = np.zeros((*near.shape, r + 1))  # the diagonal is the last column, behind the first rows
        for one, other in (rows, columns), (columns, rows):
            P[:, one, np.minimum(other, r)] = change / self.steps[columns]
        return gradients[:, 0], P

    def _moves(self) -> np.ndarray:
        """Return the steps of each difference, (1, m, k)."""
        _, columns, difference = self.entries
        moves = np.zeros((1, 1 + int(difference.max(initial=-1)), len(self.u)))
        moves[0, difference, columns] = self.steps[columns]
        return moves

    def _average(self, found: Conditional) -> tuple[np.ndarray, np.ndarray]:
        """Return points, (n, m, k), and weights, at which a quadratic function has its mean.

        It is f - tr(C P) / 2, with f and the precision P at the mode. The trace is a sum of q' P v
        over differences with steps v, and q' P v = f(q) + f(v) - f(q + v) - f about the mode.
        """
        (rows, columns, difference), v = self.entries, self._moves()
        mode = found.mean[:, None]
        q = np.zeros((len(mode), *v.shape[1:]))
        twice = np.where(rows == columns, 1.0, 2.0)  # an entry beside the diagonal is there twice
        covariance = found.covariances(rows, columns)
        q[:, difference, rows] = covariance * twice / self.steps[columns]
        tiny = np.finfo(float).tiny
        longer = np.sqrt(
            (abs(v).max(axis=2, initial=0.0) + tiny) / (abs(q).max(axis=2, initial=0.0) + tiny)
        )[..., None]
        q, v = q * longer, v / longer  # equally long, against rounding
        points = np.concatenate([mode, mode + q + v, mode + q, mode + v], axis=1)
        m = v.shape[1]
        weights = np.repeat([1 + m / 2, 0.5, -0.5, -0.5], [1, m, m, m])
        return points, np.broadcast_to(weights, points.shape[:2])

    def _joined(self, theta: np.ndarray, u: np.ndarray) -> np.ndarray:
        z = np.empty((len(theta), len(self.theta) + len(self.u)))
        z[:, self.theta], z[:, self.u] = theta, u
        return z


def differ(precisions: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Find where precisions are unequal, and not by the rounding of differences of gradients."""
    return np.asarray(~(abs(precisions - others) <= ROUNDING * abs(others)))


def _is_one_factor(diagonal: np.ndarray) -> bool:
    """Whether all precisions in each row, (n, m), are equal: no draw of the prior may show it."""
    return not differ(diagonal, diagonal[:, :1]).any()


# a difference counts as 0 up to this share of what is subtracted, and up to its root in a log
# density; its square is about double precision
NEGLIGIBLE = 1e-7
PLACES = 16  # at which there are differences


def integrated(records: Records, prior_draws: np.ndarray) -> Integrated:
    """Find latents that are jointly normal given the others, from ``prior_draws``, (n, size).

    At most `MANY_LATENTS` coordinates are: they cost a matrix in every step.
    """
    draws = prior_draws[: 4 * PLACES]
    chosen = _jointly_normal(records, draws)
    is_normal = _coordinates(records, chosen)
    u, theta = np.flatnonzero(is_normal), np.flatnonzero(~is_normal)
    gradients, slope = _compiled(records, chosen, _derivatives)
    near = records.start[u]  # the prior's mean: near it gradients are small, and rounding is
    steps = np.maximum(draws[:, u].std(axis=0), np.finfo(float).tiny)
    points, others = near + np.pad(np.diag(steps), ((1, 0), (0, 0))), draws[:PLACES, theta]
    found = gradients(others, np.broadcast_to(points, (len(others), *points.shape)))
    precisions = (found[:, :1] - found[:, 1:]) / steps[:, None]
    filled = _filled(precisions)
    is_last = _one_factor_behind(filled, np.einsum("nii->ni", precisions))
    order = np.argsort(is_last, kind="stable")
    in_graphs = np.argsort(order)
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


def _jointly_normal(records: Records, draws: np.ndarray) -> list[str]:
    """Name latents in which the log prior is quadratic at all values of the others."""
    log_prior, chosen = log_prior_of(records), list[str]()
    for name in records.latents:
        u = _coordinates(records, [*chosen, name])
        if u.sum() <= MANY_LATENTS and _is_quadratic(log_prior, u, draws):
            chosen.append(name)
    return chosen


def log_prior_of(records: Records) -> Callable[[np.ndarray], np.ndarray]:
    """Compile the log prior of points, (n, size)."""
    [compiled] = _compiled(records, (), _values)
    return lambda z: np.asarray(compiled(z, np.zeros((len(z), 1, 0))))


def _coordinates(records: Records, names: Sequence[str]) -> np.ndarray:
    return coordinates_of(records, [records.latents[name] for name in names])


def _is_quadratic(log_prior: Any, u: np.ndarray, draws: np.ndarray) -> bool:
    """Whether the log prior is quadratic in some coordinates: third differences are 0."""
    start, *others = np.split(draws, 4)
    corners, signs = [start], np.ones(1)
    for other in others:
        move = np.where(u, other - start, 0.0)
        corners, signs = [*corners, *[x + move for x in corners]], np.append(signs, -signs)
    z = np.concatenate(corners)
    with np.errstate(all="ignore"):
        values = log_prior(z).reshape(len(corners), len(start))
        if not np.isfinite(values).all():
            return False
        third, size = abs(signs @ values), abs(values).max(axis=0)
    # where a spread is almost 0 others have hardly a density, and rounding hides all differences
    largest = NEGLIGIBLE**0.5
    shown = NEGLIGIBLE**2 * size < largest
    least = np.minimum(NEGLIGIBLE * size, largest)
    return bool(shown.any() and (third <= least)[shown].all())


def _filled(precisions: np.ndarray) -> np.ndarray:
    """Find where the precision is not 0, (k, k)."""
    size = abs(precisions)
    own = np.einsum("nii->ni", size) ** 0.5
    filled = (size > NEGLIGIBLE * own[:, :, None] * own[:, None, :]).any(axis=0)
    return np.asarray(filled | filled.T | np.eye(len(filled), dtype=bool))


def _one_factor_behind(filled: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
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


# graphs of functions: inputs and outputs of each
Graphs = list[tuple[list[Tensor], Any]]


def _compiled(
    records: Records, chosen: Sequence[str], make: Callable[[Records, Sequence[str]], Graphs]
) -> list[Any]:
    """Compile functions; graphs are made once for all models with equal priors and latents."""
    shapes = tuple((name, start.shape) for name, start in records.point.items())
    what = (make.__name__, tuple(chosen), shapes)
    graphs = made_once(records, what, lambda: make(records, chosen))
    return [function(inputs, outputs, "python") for inputs, outputs in graphs]


def _values(records: Records, chosen: Sequence[str]) -> Graphs:
    """Return the log prior at the first u."""
    theta, u, log_prior = _log_prior(records, chosen)
    return [([theta, u], log_prior[:, 0])]


def _derivatives(records: Records, chosen: Sequence[str]) -> Graphs:
    """Return gradients in u, and the log prior at the first u with slopes of weighted sums."""
    theta, u, log_prior = _log_prior(records, chosen)
    weights = pt.matrix("weights", dtype="float64")
    gradients = pt.grad(log_prior.sum(), u, disconnected_inputs="ignore")
    slope = pt.grad((weights * log_prior).sum(), theta, disconnected_inputs="ignore")
    return [([theta, u], gradients), ([theta, u, weights], [log_prior[:, 0], slope])]


def _log_prior(records: Records, chosen: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
    """Return theta, (n, D - k), many u for each, (n, m, k), and the log prior there, (n, m)."""
    theta, u = pt.matrix("theta", dtype="float64"), pt.tensor3("u", dtype="float64")
    others = [name for name in records.point if name not in chosen]
    # first many u, and then many theta: what reads theta alone is computed once for each
    one, some = pt.vector("one", dtype="float64"), pt.matrix("some", dtype="float64")
    at_start = dict(zip(records.latents.values(), records.point.values(), strict=True))
    [prior] = with_identities([records.prior], at_start)
    [log_prior] = clone_replace([prior], cut_points(records, others, one))
    log_prior = vectorize_graph(log_prior, cut_points(records, chosen, some))
    log_prior = log_prior + pt.zeros(some.shape[:1])
    [log_prior] = vectorized([log_prior], {one: theta, some: u})
    return theta, u, log_prior


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
