"""The clip norm of linear predictors: a public guess, then a function of the first release.

The clip norm matters most for features that are sparse or of odd scale. Below it a fit is biased,
above it only noisier.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from pymc_dp.contributions.layout import Layout
from pymc_dp.methods.conjugate.blocks import probe_rows
from pymc_dp.methods.linear.defaults import DEFAULTS
from pymc_dp.methods.linear.features import features
from pymc_dp.methods.linear.predictor import Predictor
from pymc_dp.methods.linear.quadratic import Bounds, Sums
from pymc_dp.methods.linear.residual_energy import Bounded
from pymc_dp.model import Records


class Scale(NamedTuple):
    """The clip norm and what it was made for."""

    clip_norm: float
    radius: float  # typical length of a record's design
    residual: float  # typical residual kappa - omega psi, at a noise precision of 1
    curvature: float  # the largest omega of a probe record
    multiple: float  # the clip norm in typical lengths of a score
    fixed: bool  # whether it stays as it is: the caller chose it
    precisions: int  # how many noise precisions the predictors have
    # of the energy of a probe record's residual; the longest where there are several
    energy: Bounded

    @property
    def length(self) -> float:
        """Typical length of a score."""
        return self.residual * self.radius

    def following(self, precisions: Sequence[float]) -> Self:
        """Let the typical residual follow the noise precisions, where the model has any."""
        if not precisions:
            return self
        scale = self._replace(residual=float(min(precisions) ** -0.5))
        return scale if scale.fixed else scale._replace(clip_norm=scale.multiple * scale.length)


def first_scale(
    records: Records,
    predictors: tuple[Predictor, ...],
    d: int,
    clip_norm: float | None,
    feature_bound: float,
) -> Scale:
    """Guess for features of unit scale, from d and from the likelihood at probe rows."""
    rows = probe_rows(records, np.random.default_rng(0), [1])
    probes = features(records, predictors, "python")(rows)
    omega = max(*(float(np.nanmax(part.curvature)) for part in probes), 1e-12)
    radius = min(max(d, 1) ** 0.5, feature_bound)
    shapes = [p.shape[0] for found, p in zip(predictors, probes, strict=True) if found.precision]
    energy = Bounded.of(np.max(np.nan_to_num(shapes), initial=DEFAULTS.least_shape))
    fixed, multiple = clip_norm is not None, DEFAULTS.first_clip
    guess = Scale(1.0, radius, omega**0.5, omega, multiple, fixed, len(shapes), energy)
    if clip_norm is None:
        clip_norm = float(np.clip(DEFAULTS.first_clip * guess.length, *DEFAULTS.first_clip_range))
        return guess._replace(clip_norm=clip_norm, multiple=clip_norm / guess.length)
    if np.isfinite(clip_norm):
        guess = guess._replace(radius=clip_norm / (DEFAULTS.first_clip * guess.residual))
    return guess._replace(clip_norm=float(clip_norm))


def scaled(layout: Layout, scale: Scale) -> Layout:
    """Bring curvature, noise statistics and count to shares of a score's length."""
    length = scale.length
    share = max(min(1.0, DEFAULTS.least_clip / scale.multiple) ** 2, DEFAULTS.curvature_share)
    layout = layout.with_scales(
        curvature=share * length / (scale.curvature * scale.radius**2),
        number=DEFAULTS.count_share * min(DEFAULTS.first_clip * length, scale.clip_norm),
    )
    if bounds_of(layout, scale) is None:
        return layout
    each = scale.clip_norm / scale.precisions**0.5
    return layout.with_scales(
        shape=DEFAULTS.shape_share * each / float(scale.energy.shape),
        energy=DEFAULTS.energy_share * each / float(scale.energy.longest),
    )


def bounds_of(layout: Layout, scale: Scale) -> Bounds | None:
    """Share a clip norm among the parts of a vector, if there are noise precisions."""
    if not scale.precisions or np.isinf(scale.clip_norm):
        return None
    of_noise = DEFAULTS.energy_share**2 + DEFAULTS.shape_share**2
    left = (1 - of_noise) * scale.clip_norm**2 - layout.parts["number"].scale ** 2
    return Bounds(left**0.5, scale.clip_norm * (of_noise / scale.precisions) ** 0.5)


def rescaled(scale: Scale, first: Sums, noise: Sums, releases: int, least: float) -> Scale:
    """Take the typical length from the first release, as far as its noise allows.

    ``noise`` holds the variances of the entries of ``first``. The length moves to the nearest end
    of an interval for the root mean square of the records' lengths, so a release that is mostly
    noise does not change the guess. The clip norm is at least ``least`` typical lengths.
    """
    if scale.fixed:
        return scale
    d = first.score.shape[1]
    trace = np.trace(first.curvature, axis1=1, axis2=2).sum()
    doubt = DEFAULTS.interval * (noise.curvature * d * len(first.score)) ** 0.5
    doubt_of_count = DEFAULTS.interval * noise.number**0.5
    fewest, most = (max(first.number + x, 1.0) for x in (-doubt_of_count, doubt_of_count))
    upper = (max(trace + doubt, 0.0) / scale.curvature / fewest) ** 0.5
    lower = (max(trace - doubt, 0.0) / scale.curvature / most) ** 0.5
    change = DEFAULTS.largest_change
    radius = min(max(scale.radius, lower), upper)
    radius = float(np.clip(radius, scale.radius / change, scale.radius * change))
    one_release = noise.score**0.5 / scale.clip_norm / releases**0.5
    affordable = (fewest / d) ** 0.5 / max(one_release, 1e-12)
    lowest = np.clip(DEFAULTS.noise_of_aware_clip * affordable, least, DEFAULTS.noise_aware_clip)
    highest = DEFAULTS.largest_clip
    multiple = float(np.clip(DEFAULTS.noise_of_larger_clip * affordable, lowest, highest))
    clip_norm = multiple * scale.residual * radius
    return scale._replace(clip_norm=clip_norm, radius=radius, multiple=multiple)
