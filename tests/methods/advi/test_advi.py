"""Private ADVI finds what ADVI finds, and close to it when it must protect records."""

import functools
import math

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.model.compilation import compile_mode

ROWS = 2000


@functools.cache
def logistic():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(ROWS, 3))
    y = (rng.random(ROWS) < 1 / (1 + np.exp(-(0.3 + X @ [1.0, -0.5, 0.0])))).astype(int)
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 2), pm.Normal("b", 0, 2, shape=3)
        pm.Bernoulli("y", logit_p=a + X @ b, observed=y)
    return model


def without_noise(model, **settings):
    return pymc_dp.fit(
        model=model,
        epsilon=math.inf,
        clip_norm=math.inf,
        progressbar=False,
        random_seed=1,
        sampling="full",
        backend="python",
        draws=20,
        **settings,
    )


def test_without_noise_and_clipping_the_means_are_those_of_advi():
    ours = without_noise(logistic(), n=500)["fit"]
    means, sds = stock_advi(logistic())
    for name, mean in zip(ours["rows"].values, ours["mean_vector"].values, strict=True):
        assert abs(mean - means[name]) < 0.25 * sds[name], name


def stock_advi(model, n=1000):
    """Posterior means and standard deviations of pm.ADVI, its last half averaged."""
    path = []
    with model:
        inference = pm.ADVI(random_seed=1)
        names = labels(inference.approx)
        mu, rho = (inference.approx.params_dict[name] for name in ("mu", "rho"))
        inference.fit(
            n,
            progressbar=False,
            callbacks=[lambda *_: path.append((mu.get_value(), rho.get_value()))],
            obj_optimizer=pm.adam(learning_rate=0.02),
            compile_kwargs={"mode": compile_mode("python")},
        )
    mean, spread = np.mean(path[n // 2 :], axis=0)
    sds = np.logaddexp(0, spread)
    return dict(zip(names, mean, strict=True)), dict(zip(names, sds, strict=True))


def labels(approximation):
    """Name the coordinates of PyMC's flat vector as a result does."""
    names = []
    for name, (_, _, shape, _) in approximation.ordering.items():
        names += [
            name + (f"[{', '.join(map(str, i))}]" if i else "") for i in np.ndindex(tuple(shape))
        ]
    return names


def test_full_rank_finds_the_correlations_that_mean_field_drops():
    rng = np.random.default_rng(4)
    x = rng.normal(size=ROWS)
    X = np.column_stack([x, x + 0.3 * rng.normal(size=ROWS)])
    y = X @ [1.0, -1.0] + rng.normal(size=ROWS)
    with pm.Model() as model:
        pm.Normal("y", X @ pm.Normal("b", shape=2), 1.0, observed=y)
    covariance = np.linalg.inv(X.T @ X + np.eye(2))
    fit = without_noise(model, method="dp_fullrank_advi", n=3000)["fit"]
    np.testing.assert_allclose(fit["mean_vector"], covariance @ X.T @ y, atol=0.02)
    np.testing.assert_allclose(fit["covariance_matrix"], covariance, rtol=0.25)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method": "dp_fullrank_advi"},
        {"aligned": False, "n": 400},
        {"obj_n_mc": 3},
        {"clip_norm": lambda t: 2.0 if t < 100 else 1.5}
        | {"sample_rate": lambda t: 0.05 if t < 50 else 0.1},
        {"obj_optimizer": pm.adagrad_window(learning_rate=0.05)},
    ],
    ids=["defaults", "full rank", "plain", "three draws", "schedules", "pymc"],
)
def test_a_private_fit_is_near_the_truth_with_every_setting(settings):
    # the default accountant, and for other settings one that is quick at all of them
    terms = {"accountant": "rdp", "epsilon": 2.2} if settings else {"epsilon": 2.0}
    terms |= {"delta": 1e-5, "progressbar": False, "draws": 20}
    idata = pymc_dp.fit(model=logistic(), **terms, **settings)
    assert idata["privacy"].attrs["epsilon"] <= terms["epsilon"]
    means = idata["fit"]["mean_vector"].values
    # about four standard deviations of the posterior, to which noise adds less than as much
    np.testing.assert_allclose(means, [0.3, 1.0, -0.5, 0.0], atol=0.2)
