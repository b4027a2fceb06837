"""The scale of an outcome that a model does not know: the sd of a normal outcome, for example.

Location and scale are found together, and neither step is a small one: while the location is far,
residuals are long and the scale is large, and it falls as the location is found. How the likelihood
changes with the scale is known without any release: scores and curvatures of the location go with
one over the scale and its square, and the square of the scale is a mean of squared residuals.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import LogNormalRV, NormalRV

from pymc_dp.contributions.score_scales import LEAST
from pymc_dp.methods.gaussian.belief import Curvature
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.model import Records
from pymc_dp.model.compile import function
from pymc_dp.model.graph_types import AnyVariable, pt

# in others the scale goes with the shape of the tails, and residuals are not squared
NORMAL = (NormalRV, LogNormalRV)
STEP = 1e-4  # of differences of the logarithm of the scale
SPAN = 8.0  # how far from the start a logarithm of the scale must be linear in the latent
LONGEST = 20.0  # the longest step of the logarithm of the squared scale
SMALLEST_NOISE = 1e-6
# the least share of the latents of the location whose scores must be seen for steps in the scale
SEEN = 0.5


class OutcomeScale(NamedTuple):
    """A latent that sets the scale of the outcomes, and those that set their location."""

    latent: int  # its coordinate
    location: np.ndarray  # which coordinates the location reads, (d,)
    log_scale: Callable[[float], float]  # value of the latent -> logarithm of the scale
    outcomes: int  # of one record

    def is_seen(self, seen: np.ndarray) -> bool:
        """Whether enough latents, (d,), have scores whose magnitudes are seen."""
        return bool(seen[self.latent] and seen[self.location].mean() >= SEEN)

    def slope(self, point: np.ndarray) -> float:
        """Return b, the change of the logarithm of the scale with the latent."""
        return _slope(self.log_scale, float(point[self.latent]))

    def factors(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Return what scores are multiplied by as the scale changes between two points, (d,)."""
        one, other = (float(self.log_scale(float(z[self.latent]))) for z in (before, after))
        factors = np.where(self.location, np.exp(one - other), 1.0)
        factors[self.latent] = self.slope(after) / self.slope(before)
        return factors

    def moved(self, found: Curvature, before: np.ndarray, after: np.ndarray) -> Curvature:
        """Bring a curvature to another scale."""
        factors = self.factors(before, after)
        both = np.outer(factors, factors)
        return Curvature(both * found.estimate, both * found.noise)

    def number(self, curvature: float, b: float, records: float, excess: float) -> float:
        """Estimate the number of outcomes M from the curvature in the latent, 2 M b^2.

        Clipping makes it smaller, and does not where residuals are short: there, where the
        ``excess`` M (R - 1) is far below 0, no outcome is left out.
        """
        all_of_them = records * self.outcomes
        found = max(curvature / (2 * b**2), DEFAULTS.least_scale_curvature * all_of_them)
        short = excess < -DEFAULTS.short_residuals * found
        return max(found, all_of_them) if short else found

    def started(
        self, point: np.ndarray, counts: np.ndarray, sd: float, expected: float
    ) -> np.ndarray:
        """Raise the scale at the start to that of the residuals, if they are much longer.

        ``counts``, (BINS,), are those of scores of the latent at the observed outcomes, b (R - 1)
        where R is a squared residual in units of the scale, with noise of this ``sd``. Where noise
        hides them, ``expected`` is taken for the mean of R.
        """
        b = self.slope(point)
        three = counts[1:-2] + counts[2:-1] + counts[3:]
        most = int(three.argmax())
        squared = min(expected, DEFAULTS.longest_expected)
        if three[most] > DEFAULTS.visible_together * 3**0.5 * sd:
            # as many normal residuals are twice as far from 0 as R is, or half as far
            squared = 2.0 ** (most + 2.5 + LEAST) / abs(b)
        if not squared > DEFAULTS.long_residuals:
            return point
        return self.at(point, np.log(squared))

    def at(self, point: np.ndarray, log_square: float) -> np.ndarray:
        """Move the latent by what multiplies the squared scale by the exponential of a number."""
        moved = point.copy()
        moved[self.latent] += log_square / (2 * self.slope(point))
        return moved


def outcome_scale(records: Records) -> OutcomeScale | None:
    """Find the latent that alone sets the scale of a model's outcomes, for all records alike."""
    if records.outcomes is None or len(records.outcomes) > 1:
        return None
    [stage] = records.outcomes
    if len(stage.drawn) > 1:
        return None
    [(name, graph)] = stage.drawn.items()
    node = graph.owner
    if node is None or not isinstance(node.op, NORMAL):
        return None
    location, scale = node.op.dist_params(node)
    read = set(ancestors([scale]))
    latents = [z for z in records.latents.values() if z in read]
    if len(latents) != 1 or read & set(stage.inputs.values()):
        return None
    by_location = set(ancestors([location]))
    [latent] = latents
    if latent in by_location or records.point[str(latent.name)].size > 1:
        return None
    reads = [
        np.full(records.point[key].size, z in by_location) for key, z in records.latents.items()
    ]
    if not np.concatenate(reads).any():
        return None
    before = list(records.latents).index(str(latent.name))
    log_scale = _log_scale(latent, scale)
    if not _is_linear(log_scale, float(records.point[str(latent.name)].item())):
        return None
    return OutcomeScale(
        latent=sum(flags.size for flags in reads[:before]),
        location=np.concatenate(reads),
        log_scale=log_scale,
        outcomes=int(np.prod([size or 1 for size in records.shapes[name]])),
    )


def _is_linear(log_scale: Callable[[float], float], at: float) -> bool:
    """Whether a scale is an exponential of its latent: it is not where its prior has a bound."""
    slopes = [_slope(log_scale, at + far) for far in (-SPAN, -1.0, 0.0, 1.0, SPAN)]
    return bool(np.ptp(slopes) < 1e-3 * abs(slopes[2]))


def _slope(log_scale: Callable[[float], float], z: float) -> float:
    return float(log_scale(z + STEP) - log_scale(z - STEP)) / (2 * STEP)


def _log_scale(latent: AnyVariable, scale: AnyVariable) -> Callable[[float], float]:
    compiled = function([latent], pt.log(scale).ravel()[0], "python")
    return lambda z: float(compiled(np.full((1,) * latent.type.ndim, z, latent.type.dtype)))


class Ratio(NamedTuple):
    """What is known of the logarithm of a positive number that was measured with noise."""

    mean: float
    sd: float


def log_of_noisy(measured: float, noise_sd: float, prior_sd: float) -> Ratio:
    """Estimate log R where ``measured`` is R + noise and log R was N(0, prior_sd^2) before.

    >>> round(log_of_noisy(8.0, 0.01, prior_sd=3.0).mean, 2)
    2.08
    """
    noise_sd = max(noise_sd, SMALLEST_NOISE * max(1.0, abs(measured)))

    def negative_log_density(r: np.ndarray) -> np.ndarray:
        return np.asarray((r / prior_sd) ** 2 + ((measured - np.exp(r)) / noise_sd) ** 2) / 2

    grid = np.linspace(-LONGEST, LONGEST, 801)
    for _ in range(3):  # ever closer to the mode
        mode = grid[negative_log_density(grid).argmin()]
        width = 1 / (1 / prior_sd**2 + np.exp(2 * mode) / noise_sd**2) ** 0.5
        near = max(6 * width, grid[1] - grid[0])
        grid = np.linspace(mode - near, mode + near, 801)
    height = negative_log_density(grid)
    weights = np.exp(height.min() - height)
    weights /= weights.sum()
    mean = float(weights @ grid)
    return Ratio(mean, float(weights @ (grid - mean) ** 2) ** 0.5)
