"""Where the fit of a network starts, and how long a record's vector is: public values.

Units that start alike stay alike, so weights start at random draws, scaled to the number of inputs
that they add up. Lengths are those of probe records with features of unit scale.
"""

from typing import NamedTuple

import numpy as np
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.math import Dot

from pymc_dp.methods.conjugate.blocks import for_each_row, ones, probe_rows
from pymc_dp.methods.conjugate.exponential import flat_gradient, two_derivatives
from pymc_dp.methods.sep.network.defaults import DEFAULTS
from pymc_dp.methods.sep.network.model import Network
from pymc_dp.methods.sep.network.moments import inner
from pymc_dp.methods.sep.network.sites import BoundedLayout, Sites, at_zero, layout_of
from pymc_dp.model import Records
from pymc_dp.model.graph_types import Tensor
from pymc_dp.privacy.norms import row_norms

# mean and standard deviation of a uniform number between 0.1 and 0.9
CENTRE, SPREAD = 0.5, 0.8 / 12**0.5


class Typical(NamedTuple):
    """What a probe record contributes at a start, at a noise precision of 1."""

    score: float  # score, precision: lengths of the two parts
    precision: float
    curvature: np.ndarray  # its precision about every weight


def fan_ins(records: Records, network: Network) -> dict[str, int]:
    """Count, for each latent, the inputs that it is added up with where it enters a product."""
    names, found = list(network.prior.shapes), dict[str, int]()
    for node in toposort([network.output.psi]):
        if not isinstance(inner(node.op), Dot):
            continue
        factors: list[Tensor] = node.inputs
        left, right = factors
        for x, axis in ((left, -1), (right, max(-2, -right.ndim))):
            above, length = set(ancestors([x])), x.type.shape[axis]
            entering = [name for name in names if records.latents[name] in above]
            if len(entering) == 1 and length is not None:
                found.setdefault(entering[0], length)
    return found


def scales_of(records: Records, network: Network) -> np.ndarray:
    """Size of every weight, (d,): its prior's, and at most one over the root of its fan-in."""
    prior, found = network.prior, fan_ins(records, network)
    _, precision = prior.natural_diagonals(prior.start())
    most = [np.full(shape, found.get(name, 1) ** -0.5) for name, shape in prior.shapes.items()]
    return np.asarray(np.minimum(precision**-0.5, np.concatenate([x.ravel() for x in most])))


def start_of(
    records: Records, network: Network, scales: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw weights that are alike at the initial point; others stay there."""
    entering, parts = fan_ins(records, network), []
    for name, scale in network.prior.point(scales).items():
        start = records.point[name]
        if name in entering and start.size > 1 and not np.ptp(start):
            start = start + scale * rng.normal(size=start.shape)
        parts.append(start.ravel())
    return np.concatenate(parts)


def typical_of(records: Records, network: Network, mean: np.ndarray, scales: np.ndarray) -> Typical:
    """Measure probe records of unit scale at a start."""
    output, prior = network.output, network.prior
    values = [records.latents[name] for name in prior.shapes]
    second: Tensor = two_derivatives(output.log_likelihood, output.cut)[1]
    graphs = [flat_gradient(network.moments.mean.sum(), values), *at_zero(network, [second.sum()])]
    evaluate = for_each_row(records, graphs, "python", list(network.variances.values()))
    batch = probe_rows(records, np.random.default_rng(0), [0, 1] * (DEFAULTS.probes // 2))
    unit = {k: (x - CENTRE) / SPREAD if x.dtype.kind == "f" else x for k, x in batch.items()}
    variances = prior.point((DEFAULTS.start_sd * scales) ** 2).values()
    design_rows, minus_curvature = evaluate(unit, ones(records) | prior.point(mean), *variances)
    curvature = np.nan_to_num(-minus_curvature[:, None] * design_rows**2, posinf=0.0, neginf=0.0)
    score, tau = (float(np.median(row_norms(x))) for x in (curvature**0.5, curvature))
    return Typical(max(score, 1e-6), max(tau, 1e-6), curvature.mean(axis=0))


def bounded_layout(clip_norm: float, typical: Typical, with_noise: bool) -> BoundedLayout:
    """Share a clip norm among the parts of a vector; with an infinite one no part is clipped."""
    d = typical.curvature.size
    if not np.isfinite(clip_norm):
        return BoundedLayout(layout_of(d, Sites(*np.ones(4))), Sites(*np.full(4, np.inf)))
    noise_share = DEFAULTS.noise_share * with_noise
    shares = np.array(
        [DEFAULTS.score_share, DEFAULTS.precision_share, noise_share, DEFAULTS.number_share]
    )
    bounds = Sites(*clip_norm * shares / np.linalg.norm(shares))
    scales = Sites(
        1.0,
        bounds.precision / (DEFAULTS.longest_precision * typical.precision),
        bounds.noise / DEFAULTS.longest_noise if with_noise else 1.0,
        bounds.number,
    )
    return BoundedLayout(layout_of(d, scales), bounds)
