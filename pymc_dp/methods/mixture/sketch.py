"""The sketch of a mixture: waves over the space in which its records lie.

A record at u adds cos w'u and sin w'u for public frequencies w, so a release is the records'
empirical characteristic function. Whatever the records are these numbers are bounded: nothing is
clipped, and records far away do not matter more than others.

Source: Chatalic et al. (2022), Compressive learning with privacy guarantees.
"""

from typing import Any, NamedTuple

import numpy as np

from pymc_dp.contributions.layout import Layout, Part
from pymc_dp.methods.mixture.defaults import DEFAULTS
from pymc_dp.methods.mixture.model import Components, MixtureModel
from pymc_dp.methods.mixture.places import Places
from pymc_dp.privacy.contribution import Batch, RowContribution
from pymc_dp.privacy.norms import product
from pymc_dp.privacy.query import Noisy

CLIP_NORM = 1.0


class Sketch(NamedTuple):
    """A released sketch: sums over all records, with noise."""

    frequencies: np.ndarray  # (m, d)
    waves: np.ndarray  # (2 m,): cosines, then sines
    number: np.ndarray  # of records
    # of the noise on an entry of the waves, and on the number
    wave_variance: float
    number_variance: float


def frequencies_for(places: Places) -> np.ndarray:
    """Draw directions evenly, and lengths from the width of the prior to that of one record.

    The draw is public and always the same. Long waves tell where the components are, short ones
    tell them apart; waves shorter than a record's own spread cancel out.
    """
    count, d = places.mean.shape
    unknown = DEFAULTS.frequencies * count * (d + 1)
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(max(DEFAULTS.least_frequencies, unknown), d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    longest = DEFAULTS.longest
    shortest = min(longest / 3, 1 / places.largest_sd)
    between = rng.permutation(len(directions)) / len(directions)
    return np.asarray(longest * (shortest / longest) ** between[:, None] * directions)


def _layout(count: int) -> Layout:
    """Lay out a record's vector for so many frequencies: its norm is 1."""
    number = DEFAULTS.number_scale
    scale = ((1 - number**2) / count) ** 0.5
    return Layout({"waves": Part((2, count), scale), "number": Part((), number)})


LARGEST_PHASE = 1e12  # phases beyond are rounding errors, and their record has no place


def contribution(
    compute: Components, model: MixtureModel, places: Places, frequencies: np.ndarray
) -> RowContribution:
    """Contribute waves and a one.

    **Privacy.** Each of m frequencies adds cos^2 + sin^2 = 1 to the squared norm, times (1 - s^2) /
    m, and the one adds s^2: a record's vector has norm 1, wherever the record lies. A unit of
    several records has the sum of their vectors, clipped to norm 1.
    """
    layout = _layout(len(frequencies))
    zeros = np.zeros(model.prior.d)
    # the first component sees a record at H^-1 slope
    phases = frequencies @ places.unit @ np.linalg.inv(model.curvature[0])

    def prepare(batch: Batch, context: Any) -> np.ndarray:
        slopes = compute(batch, zeros)[1][:, 0]
        with np.errstate(all="ignore"):  # a record without a place has a vector of nan
            along = product(slopes, phases.T)
            along = np.where(np.abs(along) < LARGEST_PHASE, along, np.nan)
            waves = np.stack([np.cos(along), np.sin(along)], axis=1)
        return layout.pack({"waves": waves, "number": np.ones(len(waves))})

    width = 2 * layout.size + model.blocks.size
    return RowContribution(layout.size, width, lambda rows, context: rows, prepare)


def read(frequencies: np.ndarray, noisy: Noisy) -> Sketch:
    """Read what was released."""
    layout = _layout(len(frequencies))
    sums = layout.unpack(noisy.value / noisy.sample_rate)
    variance = layout.noise_variance(noisy.sd / noisy.sample_rate)
    waves = sums["waves"].ravel()
    return Sketch(frequencies, waves, sums["number"], variance["waves"], variance["number"])
