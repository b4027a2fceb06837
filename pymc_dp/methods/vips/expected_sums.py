"""What records say about conjugate blocks: expected sufficient statistics, one vector a record."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from pymc_dp.contributions import Contribution
from pymc_dp.contributions.contribution import Batch, row_norms
from pymc_dp.methods.blocks.expectation import Point, Rule, average, rule_of
from pymc_dp.methods.blocks.exponential import ExponentialFamily, Natural
from pymc_dp.methods.vips.conjugate_model import Statistics, Structure, told_by_records
from pymc_dp.records import Records

Posterior = dict[str, Natural]


class Asked(NamedTuple):
    """The posterior at which a batch is asked, with the public coordinates of the answer.

    Attributes
    ----------
    posterior : {latent: natural parameters}
    units : {latent: array}
        Curvature of one made-up record, for blocks whose statistics are taken in units of it.
    """

    posterior: Posterior
    units: dict[str, np.ndarray]


def size_of(records: Records, families: Mapping[str, ExponentialFamily]) -> int:
    """Return the length of a record's vector: all natural parameters of all blocks."""
    return sum(len(f.parameters) * records.point[name].size for name, f in families.items())


def contribution(records: Records, structure: Structure, backend: str) -> Contribution:
    """Contribute expected sufficient statistics, block by block; the context is an `Asked`."""
    statistics = Statistics(records, structure, backend)
    families, told = structure.families, told_by_records(records, structure)

    def prepare(batch: Batch, asked: Asked) -> np.ndarray:
        weights = statistics.responsibilities(
            batch, [*rules_of(families, asked.posterior).values()]
        )
        rows = []
        for name, family in told.items():
            at = family.reference(asked.posterior[name])
            parts = statistics_at(statistics, families, name, batch, weights, asked.posterior)
            rows += [p.reshape(len(p), -1) for p in family.whiten(parts, at, asked.units[name])]
        # a record outside the likelihood's support must not contribute
        possible = statistics.possible(batch, _references(families, asked.posterior))
        return np.where(possible[:, None], np.concatenate(rows, axis=1), np.nan)

    size = size_of(records, told)
    return Contribution(
        size,
        2 * size,
        norms=lambda rows, asked: row_norms(rows),
        weighted_sum=lambda rows, asked, weights: weights @ rows,
        prepare=prepare,
    )


def statistics_at(
    statistics: Statistics,
    families: Mapping[str, ExponentialFamily],
    name: str,
    batch: Batch,
    weights: list[np.ndarray],
    posterior: Posterior,
) -> Natural:
    """Expected statistics of one block: its own reference point, the other blocks averaged."""
    rules = rules_of(families, posterior)
    rules[name] = [{name: families[name].reference(posterior[name])}]
    return tuple(average(partial(statistics.rows, name, batch, weights), list(rules.values())))


def _references(families: Mapping[str, ExponentialFamily], posterior: Posterior) -> Point:
    return {name: family.reference(posterior[name]) for name, family in families.items()}


def rules_of(families: Mapping[str, ExponentialFamily], posterior: Posterior) -> dict[str, Rule]:
    """Return the rule of every block."""
    return {name: rule_of(name, family, posterior[name]) for name, family in families.items()}
