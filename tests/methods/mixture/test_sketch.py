"""The sketch that mixtures start from: its sensitivity, and that it shows every component."""

import functools

import numpy as np
import pymc as pm
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist, pdist

from pymc_dp.methods.mixture.model import components, recognise
from pymc_dp.methods.mixture.sketch import (
    CLIP_NORM,
    contribution,
    decode,
    frequencies_for,
    places_of,
    read,
)
from pymc_dp.model import separate
from pymc_dp.privacy.contribution import Noisy

K, N, SD = 4, 1000, 0.5
# noise over the clip norm where a fifth of epsilon = 1, delta = 1e-5 is spent on one release
NOISE = 8.3


def centres():
    return pm.Normal("mu", 0, 3, shape=K)


def even():
    return pm.Data("shares", np.full(K, 1 / K)), centres(), SD


def shifted():
    shift = pm.Data("shift", np.arange(float(K)))
    return pm.Data("shares", np.full(K, 1 / K)), centres() + shift, SD


class Built:
    """What a fit has of a mixture before it reads a record."""

    def __init__(self, build):
        with pm.Model() as model:
            weights, means, sds = build()
            pm.NormalMixture("x", weights, means, sigma=sds, observed=np.zeros(7))
        public = {"shares", "shift"}.intersection(model.named_vars)
        self.records, private = separate(model, public=public)
        [self.leaf] = private.spec
        self.model = recognise(self.records)
        compute = components(self.records, self.model, "python")
        self.places = places_of(self.records, self.model, compute)
        if self.places is not None:
            self.frequencies = frequencies_for(self.places)
            self.added = contribution(compute, self.model, self.places, self.frequencies)

    def vectors(self, X):
        return self.added.rows(self.added.prepare({self.leaf: X}, None), None)

    def sketch(self, X, noise, rng):
        value = self.vectors(X).sum(axis=0) + noise * rng.normal(size=self.added.size)
        return read(self.frequencies, Noisy(value, noise, 1.0), N)


@functools.cache
def built(build):
    return Built(build)


def made_up(seed):
    """Centres that are four standard deviations of a record apart, and records around them."""
    rng = np.random.default_rng([seed, 3])
    while True:
        truth = 3 * rng.normal(size=(K, 1))
        if pdist(truth).min() >= 2.0:
            break
    label = rng.choice(K, N, p=np.full(K, 1 / K))
    return truth, (truth[label] + SD * rng.normal(size=(N, 1))).ravel()


def in_units(places, truth):
    return truth @ places.unit.T


def farthest(found, truth):
    squared = cdist(truth, found, "sqeuclidean")
    return squared[linear_sum_assignment(squared)].max() ** 0.5


# --- sensitivity ---------------------------------------------------------------------------------

EXTREMES = np.array([0.0, 1e-300, 3.0, -1e6, 1e10])


def test_the_norm_of_a_record_is_the_clip_norm_wherever_it_lies():
    norms = np.linalg.norm(built(even).vectors(EXTREMES), axis=1)
    np.testing.assert_allclose(norms, CLIP_NORM, rtol=1e-12)


def test_a_sketch_whose_waves_were_not_scaled_would_be_longer():
    vectors = built(even).vectors(EXTREMES)
    frequencies = len(built(even).frequencies)
    faulty = vectors * np.append(np.full(2 * frequencies, frequencies**0.5), 1.0)
    assert (np.linalg.norm(faulty, axis=1) > 5 * CLIP_NORM).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_record_that_is_nowhere_has_no_vector(bad):
    vectors = built(even).vectors(np.array([bad, 1.0]))
    assert not np.isfinite(vectors[0]).all()
    assert np.isfinite(vectors[1]).all()


# --- components ----------------------------------------------------------------------------------


def test_no_component_is_missed():
    for seed in range(10):
        truth, X = made_up(seed)
        parts, rng = built(even), np.random.default_rng(seed)
        placed = decode(parts.places, parts.sketch(X, NOISE, rng))
        # in standard deviations of a record; two components are at least four apart
        assert farthest(placed.means, in_units(parts.places, truth)) < 2


# --- which mixtures ------------------------------------------------------------------------------


def test_components_that_see_a_record_at_different_places_have_no_sketch():
    assert built(shifted).places is None
