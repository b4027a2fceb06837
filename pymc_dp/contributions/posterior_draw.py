"""One draw from a tempered posterior, as something that the wall can hand out."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import grad

from pymc_dp.contributions.contribution import Batch
from pymc_dp.contributions.gradients import checked, on_batch
from pymc_dp.records import Records


class PosteriorDraw(NamedTuple):
    """What draws from a posterior given a batch of records; it holds none.

    Attributes
    ----------
    size : int
        The number of unconstrained coordinates.
    width : int
        How many numbers it holds for a row beside the row itself.
    log_likelihoods : (batch, z (size,)) -> (rows,)
        Each record's log likelihood; nan where the record must not contribute.
    density : (batch, z, bound, temperature) -> (value, gradient (size,))
        Log prior plus the records' log likelihoods, each clipped to ``[-bound, bound]``, over
        the temperature.
    transitions : int
        Steps of the sampler behind a draw; it adapts in the first half.
    """

    size: int
    width: int
    log_likelihoods: Callable[[Batch, np.ndarray], np.ndarray]
    density: Callable[[Batch, np.ndarray, float, float], tuple[np.ndarray, np.ndarray]]
    transitions: int

    def rehearse(self, batch: Batch, z: np.ndarray) -> np.ndarray:
        """Run every function once, and return a vector like those that a release hands out."""
        self.log_likelihoods(batch, z)
        self.density(batch, z, 1.0, 1.0)
        return z

    def draw(
        self,
        batch: Batch,
        start: np.ndarray,
        bound: float,
        temperature: float,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Run PyMC's sampler on the density and return where it ends; shape (size,)."""
        target = _Target(lambda z: self.density(batch, z, bound, temperature))
        with pm.Model() as model:
            pm.Flat("z", shape=self.size)
        point = {"z": start}
        step = pm.NUTS(model=model, logp_dlogp_func=target, initial_point=point, rng=rng)
        for i in range(self.transitions):
            if i == self.transitions // 2:
                step.stop_tuning()
            point, _ = step.step(point)
        return point["z"]


class _Target:
    """A density in the form in which PyMC's samplers read one."""

    _raveled_inputs = True
    dtype = "float64"

    def __init__(self, density: Callable) -> None:
        self._pytensor_function = density
        self._extra_vars_shared: dict = {}


def posterior_draw(records: Records, backend: str, transitions: int) -> PosteriorDraw:
    """Compile the tempered density of a model's records.

    A gradient that is not a number is taken as 0: the sampler's steps may follow any field, its
    decisions read the density alone.
    """
    latents = list(records.latents.values())
    each = checked(records, records.batch.log_likelihood())
    bound, temperature = pt.dscalar("bound"), pt.dscalar("temperature")
    clipped = pt.switch(pt.isnan(each), 0.0, pt.clip(each, -bound, bound))
    value = (records.prior + clipped.sum() / temperature).astype("float64")
    parts = grad(value, latents, disconnected_inputs="ignore")
    slope = pt.concatenate([part.ravel() for part in parts]).astype("float64")
    slope = pt.switch(pt.isnan(slope), 0.0, slope)
    look = on_batch(records, [], each, backend)
    evaluate = on_batch(records, [bound, temperature], [value, slope], backend)

    def density(batch: Batch, z: np.ndarray, bound: float, temperature: float):
        return evaluate(batch, z, np.asarray(bound), np.asarray(temperature))

    return PosteriorDraw(records.size, records.size, look, density, transitions)
