"""An attack on whole runs shows no more than is claimed, and shows a quarter of the noise.

Guard 7 of the tests of a guarantee: the one-run audit of Steinke, Nasr and Jagielski (2023). It
sees gross errors alone; the other guards see the small ones. Soundness, rule 20: the confidence of
the bound is such that it does not cry wolf.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from pymc_dp.model import Column, PrivateData
from pymc_dp.privacy.query import Query
from pymc_dp.privacy.wall import PrivacyWall
from tests.guarantees.toys import vectors
from tests.plans import plan_from, release_from

pytestmark = [pytest.mark.slow, pytest.mark.audit]

# an attack may succeed outright with a chance of about CANARIES * DELTA / guesses: keep it small
CANARIES, DELTA, ALPHA = 2000, 1e-7, 1e-4
GUESSES = (100, 200, 400)


def lower_bound(correct, guesses):
    """Least epsilon at which so many correct guesses are no accident (their Theorem 5.2)."""

    def excess(epsilon):
        return p_value(epsilon, correct, guesses) - ALPHA / len(GUESSES)

    return 0.0 if excess(0.0) > 0 else brentq(excess, 0, 50)


def p_value(epsilon, correct, guesses):
    """The chance of as many correct guesses under (epsilon, DELTA)-differential privacy."""
    right = 1 / (1 + np.exp(-epsilon))
    at_least = stats.binom.sf(correct - 1, guesses, right)
    fewer = np.arange(1, correct + 1)
    near = stats.binom.sf(correct - fewer - 1, guesses, right) - at_least
    return min(1.0, at_least + 2 * CANARIES * DELTA * np.max(near / fewer, initial=0.0))


def attack(release, noise_share=1.0, seed=1):
    """Include each canary by a coin, release, and guess the coins from the surest coordinates.

    Canary i pushes coordinate i by the clip norm. ``noise_share`` scales the noise, as a fault of
    the implementation would; the claim stays that of ``release``.
    """
    rng = np.random.default_rng(seed)
    included = rng.random(CANARIES) < 0.5
    faulty = replace(release, noise_multiplier=release.noise_multiplier * noise_share)
    plan = plan_from((faulty,), "add_remove", DELTA, "pld")
    rows = Column(2 * np.eye(CANARIES)[included], 0, "float64")
    wall = PrivacyWall(PrivateData({"x": rows}), {"score": vectors(CANARIES)}, plan)
    seen = sum(wall.release(Query("score", None)).value for _ in range(release.count))
    order = np.argsort(seen - release.count * release.sampler.rate / 2)
    best = 0.0
    for guesses in GUESSES:
        low, high = order[: guesses // 2], order[-guesses // 2 :]
        correct = included[high].sum() + (~included[low]).sum()
        best = max(best, lower_bound(correct, guesses))
    return best


FULL = release_from("score", "full", 1.0, 1.0, noise_multiplier=2.5, count=1)
SEVERAL = release_from("score", "full", 1.0, 1.0, noise_multiplier=6.0, count=6)
SAMPLED = release_from("score", "poisson", 0.8, 1.0, noise_multiplier=6.0, count=8)


def claim(release):
    return plan_from((release,), "add_remove", DELTA, "pld").epsilon()


@pytest.mark.parametrize("release", [FULL, SEVERAL, SAMPLED])
def test_an_attack_shows_no_more_than_is_claimed(release):
    shown = [attack(release, seed=seed) for seed in range(5)]
    assert max(shown) <= claim(release)


@pytest.mark.parametrize("release", [FULL, SEVERAL, SAMPLED])
@pytest.mark.filterwarnings("ignore::pymc_dp.PrivacyWarning")
def test_a_quarter_of_the_noise_is_caught(release):
    assert attack(release, noise_share=0.25) > claim(release)
