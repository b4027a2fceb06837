"""Where a record says that its component lies, as the public form of a mixture has it."""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.conjugate.probe_points import nearly_equal, probe_rows
from pymc_dp.methods.mixture.model import Components, MixtureModel
from pymc_dp.methods.normal import Spectrum
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch


class Places(NamedTuple):
    """K components in a space of d coordinates, in which one record has a variance near 1.

    A record's place is where a component's mean would have to be for the record to be its likeliest
    one. It is normal about the mean of the record's own component.
    """

    unit: np.ndarray  # (d, d): brings latents of a component into this space
    covariances: np.ndarray  # of a record's place about its component's mean, (K, d, d)
    shares: np.ndarray  # known weights of the components, or the prior's means, (K,)
    concentration: np.ndarray | None  # the prior of unknown weights
    mean: np.ndarray  # of the components' prior, (K, d)
    precision: np.ndarray  # of the components' prior, (K d, K d)

    @property
    def exchangeable(self) -> bool:
        """Whether components differ in nothing that is known of them."""
        k, d = self.mean.shape
        known = (self.shares, self.covariances, self.mean)
        blocks = self.precision.reshape(k, d, k, d)
        own = blocks[np.arange(k), :, np.arange(k)]
        return all(nearly_equal(each[0], other) for each in (*known, own) for other in each)

    @property
    def largest_sd(self) -> float:
        """Largest standard deviation of a component's mean in its prior."""
        return float(np.sqrt(np.linalg.eigvalsh(np.linalg.inv(self.precision))[-1]))


def places_of(records: Records, model: MixtureModel, compute: Components) -> Places | None:
    """Describe the components at probe rows; None if they see a record at different places."""
    batch = probe_rows(records, np.random.default_rng(0), [0, 1])
    zeros = np.zeros(model.prior.d)
    seen = np.linalg.solve(model.curvature, compute(batch, zeros)[1][..., None])[..., 0]
    if not all(nearly_equal(seen[:, 0], other) for other in np.swapaxes(seen, 0, 1)):
        return None
    unit = Spectrum.of(model.curvature.mean(axis=0)).root()
    shares = _shares(compute, model, batch, seen[:, 0])
    if shares is None:
        return None
    mean, precision = _prior(model, unit)
    covariances = unit @ np.linalg.inv(model.curvature) @ unit
    unknown = model.concentration if model.weights else None
    return Places(unit, covariances, shares, unknown, mean, precision)


def _shares(
    compute: Components, model: MixtureModel, batch: Batch, seen: np.ndarray
) -> np.ndarray | None:
    """Read the weights off the densities of records that lie at their components' means."""
    if model.weights:
        return np.asarray(model.concentration / model.concentration.sum())
    # log weight of component k, plus half of log |H_k|, plus a constant
    heights = []
    for row, place in enumerate(seen):
        v = np.zeros(model.prior.d)
        v[model.blocks] = place
        one = {name: values[row : row + 1] for name, values in batch.items()}
        heights.append(compute(one, v)[0][0] - np.linalg.slogdet(model.curvature)[1] / 2)
    relative = np.exp(np.stack(heights) - np.max(heights, axis=1, keepdims=True))
    if not nearly_equal(*relative):
        return None
    return np.asarray(relative[0] / relative[0].sum())


def _prior(model: MixtureModel, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (K, d) and precision (K d, K d) of the components' means."""
    linear, precision = model.prior.natural(model.prior.start())
    covariance, at = np.linalg.inv(precision), model.blocks.ravel()
    each = np.kron(np.eye(len(model.blocks)), unit)
    mean = each @ (covariance @ linear)[at]
    within = each @ covariance[np.ix_(at, at)] @ each.T
    return mean.reshape(model.blocks.shape), np.linalg.inv(within)
