"""A prior under which Gaussian latents are independent, given the precisions behind them."""

import numpy as np

from pymc_dp.methods.blocks.expectation import Point, average, rule_of
from pymc_dp.methods.blocks.exponential import GAMMA
from pymc_dp.methods.blocks.gaussian_prior import Gammas, GaussianPrior
from pymc_dp.methods.blocks.made_up import agree
from pymc_dp.methods.refusal import NotConjugateError


def check_independent(prior: GaussianPrior) -> None:
    """Prove independence at made-up points.

    Raises
    ------
    NotConjugateError
        The prior's precision is not a diagonal matrix.
    """
    rng = np.random.default_rng(0)
    point = {name: rng.uniform(0.5, 2.0, shape) for name, shape in prior.gamma_shapes.items()}
    nothing, v = np.zeros(prior.d), rng.normal(size=prior.d)
    start = prior.slope(point, nothing)
    precision = start - prior.slope(point, nothing + 1)
    if not agree(prior.slope(point, v), start - precision * v):
        names = ", ".join(f"`{name}`" for name in prior.shapes)
        raise NotConjugateError(f"the priors of {names} are not independent")


def natural(prior: GaussianPrior, gammas: Gammas) -> tuple[np.ndarray, np.ndarray]:
    """Return precision times mean, and precision, (d,) each, at the Gammas' expectations."""
    ends = np.stack([np.zeros(prior.d), np.ones(prior.d)])

    def slopes(point: Point) -> tuple[np.ndarray, np.ndarray]:
        start, moved = prior.slope(point, ends)
        return start, start - moved

    linear, precision = average(slopes, [rule_of(n, GAMMA, eta) for n, eta in gammas.items()])
    return linear, precision
