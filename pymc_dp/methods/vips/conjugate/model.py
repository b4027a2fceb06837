"""Conjugate models and finite mixtures of them, recognised from the graph of one record.

A record's expected sufficient statistics are derivatives of its log likelihood (Fisher's
identity), with a mixture's components weighted by their responsibilities.
"""

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.traversal import ancestors
from scipy.special import softmax

from pymc_dp.contributions.gradients import by_record, checked
from pymc_dp.methods.conjugate.expectation import Point, Rule, average, prior_messages, rules_of
from pymc_dp.methods.conjugate.exponential import BETA, DIRICHLET, ExponentialFamily, Natural
from pymc_dp.methods.conjugate.families import families_of
from pymc_dp.methods.conjugate.mixture_term import Mixture, mixture_of
from pymc_dp.methods.conjugate.probe_points import nearly_equal, probe_point, probe_rows
from pymc_dp.methods.refusal import NotConjugateError, refuse_local_latents
from pymc_dp.model import Records
from pymc_dp.model.compile import function
from pymc_dp.model.graph_types import AnyVariable, Tensor, pt
from pymc_dp.privacy.contribution import Batch

Posterior = dict[str, Natural]


class Structure(NamedTuple):
    """A model whose blocks are all conjugate."""

    families: dict[str, ExponentialFamily]  # by the latent's name
    # of the blocks in the likelihood. The others follow from these, and nothing is released about
    # them.
    in_likelihood: dict[str, ExponentialFamily]
    mixtures: tuple[Mixture, ...]
    completed: Tensor  # the log likelihood of one record, its mixtures' components weighted

    @property
    def has_probabilities_alone(self) -> bool:
        """Whether all that the likelihood reads are probabilities."""
        return all(family in (BETA, DIRICHLET) for family in self.in_likelihood.values())


def recognise(records: Records) -> Structure:
    """Prove, at probe points, that every block is conjugate."""
    refuse_local_latents(records)
    families = families_of(records)
    mixtures, completed = _complete(records)
    ancestry = set(ancestors([completed]))
    in_likelihood = {name: f for name, f in families.items() if records.latents[name] in ancestry}
    structure = Structure(families, in_likelihood, mixtures, completed)
    rng = np.random.default_rng(0)
    likelihood = Statistics(records, structure, "python")
    prior = prior_messages(records, families)
    batch, first = probe_rows(records, rng, (0, 1, 1)), probe_point(records, families, rng)
    weights = likelihood.responsibilities(batch, [[first]])
    for name in families:
        second = first | {name: probe_point(records, families, rng)[name]}
        if not all(map(nearly_equal, prior[name](first), prior[name](second))):
            raise NotConjugateError(f"the prior of `{name}` is not conjugate")
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


class Statistics:
    """The statistics of a batch, one row a record; functions are compiled on first use."""

    def __init__(self, records: Records, structure: Structure, backend: str) -> None:
        self._records, self._structure = records, structure
        self._compile = partial(function, backend=backend)
        self._inputs = [*records.batch.inputs.values(), *records.latents.values()]
        self._given: dict[AnyVariable, AnyVariable] = {
            mixture.weights: pt.tensor(dtype="float64", shape=(None, *mixture.weights.type.shape))
            for mixture in structure.mixtures
        }
        self._of_block = cache(self._compile_block)
        self._joint = cache(self._compile_joint)
        self._support = cache(self._compile_support)

    def responsibilities(self, batch: Batch, rules: Iterable[Rule]) -> list[np.ndarray]:
        """E-step: softmax of the expected log joint densities; one array a mixture."""
        if not self._structure.mixtures:
            return []
        expected = average(lambda point: self._call(self._joint(), batch, point, []), rules)
        axes = [tuple(a + 1 for a in mixture.axis) for mixture in self._structure.mixtures]
        return [softmax(x, axis=axis) for x, axis in zip(expected, axes, strict=True)]

    def at_point(self, name: str, batch: Batch, weights: list[np.ndarray], point: Point) -> Natural:
        """Statistics of one block at a point of all latents, each (rows, *shape of the block)."""
        return self._call(self._of_block(name), batch, point, weights)

    def expected(
        self, name: str, batch: Batch, weights: list[np.ndarray], posterior: Posterior
    ) -> Natural:
        """Statistics of one block: its own reference point, the other blocks averaged."""
        rules = rules_of(self._structure.families, posterior, own=name)
        return tuple(average(partial(self.at_point, name, batch, weights), rules))

    def in_support(self, batch: Batch, posterior: Posterior) -> np.ndarray:
        """Whether each record is in the likelihood's support, (rows,)."""
        families = self._structure.families.items()
        point = {name: family.reference(posterior[name]) for name, family in families}
        return self._call(self._support(), batch, point, [])[0]

    def _call(
        self, fn: Callable[..., Any], batch: Batch, point: Point, weights: list[np.ndarray]
    ) -> Natural:
        leaves = [batch[name] for name in self._records.batch.inputs]
        return tuple(fn(*weights, *leaves, *[point[name] for name in self._records.latents]))

    def _compile_block(self, name: str) -> Callable[..., Any]:
        family, x = self._structure.families[name], self._records.latents[name]
        one = family.statistics(self._structure.completed, x)
        rows = [checked(self._records, row) for row in by_record(self._records, one, self._given)]
        return self._compile([*self._given.values(), *self._inputs], rows)

    def _compile_joint(self) -> Callable[..., Any]:
        joint = [mixture.joint for mixture in self._structure.mixtures]
        return self._compile(self._inputs, by_record(self._records, joint))

    def _compile_support(self) -> Callable[..., Any]:
        return self._compile(self._inputs, [pt.isfinite(self._records.batch.log_likelihood())])
