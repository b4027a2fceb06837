"""Terms with a single row, and numbers that enter every record's likelihood.

Soundness, rule 28: every observed value, and every array that a likelihood reads, is a record leaf,
declared public, or refused, whatever its size.
"""

import json

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_dp
from pymc_dp.errors import NotSeparableError
from tests import zoo
from tests.zoo import separated

N = 40
RNG = np.random.default_rng(20261122)
Y = RNG.normal(size=N)
X = RNG.normal(size=(N, 3))
BUDGET = {"n": 8, "noise_multiplier": 2.0, "delta": 1e-5, "draws": 2, "progressbar": False}


def beside_records(term):
    """Build a model in which ``term`` reads the coefficient of 40 records."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, 10)
        term(b)
        pm.Normal("y", b, 1, observed=Y)
    return model


SINGLE_ROWS = {
    "vector": lambda b: pm.Normal("z", b, 1, observed=np.array([5.0])),
    "scalar": lambda b: pm.Normal("z", b, 1, observed=5.0),
    "trials": lambda b: pm.Binomial("z", n=[300], p=pm.math.invlogit(b), observed=[117]),
    "custom": lambda b: pm.CustomDist(
        "z", b, logp=lambda value, mu: -((value - mu) ** 2), observed=np.array([5.0])
    ),
    "minibatch": lambda b: pm.Normal(
        "z", b, 1, observed=pm.Minibatch(np.array([5.0]), batch_size=1), total_size=1
    ),
}
DATA = {
    "vector data": lambda b: pm.Normal("z", b, 1, observed=pm.Data("k", [5.0])),
    "scalar data": lambda b: pm.Normal("z", b, 1, observed=pm.Data("k", 5.0)),
    "potential": lambda b: pm.Potential("z", -((b - pm.Data("k", [5.0])) ** 2)),
    "entry in a potential": lambda b: pm.Potential("z", -((b - pm.Data("k", [5.0])[0]) ** 2)),
    "density": lambda b: pm.Potential("z", pm.logp(pm.Normal.dist(b, 1), pm.Data("k", [5.0]))),
    "sum": lambda b: pm.Potential("z", -((b - pm.Data("k", Y[:9])) ** 2).sum(keepdims=True)),
}
LITERAL = {
    "literal": lambda b: pm.Potential("z", -((b - np.array([5.0])) ** 2)),
    "computed": lambda b: pm.Normal("z", b, 1, observed=pt.as_tensor(np.array([5.0])) * 1.0),
    "slice": lambda b: pm.Normal("z", b, 1, observed=pm.Data("k", Y)[:1]),
    "row of the records": lambda b: pm.Normal("z", b, 1, observed=pm.Data("k", Y)[None]),
}
PUBLIC = SINGLE_ROWS | {k: v for k, v in DATA.items() if k != "sum"}


@pytest.mark.parametrize("case", SINGLE_ROWS | DATA | LITERAL)
def test_a_term_of_one_row_is_refused(case):
    model = beside_records((SINGLE_ROWS | DATA | LITERAL)[case])
    with pytest.raises(NotSeparableError, match="`z`|`k`") as error:
        separated(model)
    assert case in LITERAL or "public=" in str(error.value)


@pytest.mark.parametrize("scale", [1.0, np.ones(3)])
def test_a_potential_of_latents_alone_belongs_to_the_prior(scale):
    with pm.Model() as model:
        b = pm.Normal("b", shape=np.shape(scale))
        pm.Potential("p", -((b / 2.0) ** 2))
        pm.Normal("y", b.sum(), 1, observed=Y)
    assert separated(model)[0].term_names == ("y",)


@pytest.mark.parametrize("case", PUBLIC)
def test_a_term_that_is_declared_public_belongs_to_the_prior_as_written(case):
    model = beside_records(PUBLIC[case])
    records, columns = separated(model, public=["k" if case in DATA else "z"])
    assert records.term_names == ("y",)
    assert set(columns) == {"y"}
    assert not any("None" in str(line) for line in records.trusted)
    wanted = model.compile_logp(vars=[model["b"], model["z"]], sum=True)({"b": 0.7})
    seen = records.prior.eval({records.latents["b"]: 0.7})
    np.testing.assert_allclose(seen, wanted)


def test_a_name_declares_no_array_that_the_observed_value_is_computed_from():
    def term(b):
        pm.Normal("z", b, 1, observed=pm.Data("k", [5.0]) - pm.Data("w", Y).mean())

    for public in (["z"], ["z", "k"]):
        with pytest.raises(NotSeparableError):
            separated(beside_records(term), public=public)


def test_a_public_row_moves_the_posterior_and_is_reported_and_a_prediction_leaves_it_out():
    model = beside_records(lambda b: pm.Normal("z", b, 0.001, observed=np.array([5.0])))
    idata = pymc_dp.fit(model=model, method="vips", public=["z"], **BUDGET)
    assert json.loads(idata["privacy"].attrs["declared_public"]) == ["z"]
    assert "`z`, as declared" in pymc_dp.privacy_report(idata)
    np.testing.assert_allclose(idata["posterior"]["b"], 5.0, atol=0.1)
    predictions = pymc_dp.predict(idata, model, rows=3)["predictions"]
    assert set(predictions.data_vars) == {"y"}


BROADCAST = {
    "scalar": lambda b: b * pm.Data("k", 3.3),
    "vector": lambda b: b * pm.Data("k", [3.3]),
    "entry": lambda b: b * pm.Data("k", [3.3])[0],
    "squeezed": lambda b: b * pm.Data("k", [3.3], shape=(1,)).squeeze(),
    "index": lambda b: pt.stack([b, 2 * b])[pm.Data("k", np.array(1))],
    "shared": lambda b: b * pytensor.shared(3.3, name="k"),
    "constant of two": lambda b: pt.dot(pt.as_tensor(np.array([3.3, 4.7])), pt.stack([b, -b])),
}


@pytest.mark.parametrize("case", BROADCAST)
def test_what_every_record_shares_is_declared_or_refused(case):
    with pm.Model() as model:
        pm.Normal("y", BROADCAST[case](pm.Normal("b")), 1, observed=Y)
    with pytest.raises(NotSeparableError, match="`k`|`y` reads an unnamed array"):
        separated(model)
    if case not in ("vector", "shared", "constant of two"):
        assert set(separated(model, public=["k"])[1]) == {"y"}


@pytest.mark.parametrize("named", [True, False])
def test_a_row_that_is_broadcast_is_declared_or_refused(named):
    row = np.array([[3.3, 4.7]])
    with pm.Model() as model:
        k = pm.Data("k", row, shape=row.shape) if named else row
        pm.Normal("y", pm.Normal("b") * k, 1, observed=X[:, :2])
    with pytest.raises(NotSeparableError, match="`y` reads"):
        separated(model)
    if named:
        assert set(separated(model, public=["k"])[1]) == {"y"}


def test_data_in_a_prior_are_declared_whatever_their_size():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("b", pm.Data("k", 3.3)), 1, observed=Y)
    with pytest.raises(NotSeparableError, match="`b` reads the data `k`"):
        separated(model)
    separated(model, public=["k"])


@pytest.mark.parametrize(("rows", "words"), [(1, "single row"), (0, "no records")])
def test_data_of_one_record_or_none_end_in_a_sentence(rows, words):
    with pytest.raises(NotSeparableError, match=words):
        separated(zoo.line(X[:rows], Y[:rows], x="x"))


def test_data_of_one_record_may_replace_those_of_a_model():
    model = zoo.line(X, Y, x="x")
    assert separated(model, data={"x": X[:1], "y": Y[:1]})[1]["y"].rows == 1
    with pytest.raises(NotSeparableError, match="no records"):
        separated(model, data={"x": X[:0], "y": Y[:0]})
