"""The joint prior of Gaussian latents, and messages to the precisions behind them."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from pymc_dp.methods.conjugate.blocks import (
    Message,
    Point,
    Rule,
    at_points,
    average,
    families_of,
    gaussian_latents,
    is_variance,
    nearly_equal,
    prior_messages,
    rule_of_normal,
)
from pymc_dp.methods.conjugate.exponential import (
    GAMMA,
    INVERSE_GAMMA,
    Natural,
    flat_gradient,
    of_precision,
)
from pymc_dp.methods.options import NotConjugateError
from pymc_dp.model import Records
from pymc_dp.model.graphs import Tensor

# Gamma densities of precisions; of one over a latent that is a variance
Gammas = dict[str, Natural]


class GaussianPrior(NamedTuple):
    """The prior of Gaussian latents v, shape (d,) in all, and of Gamma blocks."""

    shapes: dict[str, tuple[int, ...]]  # {Gaussian latent: shape}
    # (point, v) -> array of v's shape: the gradient of the log prior in v, shape (d,) or (points,
    # d); affine in v
    slope: Callable[[Point, np.ndarray], np.ndarray]
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

    def natural(self, gammas: Gammas) -> tuple[np.ndarray, np.ndarray]:
        """Return precision times mean, (d,), and precision, (d, d), at the Gammas' expectations."""
        start, precision = self._slopes_along(np.eye(self.d), gammas)
        return start, (precision + precision.T) / 2

    def natural_diagonals(self, gammas: Gammas) -> tuple[np.ndarray, np.ndarray]:
        """Return the same as `natural`, (d,) each, where latents are independent."""
        start, [precision] = self._slopes_along(np.ones((1, self.d)), gammas)
        return start, precision

    def _slopes_along(self, moves: np.ndarray, gammas: Gammas) -> list[np.ndarray]:
        """Average the slope at 0, (d,), and how much it falls along moves, (moves, d) each."""
        points = np.vstack([np.zeros(self.d), moves])

        def slopes(point: Point) -> tuple[np.ndarray, np.ndarray]:
            start, *moved = self.slope(point, points)
            return start, start - np.stack(moved)

        return average(slopes, self._rules(gammas).values())

    def rule(self, mean: np.ndarray, covariance: np.ndarray) -> Rule:
        """Points of v with this mean and covariance."""
        return [self.point(point["v"]) for point in rule_of_normal("v", mean, covariance)]

    def message(self, name: str, gammas: Gammas, normal: Rule) -> Natural:
        """Return the prior's message to one Gamma latent, given points of v."""
        own = self.values(name, GAMMA.reference(gammas[name]))
        rules = self._rules(gammas) | {name: [{name: own}]}
        return self._of_precision(name, self.gammas[name].average([*rules.values(), normal]))


def expected_precision(name: str | None, gammas: Gammas) -> float:
    """Expectation of a noise precision that is one number; 1 where it is known."""
    return 1.0 if name is None else float(GAMMA.reference(gammas[name]).item())


def gaussian_prior(records: Records, apart: Iterable[str] = ()) -> GaussianPrior:
    """Compile the prior's messages, and check at random points that it is conjugate.

    Latents in ``apart`` are excluded; no other part of the prior may depend on them.
    """
    names = gaussian_latents(records)
    families = families_of(records, apart=[*names, *apart])
    for name, family in families.items():
        if family not in (GAMMA, INVERSE_GAMMA):
            raise NotConjugateError(f"`{name}` is no precision or variance of the Gaussian latents")

    def gradient() -> list[Tensor]:
        return [flat_gradient(records.prior, [records.latents[name] for name in names])]

    slopes, needs = at_points(records, ("gradient", *names), gradient)
    for name in apart:
        if name in needs:
            raise NotConjugateError(f"the prior of the Gaussian latents depends on `{name}`")
    shapes = {name: records.point[name].shape for name in names}
    gamma_shapes = {name: records.point[name].shape for name in families}
    messages = prior_messages(records, families)
    variances = frozenset(name for name in families if is_variance(records, name))
    prior = GaussianPrior(shapes, lambda point, v: v, messages, gamma_shapes, variances)

    def slope(point: Point, v: np.ndarray) -> np.ndarray:
        [found] = slopes([point | prior.point(x) for x in np.atleast_2d(v)])
        return found.reshape(v.shape)

    prior = prior._replace(slope=slope)
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
        names = ", ".join(f"`{name}`" for name in prior.shapes)
        raise NotConjugateError(f"the joint prior of {names} is not Gaussian")
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
        names = ", ".join(f"`{name}`" for name in prior.shapes)
        raise NotConjugateError(f"the priors of {names} are not independent")
