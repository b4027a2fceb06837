"""Bambi's models: what it reads from the data before PyMC sees anything, and how to do without.

Bambi computes priors, centred predictors and levels with NumPy. They arrive as constants. These
tests say what that means, so that the day it changes is noticed.
"""

import logging

import bambi as bmb
import numpy as np
import pandas as pd
import pytest
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors

import pymc_dp

ARMS = ["none", "letter", "call"]
PRIORS = {
    "Intercept": bmb.Prior("Normal", mu=0, sigma=1.5),
    "age": bmb.Prior("Normal", mu=0, sigma=1),
    "arm": bmb.Prior("Normal", mu=0, sigma=1),
}
SAFE = {"priors": PRIORS, "auto_scale": False, "center_predictors": False}
COEFFICIENTS = list(PRIORS)
CANARY = 0.123456789012345
BUDGET = {"epsilon": 1, "delta": 1e-5, "num_records": 400, "progressbar": False}


def persons():
    rng = np.random.default_rng(7)
    age = np.append(rng.uniform(-1, 1, size=399), CANARY)
    return pd.DataFrame(
        {
            "age": age,
            "arm": pd.Categorical(rng.choice(ARMS[:2], 400), categories=ARMS, ordered=True),
            "came": rng.binomial(1, 1 / (1 + np.exp(-age))),
        }
    )


def with_one_more():
    someone = persons().head(1).assign(age=40.0)
    return pd.concat([persons(), someone], ignore_index=True)


def built(data, formula="came ~ age + arm", **settings):
    logging.getLogger("bambi").setLevel(logging.ERROR)
    model = bmb.Model(formula, data, family="bernoulli", **settings)
    model.build()
    return model


def prior_numbers(model):
    return {
        name: [parameter.eval().tolist() for parameter in model[name].owner.inputs[-2:]]
        for name in COEFFICIENTS
    }


def predictors(model):
    read = ancestors([model["came"]])
    [matrix] = [x.data for x in read if isinstance(x, Constant) and np.ndim(x.data) == 2]
    return matrix


def neighbours(**settings):
    return [built(data, **settings).backend.model for data in (persons(), with_one_more())]


@pytest.fixture(scope="module")
def fitted():
    model = built(persons(), **SAFE)
    return model, pymc_dp.fit(model=model, method="vips", random_seed=1, **BUDGET)


def test_automatic_priors_move_with_one_person():
    one, other = neighbours(center_predictors=False)
    assert prior_numbers(one)["age"] != prior_numbers(other)["age"]


def test_priors_of_ones_own_do_not_move():
    one, other = neighbours(**SAFE)
    assert prior_numbers(one) == prior_numbers(other)
    assert prior_numbers(one)["age"] == [0, 1]


def test_uncentred_predictors_of_a_person_do_not_depend_on_others():
    one, other = neighbours(**SAFE)
    assert np.array_equal(predictors(one), predictors(other)[:-1])


def test_centred_predictors_depend_on_everyone():
    one, other = neighbours(**SAFE | {"center_predictors": True})
    moved = predictors(one) - predictors(other)[:-1]
    assert (np.abs(moved[:, 0]) > 0.05).all()


def test_ordered_categories_are_taken_as_listed_others_as_they_occur():
    listed = persons()
    occurring = listed.assign(arm=listed["arm"].cat.as_unordered())
    assert built(listed, **SAFE).backend.model.coords["arm_dim"] == ("letter", "call")
    assert "call" not in built(occurring, **SAFE).backend.model.coords["arm_dim"]


def test_without_priors_of_ones_own_they_are_flat():
    model = built(persons(), "came ~ age", auto_scale=False, center_predictors=False)
    assert str(model.backend.model["age"].owner.op).startswith("flat_rv")


def test_the_private_fit_releases_the_coefficients_and_nothing_by_records(fitted):
    _, idata = fitted
    assert set(idata["posterior"].data_vars) == set(COEFFICIENTS)
    assert "__obs__" not in idata["posterior"].coords
    assert idata["privacy"].attrs["withheld"] == '["p"]'
    assert idata["privacy"].attrs["epsilon"] <= 1
    assert idata["posterior"]["age"].mean() == pytest.approx(1, abs=0.9)
    assert idata["posterior"]["age"].std() < 0.6  # of the prior it is 1


def test_no_record_is_in_a_byte_of_the_file(fitted, tmp_path):
    model, idata = fitted
    canary = np.float64(CANARY).tobytes()
    assert canary in predictors(model.backend.model).tobytes()
    pymc_dp.save(idata, tmp_path / "result.nc")
    content = (tmp_path / "result.nc").read_bytes()
    assert canary not in content
    assert persons()["came"].to_numpy().tobytes() not in content


def test_bambi_cannot_start_a_private_fit_since_it_hands_over_no_formula():
    model = built(persons(), **SAFE)
    with pytest.raises(ValueError, match=r"pymc_dp.fit\(model=bambi_model"):
        model.fit(inference_method="vi", method="vips", **BUDGET)


def test_bambi_predicts_new_rows_from_the_result(fitted):
    model, idata = fitted
    new = pd.DataFrame({"age": [-1.0, 0.0, 1.0], "arm": ["none", "letter", "call"]})
    tree = model.predict(idata, data=new, kind="response_params", inplace=False)
    assert tree["posterior"]["p"].sizes["__obs__"] == 3
    assert "__obs__" not in idata["posterior"].dims
