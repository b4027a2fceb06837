"""Where the fit of a network starts, and how long a record's vector is: both are public.

Units that start alike stay alike, so weights start at random draws, scaled to the number of inputs
that they add up. Lengths are those of made-up records with features of unit scale.
"""

from typing import NamedTuple

import numpy as np
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.math import Dot

from pymc_dp.compile import function
from pymc_dp.contributions.contribution import row_norms
from pymc_dp.contributions.gradients import by_record
from pymc_dp.methods.blocks.exponential import slopes
from pymc_dp.methods.blocks.made_up import made_up_rows
from pymc_dp.methods.sep.moments import inner
from pymc_dp.methods.sep.network_model import Network
from pymc_dp.methods.sep.network_sites import Scales, Sums, at_zero, flat_slopes
from pymc_dp.records import Records

MADE_UP = 200
# what a uniform number between 0.1 and 0.9 lacks to mean 0 and variance 1
CENTRE, SPREAD = 0.5, 0.8 / 12**0.5
# standard deviation of the weights' cavity at the start, in scales of the weights
NARROW = 0.1
# shares of the clip norm: scores, precisions, noise sites, the one
SHARES = Sums(0.85, 0.4, 0.3, 0.1)
# records whose precisions, or noise sites, are longer than this many typical ones are shortened
LONG = Sums(1.0, 2.0, 4.5, 1.0)


class Typical(NamedTuple):
    """What a made-up record contributes at a start, at a noise precision of 1.

    Attributes
    ----------
    score, precision : float
        Lengths of the two parts.
    curvature : (d,)
        Its precision about every weight.
    """

    score: float
    precision: float
    curvature: np.ndarray


def fan_ins(records: Records, network: Network) -> dict[str, int]:
    """Count, for each latent, the inputs that it is added up with where it enters a product."""
    names, found = list(network.prior.shapes), dict[str, int]()
    for node in toposort([network.output.variable]):
        if not isinstance(inner(node.op), Dot):
            continue
        left, right = node.inputs
        for x, axis in ((left, -1), (right, max(-2, -right.ndim))):
            above, length = set(ancestors([x])), x.type.shape[axis]
            entering = [name for name in names if records.latents[name] in above]
            if len(entering) == 1 and length is not None:
                found.setdefault(entering[0], length)
    return found


def scales_of(records: Records, network: Network, precision: np.ndarray) -> np.ndarray:
    """Size of every weight, (d,): its prior's, and not more than one over the root of its fan-in.

    ``precision`` is the prior's.
    """
    found = fan_ins(records, network)
    most = [np.full(shape, found.get(n, 1) ** -0.5) for n, shape in network.prior.shapes.items()]
    return np.minimum(precision**-0.5, np.concatenate([x.ravel() for x in most]))


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
    """Measure made-up records of unit scale at a start."""
    output, prior = network.output, network.prior
    values = [records.latents[name] for name in prior.shapes]
    rest = [v for name, v in records.latents.items() if name not in prior.shapes]
    design = flat_slopes(network.moments.mean.sum(), values)
    [minus_curvature] = at_zero(network, [slopes(output.log_likelihood, output.cut)[1].sum()])
    rows = by_record(records, [design, minus_curvature])
    batch = made_up_rows(records, np.random.default_rng(0), [0, 1] * (MADE_UP // 2))
    leaves = [(x - CENTRE) / SPREAD if x.dtype.kind == "f" else x for x in batch.values()]
    inputs = [*values, *network.variances.values(), *rest, *records.batch.inputs.values()]
    points = [*prior.point(mean).values(), *prior.point((NARROW * scales) ** 2).values()]
    ones = [np.ones(records.point[v.name].shape) for v in rest]
    design_rows, minus_curvature = function(inputs, rows, "python")(*points, *ones, *leaves)
    curvature = np.nan_to_num(-minus_curvature[:, None] * design_rows**2, posinf=0.0, neginf=0.0)
    score, tau = (float(np.median(row_norms(x))) for x in (curvature**0.5, curvature))
    return Typical(max(score, 1e-6), max(tau, 1e-6), curvature.mean(axis=0))


def scaled_to(clip_norm: float, typical: Typical, with_noise: bool) -> Scales:
    """Share a clip norm out; a clip norm that is infinite clips nothing."""
    if not np.isfinite(clip_norm):
        return Scales(Sums(*np.ones(4)), Sums(*np.full(4, np.inf)))
    shares = np.array(SHARES) * [1.0, 1.0, with_noise, 1.0]
    bounds = clip_norm * shares / np.linalg.norm(shares)
    lengths = np.array(LONG) * [1.0, typical.precision, 1.0, 1.0]
    factors = np.where(bounds > 0, bounds / lengths, 1.0)
    factors[0] = 1.0
    return Scales(Sums(*factors), Sums(*bounds))
