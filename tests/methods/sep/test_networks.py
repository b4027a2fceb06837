"""Networks by stochastic expectation propagation: against closed forms, and against lines."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit

import pymc_dp
from pymc_dp.driver.fit import set_up
from pymc_dp.driver.run import compile_method
from pymc_dp.errors import NotSeparableError
from pymc_dp.methods.registry import DP_SEP, METHODS, OF_SEP, build_matching
from pymc_dp.methods.sep import network_fit
from pymc_dp.privacy.contribution import Noisy
from pymc_dp.testing import deterministic_noise
from tests.zoo import build as model_of

RNG = np.random.default_rng(0)
N, D = 400, 3
X = RNG.normal(size=(N, D)) @ np.array([[1.0, 0.4, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 1.0]])
WEIGHTS = np.array([0.8, -0.5, 0.3])
LINE = X @ WEIGHTS + 0.5 * RNG.normal(size=N)
NOISE_SD = 0.3
[NETWORK] = [found for found in OF_SEP if found.build is network_fit.build]
METHOD_OF_NETWORKS = DP_SEP._replace(build=lambda *x: build_matching("dp_sep", (NETWORK,), *x))


def wave(rows, seed):
    """A function of two features that no line comes close to, and its features."""
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1.7, 1.7, size=(rows, 2))
    return features, np.sin(2 * features[:, 0]) + features[:, 1] ** 2 - 1


def linear(**noise):
    w = pm.Normal("w", 0, 2, shape=D)
    pm.Normal("y", pm.math.dot(pm.Data("X", X), w), observed=LINE, **noise)


def hidden(features, units=20, activate=lambda x: pm.math.maximum(0, x), deep=False, **prior):
    scale = (lambda n: prior) if prior else (lambda n: {"sigma": n**-0.5})
    z, length = pm.Data("X", features), features.shape[1]
    for k in range(1 + deep):
        W = pm.Normal(f"W{k}", 0, shape=(units, length), **scale(length))
        b = pm.Normal(f"b{k}", 0, shape=units, **scale(1))
        z, length = activate(pm.math.dot(z, W.T) + b), units
    return pm.math.dot(z, pm.Normal("w", 0, shape=units, **scale(units))) + pm.Normal("b")


def fit(build, **settings):
    model = model_of(build)
    given = {"epsilon": np.inf, "clip_norm": np.inf, "delta": 1e-6, "random_seed": 1} | settings
    return pymc_dp.fit(
        model=model, method="dp_sep", progressbar=False, backend="python", draws=300, **given
    )


def predicted(idata, features, activate=lambda x: np.maximum(0, x)):
    """Posterior mean of the output of `hidden`."""
    p = {k: v.values[0] for k, v in idata["posterior"].data_vars.items()}
    z = np.broadcast_to(features, (300, *features.shape))
    for k in range(len([name for name in p if name.startswith("W")])):
        z = activate(z @ np.swapaxes(p[f"W{k}"], 1, 2) + p[f"b{k}"][:, None])
    return (np.vecdot(z, p["w"][:, None]) + p["b"][:, None]).mean(axis=0)


# --- closed forms ------------------------------------------------------------------------------


def test_a_fit_without_hidden_units_finds_the_conjugate_mean(monkeypatch):
    monkeypatch.setitem(METHODS, "dp_sep", METHOD_OF_NETWORKS)
    idata = fit(lambda: linear(sigma=0.5), sampling="full", num_records=N, n=300)
    precision = X.T @ X / 0.25 + np.eye(D) / 4
    mean = np.linalg.solve(precision, X.T @ LINE / 0.25)
    found = idata["fit"]
    np.testing.assert_allclose(found["mean_vector"], mean, atol=2e-3)
    np.testing.assert_allclose(found["standard_deviation"], np.diag(precision) ** -0.5, rtol=0.02)


@pytest.fixture(scope="module")
def steep():
    """Features that are nearly the same, and a fit without noise to what they have in common."""
    rng = np.random.default_rng(8)
    common = rng.normal(size=(200, 1))
    features = common + 0.1 * rng.normal(size=(200, 120))
    y = common[:, 0] + 0.35 * rng.normal(size=200)

    def build():
        w = pm.Normal("w", 0, 0.1, shape=120)
        pm.Normal("y", pm.math.dot(pm.Data("X", features), w), sigma=0.35, observed=y)

    terms = {"epsilon": np.inf, "clip_norm": np.inf, "sampling": "full", "num_records": 200}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, "dp_sep", METHOD_OF_NETWORKS)
        prepared = set_up(model_of(build), "dp_sep", None, **terms)
    return prepared, compile_method(prepared, "python"), {"X": features, "y": y}


def states(prepared, compiled, batch, state, releases):
    """The states that follow, one for each release of the whole batch."""
    for _ in range(releases):
        query = prepared.method.query(state, None)
        rows = compiled.contributions["sites"].prepare(batch, query.context)
        state = compiled.update(state, query, Noisy(rows.sum(axis=0), 0.0, 1.0))
        yield state


def test_steps_do_not_swing_across_a_steep_direction(steep):
    prepared, compiled, batch = steep
    start = prepared.method.init(np.random.default_rng(1))
    path = [state.mean for state in states(prepared, compiled, batch, start, 300)]
    assert np.abs((np.array(path[100:]) - path[-1]) @ batch["X"].T).max() < 0.1


def test_the_last_bit_of_the_data_does_not_decide_where_a_fit_is(steep):
    prepared, compiled, batch = steep
    start = prepared.method.init(np.random.default_rng(1))
    *_, middle = states(prepared, compiled, batch, start, 60)
    found = []
    for seed in range(20):
        X = np.nextafter(batch["X"], np.random.default_rng(seed).choice([-9, 9], (200, 120)))
        *_, last = states(prepared, compiled, batch | {"X": X}, middle, 80)
        found.append(batch["X"] @ last.mean)
    assert np.ptp(found, axis=0).max() < 1e-12


# --- networks ----------------------------------------------------------------------------------


def residual_sd(idata, seed=9, **form):
    features, truth = wave(500, seed)
    return np.std(truth - predicted(idata, features, **form))


def of_line(features, y, seed=9):
    new, truth = wave(500, seed)
    return np.std(truth - new @ np.linalg.lstsq(features, y, rcond=None)[0])


@pytest.fixture(scope="module")
def waves():
    features, truth = wave(600, 2)
    return features, truth + NOISE_SD * np.random.default_rng(3).normal(size=len(truth))


def test_a_hidden_layer_beats_a_line_and_finds_the_noise(waves):
    features, y = waves

    def build():
        pm.Normal("y", hidden(features), tau=pm.Gamma("tau", 2, 1), observed=y)

    idata = fit(build, num_records=len(y), n=400, sample_rate=0.2, step=1.0)
    assert residual_sd(idata) < 0.5 * of_line(features, y)
    noise_sd = float((idata["posterior"]["tau"] ** -0.5).mean())
    assert noise_sd == pytest.approx(NOISE_SD, rel=0.15)


@pytest.mark.slow
def test_two_hidden_layers_with_a_precision_of_weights_beat_a_line(waves):
    features, y = waves

    def build():
        output = hidden(features, 10, pm.math.tanh, deep=True, tau=pm.Gamma("lam", 6, 6))
        pm.Normal("y", output, tau=pm.Gamma("tau", 2, 1), observed=y)

    idata = fit(build, num_records=len(y), n=400, sample_rate=0.2, step=1.0)
    assert residual_sd(idata, activate=np.tanh) < 0.8 * of_line(features, y)
    assert idata["fit"]["lam.rate"].ndim == 0
    assert idata["fit"]["W1.precision"].dims == idata["posterior"]["W1"].dims[2:]


@pytest.mark.parametrize("link", ["logit", pytest.param("probit", marks=pytest.mark.slow)])
def test_a_hidden_layer_tells_classes_that_no_line_parts(waves, link):
    features, _ = waves
    classes = (np.prod(features, axis=1) > 0).astype(int)

    def build():
        output = hidden(features, activate=pm.math.sigmoid if link == "probit" else pm.math.tanh)
        p = {"logit_p": output} if link == "logit" else {"p": pm.math.invprobit(output)}
        pm.Bernoulli("y", observed=classes, **p)

    idata = fit(build, num_records=len(classes), n=400, sample_rate=0.2, step=1.0)
    new, _ = wave(500, 9)
    got = predicted(idata, new, activate=np.tanh if link == "logit" else expit)
    assert np.mean((got > 0) == (np.prod(new, axis=1) > 0)) > 0.8


def test_a_private_network_beats_a_constant_without_a_declared_number():
    features, truth = wave(4000, 4)
    y = truth + NOISE_SD * np.random.default_rng(5).normal(size=len(truth))

    def build():
        pm.Normal("y", hidden(features, 10), tau=pm.Gamma("tau", 2, 1), observed=y)

    with deterministic_noise(2):
        idata = fit(build, epsilon=4, delta=1e-5, accountant="rdp", clip_norm=None, n=200)
    assert residual_sd(idata) < 0.8 * np.std(wave(500, 9)[1])
    assert (idata["fit"]["noise_sd"] > 0).all()


# --- refusals ----------------------------------------------------------------------------------


def test_weights_that_depend_on_each_other_are_refused(waves):
    features, y = waves

    def build():
        centre = pm.Normal("centre")
        W = pm.Normal("W", centre, shape=(4, 2))
        z = pm.math.maximum(0, pm.math.dot(pm.Data("X", features), W.T))
        pm.Normal("y", pm.math.dot(z, pm.Normal("w", shape=4)), 1, observed=y)

    with pytest.raises(NotSeparableError, match="networks: (the priors of|the likelihood of)"):
        fit(build)


def test_another_likelihood_is_refused(waves):
    features, _ = waves
    with pytest.raises(NotSeparableError, match="no single output"):
        fit(lambda: pm.Poisson("y", pm.math.exp(hidden(features, 4)), observed=np.arange(600) % 4))
