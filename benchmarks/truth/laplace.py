"""Normal approximations of a density, from its value and gradient alone."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import softmax

# point -> minus log density, and its gradient
Loss = Callable[[np.ndarray], tuple[float, np.ndarray]]

# of the differences of gradients, in units of a coordinate or of one
STEP = 1e-5
# least curvature, as a share of the largest: where the search starts, and at the mode
UNSURE, FLOOR = 1e-4, 1e-9
SEARCH = {"gtol": 1e-3}
# a grid over a logarithm: wide first, then fine where the first one leaves more than this
WIDE, FINE_POINTS, NEGLIGIBLE = np.arange(-5.0, 2.1, 0.5), 15, -12.0


class Normal(NamedTuple):
    """A normal approximation of a density that is not normalised."""

    mode: np.ndarray
    curvature: np.ndarray
    log_mass: float  # log of the integral, up to a constant

    @property
    def steps(self) -> np.ndarray:
        """A square root of the covariance."""
        root = np.linalg.cholesky(self.curvature)
        return solve_triangular(root, np.eye(len(root)), lower=True).T

    def draw(self, number: int, rng: np.random.Generator) -> np.ndarray:
        """Return points, shape (number, size)."""
        return self.mode + rng.normal(size=(number, len(self.mode))) @ self.steps.T


def approximate(loss: Loss, start: np.ndarray, steps: np.ndarray | None = None) -> Normal:
    """Approximate a density at its mode, by quasi-Newton steps and differences of gradients.

    ``steps`` is a square root of a covariance near that at the start.
    """
    if steps is None:
        values, vectors, scale = _directions(_second_derivatives(loss, start))
        size = np.sqrt(np.maximum(abs(values), UNSURE * abs(values).max()))
        steps = vectors / size / scale[:, None]

    def whitened(u: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = loss(start + steps @ u)
        return value, gradient @ steps

    with np.errstate(all="ignore"):
        # the search may stop for lack of precision: it does so at the mode
        end = minimize(whitened, np.zeros(len(start)), jac=True, method="BFGS", options=SEARCH)
    mode = start + steps @ end.x
    values, vectors, scale = _directions(_second_derivatives(loss, mode))
    values = np.maximum(values, FLOOR * values.max())
    log_root = np.log(values).sum() / 2 + np.log(scale).sum()
    curvature = (vectors * values) @ vectors.T * np.outer(scale, scale)
    return Normal(mode, curvature, float(-end.fun - log_root))


def draw_along(
    loss: Loss, start: np.ndarray, j: int, number: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw coordinate j from a grid, and the others from their normal approximation given it.

    For the logarithm of the spread of groups, in which a density is skewed and may have no mode.
    """
    wide = _along(loss, start, j, WIDE)
    near = [t for t, found in zip(WIDE, wide, strict=True) if _log_share(found, wide) > NEGLIGIBLE]
    gap = WIDE[1] - WIDE[0]
    grid = np.linspace(near[0] - gap / 2, near[-1] + gap / 2, FINE_POINTS)
    first = wide[int(np.argmin(abs(WIDE - grid[0])))]
    fine = _along(loss, np.insert(first.mode, j, grid[0]), j, grid)
    shares = softmax([found.log_mass for found in fine])
    chosen = rng.choice(len(grid), number, p=shares)
    within = grid[chosen] + rng.uniform(-0.5, 0.5, number) * (grid[1] - grid[0])
    others = np.empty((number, len(start) - 1))
    for k in np.unique(chosen):
        others[chosen == k] = fine[k].draw(np.sum(chosen == k), rng)
    return np.insert(others, j, within, axis=1)


def _along(loss: Loss, start: np.ndarray, j: int, grid: np.ndarray) -> list[Normal]:
    """Approximate the other coordinates at each point of a grid, from the end of the one before."""
    found: list[Normal] = []
    rest = np.delete(start, j)
    for t in grid:

        def given(z: np.ndarray, t: float = t) -> tuple[float, np.ndarray]:
            value, gradient = loss(np.insert(z, j, t))
            return value, np.delete(gradient, j)

        steps = found[-1].steps if found else None
        found.append(approximate(given, rest, steps))
        rest = found[-1].mode
    return found


def _log_share(one: Normal, all_of_them: list[Normal]) -> float:
    return one.log_mass - max(found.log_mass for found in all_of_them)


def _second_derivatives(loss: Loss, z: np.ndarray) -> np.ndarray:
    """Take central differences of gradients."""
    columns = []
    for j, step in enumerate(STEP * np.maximum(1.0, abs(z))):
        moved = np.zeros(len(z))
        moved[j] = step
        columns.append((loss(z + moved)[1] - loss(z - moved)[1]) / (2 * step))
    return (np.array(columns) + np.array(columns).T) / 2


def _directions(curvature: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return eigenvalues and eigenvectors in coordinates of equal curvature, and their scales."""
    scale = np.sqrt(np.maximum(abs(np.diag(curvature)), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(curvature / np.outer(scale, scale))
    return values, vectors, scale
