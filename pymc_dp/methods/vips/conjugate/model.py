"""Conjugate models and finite mixtures of them, recognised from the graph of one record.

A record's expected sufficient statistics are derivatives of its log likelihood (Fisher's
identity), with a mixture's components weighted by their responsibilities.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from pytensor.graph.traversal import ancestors
from scipy.special import softmax

from pymc_dp.contributions.gradients import by_record, checked
from pymc_dp.contributions.layout import Layout, Part
from pymc_dp.methods.conjugate.blocks import (
    AtPoint,
    ConjugatePrior,
    Point,
    Rule,
    at_point,
    average,
    conjugate_prior,
    families_of,
    nearly_equal,
    probe_point,
    probe_rows,
    rules_of,
)
from pymc_dp.methods.conjugate.exponential import (
    BETA,
    DIRICHLET,
    NORMAL,
    ExponentialFamily,
    Natural,
)
from pymc_dp.methods.mixture.model import Mixture, mixture_of
from pymc_dp.methods.refusal import NotConjugateError, refuse_local_latents
from pymc_dp.model import Records
from pymc_dp.model.graph_types import AnyVariable, Tensor, pt
from pymc_dp.privacy.contribution import Batch, RowContribution
from pymc_dp.privacy.norms import row_norms

Posterior = dict[str, Natural]

# made-up values of every outcome: both of a Bernoulli variable, and two categories
OUTCOMES = (0, 1)


class Structure(NamedTuple):
    """A model whose blocks are all conjugate."""

    prior: ConjugatePrior
    # families of the blocks in the likelihood; nothing is released about the others, which follow
    # from these
    in_likelihood: dict[str, ExponentialFamily]
    mixtures: tuple[Mixture, ...]
    completed: Tensor  # the log likelihood of one record, its mixtures' components weighted
    starts_distinct: bool  # whether the author's initial values of a Gaussian block differ

    @property
    def families(self) -> Mapping[str, ExponentialFamily]:
        """The family of every block."""
        return self.prior.families

    @property
    def has_probabilities_alone(self) -> bool:
        """Whether all that the likelihood reads are probabilities."""
        return all(family in (BETA, DIRICHLET) for family in self.in_likelihood.values())


def recognise(records: Records) -> Structure:
    """Prove, at probe points, that every block is conjugate."""
    refuse_local_latents(records)
    families, rng = families_of(records), np.random.default_rng(0)
    mixtures, completed = _complete(records)
    ancestry = set(ancestors([completed]))
    in_likelihood = {name: f for name, f in families.items() if records.latents[name] in ancestry}
    prior = conjugate_prior(records, families, rng)
    distinct = any(
        np.unique(records.point[name]).size > 1 for name, f in in_likelihood.items() if f is NORMAL
    )
    structure = Structure(prior, in_likelihood, mixtures, completed, distinct)
    likelihood = Statistics(records, structure, "python")
    batch, first = probe_rows(records, rng, (0, 1, 1)), probe_point(records, families, rng)
    weights = likelihood.responsibilities(batch, [[first]])
    for name in in_likelihood:
        second = first | {name: probe_point(records, families, rng)[name]}
        rows = [likelihood.at_point(name, batch, weights, point) for point in (first, second)]
        if not all(map(nearly_equal, *rows)):
            of = ", ".join(f"`{term}`" for term in records.term_names)
            raise NotConjugateError(f"the likelihood of {of} is not conjugate to `{name}`")
    return structure


def roles(records: Records, structure: Structure) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    found = {name: f"{family.name} block" for name, family in structure.families.items()}
    for name, term in zip(records.term_names, records.single.terms, strict=True):
        found[name] = "finite mixture" if mixture_of(term) else "conjugate likelihood"
    return found


def _complete(records: Records) -> tuple[tuple[Mixture, ...], Tensor]:
    """Weight the components of every mixture; the other terms stay as they are."""
    terms: tuple[Tensor, ...] = records.single.terms
    found = [mixture_of(term) for term in terms]
    parts = [
        (mixture.weights * mixture.joint if mixture else term).sum()
        for mixture, term in zip(found, terms, strict=True)
    ]
    mixtures = tuple(mixture for mixture in found if mixture)
    return mixtures, pt.add(pt.constant(0.0), *parts)


@dataclass(frozen=True, eq=False)
class Statistics:
    """The statistics of a batch, one row a record; functions are compiled on first use."""

    records: Records
    structure: Structure
    backend: str

    def responsibilities(self, batch: Batch, rules: Iterable[Rule]) -> list[np.ndarray]:
        """E-step: softmax of the expected log joint densities; one array a mixture."""
        if not self.structure.mixtures:
            return []
        expected = average(partial(self.joint, batch), rules)
        axes = [tuple(a + 1 for a in mixture.axis) for mixture in self.structure.mixtures]
        return [softmax(x, axis=axis) for x, axis in zip(expected, axes, strict=True)]

    def at_point(self, name: str, batch: Batch, weights: list[np.ndarray], point: Point) -> Natural:
        """Statistics of one block at a point of all latents, each (rows, *shape of the block)."""
        return self._of_blocks[name](batch, point, *weights)

    def expected(
        self, name: str, batch: Batch, weights: list[np.ndarray], posterior: Posterior
    ) -> Natural:
        """Statistics of one block: its own reference point, the other blocks averaged."""
        rules = rules_of(self.structure.families, posterior, own=name)
        return tuple(average(partial(self.at_point, name, batch, weights), rules))

    def in_support(self, batch: Batch, posterior: Posterior) -> np.ndarray:
        """Whether each record is in the likelihood's support, (rows,)."""
        families = self.structure.families.items()
        point = {name: family.reference(posterior[name]) for name, family in families}
        return self._support(batch, point)[0]

    @cached_property
    def _of_blocks(self) -> dict[str, AtPoint]:
        weights = {
            mixture.weights: pt.tensor(dtype="float64", shape=(None, *mixture.weights.type.shape))
            for mixture in self.structure.mixtures
        }
        found = {}
        for name, family in self.structure.in_likelihood.items():
            one = family.statistics(self.structure.completed, self.records.latents[name])
            rows = [checked(self.records, row) for row in by_record(self.records, one, weights)]
            found[name] = self._compiled(rows, list(weights.values()))
        return found

    @cached_property
    def joint(self) -> AtPoint:
        """Log joint densities of every mixture's components."""
        joint = [mixture.joint for mixture in self.structure.mixtures]
        return self._compiled(by_record(self.records, joint))

    @cached_property
    def _support(self) -> AtPoint:
        return self._compiled([pt.isfinite(self.records.batch.log_likelihood())])

    def _compiled(self, rows: list[Tensor], further: Sequence[AnyVariable] = ()) -> AtPoint:
        return at_point(self.records, self.records.batch, rows, further, self.backend)


class Context(NamedTuple):
    """Public values that a record's vector depends on."""

    posterior: Posterior  # under which statistics are expected
    # by latent: the curvature of one probe row, in units of which Gaussian statistics are taken
    units: dict[str, np.ndarray]


def layout_of(records: Records, structure: Structure) -> Layout:
    """Lay out a record's vector: all natural parameters of the blocks in the likelihood."""
    return Layout(
        {
            name: Part((len(family.parameters), *records.point[name].shape))
            for name, family in structure.in_likelihood.items()
        }
    )


def contribution(records: Records, structure: Structure, backend: str) -> RowContribution:
    """Contribute expected sufficient statistics, block by block; the context is a `Context`."""
    statistics = Statistics(records, structure, backend)
    layout = layout_of(records, structure)

    def prepare(batch: Batch, context: Context) -> np.ndarray:
        posterior, units = context
        weights = statistics.responsibilities(batch, rules_of(structure.families, posterior))
        parts = {}
        for name, family in structure.in_likelihood.items():
            expected = statistics.expected(name, batch, weights, posterior)
            at = family.reference(posterior[name])
            parts[name] = np.stack(family.whiten(expected, at, units[name]), axis=1)
        # a record outside the likelihood's support must not contribute
        inside = statistics.in_support(batch, posterior)
        return np.where(inside[:, None], layout.pack(parts), np.nan)

    return RowContribution(
        layout.size, 2 * layout.size, rows=lambda rows, context: rows, prepare=prepare
    )


def common_norm(records: Records, structure: Structure, statistics: Statistics) -> float | None:
    """Return the norm of every record's statistics; None where norms may differ.

    Parts of a mixture's statistics are weighted by responsibilities, so that their norms differ.
    """
    families = structure.in_likelihood
    if structure.mixtures or not structure.has_probabilities_alone:
        return None
    rng = np.random.default_rng(0)
    batch = probe_rows(records, rng, OUTCOMES)
    posterior = {n: f.random_parameters(records.point[n].shape, rng) for n, f in families.items()}
    parts = [x for n in families for x in statistics.expected(n, batch, [], posterior)]
    norms = row_norms(np.concatenate([x.reshape(len(x), -1) for x in parts], axis=1))
    # a likelihood that rules one of them out is neither Bernoulli nor categorical
    possible = statistics.in_support(batch, posterior).all()
    alike = possible and norms[0] > 0 and np.allclose(norms, norms[0], rtol=1e-9, atol=0)
    return float(norms[0]) if alike else None
