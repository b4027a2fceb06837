"""Conjugate models and finite mixtures of them, recognised from the graph of one record.

A record's expected sufficient statistics are derivatives of its log likelihood (Fisher's
identity), with a mixture's components weighted by their responsibilities.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from scipy.special import softmax

from pymc_dp.compile import function
from pymc_dp.contributions.contribution import Batch
from pymc_dp.contributions.gradients import by_record, checked
from pymc_dp.methods.blocks.expectation import Point, Rule, average, prior_messages
from pymc_dp.methods.blocks.exponential import ExponentialFamily
from pymc_dp.methods.blocks.families import families_of
from pymc_dp.methods.blocks.made_up import agree, made_up_point, made_up_rows
from pymc_dp.methods.blocks.mixture_term import Mixture, mixture_of
from pymc_dp.methods.refusal import NotConjugateError, refuse_local_latents
from pymc_dp.records import Records


class Structure(NamedTuple):
    """A model whose blocks are all conjugate.

    Attributes
    ----------
    families : {latent: ExponentialFamily}
    mixtures : tuple of Mixture
    completed : scalar
        The log likelihood of one record, its mixtures' components weighted.
    """

    families: dict[str, ExponentialFamily]
    mixtures: tuple[Mixture, ...]
    completed: Variable


def recognise(records: Records) -> Structure:
    """Prove, at made-up points, that every block is conjugate.

    Raises
    ------
    NotConjugateError
        With the block that is not.
    """
    refuse_local_latents(records)
    structure = Structure(families_of(records), *_complete(records))
    rng = np.random.default_rng(0)
    likelihood = Statistics(records, structure, "python")
    prior = prior_messages(records, structure.families)
    batch, first = (
        made_up_rows(records, rng, (0, 1, 1)),
        made_up_point(records, structure.families, rng),
    )
    weights = likelihood.responsibilities(batch, [[first]])
    for name in structure.families:
        second = first | {name: made_up_point(records, structure.families, rng)[name]}
        if not all(map(agree, prior[name](first), prior[name](second))):
            raise NotConjugateError(f"the prior of `{name}` is not conjugate")
        rows = [likelihood.rows(name, batch, weights, point) for point in (first, second)]
        if not all(map(agree, *rows)):
            of = ", ".join(f"`{term}`" for term in records.term_names)
            raise NotConjugateError(f"the likelihood of {of} is not conjugate to `{name}`")
    return structure


def roles(records: Records, structure: Structure) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    told = {name: f"{family.name} block" for name, family in structure.families.items()}
    for name, term in zip(records.term_names, records.single.terms, strict=True):
        told[name] = "finite mixture" if mixture_of(term) else "conjugate likelihood"
    return told


def told_by_records(records: Records, structure: Structure) -> dict[str, ExponentialFamily]:
    """Return the families of blocks in the likelihood: of the others there is nothing to release.

    What a hyper-parameter learns, it learns from the released blocks.
    """
    reached = set(ancestors([structure.completed]))
    return {name: f for name, f in structure.families.items() if records.latents[name] in reached}


def _complete(records: Records) -> tuple[tuple[Mixture, ...], Variable]:
    """Weight the components of every mixture; the other terms stay as they are."""
    mixtures, parts = [], []
    for term in records.single.terms:
        found = mixture_of(term)
        if found:
            mixtures.append(found)
        parts.append((found.weights * found.joint).sum() if found else term.sum())
    return tuple(mixtures), pt.add(pt.constant(0.0), *parts)


class Statistics:
    """The statistics of a batch, one row a record; functions are compiled on first use."""

    def __init__(self, records: Records, structure: Structure, backend: str) -> None:
        self._records, self._structure = records, structure
        self._compile = partial(function, backend=backend)
        self._inputs = [*records.batch.inputs.values(), *records.latents.values()]
        self._given = {
            mixture.weights: pt.tensor(dtype="float64", shape=(None, *mixture.weights.type.shape))
            for mixture in structure.mixtures
        }
        self._of_block = cache(self._compile_block)
        self._joint = cache(self._compile_joint)
        self._possible = cache(self._compile_possible)

    def responsibilities(self, batch: Batch, rules: list[Rule]) -> list[np.ndarray]:
        """E-step: softmax of the expected log joint densities; one array a mixture."""
        if not self._structure.mixtures:
            return []
        expected = average(lambda point: self._call(self._joint(), batch, point, []), rules)
        axes = [tuple(a + 1 for a in mixture.axis) for mixture in self._structure.mixtures]
        return [softmax(x, axis=axis) for x, axis in zip(expected, axes, strict=True)]

    def rows(
        self, name: str, batch: Batch, weights: list[np.ndarray], point: Point
    ) -> tuple[np.ndarray, ...]:
        """Statistics of one block at a point of all latents, each (rows, size of the block)."""
        return self._call(self._of_block(name), batch, point, weights)

    def possible(self, batch: Batch, point: Point) -> np.ndarray:
        """Whether each record is in the likelihood's support, (rows,)."""
        return self._call(self._possible(), batch, point, [])[0]

    def _call(self, fn: Callable, batch: Batch, point: Point, weights: list[np.ndarray]) -> Any:
        leaves = [batch[name] for name in self._records.batch.inputs]
        return tuple(fn(*weights, *leaves, *[point[name] for name in self._records.latents]))

    def _compile_block(self, name: str) -> Callable:
        family, x = self._structure.families[name], self._records.latents[name]
        one = family.statistics(self._structure.completed, x)
        rows = [checked(self._records, row) for row in by_record(self._records, one, self._given)]
        return self._compile([*self._given.values(), *self._inputs], rows)

    def _compile_joint(self) -> Callable:
        joint = [mixture.joint for mixture in self._structure.mixtures]
        return self._compile(self._inputs, by_record(self._records, joint))

    def _compile_possible(self) -> Callable:
        inside = pt.isfinite(self._records.batch.log_likelihood())
        return self._compile(self._inputs, [inside])
