"""One draw from a tempered posterior: the exponential mechanism, which ``dp_ops`` alone uses.

It is a `Mechanism` beside the wall's noisy sums, and has no proof of epsilon: a Markov chain is not
exact.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_dp.accounting.plan import Mechanism, Release
from pymc_dp.contributions.gradients import checked, on_batch
from pymc_dp.errors import ReleaseError
from pymc_dp.model import Records
from pymc_dp.model.graphs import pt
from pymc_dp.privacy.contribution import Batch, Noisy, Query
from pymc_dp.privacy.noise import NORM_MARGIN, SecretRandom
from pymc_dp.privacy.private_data import Partition

if TYPE_CHECKING:
    from dp_accounting import DpEvent

ValueAndGradient = tuple[np.ndarray, np.ndarray]
Density = Callable[[np.ndarray], ValueAndGradient]


def exact_draw(noise: float) -> float:
    """Epsilon of one exact draw from a posterior of clipped, tempered log likelihoods.

    **Privacy.** Private without delta (McSherry and Talwar 2007), as far as its draws are exact: a
    record moves density and normaliser by ``clip_norm / temperature`` each in log, and by twice
    that under replace-one.
    """
    return 2 / noise if noise else math.inf


def _draw_event(noise: float) -> "DpEvent":
    """Describe one release: no pure mechanism says more than randomised response."""
    import dp_accounting as dp

    share = 2 / (1 + math.exp(min(exact_draw(noise), 700.0)))
    return dp.RandomizedResponseDpEvent(share, 2)


def temperature_of(release: Release) -> float:
    """Return what a draw divides log likelihoods by; below 1 it would sharpen."""
    noise = release.noise_multiplier
    return max(1.0, noise * release.clip_norm) if noise else 1.0


BY_CHAIN = "draws by a Markov chain from a posterior of clipped, tempered log likelihoods"
EXPONENTIAL = Mechanism(
    "exponential",
    _draw_event,
    exact_draw,
    lambda release: {"mechanism": BY_CHAIN, "temperature": temperature_of(release)},
)


class PosteriorDraw(NamedTuple):
    """Draw from a posterior given a batch of records; no data are stored."""

    size: int  # the number of unconstrained coordinates
    # (batch, z (size,)) -> (rows,): each record's log likelihood; nan where the record must not
    # contribute
    log_likelihoods: Callable[[Batch, np.ndarray], np.ndarray]
    # (batch, z, bound, temperature) -> (value, gradient (size,)): log prior plus the records' log
    # likelihoods, each clipped to ``[-bound, bound]``, over the temperature
    density: Callable[[Batch, np.ndarray, float, float], ValueAndGradient]
    transitions: int  # steps of the sampler behind a draw; it adapts in the first half

    def rehearse(self, batch: Batch, z: np.ndarray) -> np.ndarray:
        """Run every function once, and return a vector of a release's shape."""
        self.log_likelihoods(batch, z)
        self.density(batch, z, 1.0, 1.0)
        return z

    def release(
        self, data: Partition, release: Release, query: Query, random: SecretRandom
    ) -> Noisy:
        """Draw once from the posterior of all good records at the release's temperature.

        **Privacy.** The exponential mechanism, as far as the draw is exact: a record moves the log
        density by at most ``clip_norm / temperature``, whatever its values. Nothing else of the
        chain is handed out.
        """
        if release.mechanism != EXPONENTIAL or data.units is not None:
            raise ReleaseError(f"The plan does not account {release.name!r} as a posterior draw.")
        bound = release.clip_norm * (1 - NORM_MARGIN)
        rng = np.random.default_rng(random.generator.integers(2**32, size=8))
        try:
            with np.errstate(all="ignore"):
                batch = data.take(np.arange(data.number))
                good = np.flatnonzero(~np.isnan(self.log_likelihoods(batch, query.context)))
                batch = data.take(good)
                heat = temperature_of(release)
                z = self._drawn(lambda z: self.density(batch, z, bound, heat), query.context, rng)
        except Exception as error:  # its text may quote data
            raise ReleaseError(f"The sampler failed with {type(error).__name__}.") from None
        if not np.isfinite(z).all():
            raise ReleaseError(f"Release {release.name!r} is not finite; nothing is handed out.")
        return Noisy(z, 0.0, 1.0)

    def _drawn(self, density: Density, start: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Run PyMC's sampler on the density and return where it ends; shape (size,)."""
        target = _Target(density)
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
    """A density with the attributes that PyMC's samplers expect of a compiled function."""

    _raveled_inputs = True
    dtype = "float64"

    def __init__(self, density: Density) -> None:
        self._pytensor_function = density
        self._extra_vars_shared: dict[str, Any] = {}


def posterior_draw(records: Records, backend: str, transitions: int) -> PosteriorDraw:
    """Compile the tempered density of a model's records."""
    latents = list(records.latents.values())
    each = checked(records, records.batch.log_likelihood())
    bound, temperature = pt.dscalar("bound"), pt.dscalar("temperature")
    clipped = pt.switch(pt.isnan(each), 0.0, pt.clip(each, -bound, bound))
    value = (records.prior + clipped.sum() / temperature).astype("float64")
    parts = pt.grad(value, latents, disconnected_inputs="ignore")
    slope = pt.concatenate([part.ravel() for part in parts]).astype("float64")
    # it only shapes the sampler's proposals: their acceptance depends on the density alone
    slope = pt.switch(pt.isnan(slope), 0.0, slope)
    log_likelihoods = on_batch(records, [], each, backend)
    evaluate = on_batch(records, [bound, temperature], [value, slope], backend)

    def density(batch: Batch, z: np.ndarray, bound: float, temperature: float) -> ValueAndGradient:
        value, slope = evaluate(batch, z, np.asarray(bound), np.asarray(temperature))
        return value, slope

    return PosteriorDraw(records.size, log_likelihoods, density, transitions)
