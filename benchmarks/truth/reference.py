"""The posterior without privacy: a normal approximation at the mode of the unconstrained latents.

Widths and errors are compared with it. The search starts at the truth, so that it ends at the mode
that belongs to it.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import softmax

from benchmarks.truth.problem import Arrays, DataSet, Problem, Truth
from pymc_dp.contributions.gradients import on_batch
from pymc_dp.driver.result import transform_draws
from pymc_dp.errors import PrivacyWarning
from pymc_dp.model import Records, separate
from pymc_dp.model.compilation import function, without_c

# --- normal approximations of a density, from its value and gradient alone -----------------------

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
    """Approximate a density at its mode, by quasi-Newton steps and differences of gradients."""
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
    """Draw coordinate j from a grid, and the others from their normal approximation given it."""
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


# --- the posterior without privacy: a normal approximation at the mode of the unconstrained latent

DRAWS = 2000


class Posterior(NamedTuple):
    """The compiled log density of one problem's model, for any data set of it."""

    records: Records
    # truth -> point in the unconstrained space
    locate: Callable[[Truth], np.ndarray]
    # (data, point) -> minus log density, and its gradient
    loss: Callable[[Arrays, np.ndarray], tuple[float, np.ndarray]]


def posterior(problem: Problem, example: DataSet) -> Posterior:
    """Compile a problem's log density."""
    model = problem.regular_model(example.data)
    with quietly():
        records, _ = separate(model)
        found = Posterior(records, _locator(model), _loss(records, problem.backend))
        found.loss(on_records(found, example), found.locate(example.truth))  # JAX compiles here
    return found


@contextmanager
def quietly() -> Iterator[None]:
    """Leave out warnings about scales, and about checks of shapes that JAX leaves out."""
    with warnings.catch_warnings(), without_c():
        warnings.simplefilter("ignore", PrivacyWarning)
        warnings.filterwarnings("ignore", "Skipping Assert", UserWarning)
        yield


def on_records(found: Posterior, data_set: DataSet) -> Arrays:
    """Cast a data set to the types that the compiled density takes."""
    types = {name: x.type.dtype for name, x in found.records.batch.inputs.items()}
    return {name: np.asarray(data_set.data[name], dtype) for name, dtype in types.items()}


def draws_of(
    problem: Problem, found: Posterior, data_set: DataSet, rng: np.random.Generator
) -> Truth:
    """Draw the approximate posterior; shape (draws, ...) of every variable of the model."""
    batch, start = on_records(found, data_set), found.locate(data_set.truth)
    loss, number = partial(found.loss, batch), max(DRAWS, problem.draws)
    if problem.spread:
        j = found.records.labels.index(problem.spread)
        z = draw_along(loss, start, j, number, rng)
    else:
        z = approximate(loss, start).draw(number, rng)
    latents = dict(zip(found.records.latents, found.records.split(z), strict=True))
    return transform_draws(found.records, latents)


def _loss(
    records: Records, backend: str
) -> Callable[[Arrays, np.ndarray], tuple[float, np.ndarray]]:
    latents = list(records.latents.values())
    value = -(records.prior + records.batch.log_likelihood().sum())
    slopes = pt.grad(value, latents, disconnected_inputs="ignore")
    gradient = pt.concatenate([slope.ravel() for slope in slopes])
    compiled = on_batch(records, [], [value, gradient], backend)

    def loss(batch: Arrays, z: np.ndarray) -> tuple[float, np.ndarray]:
        found, slope = compiled(batch, z)
        return float(found), np.asarray(slope)

    return loss


def _locator(model) -> Callable[[Truth], np.ndarray]:
    """Compile the way from latents to their unconstrained values."""
    latents = model.free_RVs
    inputs = [rv.type() for rv in latents]
    outputs = []
    for rv, value in zip(latents, inputs, strict=True):
        transform = model.rvs_to_transforms[rv]
        outputs.append(value if transform is None else transform.forward(value, *rv.owner.inputs))
    fn = function(inputs, [x.ravel() for x in outputs], "python")

    def locate(truth: Truth) -> np.ndarray:
        return np.concatenate(fn(*[np.asarray(truth[rv.name], rv.dtype) for rv in latents]))

    return locate
