"""Gaussian posteriors in closed form: priors, noisy averages, cavities, widths with noise.

From top to bottom: eigenvalues beside noise; running averages of releases; the prior of Gaussian
latents, and messages to the precisions behind them; the posterior.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
import xarray as xr

from pymc_dp.methods.conjugate import (
    GAMMA,
    INVERSE_GAMMA,
    NORMAL,
    Message,
    Natural,
    Point,
    Rule,
    at_points,
    average,
    converged,
    families_of,
    gaussian_latents,
    natural_parameters,
    nearly_equal,
    of_precision,
    of_variance,
    prior_messages,
)
from pymc_dp.methods.method import Both, Draws, quoted
from pymc_dp.methods.options import NotConjugateError
from pymc_dp.methods.prior import flat_gradient
from pymc_dp.model import Records
from pymc_dp.model.graphs import Tensor


def spectral_edge(variance: float | np.ndarray, d: int) -> float:
    """Largest eigenvalue of symmetric (d, d) noise; ``variance`` is that of `svec`'s entries."""
    return float(np.sqrt(2 * d * variance))


def with_eigenvalues(
    matrices: np.ndarray, change: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Change the eigenvalues of symmetric matrices, (..., d, d)."""
    values, vectors = np.linalg.eigh(matrices)
    return np.asarray((vectors * change(values)[..., None, :]) @ np.swapaxes(vectors, -1, -2))


def floored(matrices: np.ndarray, least: float) -> np.ndarray:
    """Raise eigenvalues of symmetric matrices to ``least``."""
    return with_eigenvalues(matrices, lambda values: np.maximum(values, least))


def draws_without_noise(points: np.ndarray, lost: np.ndarray) -> np.ndarray | None:
    """Shrink draws, (n, d), to a precision that has not ``lost``, (d, d), to noise."""
    if len(points) <= points.shape[1]:
        return None
    try:
        root = root_of(np.cov(points.T, ddof=0).reshape(lost.shape))
        left = np.linalg.inv(np.eye(len(lost)) + root.T @ lost @ root)
        return shrunk(points, root @ root.T, root @ left @ root.T)
    except np.linalg.LinAlgError:
        return None


def shrunk(points: np.ndarray, covariance: np.ndarray, without: np.ndarray) -> np.ndarray | None:
    """Shrink draws of a covariance, (d, d), about their mean to one that is smaller everywhere."""
    mean = points.mean(axis=0)
    try:
        root = own = root_of(covariance)
        if len(points) > points.shape[1]:
            own = root_of(np.cov(points.T, ddof=0).reshape(covariance.shape))
        inverse = np.linalg.inv(root)
        left = inverse @ without @ inverse.T
        factor = with_eigenvalues(left, lambda values: np.sqrt(np.clip(values, 0.0, 1.0)))
        found = mean + np.linalg.solve(own, (points - mean).T).T @ factor @ own.T
    except np.linalg.LinAlgError:
        return None
    return found if np.isfinite(found).all() else None


def root_of(covariance: np.ndarray) -> np.ndarray:
    """Return the Cholesky factor, in units of the coordinates, which may be of any size."""
    unit = np.sqrt(np.diag(covariance))
    return np.asarray(unit[:, None] * np.linalg.cholesky(covariance / np.outer(unit, unit)))


def covariance_with_noise(
    covariance: np.ndarray, noise: np.ndarray, precision: np.ndarray
) -> np.ndarray:
    """Return (P + H (H + B)^-1 H)^-1, about V + N where N is small."""
    if covariance.ndim == 1:
        curvature = np.maximum(1 / covariance - precision, 0.0)
        of_score = noise / covariance**2
        known = curvature**2 / np.maximum(curvature + of_score, 1e-300)
        return np.asarray(1 / (precision + known))
    unit = np.sqrt(np.diag(covariance))
    scales = np.outer(unit, unit)
    whole, prior = np.linalg.inv(covariance / scales), precision * scales
    curvature = floored(whole - prior, 0.0)
    of_score = whole @ (noise / scales) @ whole
    inverse = np.linalg.pinv(curvature + of_score, rcond=1e-12, hermitian=True)
    found: np.ndarray = np.linalg.inv(prior + curvature @ inverse @ curvature) * scales
    return np.asarray((found + found.T) / 2)


def mean_with_noise(
    mean: np.ndarray, noise: np.ndarray, linear: np.ndarray, precision: np.ndarray
) -> np.ndarray:
    """Shrink a noisy mean towards the prior's, as far as noise exceeds the prior.

    ``linear`` is the prior's precision times its mean.
    """
    if noise.ndim == 1:
        return np.asarray((mean + noise * linear) / (1 + noise * precision))
    widened = np.eye(len(mean)) + noise @ precision
    return np.asarray(np.linalg.solve(widened, mean + noise @ linear))


class NoisyAverage[Values](NamedTuple):
    """A running average of released sums, and the variance of the noise that remains in it."""

    value: Values
    variance: Values  # of the noise on the entries of each array

    def add(self, latest: Values, noise_variance: Values, weight: Any) -> Self:
        """Give a new release, whose noise is independent, this weight in the average.

        A weight is a number in [0, 1], or one for each part of ``value``.
        """
        return type(self)(
            _combine(lambda a, b, w: (1 - w) * a + w * b, self.value, latest, weight),
            _combine(
                lambda a, b, w: (1 - w) ** 2 * a + w**2 * b, self.variance, noise_variance, weight
            ),
        )


def _combine(combine: Callable[[Any, Any, Any], Any], old: Any, new: Any, weight: Any) -> Any:
    """Combine arrays, or the entries of tuples and dicts of them, and keep the container."""
    if isinstance(old, dict):
        return {name: _combine(combine, old[name], new[name], weight) for name in old}
    if isinstance(old, tuple):
        weights = weight if isinstance(weight, tuple) else (weight,) * len(old)
        make = getattr(type(old), "_make", tuple)
        return make(_combine(combine, *x) for x in zip(old, new, weights, strict=True))
    return np.asarray(combine(old, new, weight))


def number_of(
    declared: int | None, released: float | np.ndarray, variance: float | np.ndarray
) -> float:
    """Take the declared number of records, else the released one, as far as it is known."""
    return float(declared or max(float(released), float(variance) ** 0.5, 1.0))


class Average(NamedTuple):
    """A weighted average A of the means m that a fit passes through."""

    mean: np.ndarray  # A
    of_latest: np.ndarray  # covariance of the noise on m, or its diagonal
    shared: np.ndarray  # the same between m and A
    noise: np.ndarray  # and on A

    def add(
        self, mean: np.ndarray, fresh: np.ndarray, step: float | np.ndarray, weight: float
    ) -> Self:
        """Add the next mean, whose step of length h brought noise of covariance h^2 ``fresh``."""
        kept, old = 1 - step, 1 - weight
        of_latest = kept**2 * self.of_latest + step**2 * fresh
        shared = old * kept * self.shared + weight * of_latest
        noise = old**2 * self.noise + 2 * weight * old * kept * self.shared + weight**2 * of_latest
        return type(self)(self.mean + weight * (mean - self.mean), of_latest, shared, noise)


def site_share(number: float) -> float:
    """Return 1 / N for a noisy number of records N; at least half of the sites stay."""
    return 1 / max(number, 2.0)


def cavity(
    linear: np.ndarray, precision: np.ndarray, sites: np.ndarray, mean: np.ndarray, number: float
) -> tuple[np.ndarray, np.ndarray]:
    """Divide a posterior of mean (d,) by one of its sites; diagonals may stand for matrices.

    ``linear`` (d,) and ``precision`` (d, d) are natural parameters of the prior, and ``sites`` is
    the precision of the product of all sites. Source: Li et al. (2015), equation 3.

    >>> linear, unit, mean = np.zeros(1), np.ones((1, 1)), np.array([0.9])
    >>> cavity(linear, unit, 9 * unit, mean, number=9.0)  # all sites have mean 1
    (array([0.88888889]), array([[0.11111111]]))
    """
    share = site_share(number)
    if precision.ndim == 1:
        variance = 1 / (precision + (1 - share) * sites)
        return mean + share * variance * (linear - precision * mean), variance
    covariance = np.linalg.inv(precision + (1 - share) * sites)
    return mean + share * covariance @ (linear - precision @ mean), covariance


def within_trust_region(move: np.ndarray, precision: np.ndarray, radius: float) -> np.ndarray:
    """Shorten a step to ``radius`` standard deviations, as a root mean square over coordinates.

    ``precision``, shape (d,), has one over the variance of each coordinate.
    """
    length = np.sqrt(np.mean(precision * move**2))
    return np.asarray(move * min(1.0, radius / max(length, 1e-300)))


# Gamma densities of precisions; of one over a latent that is a variance
Gammas = dict[str, Natural]


class GaussianPrior(NamedTuple):
    """The prior of Gaussian latents v, shape (d,) in all, and of Gamma blocks."""

    shapes: dict[str, tuple[int, ...]]  # {Gaussian latent: shape}
    slopes: Message  # of the log prior in v at points, (points, d)
    gammas: dict[str, Message]  # {Gamma latent: Message}
    gamma_shapes: dict[str, tuple[int, ...]]  # {Gamma latent: shape}
    variances: frozenset[str] = frozenset()  # those of the Gamma latents that are variances

    @property
    def d(self) -> int:
        """The number of coordinates of v."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def point(self, v: np.ndarray) -> Point:
        """Cut v, shape (..., d), into latents."""
        point, start = {}, 0
        for name, shape in self.shapes.items():
            size = int(np.prod(shape))
            point[name] = v[..., start : start + size].reshape((*v.shape[:-1], *shape))
            start += size
        return point

    def slope(self, point: Point, v: np.ndarray) -> np.ndarray:
        """Return the gradient of the log prior in v, (d,) or (points, d); it is affine in v."""
        [found] = self.slopes.evaluate([point | self.point(x) for x in np.atleast_2d(v)])
        return found.reshape(v.shape)

    def role(self, name: str, of: str = "Gaussian latents") -> str:
        """Describe the role of a Gamma latent in the updates."""
        if name in self.variances:
            return f"inverse gamma block: variance of {of}"
        return f"Gamma block: precision of {of}"

    def values(self, name: str, precision: np.ndarray) -> np.ndarray:
        """Return values of a latent, given the precisions that it stands for."""
        return 1 / precision if name in self.variances else precision

    def _of_precision(self, name: str, eta: Natural) -> Natural:
        return of_precision(eta) if name in self.variances else eta

    def _rules(self, gammas: Gammas) -> dict[str, Rule]:
        return {
            name: [{name: self.values(name, x)} for x in GAMMA.rule(eta)]
            for name, eta in gammas.items()
        }

    def start(self) -> Gammas:
        """Gammas at their priors' own parameters, with those they depend on near 1."""
        points = {name: np.ones(shape) for name, shape in self.gamma_shapes.items()}
        at_zero = points | self.point(np.zeros(self.d))
        found = {n: self._of_precision(n, message(at_zero)) for n, message in self.gammas.items()}
        return {name: (np.maximum(a, 0.0), np.maximum(b, 1e-3)) for name, (a, b) in found.items()}

    def natural(self, gammas: Gammas, diagonal: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return precision times mean, (d,), and precision, at the Gammas' expectations.

        The precision is a matrix, (d, d), or its ``diagonal``, (d,), where latents are independent.
        """
        moves = np.ones((1, self.d)) if diagonal else np.eye(self.d)
        points = np.vstack([np.zeros(self.d), moves])

        def slopes(point: Point) -> tuple[np.ndarray, np.ndarray]:
            start, *moved = self.slope(point, points)
            return start, start - np.stack(moved)

        start, falls = average(slopes, self._rules(gammas).values())
        return start, falls[0] if diagonal else (falls + falls.T) / 2

    def rule(self, mean: np.ndarray, covariance: np.ndarray) -> Rule:
        """Points of v with this mean and covariance: exact for polynomials of degree three."""
        values, vectors = np.linalg.eigh(covariance)
        steps = (vectors * np.sqrt(np.maximum(values, 0.0) * len(mean))).T
        return [self.point(mean + sign * step) for step in steps for sign in (1, -1)]

    def message(self, name: str, gammas: Gammas, normal: Rule) -> Natural:
        """Return the prior's message to one Gamma latent, given points of v."""
        own = self.values(name, GAMMA.reference(gammas[name]))
        rules = self._rules(gammas) | {name: [{name: own}]}
        return self._of_precision(name, self.gammas[name].average([*rules.values(), normal]))


def expected_precision(name: str | None, gammas: Gammas) -> float:
    """Expectation of a noise precision that is one number; 1 where it is known."""
    return 1.0 if name is None else float(GAMMA.reference(gammas[name]).item())


def gaussian_prior(records: Records, apart: Iterable[str] = ()) -> GaussianPrior:
    """Compile the messages of a prior that is conjugate, and does not depend on ``apart``."""
    names = gaussian_latents(records)
    families = families_of(records, apart=[*names, *apart])
    for name, family in families.items():
        if family not in (GAMMA, INVERSE_GAMMA):
            raise NotConjugateError(f"`{name}` is no precision or variance of the Gaussian latents")

    def gradient() -> list[Tensor]:
        return [flat_gradient(records.prior, [records.latents[name] for name in names])]

    slopes = at_points(records, ("gradient", *names), gradient)
    for name in apart:
        if name in slopes.needs:
            raise NotConjugateError(f"the prior of the Gaussian latents depends on `{name}`")
    shapes = {name: records.point[name].shape for name in names}
    gamma_shapes = {name: records.point[name].shape for name in families}
    messages = prior_messages(records, families)
    variances = frozenset(n for n, family in families.items() if family is INVERSE_GAMMA)
    prior = GaussianPrior(shapes, slopes, messages, gamma_shapes, variances)
    _check_conjugate(records, prior)
    return prior


def _check_conjugate(records: Records, prior: GaussianPrior) -> None:
    rng = np.random.default_rng(0)
    first, second = (
        {name: rng.uniform(0.5, 2.0, records.point[name].shape) for name in prior.gammas}
        for _ in range(2)
    )
    u, v, zeros = rng.normal(size=prior.d), rng.normal(size=prior.d), np.zeros(prior.d)
    at = [prior.slope(first, x) - prior.slope(first, zeros) for x in (u, v, u + v)]
    if not nearly_equal(at[2], at[0] + at[1]):
        raise NotConjugateError(f"the joint prior of {quoted(prior.shapes)} is not Gaussian")
    for name, message in prior.gammas.items():
        points = [first | prior.point(u), first | prior.point(u) | {name: second[name]}]
        if not all(map(nearly_equal, message(points[0]), message(points[1]))):
            raise NotConjugateError(f"the prior is not conjugate to `{name}`")


def check_independent(prior: GaussianPrior) -> None:
    """Check, at random points, that the prior's precision is a diagonal matrix."""
    rng = np.random.default_rng(0)
    point = {name: rng.uniform(0.5, 2.0, shape) for name, shape in prior.gamma_shapes.items()}
    zeros, v = np.zeros(prior.d), rng.normal(size=prior.d)
    start = prior.slope(point, zeros)
    precision = start - prior.slope(point, zeros + 1)
    if not nearly_equal(prior.slope(point, v), start - precision * v):
        raise NotConjugateError(f"the priors of {quoted(prior.shapes)} are not independent")


ROUNDS = 30  # of updates over precisions and the Gaussian latents; they read no data


class Solved(NamedTuple):
    """The posterior that sums over records imply."""

    linear: np.ndarray  # of the prior: precision times mean, (d,), at the precisions' expectations
    precision: np.ndarray  # of the prior, (d, d)
    covariance: np.ndarray
    gammas: Gammas


def solve(
    prior: GaussianPrior,
    curvature: Callable[[Gammas], np.ndarray],
    mean: np.ndarray,
    gammas: Gammas,
    statistics: Mapping[str, Natural] = MappingProxyType({}),
) -> Solved:
    """Update precisions and the covariance around a mean in turn, until they converge."""
    # curvature and statistics are what the likelihood adds to natural parameters
    for _ in range(ROUNDS if gammas else 1):
        linear, precision = prior.natural(gammas)
        covariance = np.linalg.inv(curvature(gammas) + precision)
        normal = prior.rule(mean, covariance) if gammas else []
        before, gammas = gammas, dict(gammas)
        for name in gammas:
            added = statistics.get(name, (np.zeros(()),) * 2)
            both = zip(prior.message(name, gammas, normal), added, strict=True)
            gammas[name] = tuple(np.asarray(a + b) for a, b in both)
        if converged(before, gammas):
            break
    return Solved(linear, precision, covariance, gammas)


class GaussianPosterior(NamedTuple):
    """Gaussian latents v jointly, and the precisions behind them."""

    mean: np.ndarray
    covariance: np.ndarray  # or its diagonal, (d,), where latents are independent
    noise: np.ndarray  # covariance of the privacy noise on ``mean``
    gammas: Gammas  # {latent: natural parameters}
    # {latent: (draws, rng) -> draws}: precisions of released sums, with the privacy noise on these
    blocks: Mapping[str, Callable[[int, np.random.Generator], np.ndarray]] = MappingProxyType({})

    def draw(self, prior: GaussianPrior, draws: int, rng: np.random.Generator) -> Draws:
        """Draw all latents by name."""
        v = draw_gaussian(self.mean, self.covariance, draws, rng)
        gammas = {
            name: prior.values(name, GAMMA.sample(eta, draws, rng))
            for name, eta in self.gammas.items()
        }
        return prior.point(v) | gammas

    def draw_with_noise(self, prior: GaussianPrior, draws: int, rng: np.random.Generator) -> Both:
        """Draw all latents with the privacy noise on the released sums, and without it."""
        without = self.draw(prior, draws, copy.deepcopy(rng))
        linear, precision = prior.natural(self.gammas, diagonal=self.covariance.ndim == 1)
        widened = self._replace(
            mean=mean_with_noise(self.mean, self.noise, linear, precision),
            covariance=covariance_with_noise(self.covariance, self.noise, precision),
        )
        values = widened.draw(prior, draws, rng)
        blocks = {name: prior.values(name, draw(draws, rng)) for name, draw in self.blocks.items()}
        return values | blocks, without

    def describe(self, records: Records, prior: GaussianPrior) -> xr.Dataset:
        """Return moments, natural parameters, and the noise on the mean."""
        square = ("gaussian", "gaussian_")
        labels = [label for label in records.labels if label.split("[")[0] in prior.shapes]
        found = describe_gaussian(self.mean, self.covariance, labels, square)
        own = self.gammas | {name: of_variance(self.gammas[name]) for name in prior.variances}
        families = {n: INVERSE_GAMMA if n in prior.variances else GAMMA for n in own}
        variables: dict[str, Any] = natural_parameters(records, families, own)
        if self.covariance.ndim == 1:
            linear, precision = (prior.point(x / self.covariance) for x in (self.mean, 1.0))
            eta = {name: (linear[name], precision[name]) for name in prior.shapes}
            variables |= natural_parameters(records, dict.fromkeys(eta, NORMAL), eta)
            variables["noise_sd"] = ("gaussian", self.noise**0.5)
        else:
            matrix = np.linalg.inv(self.covariance)
            variables["noise_covariance"] = (square, self.noise)
            variables["precision_mean"] = ("gaussian", matrix @ self.mean)
            variables["precision_matrix"] = (square, matrix)
        return found.assign(variables)


def describe_gaussian(
    mean: np.ndarray,
    covariance: np.ndarray,
    labels: list[str],
    dims: tuple[str, str] = ("rows", "columns"),
) -> xr.Dataset:
    """Return moments of a Gaussian; ``covariance`` may be a diagonal, shape (d,)."""
    joint, rows = covariance.ndim == 2, dims[0]
    sd = np.sqrt(np.diag(covariance) if joint else covariance)
    variables: dict[str, Any] = {"mean_vector": (rows, mean), "standard_deviation": (rows, sd)}
    if joint:
        variables["covariance_matrix"] = (dims, covariance)
    return xr.Dataset(variables, dict.fromkeys(dims if joint else dims[:1], labels))


def draw_gaussian(
    mean: np.ndarray, covariance: np.ndarray, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw from a Gaussian, shape (draws, d); ``covariance`` may be a diagonal, shape (d,)."""
    if covariance.ndim == 1:
        return mean + covariance**0.5 * rng.normal(size=(draws, len(mean)))
    # in units of the latents, which may be of any size, rounding makes no eigenvalue negative
    unit = np.sqrt(np.diag(covariance))
    correlation = floored(covariance / np.outer(unit, unit), 1e-12)
    root = unit[:, None] * np.linalg.cholesky(correlation)
    return np.asarray(mean + rng.normal(size=(draws, len(mean))) @ root.T)
