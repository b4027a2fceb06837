"""The vector of a record: its expected sufficient statistics, and whether all have one norm."""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions import RowContribution
from pymc_dp.contributions.layout import Layout, Part
from pymc_dp.methods.conjugate.expectation import rules_of
from pymc_dp.methods.conjugate.probe_points import probe_rows
from pymc_dp.methods.vips.conjugate.model import Posterior, Statistics, Structure
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch
from pymc_dp.privacy.norms import row_norms


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


# made-up values of every outcome: both of a Bernoulli variable, and two categories
OUTCOMES = (0, 1)


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
