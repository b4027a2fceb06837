"""Latents that the priors of others read, and no record: means and spreads of groups.

Records tell of them through the others alone. Rounds release scores of those that records read,
under a normal prior of the same moments. The posterior of all is then drawn with the prior as it
is written, and with what the releases say of the likelihood: a normal distribution around the joint
mode would make spreads too small.
"""

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors

from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.hamiltonian import LogDensity, draw_by_hamiltonian
from pymc_dp.methods.gaussian.noise_floor import Spectrum
from pymc_dp.methods.method import Draws
from pymc_dp.model import Records
from pymc_dp.model.centred import Centred, centred
from pymc_dp.model.compile import function
from pymc_dp.model.graph_types import AnyVariable, pt
from pymc_dp.model.priors import draw_of_prior


class NormalLikelihood(NamedTuple):
    """The likelihood exp(h'x - x' Lambda x / 2)."""

    linear: np.ndarray  # h, (d,)
    precision: np.ndarray  # Lambda, (d, d)


@dataclass(frozen=True, eq=False)
class NormalPrior:
    """A normal distribution with the moments of a prior."""

    mean: np.ndarray  # (d,)
    precision: np.ndarray  # (d, d)

    @classmethod
    def of(cls, draws: np.ndarray) -> Self:
        """Take the moments of draws, (n, d), without what lies far out in heavy tails.

        >>> draws = np.random.default_rng(0).normal(3, 0.5, (1000, 1))
        >>> NormalPrior.of(draws).gradient(np.full(1, 4.0)).round()
        array([-4.])
        """
        near = _without_tails(draws)
        sd = np.clip(near.std(axis=0), *DEFAULTS.prior_sd)
        white = (near - near.mean(axis=0)) / sd
        correlations = Spectrum.of(white.T @ white / len(white))
        inverse = correlations.replaced(1 / np.maximum(correlations.values, DEFAULTS.least_share))
        return cls(near.mean(axis=0), inverse / np.outer(sd, sd))

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient of the log density at a point, (d,)."""
        return np.asarray(self.precision @ (self.mean - x))


def _without_tails(draws: np.ndarray) -> np.ndarray:
    """Cut draws, (n, d), off so many median deviations from the middle."""
    middle = np.median(draws, axis=0)
    deviation = np.clip(np.median(abs(draws - middle), axis=0), *DEFAULTS.prior_sd)
    near = np.clip(draws, middle - DEFAULTS.tail * deviation, middle + DEFAULTS.tail * deviation)
    return np.asarray(near)


class Mixing(NamedTuple):
    """How well the chains moved that drew a posterior."""

    stuck: float  # the share of chains that hardly moved
    unmixed: tuple[str, ...]  # coordinates that kept the places where they began


@dataclass(frozen=True, eq=False)
class Hyperpriors:
    """A model some of whose latents are read by no record."""

    model: Centred
    written: tuple[str, ...]  # names of the latents as the model has them
    reduced: Records  # the model's, with the latents that records read alone
    places: np.ndarray  # of their coordinates among all, (d,)
    prior_draws: np.ndarray  # of all latents, (n, size)
    # by the mode of the posterior that the chains drew: runs of a private search share this object,
    # and nothing of one may enter another's result
    mixing: dict[bytes, Mixing] = field(default_factory=dict)

    @property
    def records(self) -> Records:
        """The model with groups for latents."""
        return self.model.records

    @cached_property
    def prior(self) -> NormalPrior:
        """The normal prior of what records read."""
        return NormalPrior.of(self.prior_draws[:, self.places])

    @cached_property
    def log_prior(self) -> LogDensity:
        """The log prior of all latents, and its gradient."""
        return _log_prior(self.records)

    def draw(
        self, likelihood: NormalLikelihood, draws: int, rng: np.random.Generator
    ) -> tuple[Draws, Mixing]:
        """Draw the posterior of all latents, given the likelihood of those that records read.

        Return also how well the chains moved.
        """
        h, Lambda = likelihood

        def log_posterior(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            value, slope = self.log_prior(z)
            x, gradient = z[:, self.places], slope.copy()
            gradient[:, self.places] += h - x @ Lambda
            return value + x @ h - (x @ Lambda * x).sum(axis=1) / 2, gradient

        z, stuck, unmixed = draw_by_hamiltonian(
            log_posterior, self._start(likelihood, rng), draws, rng
        )
        found = dict(zip(self.records.point, self.records.split(z), strict=True))
        labels = np.array(self.records.labels)[unmixed]
        drawn = dict(zip(self.written, self.model.as_written(found), strict=True))
        return drawn, Mixing(stuck, tuple(map(str, labels)))

    def _start(self, likelihood: NormalLikelihood, rng: np.random.Generator) -> np.ndarray:
        """Draw as if the prior of what records read were normal.

        Those of the highest prior density come last: there the others agree with what is read.
        """
        h, Lambda = likelihood
        covariance = np.linalg.inv(Lambda + self.prior.precision)
        mean = covariance @ (h + self.prior.precision @ self.prior.mean)
        z = _without_tails(self.prior_draws)
        z[:, self.places] = rng.multivariate_normal(mean, covariance, len(z), check_valid="ignore")
        with np.errstate(all="ignore"):
            density, _ = self.log_prior(z)
        return np.asarray(z[np.argsort(np.where(np.isnan(density), -np.inf, density))])


def hyperpriors(written: Records) -> Hyperpriors | None:
    """Return the model's latents, apart; None if records read all, or nothing draws the prior."""
    if not written.prior_draws:
        return None
    model = centred(written)
    records = model.records
    terms = set(ancestors(records.batch.terms))
    names = [name for name, value in records.latents.items() if value in terms]
    if not names or len(names) == len(records.latents):
        return None
    drawn = _draw_all(records.prior_draws, DEFAULTS.prior_draws + 4 * records.size)
    if drawn is None:
        return None
    every = dict(zip(records.point, records.split(np.arange(records.size)), strict=True))
    places = np.concatenate([every[name].ravel() for name in names])
    reduced = records._replace(
        latents={name: records.latents[name] for name in names},
        point={name: records.point[name] for name in names},
    )
    return Hyperpriors(model, tuple(written.latents), reduced, places, drawn)


@lru_cache(maxsize=4)  # all methods of a model that `explain` tries ask for the same
def _draw_all(latents: tuple[AnyVariable, ...], number: int) -> np.ndarray | None:
    """Draw latents from their prior, shape (number, size); None where nothing draws it."""
    try:
        drawn = draw_of_prior(latents, number)
    except (NotImplementedError, ValueError, ArithmeticError):
        return None  # a flat prior, or parameters that are 0 by rounding
    flat = np.concatenate([x.reshape(number, -1) for x in drawn], axis=1).astype("float64")
    finite = np.isfinite(flat).all(axis=1)
    return flat[finite] if finite.mean() > 0.5 else None


def _log_prior(records: Records) -> LogDensity:
    """Compile the log prior of points, (n, size), and its gradient."""
    z = pt.matrix("z", shape=(None, records.size), dtype="float64")
    places = records.split(np.arange(records.size))
    points: dict[AnyVariable, AnyVariable] = {
        value: z[:, place.ravel()].reshape((-1, *place.shape)).astype(value.type.dtype)
        for value, place in zip(records.latents.values(), places, strict=True)
    }
    values: Any = vectorize_graph(records.prior, points)
    compiled: LogDensity = function([z], [values, pt.grad(values.sum(), z)], "python")
    return compiled
