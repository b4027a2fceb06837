"""dp_sgld and dp_ops: posteriors whose draws are releases.

Soundness, rule 25: dp_sgld accounts its actual ratio of noise to gradient; dp_ops' epsilon is for
all draws together, and holds only if they are exact.
"""

import math

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.model import separate
from pymc_dp.papers.sampling import filling_sd, langevin_step, posterior_draw, temperature_of
from pymc_dp.privacy.contribution import Noisy
from tests import zoo
from tests.plans import plan_from, release_from

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")

N = 60
Y = np.random.default_rng(3).normal(0.7, 1.0, N)
MEAN, SD = Y.sum() / (N + 0.25), (N + 0.25) ** -0.5
NORMAL = zoo.mean(Y, prior_sd=2)
TERMS = {"delta": 1e-5, "progressbar": False, "backend": "python", "random_seed": 1}


def fit(method, **settings):
    return pymc_dp.fit(method=method, **{"model": NORMAL, **TERMS, **settings})


# ---- dp_sgld


def langevin(n=5000):
    settings = {"epsilon": math.inf, "clip_norm": math.inf, "sampling": "full"}
    return fit("dp_sgld", n=n, step=0.1 / N, **settings)["posterior"]["mu"].values.ravel()


def test_langevin_without_privacy_draws_from_the_posterior():
    draws = langevin()
    # a relaxation takes 2 / (step * N) = 20 steps and more, so 2500 iterates are worth about 30
    assert abs(draws.mean() - MEAN) < 5 * SD / 30**0.5
    assert 0.6 < draws.std() / SD < 1.5


def test_a_step_that_forgets_its_noise_is_rejected(monkeypatch):
    monkeypatch.setattr("pymc_dp.papers.sampling.filling_sd", lambda *a: 0.0)
    assert langevin(n=2000).std() / SD < 0.1


@pytest.mark.parametrize("step", [1e-6, 1e-3, 1.0])
def test_a_step_has_langevin_noise_whatever_the_wall_adds(step):
    noisy = Noisy(np.zeros(1), sd=37.0, sample_rate=0.2)
    taken = langevin_step(step, noisy)
    walls = taken / 2 * noisy.sd / noisy.sample_rate
    assert taken <= step
    assert math.hypot(walls, filling_sd(taken, noisy)) == pytest.approx(math.sqrt(taken))


def test_the_plan_claims_what_the_accountant_says_of_the_walls_noise():
    dry = pymc_dp.plan(NORMAL, 30, "dp_sgld", epsilon=2, delta=1e-5, sample_rate=0.3)
    [release] = dry.plan.releases
    terms = {"sample_rate": 0.3, "n": 30, "delta": 1e-5}
    told = pymc_dp.epsilon(noise_multiplier=release.noise_multiplier, **terms)
    assert dry.epsilon == pytest.approx(told)
    assert told <= 2


def test_langevin_noise_alone_is_less_than_the_claim():
    # a planted fault: claiming the wall's noise while a long step is given Langevin noise alone
    dry = pymc_dp.plan(NORMAL, 30, "dp_sgld", epsilon=2, delta=1e-5, sample_rate=0.3)
    [release] = dry.plan.releases
    step = 0.2
    ratio = 2 * 0.3 / (math.sqrt(step) * release.clip_norm)
    assert langevin_step(step, Noisy(np.zeros(1), release.noise_multiplier, 0.3)) < step
    terms = {"sample_rate": 0.3, "n": 30, "delta": 1e-5}
    assert pymc_dp.epsilon(noise_multiplier=ratio, **terms) > 1.2 * dry.epsilon


def test_iterates_are_the_posterior_and_no_more_are_promised():
    idata = fit("dp_sgld", n=20, epsilon=2)
    assert idata["posterior"].sizes["draw"] == 10
    assert idata["privacy"].attrs["epsilon"] <= 2
    assert fit("dp_sgld", n=20, epsilon=2, draws=4)["posterior"].sizes["draw"] == 4
    with pytest.raises(ValueError, match="plans 10: give a larger n="):
        fit("dp_sgld", n=20, epsilon=2, draws=11)


def test_a_fit_that_is_stopped_keeps_what_it_has():
    def stop(state, _, i):
        raise StopIteration

    assert fit("dp_sgld", n=20, epsilon=2, callbacks=[stop])["posterior"].sizes["draw"] == 1


# ---- dp_ops


def density(bound, heat, y, mus, model=NORMAL):
    records, _ = separate(model)
    drawn = posterior_draw(records, "python", 100)
    batch = {"y": np.asarray(y, "float64")}
    points = np.reshape(mus, (-1, 1))
    return np.array([float(drawn.density(batch, z, bound, heat)[0]) for z in points])


@pytest.mark.parametrize("value", [0.0, -40.0, 1e200, -1e308, math.inf, math.nan])
def test_a_record_moves_the_log_density_by_the_bound_at_most(value):
    mus = np.linspace(-50, 50, 41)
    with np.errstate(all="ignore"):
        moved = density(2.0, 4.0, [0.1, 0.2, value], mus) - density(2.0, 4.0, [0.1, 0.2], mus)
    assert np.abs(moved).max() <= 2.0 / 4.0 + 1e-9


def test_a_likelihood_that_is_not_clipped_is_caught():
    moved = [
        (density(bound, 4.0, [0.1, 9.0], [0.0]) - density(bound, 4.0, [0.1], [0.0])).item()
        for bound in (2.0, math.inf)
    ]
    assert moved[0] == pytest.approx(-0.5)
    assert moved[1] < -0.5


@pytest.mark.parametrize(
    ("neighbours", "factor"), [("add_remove", 2), ("zero_out", 2), ("replace_one", 4)]
)
@pytest.mark.parametrize("draws", [1, 3])
def test_draws_share_the_budget_and_replaced_records_cost_twice(neighbours, factor, draws):
    terms = {"loglik_bound": 3.0, "epsilon": 0.6, "delta": 1e-5, "neighbours": neighbours}
    found = pymc_dp.plan(NORMAL, draws, "dp_ops", **terms).plan
    [release] = found.releases
    temper = 1 / temperature_of(release)
    assert temper == pytest.approx(0.6 / (draws * factor * 3.0), rel=2e-3)
    assert found.epsilon() <= 0.6
    assert found.epsilon() == pytest.approx(draws * factor * 3.0 * temper)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_epsilon_is_what_two_neighbouring_densities_show(neighbours):
    # normalised on a grid; normalisers hardly move here, which leaves half of what is claimed
    release = release_from("draw", "full", 1.0, 2.0, 4.0, 1, "exponential")
    grid = np.linspace(-4, 8, 401)
    narrow = zoo.mean(np.array([0.0, 1.0]), prior_sd=2, sd=0.01)
    far = [0.5, 5.0] if neighbours == "replace_one" else [0.5]
    a, b = (density(2.0, temperature_of(release), y, grid, narrow) for y in ([0.5, 0.5], far))
    a, b = (x - np.logaddexp.reduce(x) for x in (a, b))
    claimed = plan_from((release,), neighbours, 1e-5, "pld").epsilon()
    assert np.abs(a - b).max() <= claimed
    assert np.abs(a - b).max() > 0.45 * claimed


def test_a_posterior_is_never_sharpened():
    idata = fit("dp_ops", epsilon=1e6, transitions=100)
    assert idata["privacy"].attrs["temperature"] == 1.0
    assert idata["privacy"].attrs["epsilon_if_exact"] <= 2 * 5.0 * 1.001


def test_no_epsilon_is_claimed_but_one_that_assumes_exact_draws():
    idata = fit("dp_ops", epsilon=1.0, transitions=100)
    attrs = idata["privacy"].attrs
    assert math.isnan(attrs["epsilon"])
    assert math.isnan(idata["posterior"].attrs["epsilon"])
    assert attrs["epsilon_if_exact"] == pytest.approx(1.0)
    assert np.isnan(idata["privacy"]["epsilon"]).all()
    assert "NO GUARANTEE IS PROVED" in pymc_dp.privacy_report(idata)
    with pytest.raises(ValueError, match="not proved"):
        pymc_dp.plot_privacy(idata)


def test_nothing_but_the_draw_leaves_the_chain():
    idata = fit("dp_ops", epsilon=1.0, n=2, transitions=100)
    assert idata["posterior"].sizes["draw"] == 2
    assert set(idata["fit"].data_vars) == {"released_draws"}
    assert set(idata["fit_stats"].data_vars) == {"sample_path"}
    assert "sample_stats" not in idata.children


def test_bad_records_are_left_out_of_a_draw():
    spoilt = fit("dp_ops", data={"y": np.array([math.nan, 0.5, 0.4])}, epsilon=9, transitions=100)
    assert np.isfinite(spoilt["posterior"]["mu"].values).all()


def test_untempered_draws_lie_where_the_posterior_is():
    settings = {"epsilon": math.inf, "loglik_bound": math.inf, "n": 8, "transitions": 200}
    draws = fit("dp_ops", **settings)["posterior"]["mu"].values.ravel()
    assert (abs(draws - MEAN) < 5 * SD).all()
    assert len(set(draws)) == 8


@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        ("dp_sgld", {"step": 0.0}, "step="),
        ("dp_sgld", {"step": math.inf}, "step="),
        ("dp_ops", {"loglik_bound": 0.0}, "loglik_bound"),
        ("dp_ops", {"transitions": 3}, "transitions="),
        ("dp_ops", {"draws": 5}, "give a larger n="),
    ],
)
def test_bad_settings_are_refused(method, settings, words):
    with pytest.raises(ValueError, match=words):
        fit(method, epsilon=1.0, **settings)


def test_what_exact_draws_have_no_use_for_is_refused():
    with pytest.raises(TypeError, match="clip_norm"):
        fit("dp_ops", epsilon=1.0, clip_norm=0.5)
    with pm.Model() as flat:
        pm.Normal("y", pm.Flat("mu"), 1.0, observed=Y)
    with pytest.raises(pymc_dp.NotSeparableError, match="`mu` has a flat prior"):
        fit("dp_ops", model=flat, epsilon=1.0)


def test_draws_beside_sums_claim_no_epsilon():
    draw = release_from("draw", "full", 1.0, 2.0, 4.0, 2, "exponential")
    noisy = release_from("score", "full", 1.0, 1.0, 3.0, 1)
    both = plan_from((draw, noisy), "add_remove", 1e-5, "pld")
    assert both.epsilon() == math.inf
    assert not both.all_sums
