"""Every release carries Gaussian noise of the promised size, fresh in every number.

Guard 1 of the tests of a guarantee. Soundness, rule 3: noise never comes from random_seed, its
keys are fresh, renewed after a fork and never pickled; a test mode says so in its result.
"""

import copy
import math
import os
import pickle
import warnings

import numpy as np
import pytest
from scipy import stats

import pymc_dp
from pymc_dp.privacy.contribution import Query
from pymc_dp.privacy.private_data import Column
from pymc_dp.privacy.randomness import SecretRandom
from pymc_dp.privacy.wall import PrivacyWall
from pymc_dp.testing import deterministic_noise
from tests import zoo
from tests.guarantees.test_sampler import two_sided
from tests.guarantees.toys import wall_of

ALPHA = 1e-6
RELEASES, SIZE = 400, 256
CLIP_NORM, NOISE_MULTIPLIER = 3.0, 2.0
SD = CLIP_NORM * NOISE_MULTIPLIER
real_gaussian = SecretRandom.rounded_gaussian


def p_values(noise, sd):
    """How likely independent N(0, sd^2) numbers would look this odd; shape (releases, size)."""
    x = noise / sd
    return {
        "variance": two_sided(stats.chi2.cdf((x**2).sum(), x.size)),
        "mean": two_sided(stats.norm.cdf(x.sum() / x.size**0.5)),
        "shape": stats.kstest(x.ravel(), "norm").pvalue,
        "coordinates": p_of_products(x),
        "releases": p_of_products(x.T),
        "pairs of coordinates": p_of_closest_pair(x.T),
        "pairs of releases": p_of_closest_pair(x),
    }


def p_of_products(x):
    """Neighbouring columns: the sum of products has variance close to the number of products."""
    products = x[:, 1:] * x[:, :-1]
    return two_sided(stats.norm.cdf(products.sum() / products.size**0.5))


def p_of_closest_pair(rows):
    """Given one row, its product with another is normal; the largest, by Bonferroni."""
    scores = np.abs(rows @ rows.T) / np.linalg.norm(rows, axis=1)
    np.fill_diagonal(scores, 0.0)
    return min(1.0, scores.size * 2 * stats.norm.sf(scores.max()))


def released(x, **settings):
    wall = wall_of(
        x, clip_norm=CLIP_NORM, noise_multiplier=NOISE_MULTIPLIER, count=RELEASES, **settings
    )
    return np.stack([wall.release(Query("score", None)).value for _ in range(RELEASES)])


NOTHING_TO_SUM = {
    "no records": (np.zeros((0, SIZE)), {}),
    "records that contribute zero": (np.zeros((50, SIZE)), {}),
    "records that contribute nan": (np.full((50, SIZE), np.nan), {}),
    "empty batches": (np.ones((50, SIZE)), {"sampling": "poisson", "sample_rate": 1e-12}),
}


@pytest.mark.parametrize("case", NOTHING_TO_SUM)
def test_noise_has_the_promised_size_and_is_independent(case):
    x, settings = NOTHING_TO_SUM[case]
    found = p_values(released(x, **settings), SD)
    assert min(found.values()) > ALPHA, found


def test_noise_around_a_sum_is_the_noise_around_nothing():
    x = np.random.default_rng(1).normal(size=(30, SIZE))
    clipped = x * np.minimum(1, CLIP_NORM / np.linalg.norm(x, axis=1))[:, None]
    found = p_values(released(x) - clipped.sum(axis=0), SD)
    assert min(found.values()) > ALPHA, found


def smoothed(self, sd, step, size):
    noise = real_gaussian(self, sd, step, size + 1)
    return np.rint((noise[1:] + 0.03 * noise[:-1]) / math.hypot(1, 0.03))


def from_one_key(self, sd, step, size):
    return np.rint(sd / step * np.random.default_rng(7).standard_normal(size))


def laplace(self, sd, step, size):
    return np.rint(self.generator.laplace(0, sd / step / 2**0.5, size))


# beside what shows them
FAULTS = [
    (lambda self, sd, *of: real_gaussian(self, 0.98 * sd, *of), "variance"),
    (lambda self, sd, *of: real_gaussian(self, sd / 50, *of), "variance"),
    (from_one_key, "pairs of releases"),
    (lambda self, *of: np.repeat(real_gaussian(self, *of[:-1], 1), of[-1]), "pairs of coordinates"),
    (smoothed, "coordinates"),
    (laplace, "shape"),
]


@pytest.mark.parametrize(("fault", "shows_in"), FAULTS)
def test_faulty_noise_is_caught(fault, shows_in, monkeypatch):
    monkeypatch.setattr(SecretRandom, "rounded_gaussian", fault)
    assert p_values(released(np.zeros((50, SIZE))), SD)[shows_in] < ALPHA


def drawn_in_a_child(source):
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads
        child = os.fork()
    if child == 0:
        os.write(writer, source.rounded_gaussian(1.0, 2.0**-28, 8).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        return np.frombuffer(pipe.read(), np.int64)


def test_a_forked_child_draws_other_numbers(monkeypatch):
    source = SecretRandom()
    of_child, own = drawn_in_a_child(source), source.rounded_gaussian(1.0, 2.0**-28, 8)
    assert not np.intersect1d(of_child, own).size
    # the planted fault: a child keeps the key
    source, process = SecretRandom(), os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: process)
    assert np.array_equal(drawn_in_a_child(source), source.rounded_gaussian(1.0, 2.0**-28, 8))


def test_secrets_are_neither_pickled_nor_copied():
    x = np.zeros((2, 2))
    wall, of_units = wall_of(x), wall_of(x, codes=[0, 0])
    column = Column(x, 0, "float64")
    for secret in (SecretRandom(), wall, wall._partitions, of_units._partitions, column):
        for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="must not be pickled or copied"):
                duplicate(secret)


def coin(**settings):
    model = zoo.coin(np.repeat([0, 1], [30, 70]))
    terms = {"delta": 1e-5, "draws": 5, "progressbar": False, "backend": "python"}
    return pymc_dp.fit(7, model=model, random_seed=11, **terms, **settings)


def test_random_seed_repeats_public_draws_and_leaves_the_noise_alone(monkeypatch):
    handed = []
    release = PrivacyWall.release

    def spy(self, query):
        noisy = release(self, query)
        handed.append(noisy.value)
        return noisy

    monkeypatch.setattr(PrivacyWall, "release", spy)
    first, second = coin(noise_multiplier=2.0), coin(noise_multiplier=2.0)
    assert not np.intersect1d(np.concatenate(handed[:7]), np.concatenate(handed[7:])).size
    assert not first["posterior"].equals(second["posterior"])
    # rounds draw outcomes by secret randomness, so gradient steps alone repeat
    terms = {"epsilon": math.inf, "sampling": "full", "noise_aware": False}
    assert coin(**terms)["posterior"].equals(coin(**terms)["posterior"])


def test_the_test_mode_repeats_and_claims_nothing():
    with deterministic_noise(5):
        first = coin(noise_multiplier=2.0)
    with deterministic_noise(5):
        second = coin(noise_multiplier=2.0)
    assert first["posterior"].equals(second["posterior"])
    privacy = first["privacy"]
    assert math.isnan(privacy.attrs["epsilon"])
    assert math.isnan(first["posterior"].attrs["epsilon"])
    assert privacy.attrs["guarantee"] == "none: test mode"
    assert np.isnan(privacy["epsilon"]).all()
    assert np.isnan(privacy["epsilon_spent"]).all()
    assert coin(noise_multiplier=2.0)["privacy"].attrs["epsilon"] > 0  # the mode has ended
