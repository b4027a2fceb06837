"""VIPS for conjugate models and finite mixtures of them.

A record's expected sufficient statistics are derivatives of its log likelihood (Fisher's identity),
with a mixture's components weighted by their responsibilities. The method releases the sum of these
statistics (`contribution`), averages the releases, and updates every block in closed form. Where
components of a mixture start at the same place, something comes before (`start_of_rounds`).
"""

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from pytensor.graph.traversal import ancestors
from scipy.special import softmax

from pymc_dp.contributions.gradients import by_record, checked
from pymc_dp.contributions.layout import Layout, Part
from pymc_dp.methods.conjugate import (
    BETA,
    DIRICHLET,
    NORMAL,
    AtPoint,
    ConjugatePrior,
    ExponentialFamily,
    Natural,
    NoisyBlock,
    Point,
    Posterior,
    Rule,
    at_point,
    average,
    conjugate_prior,
    describe,
    draw,
    families_of,
    flat_moments,
    for_each_row,
    nearly_equal,
    probe_point,
    probe_rows,
    rules_of,
    sample,
    within_bounds,
)
from pymc_dp.methods.linear import VipsOptions
from pymc_dp.methods.method import (
    BY_ROUNDS,
    NEWTON,
    VARIATIONAL_BAYES,
    Compiled,
    Doubt,
    Draws,
    Method,
    OnScale,
    PrivateStart,
    Values,
    beside,
    chain,
    quoted,
    too_narrow,
    uncentred,
)
from pymc_dp.methods.mixture.model import Mixture, mixture_of
from pymc_dp.methods.mixture.sketch import recognised_start
from pymc_dp.methods.normal import NoisyAverage
from pymc_dp.methods.options import NotConjugateError, refuse_local_latents
from pymc_dp.model import Records
from pymc_dp.model.graphs import Tensor, pt
from pymc_dp.privacy.contribution import Batch, Noisy, Query, RowContribution
from pymc_dp.privacy.norms import row_norms


class Defaults(NamedTuple):
    """Public numbers, which options of the caller replace where there are any."""

    releases: int = 20
    noiseless_releases: int = 100  # without noise, more steps cost nothing
    clip_norm: float = 3.0  # a few statistics near 1 each, where records have no common norm
    releases_of_start: int = 10  # of sums, for the components which rounds then fit
    share_of_start: float = 0.3  # of the budget, for these
    start_precision: float = 10.0  # of a mixture's components over the prior's, so that they differ


DEFAULTS = Defaults()
SMALLEST_UNIT = 1e-12
OVERLAPPING = " where components overlap: records are counted as if their components were known"


@dataclass(frozen=True, eq=False)
class Structure:
    """A model whose blocks are all conjugate; functions of batches are compiled on first use."""

    records: Records
    prior: ConjugatePrior
    # of the blocks in the likelihood; nothing is released about the others, which follow from them
    in_likelihood: dict[str, ExponentialFamily]
    mixtures: tuple[Mixture, ...]
    completed: Tensor  # the log likelihood of one record, its mixtures' components weighted
    backend: str = "python"

    @property
    def gaussian(self) -> list[str]:
        """Names of the Gaussian latents."""
        return [name for name, family in self.prior.families.items() if family is NORMAL]

    @property
    def has_probabilities_alone(self) -> bool:
        """Whether all that the likelihood reads are probabilities."""
        return all(family in (BETA, DIRICHLET) for family in self.in_likelihood.values())

    @property
    def starts_distinct(self) -> bool:
        """Whether the author's initial values of a Gaussian block differ."""
        return any(self.differs(name) for name in self.gaussian if name in self.in_likelihood)

    def differs(self, name: str) -> bool:
        """Whether the author's initial values of a latent differ."""
        return np.unique(self.records.point[name]).size > 1

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a latent."""
        return self.records.point[name].shape

    def zeros(self) -> Posterior:
        """Natural parameters of a likelihood without records."""
        return {
            name: (np.zeros(self.shape(name)),) * len(family.parameters)
            for name, family in self.prior.families.items()
        }

    def within_bounds(self, likelihood: NoisyAverage[Posterior]) -> Posterior:
        """Raise released natural parameters to their lower bounds."""
        value, variance = likelihood
        return {
            name: within_bounds(family, value[name], variance[name])
            for name, family in self.prior.families.items()
        }

    @property
    def layout(self) -> Layout:
        """A record's vector: all natural parameters of the blocks in the likelihood."""
        families = self.in_likelihood
        return Layout({n: Part((len(f.parameters), *self.shape(n))) for n, f in families.items()})

    def responsibilities(self, batch: Batch, rules: Iterable[Rule]) -> list[np.ndarray]:
        """E-step: softmax of the expected log joint densities; one array a mixture."""
        if not self.mixtures:
            return []
        pairs = zip(average(partial(self.joint, batch), rules), self.mixtures, strict=True)
        return [softmax(x, axis=tuple(a + 1 for a in mixture.axis)) for x, mixture in pairs]

    def expected(
        self, name: str, batch: Batch, weights: list[np.ndarray], posterior: Posterior
    ) -> Natural:
        """Statistics of one block: its own reference point, the other blocks averaged."""
        rules = rules_of(self.prior.families, posterior, own=name)
        of_block = self.statistics[name]
        return tuple(average(lambda point: of_block(batch, point, *weights), rules))

    def references(self, posterior: Posterior) -> Point:
        """Return the reference point of every block."""
        return {name: f.reference(posterior[name]) for name, f in self.prior.families.items()}

    @cached_property
    def statistics(self) -> dict[str, AtPoint]:
        """Statistics of each block, (rows, *shape of the block) each, given responsibilities."""
        weights = {
            mixture.weights: pt.tensor(dtype="float64", shape=(None, *mixture.weights.type.shape))
            for mixture in self.mixtures
        }
        compiled = {}
        for name, family in self.in_likelihood.items():
            one = family.statistics(self.completed, self.records.latents[name])
            rows = [checked(self.records, row) for row in by_record(self.records, one, weights)]
            further = list(weights.values())
            compiled[name] = at_point(self.records, self.records.batch, rows, further, self.backend)
        return compiled

    @cached_property
    def joint(self) -> AtPoint:
        """Log joint densities of every mixture's components."""
        return for_each_row(self.records, [each.joint for each in self.mixtures], self.backend)


def recognise(records: Records) -> Structure:
    """Prove, at probe points, that every block is conjugate."""
    refuse_local_latents(records)
    families, rng = families_of(records), np.random.default_rng(0)
    mixtures, completed = _complete(records)
    ancestry = set(ancestors([completed]))
    in_likelihood = {name: f for name, f in families.items() if records.latents[name] in ancestry}
    prior = conjugate_prior(records, families, rng)
    structure = Structure(records, prior, in_likelihood, mixtures, completed)
    batch, first = probe_rows(records, rng, (0, 1, 1)), probe_point(records, families, rng)
    weights = structure.responsibilities(batch, [[first]])
    for name in in_likelihood:
        second = first | {name: probe_point(records, families, rng)[name]}
        rows = [structure.statistics[name](batch, at, *weights) for at in (first, second)]
        if not all(map(nearly_equal, *rows)):
            of = quoted(records.term_names)
            raise NotConjugateError(f"the likelihood of {of} is not conjugate to `{name}`")
    return structure


def _complete(records: Records) -> tuple[tuple[Mixture, ...], Tensor]:
    """Weight the components of every mixture; the other terms stay as they are."""
    terms: tuple[Tensor, ...] = records.single.terms
    of_terms = [mixture_of(term) for term in terms]
    parts = [
        (mixture.weights * mixture.joint if mixture else term).sum()
        for mixture, term in zip(of_terms, terms, strict=True)
    ]
    mixtures = tuple(mixture for mixture in of_terms if mixture)
    return mixtures, pt.add(pt.constant(0.0), *parts)


def roles(records: Records, structure: Structure) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    roles = {name: f"{family.name} block" for name, family in structure.prior.families.items()}
    for name, term in zip(records.term_names, records.single.terms, strict=True):
        roles[name] = "finite mixture" if mixture_of(term) else "conjugate likelihood"
    return roles


class State(NamedTuple):
    """Where a fit stands: released values and what follows from them."""

    t: int
    likelihood: NoisyAverage[Posterior]  # its part of natural parameters, over releases
    posterior: Posterior  # under which the statistics of the next batch are expected
    units: dict[str, np.ndarray]  # of Gaussian statistics: the curvature of one probe row


def build(records: Records, structure: Structure, settings: VipsOptions) -> Method | OnScale:
    """Build VIPS for a conjugate model: closed-form updates, or rounds.

    **Privacy.** Each release of sums is one vector: the statistics of all blocks in the
    likelihood, clipped jointly. If nothing but the record enters them they are released once.
    Before these, or before rounds, Gaussian components of known covariance that start at one place
    take one release of a sketch (`sketch_start`); others of one start a few sums before rounds.
    """
    families, norm = structure.prior.families, common_norm(structure)
    doubts: list[Doubt] = []
    if norm is None and not (structure.mixtures and structure.has_probabilities_alone):
        doubts.append(uncentred(records.term_names, BY_ROUNDS))
    if structure.mixtures:
        doubts.append(too_narrow(structure.in_likelihood, OVERLAPPING))
    count = DEFAULTS.releases if settings.noisy else DEFAULTS.noiseless_releases
    if _depend_on_records_alone(structure):
        count = 1

    def plain(state: State, draws: int, rng: np.random.Generator) -> Draws:
        return sample(families, state.posterior, draws, rng)

    method = Method(
        size=structure.layout.size,
        releases=(settings.release_spec(count, norm or DEFAULTS.clip_norm),),
        compile=lambda backend: Compiled(
            {"statistics": contribution(dataclasses.replace(structure, backend=backend))},
            partial(_update, structure, settings.rate),
        ),
        init=partial(initial_state, structure),
        query=lambda state, rng: Query("statistics", (state.posterior, state.units)),
        posterior=plain,
        noise_aware=beside(plain, partial(_noise_aware, structure)),
        describe=lambda state: describe(
            records, families, state.posterior, state.likelihood.variance
        ),
        trace=lambda state: {"mean_path": (("rows",), flat_moments(families, state.posterior)[0])},
        settings={"form": "absolute"},
        algorithms=(VARIATIONAL_BAYES,),
        doubts=lambda state: tuple(doubts) if settings.noisy else (),
        defaults=(DEFAULTS,),
    )
    number = settings.records_in_sums
    rounds = settings.rounds_from(partial(start_of_rounds, structure, number, method))
    if norm is None and rounds:
        return rounds
    sketched = recognised_start(records, number)
    if sketched is None:
        return method

    def begin(points: Values) -> State:
        return initial_state(structure, np.random.default_rng(0), points)

    return chain(*sketched.stages(method, begin))


def algorithm(records: Records, structure: Structure) -> str:
    """Return what fits a model by default."""
    return NEWTON if common_norm(structure) is None else VARIATIONAL_BAYES


def common_norm(structure: Structure) -> float | None:
    """Return the norm of every record's statistics; None where norms may differ."""
    families = structure.in_likelihood
    if structure.mixtures or not structure.has_probabilities_alone:
        return None
    rng = np.random.default_rng(0)
    # both values of a Bernoulli variable, and two categories
    batch = probe_rows(structure.records, rng, (0, 1))
    posterior = {n: f.random_parameters(structure.shape(n), rng) for n, f in families.items()}
    # nan where a likelihood rules one of them out, and is neither Bernoulli nor categorical
    rows = contribution(structure).prepare(batch, (posterior, dict.fromkeys(families, 1.0)))
    norms = row_norms(rows)
    equal = norms[0] > 0 and np.allclose(norms, norms[0], rtol=1e-9, atol=0)
    return float(norms[0]) if equal else None


def _depend_on_records_alone(structure: Structure) -> bool:
    """Whether every block's statistics are functions of the record alone."""
    latents = structure.records.latents
    for name, family in structure.in_likelihood.items():
        above = set(ancestors(family.statistics(structure.completed, latents[name])))
        if any(x in above for other, x in latents.items() if other != name):
            return False
    return not structure.mixtures


def contribution(structure: Structure) -> RowContribution:
    """Contribute expected statistics, block by block; the context is (posterior, units)."""
    layout, graph = structure.layout, structure.records.batch
    # a record outside the likelihood's support must not contribute
    is_possible = [pt.isfinite(graph.log_likelihood())]
    in_support = at_point(structure.records, graph, is_possible, (), structure.backend)

    def prepare(batch: Batch, context: tuple[Posterior, dict[str, np.ndarray]]) -> np.ndarray:
        posterior, units = context
        weights = structure.responsibilities(batch, rules_of(structure.prior.families, posterior))
        parts = {}
        for name, family in structure.in_likelihood.items():
            expected = structure.expected(name, batch, weights, posterior)
            at = family.reference(posterior[name])
            parts[name] = np.stack(family.whiten(expected, at, units[name]), axis=1)
        [inside] = in_support(batch, structure.references(posterior))
        return np.where(inside[:, None], layout.pack(parts), np.nan)

    return RowContribution(
        layout.size, 2 * layout.size, rows=lambda rows, context: rows, prepare=prepare
    )


def initial_state(
    structure: Structure, rng: np.random.Generator, points: Values | None = None
) -> State:
    """Start from the prior, with some latents near given points, or a mixture's public ones."""
    families = structure.prior.families
    posterior = {n: f.random_parameters(structure.shape(n), rng) for n, f in families.items()}
    posterior = structure.prior.coordinate_ascent(families, {}, posterior)
    points = _public_points(structure, posterior, rng) if points is None else points
    for name, point in points.items():
        posterior[name] = families[name].around(posterior[name], point, DEFAULTS.start_precision)
    nothing = NoisyAverage(structure.zeros(), structure.zeros())
    return State(0, nothing, posterior, units_at(structure, posterior))


def _public_points(structure: Structure, prior: Posterior, rng: np.random.Generator) -> Values:
    """Initial values of a mixture's components where they differ, else draws from the prior."""
    points = {}
    for name in structure.gaussian or _of_components(structure) if structure.mixtures else ():
        family, eta = structure.prior.families[name], prior[name]
        drawn = family.sample(family.around(eta, family.reference(eta), 1.0), 1, rng)[0]
        points[name] = structure.records.point[name] if structure.differs(name) else drawn
    return points


def _of_components(structure: Structure) -> list[str]:
    """Names of the latents by which components differ, other than their weights."""
    records, families, rng = structure.records, structure.prior.families, np.random.default_rng(0)
    batch = probe_rows(records, rng, (0, 1, 1))
    first, second = (probe_point(records, families, rng) for _ in range(2))

    def differences(point: Point) -> tuple[np.ndarray, ...]:
        return tuple(np.diff(joint, axis=0) for joint in structure.joint(batch, point))

    return [
        name
        for name in structure.in_likelihood
        if not all(map(nearly_equal, differences(first), differences(first | {name: second[name]})))
    ]


def start_of_rounds(structure: Structure, number: int | None, sums: Method) -> PrivateStart | None:
    """Separate components of one start: by a sketch where one can show them, else by sums."""
    if sketched := recognised_start(structure.records, number):
        return sketched
    if not structure.mixtures:
        return None
    if any(map(structure.differs, structure.gaussian or _of_components(structure))):
        return None  # the author's initial values separate the components
    share, [release] = DEFAULTS.share_of_start, sums.releases
    few = dataclasses.replace(release, count=DEFAULTS.releases_of_start, share=share)
    own = sums._replace(releases=(few,))
    return PrivateStart(share, own._asdict(), lambda state: structure.references(state.posterior))


def _update(
    structure: Structure, rate: Callable[[int], float], state: State, query: Query, noisy: Noisy
) -> State:
    """Average the statistics with step rho_t, then update every block in closed form."""
    latest, variance = _restored(structure, state, noisy)
    likelihood = state.likelihood.add(latest, variance, rate(state.t))
    posterior = structure.prior.coordinate_ascent(
        structure.prior.families, structure.within_bounds(likelihood), state.posterior
    )
    return State(state.t + 1, likelihood, posterior, units_at(structure, posterior))


def _restored(structure: Structure, state: State, noisy: Noisy) -> tuple[Posterior, Posterior]:
    """Turn a released vector into natural parameters, and into the variances of their noise."""
    sums = structure.layout.unpack(noisy.value / noisy.sample_rate)
    sd = noisy.sd / noisy.sample_rate
    latest, variance = structure.zeros(), structure.zeros()
    for name, whitened in sums.items():
        family, unit = structure.prior.families[name], state.units[name]
        at = family.reference(state.posterior[name])
        latest[name] = family.restore(tuple(whitened), at, unit)
        # restoring is linear: the noise of each parameter by itself, then the sum of the squares
        alone = np.multiply.outer(np.eye(len(whitened)), np.full(structure.shape(name), sd))
        restored = [family.restore(tuple(noise), at, unit) for noise in alone]
        variance[name] = tuple(sum(x**2 for x in each) for each in zip(*restored, strict=True))
    return latest, variance


def units_at(structure: Structure, posterior: Posterior) -> dict[str, np.ndarray]:
    """Take the units of the next release from a probe row that belongs to all components."""
    batch = probe_rows(structure.records, np.random.default_rng(0), [1])
    rules = rules_of(structure.prior.families, posterior)
    weights = [np.ones_like(x) for x in structure.responsibilities(batch, rules)]
    units = {name: np.ones(structure.shape(name)) for name in structure.in_likelihood}
    for name, family in structure.in_likelihood.items():
        if family is NORMAL:
            _, precision = structure.expected(name, batch, weights, posterior)
            units[name] = np.maximum(np.abs(precision[0]), SMALLEST_UNIT)
    return units


def _noise_aware(structure: Structure, state: State, draws: int, rng: np.random.Generator) -> Draws:
    """Draw every block, with the noise of the releases on the likelihood's part."""
    (value, variance), bounded = state.likelihood, structure.within_bounds(state.likelihood)
    values = {}
    for name, family in structure.prior.families.items():
        prior = tuple(a - b for a, b in zip(state.posterior[name], bounded[name], strict=True))
        values[name] = draw(family, NoisyBlock(prior, value[name], variance[name]), draws, rng)
    return values
