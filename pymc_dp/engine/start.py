"""Where rounds begin, and what the first release says: the number of records, units of latents."""

import numpy as np
from pymc.distributions.transforms import log, logodds, simplex

from pymc_dp.contributions.scores import BITS, size_of_scales, split_scales
from pymc_dp.engine.constants import CONSTANTS
from pymc_dp.engine.curvature import matrix_blocks
from pymc_dp.engine.rounds import Known, State, prepared
from pymc_dp.methods.method import Values
from pymc_dp.methods.prior import Gradient, prior_precision
from pymc_dp.model import Records
from pymc_dp.model.compilation import AS_WRITTEN
from pymc_dp.model.graphs import pt
from pymc_dp.privacy.contribution import Noisy, Query

# Newton's steps of the prior alone
MOST_STEPS = 100


def point_at(records: Records, found: Values) -> np.ndarray:
    """Return the initial point, shape (d,), with latents where they were found."""
    at = {**found}
    for name, value in found.items():
        for transform in (log, logodds, simplex):
            transformed = f"{name}_{transform.name}__"
            if transformed in records.point:
                at[transformed] = transform.forward(pt.constant(value)).eval(mode=AS_WRITTEN)
    return np.concatenate([np.ravel(at.get(name, own)) for name, own in records.point.items()])


def near_prior(records: Records, start: np.ndarray, slope: Gradient) -> np.ndarray:
    """Follow Newton's steps of the prior alone, if its public observations pull far from a start.

    Without observations it may have no mode: that of groups and of their spread rises without end
    as the spread falls, and only records keep it up.
    """
    point = start
    for _ in range(MOST_STEPS if records.observes_public else 0):
        try:
            precision = prior_precision(slope, point, CONSTANTS.flat_precision)
            step = np.linalg.solve(precision, slope(point))
        except np.linalg.LinAlgError:
            return start  # the prior has no mode
        if not step @ precision @ step > len(start):
            return point if np.isfinite(step).all() else start
        point = point + step
    return start


def measured(known: Known, state: State, query: Query, noisy: Noisy) -> State:
    """Learn the number of records, and units of latents in which curvatures are the identity."""
    point = state.at.point
    released, counts, bits, observed = split_scales(noisy.value, point.size)
    number = float(known.number or max(released, 2 * noisy.sd, 1.0))
    counts = np.clip(counts, min(noisy.sd, number), number)
    counts, unit = np.maximum(counts, np.finfo(float).tiny), unit_of_scores(known)
    bits = _shrunk_to_centre(bits / counts, BITS * noisy.sd / counts)
    squares = 2 * counts / number * (2.0**bits * unit) ** 2
    if known.scale is not None:
        start, sd = point, BITS * noisy.sd / number
        own = float(np.log2(unit[known.scale.latent]))
        excess = known.scale.excess_bits(float(observed[0]) / number + own)
        variance = max(CONSTANTS.scale_bits**2, excess**2 - (1 + 8**0.5) * sd**2)
        longer = max(excess * variance / (variance + sd**2), 0.0)
        point = start.copy()
        point[known.scale.latent] += np.log(2.0) * longer / (2 * known.scale.slope)
        squares = squares * known.scale.units(start, point) ** 2
    H = number * matrix_blocks(np.diag(squares))
    share = CONSTANTS.share_of_scales  # of the budget
    noise_unit = noisy.sd / size_of_scales(point.size, len(observed)) ** 0.5 * share**0.5
    report = state.report._replace(noise_unit=noise_unit, noise_to_signal=noisy.noise_to_signal)
    state = state._replace(t=1, number=number, curvature=H, report=report)
    return prepared(known, state, point, H)


def unit_of_scores(known: Known) -> np.ndarray:
    """Return what scores are measured in, (d,): one over the sds of the rounds' prior."""
    of_prior = np.diagonal(known.prior_precision, axis1=-2, axis2=-1).reshape(-1)
    return np.asarray(np.maximum(of_prior**0.5, CONSTANTS.least_root_precision))


def _shrunk_to_centre(bits: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Shrink noisy logarithms, (d,), to their centre: near 0, unless it is seen elsewhere."""
    variance = CONSTANTS.scale_bits**2
    for _ in range(2):
        weight = 1 / (noise**2 + variance)
        centre = (weight * bits).sum() / (weight.sum() + CONSTANTS.scale_bits**-2 / 4)
        share = weight / weight.sum()
        spread = (share * ((bits - centre) ** 2 - noise**2)).sum()
        # six sds of noise, by which one latent that has most of the weight hardly ever is off
        doubt = 6 * (2 * share**2 * noise**4).sum() ** 0.5
        variance = max(CONSTANTS.scale_bits**2, float(spread - doubt))
    return np.asarray(centre + (bits - centre) * variance / (variance + noise**2))
