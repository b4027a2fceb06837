"""What a prior says about its Gaussian latents jointly, and about the precisions behind them."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from pytensor.gradient import grad
from pytensor.tensor import concatenate

from pymc_dp.methods.blocks.expectation import (
    Message,
    Point,
    Rule,
    at_points,
    average,
    prior_messages,
    rule_of,
    rule_of_normal,
)
from pymc_dp.methods.blocks.exponential import GAMMA, Natural
from pymc_dp.methods.blocks.families import families_of, gaussian_latents
from pymc_dp.methods.blocks.made_up import agree
from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.records import Records

Gammas = dict[str, Natural]


class GaussianPrior(NamedTuple):
    """The prior of Gaussian latents v, shape (d,) in all, and of Gamma blocks.

    Attributes
    ----------
    shapes : {Gaussian latent: shape}
    slope : (point, v) -> array of v's shape
        The gradient of the log prior in v, shape (d,) or (points, d); affine in v.
    gammas : {Gamma latent: Message}
    gamma_shapes : {Gamma latent: shape}
    """

    shapes: dict[str, tuple[int, ...]]
    slope: Callable[[Point, np.ndarray], np.ndarray]
    gammas: dict[str, Message]
    gamma_shapes: dict[str, tuple[int, ...]]

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

    def start(self) -> Gammas:
        """Gammas at their priors' own parameters, with those they depend on near 1."""
        points = {name: np.ones(shape) for name, shape in self.gamma_shapes.items()}
        at_zero = points | self.point(np.zeros(self.d))
        found = {name: message(at_zero) for name, message in self.gammas.items()}
        return {name: (np.maximum(a, 0.0), np.maximum(b, 1e-3)) for name, (a, b) in found.items()}

    def natural(self, gammas: Gammas) -> tuple[np.ndarray, np.ndarray]:
        """Return precision times mean, (d,), and precision, (d, d), at the Gammas' expectations."""
        rules = _gamma_rules(gammas)
        units = np.vstack([np.zeros(self.d), np.eye(self.d)])

        def slopes(point: Point) -> tuple[np.ndarray, np.ndarray]:
            start, *moved = self.slope(point, units)
            return start, start - np.stack(moved)

        start, precision = average(slopes, list(rules.values()))
        return start, (precision + precision.T) / 2

    def rule(self, mean: np.ndarray, covariance: np.ndarray) -> Rule:
        """Points of v with this mean and covariance."""
        return [self.point(point["v"]) for point in rule_of_normal("v", mean, covariance)]

    def message(self, name: str, gammas: Gammas, normal: Rule) -> Natural:
        """Return what the prior says about one Gamma block, given points of v."""
        rules = _gamma_rules(gammas) | {name: [{name: GAMMA.reference(gammas[name])}]}
        return self.gammas[name].average([*rules.values(), normal])


def expected_precision(name: str | None, gammas: Gammas) -> float:
    """Expectation of a noise precision that is one number; 1 where it is known."""
    return 1.0 if name is None else float(GAMMA.reference(gammas[name]).item())


def _gamma_rules(gammas: Mapping[str, Natural]) -> dict[str, Rule]:
    return {name: rule_of(name, GAMMA, eta) for name, eta in gammas.items()}


def gaussian_prior(records: Records, apart: Iterable[str] = ()) -> GaussianPrior:
    """Compile the prior's messages, and prove at made-up points that it is conjugate.

    Latents in ``apart`` are left out; nothing else in the prior may depend on them.

    Raises
    ------
    NotConjugateError
        With the block that is not.
    """
    names = gaussian_latents(records)
    families = families_of(records, apart=[*names, *apart])
    for name, family in families.items():
        if family is not GAMMA:
            raise NotConjugateError(f"`{name}` is no precision of the Gaussian latents")
    flat = [g.ravel() for g in grad(records.prior, [records.latents[name] for name in names])]
    slopes, needs = at_points(records, [concatenate(flat)])
    for name in apart:
        if name in needs:
            raise NotConjugateError(f"the prior of the Gaussian latents depends on `{name}`")
    shapes = {name: records.point[name].shape for name in names}
    gamma_shapes = {name: records.point[name].shape for name in families}
    messages = prior_messages(records, families)
    prior = GaussianPrior(shapes, lambda point, v: v, messages, gamma_shapes)

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
    u, v, nothing = rng.normal(size=prior.d), rng.normal(size=prior.d), np.zeros(prior.d)
    at = [prior.slope(first, x) - prior.slope(first, nothing) for x in (u, v, u + v)]
    if not agree(at[2], at[0] + at[1]):
        names = ", ".join(f"`{name}`" for name in prior.shapes)
        raise NotConjugateError(f"the joint prior of {names} is not Gaussian")
    for name, message in prior.gammas.items():
        points = [first | prior.point(u), first | prior.point(u) | {name: second[name]}]
        if not all(map(agree, message(points[0]), message(points[1]))):
            raise NotConjugateError(f"the prior is not conjugate to `{name}`")
