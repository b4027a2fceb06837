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

from benchmarks.truth.laplace import approximate, draw_along
from benchmarks.truth.problem import Arrays, DataSet, Problem, Truth
from pymc_dp.compiling.compile import function
from pymc_dp.contributions.gradients import on_batch
from pymc_dp.driver.result import transform_draws
from pymc_dp.errors import PrivacyWarning
from pymc_dp.model import Records, separate
from pymc_dp.model.modes import without_c

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
    model = (problem.regular or problem.model)(example.data)
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
