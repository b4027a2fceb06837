"""What belief nets make of bad records and of other models, and how they reconstruct rows."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from tests.methods.vips.net_fits import (
    BITS,
    NOISELESS,
    PIXELS,
    K,
    N,
    belief_net,
    fitted,
    images,
    model_of,
)

REAL = np.random.default_rng(8).normal(size=(N, 5))


def with_bad_rows(build, data, bad):
    worse = np.vstack([data.astype(float), bad]).astype(data.dtype)
    return [
        pymc_dp.fit(20, model=model_of(build), data={"y": rows}, **NOISELESS)["fit"]
        for rows in (data, worse)
    ]


def test_a_bad_record_adds_nothing():
    bad = [[2, 0, 0, 0, 0, 0], [0, 1, -1, 0, 1, 0]]
    without, with_bad = with_bad_rows(belief_net, BITS, bad)
    for name in without:
        assert np.isfinite(without[name]).all()
        np.testing.assert_allclose(with_bad[name], without[name], rtol=1e-9)


def beside_the_predictor():
    W, z = pm.Normal("W", shape=(6, K)), pm.Bernoulli("z", 0.5, shape=(N, K))
    pm.Bernoulli("y", logit_p=(z @ W.T) * pm.math.exp(z[:, :1]), observed=BITS)


def two_local_latents():
    W, z = pm.Normal("W", shape=(6, K)), pm.Bernoulli("z", 0.5, shape=(N, K))
    pm.Bernoulli("y", logit_p=z @ W.T + pm.Normal("e", shape=(N, 1)), observed=BITS)


def factor_analysis():
    W, z = pm.Normal("W", shape=(5, K)), pm.Normal("z", shape=(N, K))
    pm.Normal("y", z @ W.T, 1.0, observed=REAL)


def shrunk():
    scale = pm.math.sqrt(pm.Gamma("zeta", 1.5, 1.0, shape=(6, K)))
    W, z = pm.Normal("W", 0, scale, shape=(6, K)), pm.Bernoulli("z", 0.5, shape=(N, K))
    pm.Bernoulli("y", logit_p=z @ W.T, observed=BITS)


def one_number_for_one_latent():
    W, z = pm.Normal("W", shape=(1, 1)), pm.Bernoulli("z", 0.5, shape=(N, 1))
    pm.Bernoulli("y", logit_p=z @ W.T, observed=BITS[:, :1])


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (one_number_for_one_latent, "`z` has not one matrix of loadings"),
        (beside_the_predictor, "`W` is neither the loadings of `z` nor an intercept"),
        (two_local_latents, "belong to single records, where there must be one"),
        (factor_analysis, "`z`, which belongs to single records, is not binary.*'dp_advi'"),
        (shrunk, "the prior of `zeta` is not conjugate"),
    ],
)
def test_what_is_no_belief_net_is_refused(build, reason):
    with pytest.raises(pymc_dp.NotSeparableError, match="belief nets: .*" + reason):
        pymc_dp.fit(model=model_of(build), **NOISELESS)


# --- reconstructions -----------------------------------------------------------------------------


def test_a_reconstruction_needs_only_the_released_fit():
    idata = fitted(images, 20)
    only = pymc_dp.reconstruct({"fit": idata["fit"]}, model_of(images), {"y": PIXELS[:3]})
    np.testing.assert_array_equal(
        only, pymc_dp.reconstruct(idata, model_of(images), {"y": PIXELS})[:3]
    )
    assert only.dims == ("y_dim_0", "y_dim_1")
    assert ((only > 0) & (only < 1)).all()


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
        pymc_dp.reconstruct(idata, model_of(belief_net), {"y": BITS})
    with pytest.raises(ValueError, match="no belief net that vips fits: .*`z`"):
        pymc_dp.reconstruct(idata, model_of(two_local_latents), {"y": BITS})
