"""What factor models make of bad records and of other models, and how they reconstruct rows."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from tests.methods.vips.factors.factor_fits import (
    BITS,
    NOISELESS,
    PIXELS,
    SPREAD,
    J,
    K,
    N,
    Y,
    belief_net,
    factor_analysis,
    fitted,
    images,
    model_of,
    moments,
    precision,
)


def with_bad_rows(build, data, bad):
    worse = np.vstack([data.astype(float), bad]).astype(data.dtype)
    return [
        pymc_dp.fit(20, model=model_of(build), data={"y": rows}, **NOISELESS)["fit"]
        for rows in (data, worse)
    ]


@pytest.mark.parametrize(
    ("build", "data", "bad"),
    [
        (belief_net, BITS, [[2, 0, 0, 0, 0, 0], [0, 1, -1, 0, 1, 0]]),
        (factor_analysis, Y, [[np.nan] * J, [np.inf, 0, 0, 0, 0], [1e300, 0, 0, 0, 0]]),
    ],
)
def test_a_bad_record_adds_nothing(build, data, bad):
    without, with_bad = with_bad_rows(build, data, bad)
    for name in without:
        assert np.isfinite(without[name]).all()
        np.testing.assert_allclose(with_bad[name], without[name], rtol=1e-9)


def beside_the_predictor():
    W, z = pm.Normal("W", shape=(J, K)), pm.Normal("z", 0, 1, shape=(N, K))
    tau = pm.Gamma("tau", 2, 1)
    pm.Normal("y", z @ W.T, tau=tau * pm.math.exp(z[:, :1]), observed=Y)


def two_local_latents():
    W, z = pm.Normal("W", shape=(J, K)), pm.Normal("z", 0, 1, shape=(N, K))
    e = pm.Normal("e", 0, 1, shape=(N, 1))
    pm.Normal("y", z @ W.T + e, 1.0, observed=Y)


def poisson():
    W, z = pm.Normal("W", shape=(6, K)), pm.Normal("z", 0, 1, shape=(N, K))
    pm.Poisson("y", pm.math.exp(z @ W.T), observed=BITS)


def binary_latents_of_real_outcomes():
    W, z = pm.Normal("W", shape=(J, K)), pm.Bernoulli("z", p=0.5, shape=(N, K))
    pm.Normal("y", z @ W.T, 1.0, observed=Y)


def heavy_tailed_latents():
    W, z = pm.Normal("W", shape=(J, K)), pm.StudentT("z", 4, shape=(N, K))
    pm.Normal("y", z @ W.T, 1.0, observed=Y)


def latents_around_one():
    W, z = pm.Normal("W", shape=(J, K)), pm.Normal("z", 1, 1, shape=(N, K))
    pm.Normal("y", z @ W.T, 1.0, observed=Y)


def one_number_for_one_latent():
    W, z = pm.Normal("W", shape=(1, 1)), pm.Normal("z", 0, 1, shape=(N, 1))
    pm.Normal("y", z @ W.T, 1.0, observed=Y[:, :1])


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (one_number_for_one_latent, "`z` has not one matrix of loadings"),
        (beside_the_predictor, "`z`"),
        (two_local_latents, "belong to single records, where there must be one"),
        (poisson, "the likelihood of `y` is neither Gaussian nor logistic in its linear predictor"),
        (binary_latents_of_real_outcomes, "`z` must be Gaussian where outcomes are"),
        (heavy_tailed_latents, "`z`, which belongs to single records, is neither Gaussian nor"),
        (latents_around_one, "the prior of `z` is not Gaussian around 0"),
    ],
)
def test_what_is_no_factor_model_is_refused(build, reason):
    with pytest.raises(pymc_dp.NotSeparableError, match="factor models: .*" + reason):
        pymc_dp.fit(model=model_of(build), **NOISELESS)


def test_other_forms_are_refused():
    with pytest.raises(ValueError, match="form='absolute' is not for factor models"):
        pymc_dp.fit(model=model_of(factor_analysis), form="absolute", **NOISELESS)


# --- reconstructions -----------------------------------------------------------------------------


def test_a_reconstruction_needs_only_the_released_fit():
    idata = fitted(images, 20)
    only = pymc_dp.reconstruct({"fit": idata["fit"]}, model_of(images), {"y": PIXELS[:3]})
    np.testing.assert_array_equal(
        only, pymc_dp.reconstruct(idata, model_of(images), {"y": PIXELS})[:3]
    )
    assert only.dims == ("y_dim_0", "y_dim_1")
    assert ((only > 0) & (only < 1)).all()


def test_a_reconstruction_of_gaussian_outcomes_is_the_expected_outcome():
    idata = fitted(factor_analysis, 20)
    (M, V), (c, _), tau = moments(idata, "W"), moments(idata, "c"), precision(idata)
    covariance = np.linalg.inv(np.diag(SPREAD**-2) + tau * (M.T @ M + np.diag(V.sum(axis=0))))
    expected = tau * (Y - c) @ M @ covariance @ M.T + c
    found = pymc_dp.reconstruct(idata, model_of(factor_analysis), {"y": Y})
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_reconstruction_has_the_models_dims():
    def labelled():
        pm.modelcontext(None).add_coords({"pixel": list("abcdef"), "image": range(2000)})
        W = pm.Normal("W", 0, 2, dims=("pixel", "part"), shape=(6, K))
        z = pm.Bernoulli("z", p=0.5, shape=(2000, K))
        pm.Bernoulli("y", logit_p=z @ W.T, observed=PIXELS, dims=("image", "pixel"))

    idata = pymc_dp.fit(5, model=model_of(labelled), **NOISELESS)
    found = pymc_dp.reconstruct(idata, model_of(labelled), {"y": PIXELS[:2]})
    assert found.dims == ("image", "pixel")
    assert list(found["pixel"].values) == list("abcdef")


def test_impossible_rows_and_other_models_are_refused():
    idata, bad = fitted(images, 20), np.array([[0] * 6, [3] * 6])
    with pytest.raises(ValueError, match="1 row of data=`y` lies outside the support"):
        pymc_dp.reconstruct(idata, model_of(images), {"y": bad})
    with pytest.raises(ValueError, match="it lacks"):
        pymc_dp.reconstruct(idata, model_of(factor_analysis), {"y": Y})
    with pytest.raises(ValueError, match="no factor model that vips fits: .*`z`"):
        pymc_dp.reconstruct(idata, model_of(two_local_latents), {"y": Y})
