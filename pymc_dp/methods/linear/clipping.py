"""How long a record's vector is: a public guess, then what the first release says.

The clip norm matters most for features that are sparse or of odd scale. Below it a fit is biased,
above it only noisier.
"""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.blocks.made_up import made_up_rows
from pymc_dp.methods.linear.features import features
from pymc_dp.methods.linear.predictor import Predictor
from pymc_dp.methods.linear.quadratic import Scales, Sums
from pymc_dp.records import Records

# the first clip norm, in typical lengths of a score, and its range
FIRST = 1.2
FIRST_RANGE = (1.0, 10.0)
# later clip norms are multiples of the typical length between the first and the last of these;
# from the second on even a record that was thought impossible is hardly clipped
TIGHT, LOOSE, WIDEST = 1.5, 2.2, 10.0
# the noise of the mean, in posterior standard deviations, that being loose, and wider, may cost
NOISE_IF_LOOSE, NOISE_IF_WIDER = 0.55, 0.2
# the least share of the curvature in a record's vector, where clip norms are loose
CURVATURE = 0.5
# how far the first release may move the public guess, and how sure it must be to do so
FACTOR = 10.0
SURE = 2.0
# shares of the noise statistics and of the count in a record's vector
NOISE_STATISTICS = 0.5
COUNT = 0.1
PAPERS_RATIO = 4.0


class Scale(NamedTuple):
    """The clip norm and what it was made for.

    Attributes
    ----------
    clip_norm : float
    radius : float
        Typical length of a record's design.
    residual : float
        Typical residual kappa - omega psi, at a noise precision of 1.
    curvature : float
        The largest omega of a made-up record.
    multiple : float
        The clip norm in typical lengths of a score.
    fixed : bool
        Whether it stays as it is: the caller chose it.
    """

    clip_norm: float
    radius: float
    residual: float
    curvature: float
    multiple: float
    fixed: bool

    @property
    def length(self) -> float:
        """Typical length of a score."""
        return self.residual * self.radius


def first_scale(
    records: Records,
    predictors: tuple[Predictor, ...],
    d: int,
    clip_norm: float | None,
    feature_bound: float,
) -> Scale:
    """Guess for features of unit scale, from d and from the likelihood at made-up rows."""
    rows = made_up_rows(records, np.random.default_rng(0), [1])
    made_up = features(records, predictors, "python")(rows)
    omega = max(*(float(np.nanmax(part.curvature)) for part in made_up), 1e-12)
    radius = min(max(d, 1) ** 0.5, feature_bound)
    guess = Scale(1.0, radius, omega**0.5, omega, FIRST, clip_norm is not None)
    if clip_norm is None:
        clip_norm = float(np.clip(FIRST * guess.length, *FIRST_RANGE))
        return guess._replace(clip_norm=clip_norm, multiple=clip_norm / guess.length)
    if np.isfinite(clip_norm):
        guess = guess._replace(radius=clip_norm / (FIRST * guess.residual))
    return guess._replace(clip_norm=float(clip_norm))


def with_residual(scale: Scale, residual: float) -> Scale:
    """Follow the typical residual, where the noise precision tells it."""
    scale = scale._replace(residual=residual)
    return scale if scale.fixed else scale._replace(clip_norm=scale.multiple * scale.length)


def papers_scales(scale: Scale) -> Scales:
    """The paper's ratio of sensitivities, 2 and 1/2: noise on the curvature is a quarter."""
    return scales(scale)._replace(curvature=PAPERS_RATIO)


def scales(scale: Scale) -> Scales:
    """Bring curvature, noise statistics and count to shares of a score's length."""
    length = scale.length
    share = max(min(1.0, TIGHT / scale.multiple) ** 2, CURVATURE)
    return Scales(
        curvature=share * length / (scale.curvature * scale.radius**2),
        shape=NOISE_STATISTICS * length,
        energy=NOISE_STATISTICS * length / scale.residual**2,
        number=COUNT * FIRST * length,
    )


def rescaled(scale: Scale, first: Sums, noise: Sums, releases: int, tightest: float) -> Scale:
    """Take the typical length from the first release, as far as its noise allows.

    ``noise`` holds the variances of the entries of ``first``. The length moves to the nearest end
    of an interval for the root mean square of the records' lengths, so a release that is mostly
    noise leaves the guess alone. The clip norm is at least ``tightest`` typical lengths.
    """
    if scale.fixed:
        return scale
    d = first.score.shape[1]
    trace = np.trace(first.curvature, axis1=1, axis2=2).sum()
    doubt = SURE * (noise.curvature * d * len(first.score)) ** 0.5
    doubt_of_count = SURE * noise.number**0.5
    fewest = max(first.number - doubt_of_count, 1.0)
    upper = (max(trace + doubt, 0.0) / scale.curvature / fewest) ** 0.5
    lower = (
        max(trace - doubt, 0.0) / scale.curvature / max(first.number + doubt_of_count, 1.0)
    ) ** 0.5
    radius = min(max(scale.radius, lower), upper)
    radius = float(np.clip(radius, scale.radius / FACTOR, scale.radius * FACTOR))
    one_release = noise.score**0.5 / scale.clip_norm / releases**0.5
    affordable = (fewest / d) ** 0.5 / max(one_release, 1e-12)
    least = np.clip(NOISE_IF_LOOSE * affordable, tightest, LOOSE)
    multiple = float(np.clip(NOISE_IF_WIDER * affordable, least, WIDEST))
    clip_norm = multiple * scale.residual * radius
    return scale._replace(clip_norm=clip_norm, radius=radius, multiple=multiple)
