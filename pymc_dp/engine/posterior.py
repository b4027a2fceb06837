"""The posterior of rounds: the prior as written times what all rounds say of the likelihood.

Rounds release scores of the latents that records read, under a normal prior. Where the author's is
normal, and records read all of it, that is the one. Elsewhere it has the moments of draws of the
prior, and is wider. The posterior is then drawn anew, with latents that no record reads, such as
spreads of groups. Latents that are normal given the others are integrated out (`conditional`); the
others are drawn by importance sampling if they are few, else by Markov chains (`sampler`).
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import pymc as pm
from pymc.distributions.continuous import FlatRV
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_dp.contributions.channels import coordinates_of
from pymc_dp.engine.centred import Centred, centred
from pymc_dp.engine.conditional import Integrated, NormalLikelihood, integrated
from pymc_dp.engine.constants import CONSTANTS
from pymc_dp.engine.sampler import Chains, LogDensity, draw_by_hamiltonian, draw_by_importance
from pymc_dp.methods.method import Both, Draws
from pymc_dp.methods.normal import draws_without_noise, with_eigenvalues
from pymc_dp.methods.prior import Gradient, finite_draws, prior_gradient, prior_precision
from pymc_dp.model import Records
from pymc_dp.model.graphs import AnyVariable

# draws are cut off so many median deviations from the middle; the least eigenvalue of their
# correlations; and the least share of draws that have to be finite
TAIL, LEAST_SHARE, MOST_LOST = 8.0, 1e-6, 0.5
# a gradient counts as linear up to this share of it
LINEAR = 1e-6


class NormalPrior(NamedTuple):
    """A normal prior of the latents that records read."""

    mean: np.ndarray  # (d,)
    precision: np.ndarray  # (d, d)

    @classmethod
    def of(cls, draws: np.ndarray) -> Self:
        """Take mean and correlations of draws, (n, d), without heavy tails; sds are wider."""
        near = without_tails(draws)
        sd = _not_extreme(near.std(axis=0))
        white = (near - near.mean(axis=0)) / sd
        correlations = white.T @ white / len(white)
        inverse = with_eigenvalues(correlations, lambda x: 1 / np.maximum(x, LEAST_SHARE))
        return cls(near.mean(axis=0), inverse / np.outer(sd, sd) / CONSTANTS.prior_width)


def without_tails(draws: np.ndarray) -> np.ndarray:
    """Cut draws, (n, d), off so many median deviations from the middle."""
    middle = np.median(draws, axis=0)
    deviation = _not_extreme(np.median(abs(draws - middle), axis=0))
    return np.asarray(np.clip(draws, middle - TAIL * deviation, middle + TAIL * deviation))


def _not_extreme(sd: np.ndarray) -> np.ndarray:
    widest = CONSTANTS.flat_precision**-0.5
    return np.asarray(np.clip(sd, 1 / widest, widest))


class Mixing(NamedTuple):
    """How well the chains moved that drew a posterior."""

    stuck: float = 0.0  # the share of chains that hardly moved
    unmixed: tuple[str, ...] = ()  # coordinates that kept the places where they began


@dataclass(frozen=True, eq=False)
class PriorAsWritten:
    """A model whose posterior is drawn with its own prior."""

    model: Centred
    written: tuple[str, ...]  # names of the latents as the model has them
    reduced: Records  # the model's, with the latents that records read alone
    places: np.ndarray  # of their coordinates among all, (d,)
    prior_draws: np.ndarray  # of all latents, (n, size)
    # by the likelihood that the chains were given: runs of a private search share this object, and
    # nothing of one may enter another's result
    mixing: dict[bytes, Mixing] = field(default_factory=dict)

    @property
    def records(self) -> Records:
        """The model with groups for latents."""
        return self.model.records

    @cached_property
    def normal(self) -> NormalPrior:
        """The normal prior of what records read."""
        return NormalPrior.of(self.prior_draws[:, self.places])

    @cached_property
    def integrated(self) -> Integrated:
        """The log prior, with latents that are normal given the others integrated out."""
        return integrated(self.records, without_tails(self.prior_draws))

    def draw(
        self, likelihood: NormalLikelihood, lost: np.ndarray, draws: int, rng: np.random.Generator
    ) -> Both:
        """Draw the posterior of all latents, given the likelihood of those that records read.

        ``lost``, (d, d), is what noise takes of its precision.
        """
        own, of_all = self.integrated, likelihood.among(self.places, self.records.size)
        theta, mixing = self._theta(likelihood, draws, rng)
        self.mixing[likelihood.linear.tobytes()] = mixing
        z = np.empty((draws, self.records.size))
        z[:, own.theta], z[:, own.u] = theta, own.conditional(of_all)(theta).draw(rng)
        narrow = self._narrowed(z, lost)
        return self._as_written(z), None if narrow is None else self._as_written(narrow)

    def _theta(
        self, likelihood: NormalLikelihood, draws: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, Mixing]:
        """Draw what is not integrated out, (draws, D - k)."""
        places = self.integrated.theta
        if not places.size:
            return np.empty((draws, 0)), Mixing()
        density = self.integrated.log_density(likelihood.among(self.places, self.records.size))
        first, moved = (each[:, places] for each in self._starts(likelihood, rng))
        if places.size <= CONSTANTS.importance_latents:
            found = draw_by_importance(lambda x: density(x)[0], moved, draws, rng)
            if found is not None:
                return found, Mixing()
        chains = draw_by_hamiltonian(density, _likelier(density, first, moved), draws, rng)
        labels = np.array(self.records.labels)[places[chains.unmixed]]
        return chains.points, Mixing(chains.stuck, tuple(map(str, labels)))

    def _as_written(self, z: np.ndarray) -> Draws:
        found = dict(zip(self.records.point, self.records.split(z), strict=True))
        return dict(zip(self.written, self.model.as_written(found), strict=True))

    def _narrowed(self, z: np.ndarray, lost: np.ndarray) -> np.ndarray | None:
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

        What records read is drawn from a normal posterior, and others from the prior. In the second
        set these are moved by their regression on what records read (Matheron's rule).
        """
        (h, Lambda), prior = likelihood, self.normal
        covariance = np.linalg.inv(Lambda + prior.precision)
        mean = covariance @ (h + prior.precision @ prior.mean)
        z = without_tails(self.prior_draws)
        drawn = rng.multivariate_normal(mean, covariance, len(z), check_valid="ignore")
        read = z[:, self.places]
        together = (read - prior.mean).T @ (z - z.mean(axis=0)) / len(z)
        moved = z + (drawn - read) @ (CONSTANTS.prior_width * prior.precision @ together)
        z[:, self.places] = moved[:, self.places] = drawn
        return z, moved


def _likelier(density: LogDensity, points: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the likelier point of each pair, (n, d), the likeliest last."""
    with np.errstate(all="ignore"):
        values, of_others = (Chains.at(density, each).log_density for each in (points, others))
    likelier = np.where((of_others > values)[:, None], others, points)
    return np.asarray(likelier[np.argsort(np.maximum(values, of_others))])


def if_normal(slope: Gradient, start: np.ndarray) -> NormalPrior | None:
    """Return the prior of this gradient if it is normal and proper: its gradient is then linear.

    >>> if_normal(lambda z: 4 * (3 - z), np.zeros(1))
    NormalPrior(mean=array([3.]), precision=array([[4.]]))
    """
    rng = np.random.default_rng(0)
    try:
        with np.errstate(all="ignore"):
            precision, here = prior_precision(slope, start, 0.0).round(9), slope(start)
            unit = np.sqrt(np.maximum(np.diag(precision), 1e-9))
            for far in (1.0, 30.0):
                move = far * rng.normal(size=start.size) / unit
                change = slope(start + move) - here + precision @ move
                size = np.abs(precision) @ np.abs(move) + np.abs(here)
                if not (np.abs(change) <= LINEAR * np.maximum(size, 1e-9)).all():
                    return None
        return NormalPrior(start + np.linalg.solve(precision, here), precision)
    except np.linalg.LinAlgError:  # a flat prior has no precision
        return None


def prior_as_written(written: Records) -> PriorAsWritten:
    """Return the model's latents, with groups centred, and those that records read apart."""
    draws = _with_wide(written)
    model = centred(written._replace(prior_draws=draws))
    records = model.records
    terms = set(ancestors(records.batch.terms))
    names = [name for name, value in records.latents.items() if value in terms]
    places = np.flatnonzero(coordinates_of(records, terms))
    reduced = records._replace(
        latents={name: records.latents[name] for name in names},
        point={name: records.point[name] for name in names},
    )
    drawn = drawn_or_wide(records, places)
    return PriorAsWritten(model, tuple(written.latents), reduced, places, drawn)


def drawn_or_wide(records: Records, places: np.ndarray) -> np.ndarray:
    """Draw all latents, (n, size): from their prior, or as wide as its curvature at the start.

    Without draws latents that no record reads, which are not in ``places``, are near the start.
    """
    number = CONSTANTS.prior_draws + 4 * records.size
    drawn = finite_draws(records.prior_draws, number) if records.prior_draws else None
    if drawn is not None and len(drawn) > MOST_LOST * number:
        return drawn
    slope = prior_gradient(records, "python")
    precision = prior_precision(slope, records.start, CONSTANTS.flat_precision)
    sds = np.sqrt(np.diag(np.linalg.inv(precision)))
    sds = np.where(np.isin(np.arange(records.size), places), sds, np.minimum(sds, 1.0))
    normal = np.random.default_rng(0).normal(size=(number, records.size))
    return np.asarray(records.start + sds * normal)


def _with_wide(records: Records) -> tuple[AnyVariable, ...]:
    """Draw a flat prior from a normal one, as wide as those without an end are taken to be."""
    if not records.prior_draws:
        return ()
    sd = CONSTANTS.flat_precision**-0.5
    wide: dict[AnyVariable, AnyVariable] = {
        drawn: pm.Normal.dist(0.0, sd, shape=records.point[name].shape)
        for name, drawn in zip(records.latents, records.prior_draws, strict=True)
        if issubclass(records.distributions[name], FlatRV)
    }
    if not wide:  # draws of the same variables are kept
        return records.prior_draws
    return tuple(clone_replace(records.prior_draws, wide, rebuild_strict=False))
