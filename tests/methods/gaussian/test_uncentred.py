"""Scores that no draws centre are clipped to norms that leave little bias, which widths include."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.methods.gaussian import state
from pymc_dp.methods.gaussian.coordinates import norm_bounds, uncentred_bounds
from pymc_dp.methods.gaussian.schedule import schedule
from pymc_dp.testing import deterministic_noise

SHARES = schedule(13, 0.04).of_rounds


def test_norms_balance_bias_and_noise():
    shares = sum(own.score for own in SHARES)
    for number, noise, decay in ((1000, 10.0, 1.0), (5000, 4.0, 0.5), (10**6, 1.0, 1.0)):
        norm, _, bias = uncentred_bounds(5, number, noise, SHARES, 4.0, decay)
        c = norm / 4.0**0.5
        assert bias == pytest.approx(number**0.5 * np.exp(-1 - decay * c))
        # where their sum is least the squared bias is 1 / (decay c) of the variance of the noise
        assert decay * c * bias**2 == pytest.approx(noise**2 * norm**2 / (number * shares), rel=0.2)
        assert norm > norm_bounds(5, number, noise, SHARES, 4.0)[0]
    assert uncentred_bounds(5, 1000, 0.0, SHARES, 4.0, 1.0) == (np.inf, np.inf, 0.0)


@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")
def test_clipping_a_skewed_potential_leaves_little_bias():
    y = np.random.default_rng(0).exponential(1 / 3.0, 50_000)
    with pm.Model() as model:
        rate = pm.Gamma("rate", 8, 2)
        pm.Potential("times", pm.math.log(rate) - rate * pm.Data("y", y))
    with deterministic_noise(1):
        idata = pymc_dp.fit(
            model=model, epsilon=0.3, delta=1e-5, progressbar=False, random_seed=1, backend="python"
        )
    rate = idata["posterior"]["rate"].to_numpy()
    # with the norm of centred scores the mean is 6 to 7 of these standard deviations away
    assert abs(rate.mean() - 1 / y.mean()) < 2.5 * 3.0 / len(y) ** 0.5
    assert 1 < rate.std() / (3.0 / len(y) ** 0.5) < 1.5


def by_potential(y):
    with pm.Model() as model:
        mu, s = pm.Normal("mu", 0, 5), pm.HalfNormal("s", 3)
        pm.Potential("values", pm.logp(pm.Normal.dist(mu, s), pm.Data("y", y)))
    return model


def far_from(truth, epsilon):
    """How far location and scale of a normal potential are from the truth, in non-private sds."""
    y = np.random.default_rng(0).normal(*truth, 4000)
    with deterministic_noise(1):
        idata = pymc_dp.fit(
            model=by_potential(y), epsilon=epsilon, delta=1e-5, progressbar=False, backend="python"
        )
    found = [float(idata["posterior"][name].mean()) for name in ("mu", "s")]
    return abs(np.array(found) - [y.mean(), y.std()]).max() * len(y) ** 0.5 / truth[1]


@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")
@pytest.mark.parametrize("epsilon", [1.0, 20.0])
def test_a_normal_potential_reaches_its_mode(epsilon):
    assert far_from((0.5, 1.0), epsilon) < 4


@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")
def test_with_the_shortest_norms_on_the_way_it_is_lost(monkeypatch):
    """The planted fault: what clipping leaves of a far point's scores is a curvature too small."""

    def shortest(d, number, noise_unit, shares, visible):
        return 1.6 * visible**0.5, 1.5 * visible

    monkeypatch.setattr(state, "norm_bounds", shortest)
    assert far_from((0.5, 1.0), 20.0) > 100
