"""Latents of single records reach nothing that is released; what does is refused in a sentence."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp
from pymc_dp.errors import NotSeparableError
from pymc_dp.methods.vips.belief_nets import latent_prior
from pymc_dp.model import constrained, separate
from tests.zoo import build

N, J, K = 23, 4, 2
TABLE = np.random.default_rng(1).normal(size=(N, J))
YES = (TABLE > 0).astype("int8")
FIT = {"epsilon": 2, "delta": 1e-5, "n": 6, "draws": 5, "progressbar": False, "backend": "python"}


def factors(read=lambda z, w: None, centre=lambda z: 0.0):
    z = pm.Normal("z", 0, 1.0, shape=(N, K))
    w = pm.Normal("w", centre(z), 1.0, shape=(J, K))
    pm.Normal("y", pt.dot(z, w.T), tau=pm.Gamma("tau", 2, 2), observed=TABLE)
    read(z, w)


def binary(log_odds):
    z = pm.Bernoulli("z", logit_p=log_odds, shape=(N, K))
    pm.Bernoulli("y", logit_p=pt.dot(z, pm.Normal("w", shape=(J, K)).T), observed=YES)


READERS = {
    "a potential by row": lambda: factors(read=lambda z, w: pm.Potential("p", -(z**2).sum(axis=1))),
    "a potential of both": lambda: factors(read=lambda z, w: pm.Potential("p", z.sum() * w.sum())),
    "a prior": lambda: factors(centre=lambda z: z.mean()),
}


@pytest.mark.parametrize("describe", READERS.values(), ids=READERS)
@pytest.mark.parametrize("method", ["vips", "dp_advi"])
def test_only_the_likelihood_reads_a_latent_of_single_records(describe, method):
    with pytest.raises(NotSeparableError, match="`[pw]` reads `z`, a latent of single records"):
        pymc_dp.plan(build(describe), method=method, epsilon=1, delta=1e-5)


@pytest.mark.usefixtures("no_release")
def test_a_declared_deterministic_of_a_local_latent_is_refused_before_any_release():
    model = build(lambda: factors(read=lambda z, w: pm.Deterministic("d", z.mean())))
    with pytest.raises(ValueError, match="`d`, which reads the latent `z`"):
        pymc_dp.fit(model=model, method="vips", public=["d"], **FIT)


DIFFER = {
    "data as log odds": lambda: binary(pm.Data("side", TABLE[:, :K])),
    "constant log odds": lambda: binary(np.full((N, K), -5.0)),
}


@pytest.mark.parametrize("describe", DIFFER.values(), ids=DIFFER)
def test_a_prior_that_differs_between_records_is_not_taken_for_a_shared_one(describe):
    with pytest.raises(NotSeparableError, match=r"the prior of `z` reads .* shape \(K,\)"):
        pymc_dp.plan(build(describe), method="vips", epsilon=1, delta=1e-5)


def test_constants_of_one_record_are_read():
    model = build(lambda: binary(pm.Data("odds", np.array([-5.0, 3.0]))))
    records, _ = separate(constrained(model), public=["odds"])
    np.testing.assert_allclose(latent_prior(records).parameter, [-5.0, 3.0])


def test_a_template_of_one_record_cannot_tell_what_belongs_to_it():
    def describe(rows):
        y = pm.Data("outcomes", TABLE[:rows])
        w, z = pm.Normal("w", shape=(J, K)), pm.Normal("z", shape=(rows, K))
        pm.Normal("y", pt.dot(z, w.T), 2.0, observed=y)

    records, _ = separate(build(lambda: describe(2)), data={"outcomes": TABLE})
    assert set(records.local_latents) == {"z"}
    with pytest.raises(ValueError, match="`outcomes` has a single row.*two records or more"):
        separate(build(lambda: describe(1)), data={"outcomes": TABLE})
