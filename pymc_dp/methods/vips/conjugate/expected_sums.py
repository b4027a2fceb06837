"""The vector of a record: its expected sufficient statistics of all conjugate blocks."""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions import RowContribution
from pymc_dp.contributions.layout import Layout, Part
from pymc_dp.methods.conjugate.expectation import rules_of
from pymc_dp.methods.vips.conjugate.model import Posterior, Statistics, Structure
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch


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
        rules = rules_of(structure.families, posterior)
        weights = statistics.responsibilities(batch, rules)
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
