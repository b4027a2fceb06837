"""Statistics that have one norm for all records: each counts one success, or one category.

A sum of such vectors, clipped at that norm, is exact but for its noise. Counts, waiting times and
squares have no largest norm, and clipping biases their sum.
"""

import numpy as np

from pymc_dp.methods.conjugate.probe_points import probe_rows
from pymc_dp.methods.vips.conjugate.model import Statistics, Structure
from pymc_dp.model import Records
from pymc_dp.privacy.norms import row_norms

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
