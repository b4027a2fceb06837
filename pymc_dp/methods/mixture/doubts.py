"""Whether the components of a mixture have lost their records, by released numbers alone."""

from collections.abc import Callable

import numpy as np
import xarray as xr
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import DirichletRV

from pymc_dp.methods.method import Doubt, Kind, quoted
from pymc_dp.methods.prior import prior_curvature
from pymc_dp.model import Records

# prior standard deviations that a mean may lie from the prior's middle and from the start
MOST_PRIOR_SDS = 4.0
# how many times as wide as another component's a component's posterior may be
MOST_WIDTH_RATIO = 10.0

ADVICE = (
    "Components may have become one, or have no records: then no location, spread or weight of "
    "theirs is right. Give priors, or initval=, that put each component near its records, by "
    "public numbers."
)


def lost_components(
    records: Records, slope: Callable[[np.ndarray], np.ndarray], described: xr.Dataset
) -> tuple[Doubt, ...]:
    """List what speaks against a normal approximation of a mixture's posterior.

    ``slope`` is the gradient of the log prior, and ``described`` has the posterior's moments by
    coordinate. A mixture that starts far from its records has modes in which one component takes
    them all.

    **Privacy.** Reads the released posterior and the prior: post-processing.
    """
    if not records.mixtures:
        return ()
    precision = np.diag(prior_curvature(slope, records.start))
    unit = np.where(precision > 0, precision, np.nan) ** 0.5
    read = _read_by_mixtures(records)
    mixtures = f"of the mixture {quoted(records.mixtures)}"
    far = _far(records, slope, described, unit) & read
    empty = _known_less(records, described, unit) & read
    texts = []
    if far.any():
        texts.append(
            f"The posterior {mixtures} has {_named(records, far)} more than "
            f"{MOST_PRIOR_SDS:g} standard deviations of the prior from the prior's middle "
            f"and from the start. {ADVICE}"
        )
    if empty.any():
        texts.append(
            f"The posterior {mixtures} is more than {MOST_WIDTH_RATIO:g} times as wide in "
            f"{_named(records, empty)} as in other components. {ADVICE}"
        )
    return tuple(Doubt(Kind.MERGED, tuple(records.mixtures), text) for text in texts)


def _named(records: Records, chosen: np.ndarray) -> str:
    return quoted(label for label, which in zip(records.labels, chosen, strict=True) if which)


def _terms(records: Records) -> list[set[object]]:
    """Return what each mixture's log density is computed from."""
    terms = zip(records.term_names, records.batch.terms, strict=True)
    return [set(ancestors([term])) for name, term in terms if name in records.mixtures]


def _read_by_mixtures(records: Records) -> np.ndarray:
    """Which coordinates of the latents a mixture reads, (d,)."""
    ancestry = set().union(*_terms(records))
    sizes = [start.size for start in records.point.values()]
    return np.repeat([latent in ancestry for latent in records.latents.values()], sizes)


def _far(
    records: Records,
    slope: Callable[[np.ndarray], np.ndarray],
    described: xr.Dataset,
    unit: np.ndarray,
) -> np.ndarray:
    """Which means are far from the prior's middle and from the start, in its sds there, (d,).

    Under a normal prior the slope of its log density is the distance over the variance; under one
    with heavy tails it stays small.
    """
    if described["rows"].to_numpy().tolist() != records.labels:  # other coordinates
        return np.zeros(records.size, bool)
    mean = described["mean_vector"].to_numpy()
    from_start = abs(mean - records.start) * unit
    from_middle = abs(slope(mean)) / unit
    return np.asarray(np.minimum(from_start, from_middle) > MOST_PRIOR_SDS)


def _known_less(records: Records, described: xr.Dataset, unit: np.ndarray) -> np.ndarray:
    """Which latents of a component are known far less well than those of another, (d,).

    They are elements along the last axis of an array that is as long as a mixture's weights.
    """
    variance = described["standard_deviation"].to_numpy() ** 2
    variance = variance + np.diag(described["noise_covariance"].to_numpy())
    sd = dict(zip(map(str, described["rows"].to_numpy()), variance**0.5, strict=True))
    widths = np.array([sd.get(label, np.nan) for label in records.labels]) * unit
    parts = records.split(widths)
    found = [np.zeros(part.shape, bool) for part in parts]
    for ancestry in _terms(records):
        own = {name for name, latent in records.latents.items() if latent in ancestry}
        dirichlet = [n for n in own if issubclass(records.distributions[n], DirichletRV)]
        counts = {records.point[name].shape[-1] + 1 for name in dirichlet}
        for name, part, which in zip(records.point, parts, found, strict=True):
            if name in own and name not in dirichlet and {*part.shape[-1:]} & counts:
                least = part.min(axis=-1, keepdims=True)
                which |= part > MOST_WIDTH_RATIO * least
    return np.concatenate([which.ravel() for which in found])
