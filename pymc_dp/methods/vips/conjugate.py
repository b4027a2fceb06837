"""VIPS for conjugate models: release expected sufficient statistics, update in closed form."""

from functools import partial
from typing import NamedTuple

import numpy as np
from pytensor.graph.traversal import ancestors

from pymc_dp.methods.blocks.averaging import blend
from pymc_dp.methods.blocks.expectation import Message, in_turn, prior_messages
from pymc_dp.methods.blocks.exponential import BETA, DIRICHLET, NORMAL, ExponentialFamily, Natural
from pymc_dp.methods.blocks.made_up import made_up_rows
from pymc_dp.methods.blocks.noise_aware import Told, draw, floored
from pymc_dp.methods.blocks.shown import describe, mean_path
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.vips.conjugate_model import Statistics, Structure, told_by_records
from pymc_dp.methods.vips.expected_sums import (
    Asked,
    Posterior,
    contribution,
    rules_of,
    size_of,
    statistics_at,
)
from pymc_dp.methods.vips.settings import Settings
from pymc_dp.query import Noisy, Query
from pymc_dp.records import Records

RELEASES = 20
# without noise, more steps cost nothing
NOISELESS_RELEASES = 100
# a success or a category: the statistics of one record where blocks are probabilities
CLIP_NORM_OF_PROBABILITIES = 1.0
# a few statistics near 1 each
CLIP_NORM = 3.0
SMALLEST_UNIT = 1e-12
# how much surer than the prior the means of a mixture's components start, to be told apart
START_PRECISION = 10.0


class State(NamedTuple):
    """Where a fit stands: released values and what follows from them.

    ``says`` holds the likelihood's natural parameters, averaged over releases, and ``variances``
    those of the noise on each of them.
    """

    t: int
    says: Posterior
    variances: Posterior
    asked: Asked


class _Fit(NamedTuple):
    """What the updates of one fit share; public values and compiled graphs.

    ``told`` are the families of the blocks that releases are about.
    """

    records: Records
    families: dict[str, ExponentialFamily]
    told: dict[str, ExponentialFamily]
    prior: dict[str, Message]
    trial: Statistics
    settings: Settings

    def shape(self, name: str) -> tuple[int, ...]:
        return self.records.point[name].shape


def build(records: Records, structure: Structure, settings: Settings) -> Method:
    """Build VIPS for a conjugate model.

    Notes
    -----
    **Privacy.** Each release is one vector: the statistics of all blocks in the likelihood,
    clipped jointly. If nothing but the record enters them they are released once.
    """
    families, told = structure.families, told_by_records(records, structure)
    once = _depend_on_records_alone(records, structure)
    trial = Statistics(records, structure, "python")
    fit = _Fit(records, families, told, prior_messages(records, families), trial, settings)
    bounded = once and all(family in (BETA, DIRICHLET) for family in told.values())
    clip_norm = CLIP_NORM_OF_PROBABILITIES if bounded else CLIP_NORM
    count = RELEASES if settings.noise else NOISELESS_RELEASES
    return Method(
        size=size_of(records, told),
        releases=(settings.as_release(1 if once else count, clip_norm),),
        compile=lambda backend: Compiled(
            {"statistics": contribution(records, structure, backend)}, partial(_update, fit)
        ),
        init=partial(_init, fit, structure),
        query=lambda state, rng: Query("statistics", state.asked),
        posterior=lambda state, draws, rng: {
            name: family.sample(state.asked.posterior[name], draws, rng)
            for name, family in families.items()
        },
        noise_aware=partial(_noise_aware, fit),
        describe=lambda state: describe(records, families, state.asked.posterior, state.variances),
        trace=lambda state: mean_path(families, state.asked.posterior),
        settings={"form": "absolute"},
    )


def _depend_on_records_alone(records: Records, structure: Structure) -> bool:
    """Whether every block's statistics are functions of the record alone."""
    if structure.mixtures:
        return False
    for name, family in structure.families.items():
        x = records.latents[name]
        others = set(records.latents.values()) - {x}
        if others.intersection(ancestors(family.statistics(structure.completed, x))):
            return False
    return True


def _asked(fit: _Fit, posterior: Posterior) -> Asked:
    """Take the units of the next answer from a made-up record that belongs to all components."""
    batch = made_up_rows(fit.records, np.random.default_rng(0), [1])
    joint = fit.trial.responsibilities(batch, [*rules_of(fit.families, posterior).values()])
    weights = [np.ones_like(x) for x in joint]
    units = {name: np.ones(fit.shape(name)) for name in fit.families}
    for name, family in fit.families.items():
        if family is NORMAL:
            parts = statistics_at(fit.trial, fit.families, name, batch, weights, posterior)
            units[name] = np.maximum(np.abs(parts[1][0]), SMALLEST_UNIT)
    return Asked(posterior, units)


def _init(fit: _Fit, structure: Structure, rng: np.random.Generator) -> State:
    """Start at the prior; components of a mixture start apart, at public points."""
    families = fit.families
    posterior = {name: family.spread(fit.shape(name), rng) for name, family in families.items()}
    zero = {name: (np.zeros(fit.shape(name)),) * len(f.parameters) for name, f in families.items()}
    posterior = in_turn(families, fit.prior, families, zero, posterior)
    if structure.mixtures:
        for name, family in families.items():
            if family is NORMAL:
                posterior[name] = _apart(fit.records.point[name], posterior[name], rng)
    return State(0, zero, zero, _asked(fit, posterior))


def _apart(point: np.ndarray, eta: Natural, rng: np.random.Generator) -> Natural:
    """The author's initial values where they differ, else draws from the prior."""
    mean, sd = NORMAL.moments(eta)
    start = point if np.unique(point).size > 1 else rng.normal(mean, sd)
    precision = START_PRECISION * eta[1]
    return start * precision, precision


def _update(fit: _Fit, state: State, query: Query, noisy: Noisy) -> State:
    """Average the statistics with step rho_t, then update every block in closed form."""
    rho = fit.settings.rate(state.t)
    latest, noise = _restored(fit, state.asked, noisy)
    says, variances = dict(state.says), dict(state.variances)
    for name in fit.told:
        says[name] = blend(says[name], latest[name], 1 - rho, rho)
        variances[name] = blend(variances[name], noise[name], (1 - rho) ** 2, rho**2)
    above = {name: floored(f, says[name], variances[name]) for name, f in fit.families.items()}
    posterior = in_turn(fit.families, fit.prior, fit.families, above, state.asked.posterior)
    return State(state.t + 1, says, variances, _asked(fit, posterior))


def _restored(fit: _Fit, asked: Asked, noisy: Noisy) -> tuple[Posterior, Posterior]:
    """Cut a released vector into natural parameters, and the noise's variance likewise."""
    value, sd = noisy.value / noisy.sample_rate, noisy.sd / noisy.sample_rate
    latest: Posterior = {}
    noise: Posterior = {}
    start = 0
    for name, family in fit.told.items():
        count, shape = len(family.parameters), fit.shape(name)
        size = fit.records.point[name].size
        parts = value[start : start + count * size].reshape(count, *shape)
        start += count * size
        at, unit = family.reference(asked.posterior[name]), asked.units[name]
        latest[name] = family.restore(tuple(parts), at, unit)
        # restoring is linear, and the noise of each coordinate is its own
        alone = [family.restore(tuple(sd * one), at, unit) for one in _units(count, shape)]
        noise[name] = tuple(sum(part**2 for part in of_one) for of_one in zip(*alone, strict=True))
    return latest, noise


def _units(count: int, shape: tuple[int, ...]) -> np.ndarray:
    """Each of ``count`` parameters set to 1 alone; shape (count, count, *shape)."""
    return np.multiply.outer(np.eye(count), np.ones(shape))


def _noise_aware(
    fit: _Fit, state: State, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draw every block; those that releases are about with noise on what was released."""
    values = {}
    for name, family in fit.families.items():
        eta, says, variances = state.asked.posterior[name], state.says[name], state.variances[name]
        above = floored(family, says, variances)
        prior = tuple(a - b for a, b in zip(eta, above, strict=True))
        values[name] = draw(family, Told(prior, says, variances), draws, rng)
    return values
