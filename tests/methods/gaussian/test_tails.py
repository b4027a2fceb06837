"""What clipping may leave out of scores is known from counts of their lengths, and allowed for."""

from functools import cache

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.contributions.tails import BINS, CENTRES, COUNTS_NORM, SIZE, counts
from pymc_dp.methods.gaussian.coordinates import norm_bounds
from pymc_dp.methods.gaussian.schedule import Shares
from pymc_dp.methods.gaussian.tails import LOCATION, Left, Part, Tails, norms_of
from pymc_dp.testing import deterministic_noise

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")

ROWS = 5000
ALONE = Part(squares=1.0, moment=LOCATION, of_latent=1.0, order=1)


# --- what is concluded from counts ---------------------------------------------------------------


def released(observed, noise, rng):
    """Counts of one latent's scores, which the model takes to be standard normal."""
    norms = np.abs(np.column_stack([observed, rng.normal(size=(len(observed), 8))]))
    total = counts(norms, np.ones(len(norms)), np.full((len(norms), 8), 1 / 8)).sum(axis=0)
    return total + noise * rng.normal(size=SIZE)


def left_of(observed, noise, rng):
    tails = Tails.nothing().add(released(observed, noise, rng), noise, off=0.0)
    return tails.left(len(observed), ALONE, centred=True), tails


OBSERVED = {
    "normal": lambda rng, n: rng.normal(size=n),
    "heavy": lambda rng, n: rng.standard_t(3, n) / 3**0.5,
    "a few far out": lambda rng, n: np.where(rng.random(n) < 0.01, 30.0, rng.normal(size=n)),
    "peaked": lambda rng, n: np.where(rng.random(n) < 0.5, 0.0, 2**0.5 * rng.normal(size=n)),
}


@pytest.mark.parametrize("name", OBSERVED)
@pytest.mark.parametrize("noise", [5.0, 20.0])
@pytest.mark.parametrize("norm", [2.0, 5.0, 12.0])
def test_what_clipping_has_left_out_is_within_two_root_mean_squares(name, noise, norm):
    """Outcomes that are all on one side: nothing of what is cut off cancels."""
    rng, number = np.random.default_rng(0), 30_000
    observed = abs(OBSERVED[name](rng, number))
    left, _ = left_of(observed, noise, rng)
    expected = np.maximum(abs(rng.normal(size=10**6)) - norm, 0.0).mean()
    bias = (np.maximum(observed - norm, 0.0).mean() - expected) * number**0.5
    assert abs(bias) < 2 * left.bias(norm, np.inf) + 1


def test_outcomes_that_surprise_where_leverage_is_high_count_as_long_as_their_scores_are():
    """Relative lengths of so few records would be those of any others."""
    rng, number, norm = np.random.default_rng(0), 30_000, 12.0
    leverage = np.where(rng.random(number) < 0.01, 10.0, 1.0)
    drawn = leverage[:, None] * abs(rng.normal(size=(number, 8)))
    observed = leverage * abs(rng.normal(size=number) + np.where(leverage > 1, 2.0, 0.0))
    norms = np.column_stack([observed, drawn])
    total = counts(norms, leverage, np.full((number, 8), 1 / 8)).sum(axis=0)
    left = Tails.nothing().add(total, 5.0, off=0.0).left(number, ALONE, centred=True)
    cut = np.maximum(norms - norm, 0.0)
    bias = (cut[:, 0] - cut[:, 1:].mean(axis=1)).sum() / number**0.5
    assert bias > 5
    assert 0.5 * bias < left.bias(norm, np.inf) < 3 * bias


def test_what_noise_hides_of_the_location_has_no_sign_and_of_the_dispersion_one():
    hidden, none = np.full(BINS, 3.0), np.zeros(BINS)
    location, dispersion = (
        Left(none, hidden, none, none, 0.0, 100.0, ALONE._replace(order=order)).bias(0.0, np.inf)
        for order in (2, 1)
    )
    assert location == pytest.approx(3.0 * np.linalg.norm(CENTRES) / 10)
    assert dispersion == pytest.approx(3.0 * CENTRES.sum() / 10)


def test_if_the_model_is_right_the_bound_is_small_at_any_noise():
    """As large as what the noise of such counts may hide, and no larger."""
    rng = np.random.default_rng(0)
    for noise in (3.0, 30.0, 100.0):
        left, _ = left_of(rng.normal(size=30_000), noise, rng)
        assert left.bias(3.0, np.inf) < 0.1 * noise


@pytest.mark.parametrize("name", OBSERVED)
def test_norms_grow_without_a_ceiling_and_biases_go_to_nothing(name):
    chosen = []
    for noise in (30.0, 1.0, 0.03):
        rng = np.random.default_rng(0)
        left, _ = left_of(OBSERVED[name](rng, 30_000), noise, rng)
        norm = norms_of([left], noise / 100).location
        chosen.append((norm, left.bias(norm, np.inf)))
    norms, biases = np.array(chosen).T
    assert norms[-1] > 2 * norms[0] or norms[0] > 30
    assert biases[-1] < 0.2 * max(biases[0], 0.1)


def test_norms_of_curvatures_have_no_ceiling_either():
    shares = [Shares(curvature=0.4, score=0.6)]
    norms = [norm_bounds(5, number, 4.0, shares, 5.0)[1] for number in (100, 10**4, 10**6)]
    assert norms[0] == 1.5 * 5
    assert norms[2] == pytest.approx(10 * norms[1])


def test_before_any_release_bounds_are_as_wide_as_a_wrong_model_is():
    left = Tails.nothing().left(1000, Part.location(3.0, latents=3), centred=True)
    assert left.bias(6.0, np.inf) < left.bias(3.0, np.inf)
    assert left.bias(3.0, np.inf) > 0.3


def test_where_nothing_centres_all_that_is_cut_off_is_left_out():
    rng = np.random.default_rng(0)
    observed = rng.exponential(size=(30_000, 1))
    total = counts(observed, np.ones(30_000), np.zeros((30_000, 0))).sum(axis=0)
    left = Tails.nothing().add(total, 1.0, 0.0).left(30_000, ALONE, centred=False)
    bias = np.maximum(observed - 3.0, 0.0).mean() * 30_000**0.5
    assert 0.5 * bias < left.bias(3.0, np.inf) < 4 * bias


def test_a_bias_spreads_over_latents_of_the_location_and_not_of_the_dispersion():
    whole, spread = (
        Tails.nothing().left(1000, ALONE._replace(of_latent=x), centred=True).bias(3.0, 9.0)
        for x in (Part.dispersion(1).of_latent, Part.location(3.0, latents=4).of_latent)
    )
    assert spread == pytest.approx(whole / 2)


def test_heavy_tails_of_residuals_cost_their_scale_and_not_their_location():
    """Of the dispersion, whose scores are squares, more is cut off; it has a norm of its own."""
    rng = np.random.default_rng(0)
    residuals = rng.standard_t(4, 30_000) / 2**0.5
    parts = {Part.location(3.0, 3): residuals, Part.dispersion(1): (residuals**2 - 1) / 2**0.5}
    lefts = [
        Tails.nothing().add(released(scores, 10.0, rng), 10.0, 0.0).left(30_000, part, centred=True)
        for part, scores in parts.items()
    ]
    norms = norms_of(lefts, noise=0.05)
    assert norms.dispersion > 3 * norms.location / 3**0.5
    together = norms_of(lefts[1:], noise=0.05)  # one norm for all, as long as scales need
    assert lefts[0].bias(norms.location, np.inf) < 0.5
    assert together.location > 2 * norms.location / 3**0.5


def test_false_alarms_are_no_more_than_the_size_of_the_test_says():
    rng, fits = np.random.default_rng(0), 4000
    alarms = 0
    for _ in range(fits):
        expected = np.full(BINS, 400.0)
        excess = rng.normal(0, (30.0**2 + 400.0 * 9 / 8) ** 0.5, BINS)
        total = np.concatenate([excess, expected / 2, np.zeros(BINS)])
        alarms += Tails.nothing().add(total, 30.0, off=0.0).misfit() > 1
    assert alarms / fits < 0.001 + 5 * (0.001 / fits) ** 0.5


def test_what_a_point_beside_the_mode_moves_is_no_misfit():
    total = np.concatenate([np.repeat([800.0, -800.0], BINS // 2), np.full(2 * BINS, 2000.0)])
    assert Tails.nothing().add(total, 30.0, off=0.0).misfit() > 1
    assert Tails.nothing().add(total, 30.0, off=0.2).misfit() < 1


# --- fits --------------------------------------------------------------------------------------


def line(errors):
    """A normal regression, and errors that may not be normal; all have mean 0 and sd 1."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 3))
    y = 1 + X @ [0.5, -0.5, 1.0] + errors(rng)
    with pm.Model() as model:
        mean = pm.Normal("a", 0, 2) + pm.Data("X", X) @ pm.Normal("b", 0, 1, shape=3)
        pm.Normal("y", mean, pm.HalfNormal("s", 2), observed=y)
    return model


def overdispersed():
    """Poisson outcomes whose rates vary between records, which the model does not say."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=ROWS)
    with pm.Model() as model:
        rate = pm.math.exp(pm.Normal("a", 0, 2) + pm.Normal("b", 0, 1) * pm.Data("x", x))
        y = rng.poisson(np.exp(1 + 0.5 * x) * rng.gamma(2, 1 / 2, ROWS))
        pm.Poisson("y", rate, observed=y)
    return model


MODELS = {
    "normal": lambda: line(lambda rng: rng.normal(size=ROWS)),
    "exponential": lambda: line(lambda rng: rng.exponential(size=ROWS) - 1),
    "heavy": lambda: line(lambda rng: rng.standard_t(5, ROWS) * 0.6**0.5),
    "counts": overdispersed,
}


def fitted(name, epsilon):
    with deterministic_noise(2):
        return pymc_dp.fit(
            model=MODELS[name](),
            epsilon=epsilon,
            delta=1e-5,
            progressbar=False,
            backend="python",
            random_seed=1,
        )


known = cache(fitted)


def farthest(name, epsilon, fit=known):
    """The largest distance of any latent from its mean without privacy, in private sds."""
    found, right = (x["posterior"].to_dataset() for x in (fit(name, epsilon), known(name, np.inf)))
    dims = ("chain", "draw")
    off = abs(found.mean(dims) - right.mean(dims)) / found.std(dims)
    return max(float(x.max()) for x in off.values())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_the_shape_of_outcomes_does_not_bias_a_fit(name, epsilon):
    assert farthest(name, epsilon) < 4


@pytest.mark.parametrize("name", ["exponential", "heavy"])
def test_a_fit_that_takes_the_model_to_be_right_is_biased(name, monkeypatch):
    """The planted fault."""
    right = farthest(name, 1.0)
    monkeypatch.setattr(Left, "_clipped", lambda left, norms: 0.0 * norms)
    assert farthest(name, 1.0, fitted) > max(3.0, 1.5 * right)


@pytest.mark.parametrize("name", ["normal", "exponential", "heavy", "counts"])
def test_a_misfit_is_said_and_nothing_else(name):
    idata = known(name, 8.0)
    said = "not distributed as the model says" in idata["privacy"].attrs["doubts"]
    assert said == (name != "normal")
    assert (float(idata["fit"]["misfit"]) > 1) == said


# --- scores that nothing centres -----------------------------------------------------------------


def test_clipping_a_skewed_potential_leaves_little_bias():
    y = np.random.default_rng(0).exponential(1 / 3.0, 50_000)
    with pm.Model() as model:
        rate = pm.Gamma("rate", 8, 2)
        pm.Potential("times", pm.math.log(rate) - rate * pm.Data("y", y))
    with deterministic_noise(1):
        idata = pymc_dp.fit(
            model=model, epsilon=0.3, delta=1e-5, progressbar=False, random_seed=1, backend="python"
        )
    rate, plain_sd = idata["posterior"]["rate"].to_numpy(), 3.0 / len(y) ** 0.5
    assert abs(rate.mean() - 1 / y.mean()) < 2.5 * rate.std()
    assert 1 < rate.std() / plain_sd < 3
    assert "not distributed" not in idata["privacy"].attrs["doubts"]


def by_potential(y):
    with pm.Model() as model:
        mu, s = pm.Normal("mu", 0, 5), pm.HalfNormal("s", 3)
        pm.Potential("values", pm.logp(pm.Normal.dist(mu, s), pm.Data("y", y)))
    return model


@pytest.mark.parametrize(("epsilon", "widest"), [(1.0, 30.0), (20.0, 5.0)])
def test_a_normal_potential_reaches_its_mode(epsilon, widest):
    y = np.random.default_rng(0).normal(0.5, 1.0, 4000)
    with deterministic_noise(1):
        idata = pymc_dp.fit(
            model=by_potential(y), epsilon=epsilon, delta=1e-5, progressbar=False, backend="python"
        )
    for name, right in (("mu", y.mean()), ("s", y.std())):
        mean, sd = (float(f(idata["posterior"][name])) for f in (np.mean, np.std))
        assert abs(mean - right) < 4 * sd
        assert sd * len(y) ** 0.5 < widest  # in standard deviations without privacy


def test_counts_have_the_norm_that_their_scale_divides_by():
    assert COUNTS_NORM == pytest.approx(2.5**0.5)
    assert CENTRES[-1] / CENTRES[0] == 2.0 ** (BINS - 1)
