"""A private start for mixtures: a sketch of the records shows where the components are.

Components are described at probe rows (`Places`); one release, of all records, sums waves over the
space in which records lie (`contribution`): a record at u adds cos w'u and sin w'u for public
frequencies w, which is the empirical characteristic function. The waves of a normal component are
known, so components are placed, one after the other, where their waves are nearest to what was
released, with the noise and the prior taken into account; then each is tried elsewhere (`decode`).

Sources: Chatalic et al. (2022), Compressive learning with privacy guarantees, for the release;
Keriven et al. (2018), Sketching for large-scale learning of mixture models, for the decoding.
"""

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment, minimize
from scipy.special import log_softmax, softmax

from pymc_dp.accounting.plan import Full, ReleaseSpec
from pymc_dp.contributions.layout import Layout, Part
from pymc_dp.methods.conjugate import nearly_equal, probe_rows
from pymc_dp.methods.method import Compiled, PrivateStart, Values
from pymc_dp.methods.mixture.model import Components, MixtureModel, components, recognise
from pymc_dp.methods.normal import number_of, with_eigenvalues
from pymc_dp.methods.options import NotConjugateError
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch, Noisy, Query, RowContribution
from pymc_dp.privacy.norms import product


class Defaults(NamedTuple):
    """Tuned constants of the sketch; public numbers, none of them fitted to data."""

    share: float = 0.2  # of the budget, for the sketch
    number_scale: float = 0.3  # the number of records in a record's vector, whose norm is 1
    # frequencies for each unknown number, and at least
    frequencies: int = 4
    least_frequencies: int = 64
    longest: float = 1.5  # the longest frequency, in units of a record's standard deviation
    # places that are tried at once for a component, for each of its latents and one more
    places: int = 100
    sweeps: int = 3  # how often each component is tried elsewhere


DEFAULTS = Defaults()
SKETCH = "sketch"
CLIP_NORM = 1.0
LARGEST_PHASE = 1e12  # phases beyond are rounding errors, and their record has no place
LEAST_SHARE = 1e-3  # of a component, as a share of all records


class Places(NamedTuple):
    """K components in a space of d coordinates, in which one record has a variance near 1."""

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
        own = self.precision.reshape(k, d, k, d)[np.arange(k), :, np.arange(k)]
        known = (self.shares, self.covariances, self.mean, own)
        return all(nearly_equal(each[0], other) for each in known for other in each)

    @property
    def largest_sd(self) -> float:
        """Largest standard deviation of a component's mean in its prior."""
        return float(np.sqrt(np.linalg.eigvalsh(np.linalg.inv(self.precision))[-1]))


def sketch_start(
    records: Records, model: MixtureModel, num_records: int | None
) -> PrivateStart | None:
    """Return a start at the components that a sketch shows.

    None where initial values differ, or components see a record at different places.

    **Privacy.** One release more, of all records: see `contribution` for its sensitivity. It
    has a share of the budget in the method's own plan. Finding the components in it is
    post-processing.
    """
    if model.starts_distinct:
        return None
    # one pass over the records: any backend but Python would take longer to compile
    compute = components(records, model, "python")
    places = places_of(records, model, compute)
    if places is None:
        return None
    frequencies = frequencies_for(places)
    sketching = contribution(compute, model, places, frequencies)

    def update(state: Any, query: Query, noisy: Noisy) -> Values:
        sketch = read(frequencies, noisy, num_records)
        means, v = decode(places, sketch).means, model.start.copy()
        v[model.blocks] = np.linalg.solve(places.unit, means.T).T
        return model.prior.point(v)

    fields = {
        "size": sketching.size,
        "releases": (ReleaseSpec(SKETCH, Full(), CLIP_NORM, count=1, share=DEFAULTS.share),),
        "compile": lambda backend: Compiled({SKETCH: sketching}, update, "python"),
        "query": lambda state, rng: Query(SKETCH, None),
        "defaults": (DEFAULTS,),
    }
    initial = model.prior.point(model.start)  # before the release, states are the method's own
    return PrivateStart(
        DEFAULTS.share, fields, lambda state: state if isinstance(state, dict) else initial
    )


def recognised_start(records: Records, num_records: int | None) -> PrivateStart | None:
    """Return the start of a model with latents on their own scales, where there is one."""
    try:
        return sketch_start(records, recognise(records), num_records)
    except NotConjugateError:
        return None


def places_of(records: Records, model: MixtureModel, compute: Components) -> Places | None:
    """Describe the components at probe rows; None if they see a record at different places."""
    batch = probe_rows(records, np.random.default_rng(0), [0, 1])
    zeros = np.zeros(model.prior.d)
    seen = np.linalg.solve(model.curvature, compute(batch, zeros)[1][..., None])[..., 0]
    if not all(nearly_equal(seen[:, 0], other) for other in np.swapaxes(seen, 0, 1)):
        return None
    unit = with_eigenvalues(model.curvature.mean(axis=0), np.sqrt)
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


class Sketch(NamedTuple):
    """A released sketch: sums over all records, with noise."""

    frequencies: np.ndarray  # (m, d)
    waves: np.ndarray  # (2 m,): cosines, then sines
    noise_variance: float  # on an entry of the waves
    number: float  # of records


def frequencies_for(places: Places) -> np.ndarray:
    """Draw public directions, and lengths from the width of the prior to that of one record."""
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
    """Lay out a record's vector for ``count`` frequencies: its norm is 1."""
    number = DEFAULTS.number_scale
    scale = ((1 - number**2) / count) ** 0.5
    return Layout({"waves": Part((2, count), scale), "number": Part((), number)})


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


def read(frequencies: np.ndarray, noisy: Noisy, num_records: int | None) -> Sketch:
    """Read what was released."""
    layout = _layout(len(frequencies))
    sums = layout.unpack(noisy.value / noisy.sample_rate)
    variance = layout.noise_variance(noisy.sd / noisy.sample_rate)
    number = number_of(num_records, sums["number"], variance["number"])
    return Sketch(frequencies, sums["waves"].ravel(), variance["waves"], number)


class Placed(NamedTuple):
    """Components with places (k, d) and shares (k,), and how badly they explain the sketch."""

    means: np.ndarray
    shares: np.ndarray
    loss: float = np.inf


def decode(places: Places, sketch: Sketch) -> Placed:
    """Find places and shares of all components."""
    if places.concentration is not None or nearly_equal(places.shares.min(), places.shares.max()):
        return _descend(Decoder(places, sketch))
    free = places._replace(concentration=np.ones(len(places.shares)))
    placed = _descend(Decoder(free, sketch))
    _, order = linear_sum_assignment(np.abs(places.shares[:, None] - placed.shares))
    ordered = Placed(placed.means[order], places.shares)
    return _improve(Decoder(places, sketch), ordered)


def _descend(decoder: "Decoder") -> Placed:
    rng, (count, d) = np.random.default_rng(0), decoder.places.mean.shape
    placed = Placed(np.zeros((0, d)), np.zeros(0))
    for k in range(count):
        mean, share = decoder.place(k, decoder.left(placed), rng)
        placed = Placed(np.vstack([placed.means, mean]), np.append(placed.shares, share))
    return _improve(decoder, placed)


class Decoder:
    """Explains one sketch by components at places."""

    def __init__(self, places: Places, sketch: Sketch) -> None:
        self.places, self.sketch, self.number = places, sketch, sketch.number
        w = sketch.frequencies
        # the characteristic functions of the components around their means, (K, m)
        self.damping = np.exp(-np.einsum("mi,kij,mj->km", w, places.covariances, w) / 2)
        # a wave varies by 1/2 between records that lie anywhere
        self.variance = sketch.noise_variance + sketch.number / 2
        self.known = places.concentration is None

    def waves(self, k: int, means: np.ndarray) -> np.ndarray:
        """Waves of component k where it is at each of the places ``means``, (..., 2 m)."""
        phases = means @ self.sketch.frequencies.T
        both = self.damping[k] * np.stack([np.cos(phases), np.sin(phases)], axis=-2)
        return np.asarray(both.reshape(*means.shape[:-1], -1))

    def left(self, placed: Placed, without: int | None = None) -> np.ndarray:
        """What of the released waves the components do not explain."""
        components = (k for k in range(len(placed.means)) if k != without)
        each = (placed.shares[k] * self.waves(k, placed.means[k]) for k in components)
        return self.sketch.waves - self.number * sum(each, np.zeros_like(self.sketch.waves))

    def place(self, k: int, left: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, float]:
        """Find where component k explains most of what is left, from coarse to fine."""
        d = self.places.mean.shape[1]
        block = slice(k * d, (k + 1) * d)
        spread = np.linalg.cholesky(np.linalg.inv(self.places.precision)[block, block])
        count = DEFAULTS.places * (d + 1)
        tried = self.places.mean[k] + rng.normal(size=(count, d)) @ spread.T
        width = self.places.largest_sd
        length = np.tile((self.sketch.frequencies**2).sum(axis=1), 2)
        while True:
            smooth = np.exp(-length * width**2 / 2) if width > 0.1 else np.ones_like(length)
            shares, gains = self._gains(k, self.waves(k, tried) * smooth, left * smooth)
            off = np.linalg.solve(spread, (tried - self.places.mean[k]).T)
            gains = gains - (off**2).sum(axis=0) / 2
            if width <= 0.1:
                best = int(np.argmax(gains))
                return tried[best], float(shares[best])
            kept = tried[np.argsort(-gains)[: count // 8]]
            width = width / 2
            moved = np.repeat(kept, 7, axis=0)
            tried = np.vstack([kept, moved + width * rng.normal(size=moved.shape)])

    def _gains(self, k: int, waves: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The share at each place, and by how much the loss falls there."""
        along = self.number * waves @ left / self.variance
        squares = self.number**2 * (waves**2).sum(axis=1) / self.variance
        shares = np.full(len(waves), self.places.shares[k])
        if not self.known:
            shares = np.clip(along / np.maximum(squares, 1e-300), LEAST_SHARE, 1.0)
        return shares, shares * along - shares**2 * squares / 2

    def refine(self, placed: Placed) -> Placed:
        """Move all components downhill together, and their shares if these are unknown."""
        start = placed.means.ravel()
        if not self.known:
            start = np.append(start, np.log(placed.shares / placed.shares.sum()))
        lowest = minimize(self.loss, start, jac=True, method="L-BFGS-B")
        return self._placed(lowest.x, float(lowest.fun))

    def _placed(self, x: np.ndarray, loss: float = np.inf) -> Placed:
        means, logits = np.split(x, [self.places.mean.size])
        shares = self.places.shares if self.known else softmax(logits)
        return Placed(means.reshape(self.places.mean.shape), shares, loss)

    def loss(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the log posterior of places and shares, and its slope."""
        (means, shares, _), m = self._placed(x), len(self.sketch.frequencies)
        waves = np.stack([self.waves(k, mean) for k, mean in enumerate(means)])
        off = self.number * shares @ waves - self.sketch.waves
        slope = off / self.variance
        from_prior = (means - self.places.mean).ravel()
        pull = self.places.precision @ from_prior
        loss = off @ slope / 2 + from_prior @ pull / 2
        turned = waves[:, :m] * slope[m:] - waves[:, m:] * slope[:m]
        down = self.number * shares[:, None] * (turned @ self.sketch.frequencies)
        slopes, concentration = down.ravel() + pull, self.places.concentration
        if concentration is None:
            return loss, slopes
        along = self.number * waves @ slope
        of_logits = shares * (along - shares @ along + concentration.sum()) - concentration
        return loss - concentration @ log_softmax(x[means.size :]), np.append(slopes, of_logits)


def _improve(decoder: Decoder, placed: Placed) -> Placed:
    rng, count = np.random.default_rng(1), len(placed.means)
    placed = decoder.refine(placed)
    # components change places where weights or covariances differ
    pairs = [] if decoder.places.exchangeable else list(combinations(range(count), 2))
    for _ in range(DEFAULTS.sweeps):
        before = placed.loss
        for k in range(count):
            means, shares = placed.means.copy(), placed.shares.copy()
            means[k], shares[k] = decoder.place(k, decoder.left(placed, without=k), rng)
            elsewhere = decoder.refine(Placed(means, shares))
            placed = min(placed, elsewhere, key=lambda each: each.loss)
        for j, k in pairs:
            order = np.arange(count)
            order[[j, k]] = k, j
            exchanged = decoder.refine(Placed(placed.means[order], placed.shares[order]))
            placed = min(placed, exchanged, key=lambda each: each.loss)
        if placed.loss > before - 1e-3:
            break
    return placed
