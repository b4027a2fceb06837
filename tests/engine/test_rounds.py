"""Rounds in whitened coordinates find the posterior, whatever the units, and say how sure it is."""

from itertools import islice

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.driver.fit import set_up
from pymc_dp.engine import rounds
from pymc_dp.testing import deterministic_noise

ROWS = 4000
QUIETLY = {"progressbar": False, "backend": "python", "random_seed": 1, "draws": 400}


def normal(mean=0.5, sd=1.0, unit=1.0):
    y = np.random.default_rng(3).normal(mean, sd, ROWS) * unit
    with pm.Model() as model:
        mu, s = pm.Normal("mu", 0, 5 * unit), pm.HalfNormal("s", 2 * unit)
        pm.Normal("y", mu, s, observed=y)
    return model, {
        "mu": (y.mean(), y.std() / ROWS**0.5),
        "s": (y.std(), y.std() / (2 * ROWS) ** 0.5),
    }


def exponential():
    y = np.random.default_rng(4).exponential(1 / 3.0, ROWS)
    with pm.Model() as model:
        pm.Exponential("y", pm.Gamma("rate", 2, 1), observed=y)
    rate = (ROWS + 2) / (y.sum() + 1)
    return model, {"rate": (rate, rate / ROWS**0.5)}


def in_units_of_1e5():
    return normal(2.0, 1.0, unit=1e5)


def check_near(fits, answers, sds):
    """Medians over fits are near the answers, and no mean is far."""
    for name, (mean, sd) in answers.items():
        values = np.stack([idata["posterior"][name].to_numpy().ravel() for idata in fits])
        off = abs(values.mean(axis=1) - mean) / sd
        assert np.median(off) < sds
        assert off.max() < 3 * sds
        # tails that noise hides may have moved a scale, whose scores are squares, more than others
        assert 0.8 < np.median(values.std(axis=1)) / sd < (2.0 if name == "s" else 1.25)


def fits_of(model, **settings):
    for key in range(5):
        with deterministic_noise(key):
            yield pymc_dp.fit(model=model, epsilon=4, delta=1e-5, **settings, **QUIETLY)


@pytest.mark.parametrize("case", [normal, exponential])
def test_without_noise_they_end_at_the_posterior(case):
    model, answers = case()
    check_near([pymc_dp.fit(model=model, epsilon=np.inf, **QUIETLY)], answers, sds=0.25)


@pytest.mark.parametrize("case", [exponential, in_units_of_1e5])
def test_a_private_posterior_is_near_the_one_without_privacy(case):
    model, answers = case()
    check_near([*fits_of(model)], answers, sds=1.0)


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_rate_far_from_the_middle_of_its_prior_is_found(monkeypatch, is_slow):
    if is_slow:  # the planted fault: no step is longer than a white unit
        monkeypatch.setattr(rounds, "_share_of_step", lambda state, step, floored, r: 1 / (1 + r))
    y = np.random.default_rng(5).poisson(20.0, ROWS)
    with pm.Model() as model, deterministic_noise(2):
        pm.Poisson("y", pm.Gamma("rate", 2, 1 / 50), observed=y)
        rate = pymc_dp.fit(model=model, epsilon=1, delta=1e-5, **QUIETLY)["posterior"]["rate"]
    found = abs(float(rate.mean()) - y.mean()) < 0.5 and float(rate.std()) < 0.2
    assert found != is_slow


@pytest.mark.parametrize("is_kept", [True, False])
def test_early_rounds_with_small_norms_do_not_keep_the_scale_of_heavy_tails_small(
    monkeypatch, is_kept
):
    if not is_kept:  # the planted fault: a round counts as much whatever its norm leaves out
        monkeypatch.setattr(rounds, "_with_bias", lambda state, bias: state)
    rng, rows = np.random.default_rng(6), 20_000
    x, is_far = rng.uniform(-1, 1, (rows, 2)), rng.random(rows) < 0.03
    residual = np.where(is_far, rng.normal(-1, 2.2, rows), rng.normal(0, 0.55, rows))
    with pm.Model() as model, deterministic_noise(2):
        mean = pm.Normal("a", 0, 2) + pm.Data("x", x) @ pm.Normal("b", 0, 2, shape=2)
        pm.Normal("y", mean, pm.HalfNormal("s", 1), observed=x @ [0.8, 0.3] + residual)
        s = pymc_dp.fit(model=model, epsilon=1, delta=1e-5, **QUIETLY)["posterior"]["s"]
    assert (abs(float(s.mean()) / residual.std() - 1) < 0.05) == is_kept


@pytest.mark.parametrize("grows", [True, False])
def test_weights_of_records_do_not_bias_a_line_through_a_curve(monkeypatch, grows):
    if not grows:  # the planted fault: records weigh as little whatever their number is
        monkeypatch.setattr(rounds, "CONSTANTS", rounds.CONSTANTS._replace(steady=0.0))
    rng, rows = np.random.default_rng(7), 20_000
    x = np.minimum(rng.gamma(1.0, 1.0, rows), 6.0)
    X, y = np.column_stack([np.ones(rows), x]), np.minimum(x, 2.0) + rng.normal(0, 1, rows)
    line = np.linalg.lstsq(X, y, rcond=None)[0]
    with pm.Model() as model, deterministic_noise(3):
        b = pm.Normal("b", 0, 2, shape=2)
        pm.Normal("y", pm.Data("X", X) @ b, pm.HalfNormal("s", 2), observed=y)
        found = pymc_dp.fit(model=model, epsilon=1, delta=1e-5, **QUIETLY)["posterior"]["b"]
    off = abs(found.to_numpy()[0].mean(axis=0) - line) / found.to_numpy()[0].std(axis=0)
    assert (off.max() < 2.5) == grows


def test_the_bias_of_clipped_gradient_steps_is_seen():
    model, answers = exponential()
    fits = [*islice(fits_of(model, noise_aware=False), 2)]
    with pytest.raises(AssertionError):
        check_near(fits, answers, sds=1.0)


@pytest.mark.slow
def test_many_latents_whose_predictors_all_point_in_one_direction_are_found():
    rng = np.random.default_rng(0)
    rows, d = 10_000, 61
    X = np.column_stack([np.ones(rows), rng.random((rows, d - 1)) < np.geomspace(0.01, 0.5, d - 1)])
    b = rng.normal(0, 0.7, d)
    b[0] = -(X[:, 1:] @ b[1:]).mean()
    y = rng.random(rows) < 1 / (1 + np.exp(-X @ b))
    with pm.Model() as model:
        effect = pm.Normal("effect", 0, 1, shape=d)
        pm.Bernoulli("y", logit_p=pm.Data("X", X) @ effect, observed=y)
    with deterministic_noise(1):
        idata = pymc_dp.fit(model=model, epsilon=4.0, delta=1e-5, **QUIETLY)
    effects = idata["posterior"]["effect"]
    error = effects.mean(("chain", "draw")).to_numpy() - b
    p = 1 / (1 + np.exp(-X @ b))
    curvature = X.T @ (X * (p * (1 - p))[:, None])
    assert error @ curvature @ error / d < 4


def test_a_spread_of_groups_does_not_fall_to_zero_before_records_are_read():
    rng = np.random.default_rng(6)
    of_group, group = rng.normal(3.0, 0.6, 12), rng.integers(0, 12, ROWS)
    with pm.Model() as model:
        mu, spread = pm.Normal("mu", 0, 10), pm.HalfCauchy("spread", 2)
        a, s = pm.Normal("a", mu, spread, shape=12), pm.HalfCauchy("s", 5)
        pm.Normal("y", a[pm.Data("group", group)], s, observed=rng.normal(of_group[group], 1.2))
    with deterministic_noise(1):
        idata = pymc_dp.fit(model=model, epsilon=4, delta=1e-5, **QUIETLY)
    a = idata["posterior"]["a"].to_numpy()[0]
    assert np.abs((a.mean(axis=0) - of_group) / a.std(axis=0)).max() < 4.5
    assert 0.3 < idata["posterior"]["spread"].mean() < 1.2


def test_releases_that_no_matrix_can_be_made_of_leave_the_prior(monkeypatch):
    def failing(*args):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(rounds, "shrunk", failing)
    model, _ = normal()
    with deterministic_noise(1), pytest.warns(pymc_dp.PosteriorWarning, match="`mu`, `s`"):
        idata = pymc_dp.fit(model=model, epsilon=4, delta=1e-5, **QUIETLY)
    assert 4 < idata["posterior"]["mu"].to_numpy().std() < 6


@pytest.mark.parametrize("public", [[], ["pilot"]])
def test_a_start_moves_to_the_mode_of_the_prior_where_that_holds_public_observations(public):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        if public:
            pm.Normal("pilot", mu, 0.01, observed=np.full(3, 5.0))
        pm.Normal("y", mu, pm.HalfNormal("s", 1), observed=np.arange(4.0))
    method = set_up(model, "dp_advi", None, epsilon=1, delta=1e-5, public=public).method
    start = method.init(np.random.default_rng(0)).state.at.point
    np.testing.assert_allclose(start[0], 5.0 if public else 0.0, atol=0.1)
