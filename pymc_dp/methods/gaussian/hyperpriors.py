"""Latents that the priors of others read, and no record: means and spreads of groups.

Records tell of them through the others alone. Rounds release scores of those that records read,
under a normal prior that is wider than theirs, and has none of the model's potentials. The
posterior of all is then drawn with the prior as it is written, and with what the releases say of
the likelihood: a normal distribution around the joint mode would make spreads too small.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import pymc as pm
from pymc.distributions.continuous import FlatRV
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_dp.methods.gaussian.centred import Centred, centred
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.hamiltonian import Chains, LogDensity, draw_by_hamiltonian
from pymc_dp.methods.gaussian.integrated import Integrated, NormalLikelihood
from pymc_dp.methods.gaussian.noise_floor import Spectrum, draws_without_noise
from pymc_dp.methods.gaussian.normal_latents import integrated
from pymc_dp.methods.method import Both, Draws
from pymc_dp.methods.prior import finite_draws
from pymc_dp.model import Records
from pymc_dp.model.graphs import AnyVariable


@dataclass(frozen=True, eq=False)
class NormalPrior:
    """A normal distribution with the mean and the correlations of a prior, and twice its sds."""

    mean: np.ndarray  # (d,)
    precision: np.ndarray  # (d, d)

    @classmethod
    def of(cls, draws: np.ndarray) -> Self:
        """Take the moments of draws, (n, d), without what lies far out in heavy tails.

        >>> draws = np.random.default_rng(0).normal(3, 0.5, (1000, 1))
        >>> NormalPrior.of(draws).gradient(np.full(1, 4.0)).round()
        array([-1.])
        """
        near = _without_tails(draws)
        sd = _not_extreme(near.std(axis=0))
        white = (near - near.mean(axis=0)) / sd
        correlations = Spectrum.of(white.T @ white / len(white))
        inverse = correlations.replaced(1 / np.maximum(correlations.values, DEFAULTS.least_share))
        return cls(near.mean(axis=0), inverse / np.outer(sd, sd) / DEFAULTS.start_width)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient of the log density at a point, (d,)."""
        return np.asarray(self.precision @ (self.mean - x))

    def regression(self, draws: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return slopes, (d, k), of ``others``, (n, k), on the draws that this is the prior of.

        >>> draws = np.random.default_rng(0).normal(size=(1000, 1))
        >>> NormalPrior.of(draws).regression(draws, 2 * draws).round(6)
        array([[2.]])
        """
        together = (draws - self.mean).T @ (others - others.mean(axis=0)) / len(draws)
        return np.asarray(DEFAULTS.start_width * self.precision @ together)


def _without_tails(draws: np.ndarray) -> np.ndarray:
    """Cut draws, (n, d), off so many median deviations from the middle."""
    middle = np.median(draws, axis=0)
    deviation = _not_extreme(np.median(abs(draws - middle), axis=0))
    near = np.clip(draws, middle - DEFAULTS.tail * deviation, middle + DEFAULTS.tail * deviation)
    return np.asarray(near)


def _not_extreme(sd: np.ndarray) -> np.ndarray:
    least = DEFAULTS.least_prior_precision
    return np.asarray(np.clip(sd, least, 1 / least))


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
    def integrated(self) -> Integrated:
        """The log prior, with latents that are normal given the others integrated out."""
        return integrated(self.records, _without_tails(self.prior_draws))

    def draw(
        self, likelihood: NormalLikelihood, lost: np.ndarray, draws: int, rng: np.random.Generator
    ) -> tuple[Both, Mixing]:
        """Draw the posterior of all latents, given the likelihood of those that records read.

        ``lost``, (d, d), is what noise takes of its precision. Return also how well the chains
        moved.
        """
        apart, of_all = self.integrated, likelihood.among(self.places, self.records.size)
        density = apart.log_density(of_all)
        start = (each[:, apart.theta] for each in self._starts(likelihood, rng))
        chains = draw_by_hamiltonian(density, _likelier(density, *start), draws, rng)
        z = np.empty((draws, self.records.size))
        z[:, apart.theta] = chains.points
        z[:, apart.u] = apart.conditional(chains.points, of_all).draw(rng)
        labels = np.array(self.records.labels)[apart.theta[chains.unmixed]]
        mixing = Mixing(chains.stuck, tuple(map(str, labels)))
        narrow = self._without_noise(z, lost)
        return (self._as_written(z), None if narrow is None else self._as_written(narrow)), mixing

    def _as_written(self, z: np.ndarray) -> Draws:
        found = dict(zip(self.records.point, self.records.split(z), strict=True))
        return dict(zip(self.written, self.model.as_written(found), strict=True))

    def _without_noise(self, z: np.ndarray, lost: np.ndarray) -> np.ndarray | None:
        """Move all latents, (n, D), by their regression on what records read, which shrinks."""
        read = z[:, self.places]
        narrow = draws_without_noise(read, lost)
        if narrow is None:
            return None
        moved = z + (narrow - read) @ np.linalg.lstsq(read - read.mean(axis=0), z, rcond=None)[0]
        moved[:, self.places] = narrow
        return np.asarray(moved)

    def _starts(
        self, likelihood: NormalLikelihood, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return two sets of points where chains may begin, (n, D) each.

        What records read is drawn from a normal posterior. The other latents are draws of the prior
        in the first set. In the second these are moved by their regression on what records read
        (Matheron's rule), as is exact where the prior is normal.
        """
        h, Lambda = likelihood
        covariance = np.linalg.inv(Lambda + self.prior.precision)
        mean = covariance @ (h + self.prior.precision @ self.prior.mean)
        z = _without_tails(self.prior_draws)
        drawn = rng.multivariate_normal(mean, covariance, len(z), check_valid="ignore")
        read = z[:, self.places]
        moved = z + (drawn - read) @ self.prior.regression(read, z)
        z[:, self.places] = moved[:, self.places] = drawn
        return z, moved


def _likelier(density: LogDensity, points: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the likelier point of each pair, (n, d), the likeliest last."""
    with np.errstate(all="ignore"):
        values, of_others = (Chains.at(density, each).log_density for each in (points, others))
    likelier = np.where((of_others > values)[:, None], others, points)
    return np.asarray(likelier[np.argsort(np.maximum(values, of_others))])


def _with_wide(records: Records) -> tuple[AnyVariable, ...]:
    """Draw a flat prior from a normal one, as wide as those without an end are taken to be."""
    sd = DEFAULTS.least_prior_precision**-0.5
    wide: dict[AnyVariable, AnyVariable] = {
        drawn: pm.Normal.dist(0.0, sd, shape=records.point[name].shape)
        for name, drawn in zip(records.latents, records.prior_draws, strict=True)
        if issubclass(records.distributions[name], FlatRV)
    }
    if not wide:  # draws of the same variables are kept
        return records.prior_draws
    return tuple(clone_replace(records.prior_draws, wide, rebuild_strict=False))


def hyperpriors(written: Records) -> Hyperpriors | None:
    """Return the model's latents, apart; None if records read all, or nothing draws the prior."""
    if not written.prior_draws:
        return None
    draws = _with_wide(written)
    model = centred(written._replace(prior_draws=draws))
    records = model.records
    terms = set(ancestors(records.batch.terms))
    names = [name for name, value in records.latents.items() if value in terms]
    if not names or len(names) == len(records.latents):
        return None
    number = DEFAULTS.prior_draws + 4 * records.size
    drawn = finite_draws(records.prior_draws, number)
    # what reads a flat prior may be beyond any number, such as its exponential
    is_flat = draws is not written.prior_draws
    if drawn is None or len(drawn) <= (number - 1 if is_flat else number / 2):
        return None
    every = dict(zip(records.point, records.split(np.arange(records.size)), strict=True))
    places = np.concatenate([every[name].ravel() for name in names])
    reduced = records._replace(
        latents={name: records.latents[name] for name in names},
        point={name: records.point[name] for name in names},
    )
    return Hyperpriors(model, tuple(written.latents), reduced, places, drawn)
