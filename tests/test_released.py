"""What of a posterior may leave: the latents, and deterministics that hide no number."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_dp.records import separate
from tests import zoo
from tests.zoo import GROUP, REAL, D, N, X

NAMES = [f"patient {i}" for i in range(N)]
CLINICS = ["north", "south"]


def patients():
    """Describe a model with two latents and data; return what deterministics are made of."""
    pm.modelcontext(None).add_coords({"patient": NAMES, "clinic": CLINICS})
    x = pm.Data("x", X[:, 0], dims="patient")
    sd = pm.Data("sd", 3.25)
    table = pm.Data("table", np.array([1.5, 7.0]), dims="clinic")
    b, alpha = pm.Normal("b"), pm.Normal("alpha", dims="clinic")
    y = pm.Normal("y", b * x + alpha[GROUP], 1.0, observed=REAL, dims="patient")
    return x, sd, table, b, alpha, y


def released(deterministic, *, dims=None, public=()):
    def model():
        pm.Deterministic("it", deterministic(*patients()), dims=dims)

    return separate(zoo.build(model), public=public)[0].outputs


CLEAN = {
    "a formula": lambda x, sd, table, b, alpha, y: pm.math.exp(-b / 2) + alpha.sum() ** 2,
    "an entry": lambda x, sd, table, b, alpha, y: alpha[0],
    "a contrast": lambda x, sd, table, b, alpha, y: alpha[1] - alpha[0],
    "a softmax": lambda x, sd, table, b, alpha, y: pm.math.softmax(alpha),
}
PRIVATE = {
    "a scalar constant": lambda x, sd, table, b, alpha, y: b * 3.25,
    "a whole number": lambda x, sd, table, b, alpha, y: b * 97,
    "a constant in a sum": lambda x, sd, table, b, alpha, y: alpha.sum() - 0.1,
    "scalar data": lambda x, sd, table, b, alpha, y: b * sd,
    "a table": lambda x, sd, table, b, alpha, y: alpha * table,
    "a constant array": lambda x, sd, table, b, alpha, y: alpha * np.array([1.5, 7.0]),
    "whole numbers in an array": lambda x, sd, table, b, alpha, y: b * np.array([5, 97]),
    "one whole number, repeated": lambda x, sd, table, b, alpha, y: b * np.full(3, 97),
    "a prediction": lambda x, sd, table, b, alpha, y: b * x,
    "a statistic of the data": lambda x, sd, table, b, alpha, y: b * x.mean(),
    "the outcome": lambda x, sd, table, b, alpha, y: b * y,
    "the number of records": lambda x, sd, table, b, alpha, y: b * x.shape[0],
    "as many as records": lambda x, sd, table, b, alpha, y: b + pt.zeros(N),
    "in the shape of the data": lambda x, sd, table, b, alpha, y: b + pt.zeros_like(x),
    "a size": lambda x, sd, table, b, alpha, y: pt.ones(97) * b,
}


@pytest.mark.parametrize("deterministic", CLEAN.values(), ids=CLEAN)
def test_formulas_of_the_latents_leave(deterministic):
    outputs = released(deterministic)
    assert set(outputs.graphs) == {"b", "alpha", "it"}
    assert outputs.withheld == ()


@pytest.mark.parametrize("deterministic", PRIVATE.values(), ids=PRIVATE)
def test_a_deterministic_that_holds_a_number_stays(deterministic):
    outputs = released(deterministic)
    assert set(outputs.graphs) == {"b", "alpha"}
    assert outputs.withheld == ("it",)


@pytest.mark.parametrize(
    ("what", "name"), [("scalar data", "sd"), ("a table", "table"), ("a scalar constant", "it")]
)
def test_a_number_leaves_when_it_is_declared_public(what, name):
    assert "it" in released(PRIVATE[what], public=[name]).graphs


def test_declaring_one_number_public_frees_no_other():
    assert released(PRIVATE["scalar data"], public=["table"]).withheld == ("it",)
    both = released(lambda x, sd, table, b, alpha, y: alpha * table * sd, public=["table"])
    assert both.withheld == ("it",)


def test_a_deterministic_of_a_withheld_one_stays_too():
    def model():
        _, _, _, b, _, _ = patients()
        hidden = pm.Deterministic("hidden", b * 3.25)
        pm.Deterministic("derived", pm.math.exp(hidden))

    assert set(separate(zoo.build(model))[0].outputs.withheld) == {"hidden", "derived"}


def test_coords_leave_with_what_is_released_and_no_others():
    outputs = released(PRIVATE["a prediction"], dims="patient")
    assert set(outputs.coords) == {"clinic"}
    assert outputs.coords["clinic"].tolist() == CLINICS
    assert outputs.dims == {"b": (), "alpha": ("clinic",)}


def test_no_record_coords_leave_with_a_deterministic_in_the_shape_of_the_data():
    for what in ("as many as records", "in the shape of the data"):
        assert "patient" not in released(PRIVATE[what], dims="patient").coords


def test_a_librarys_own_row_numbers_do_not_withhold_a_correlation_matrix():
    outputs = separate(zoo.build(zoo.mv_normal))[0].outputs
    assert {"chol", "chol_corr", "chol_stds"} <= set(outputs.graphs)


def test_predictions_of_a_hierarchy_stay():
    outputs = separate(zoo.build(zoo.hierarchical))[0].outputs
    assert outputs.withheld == ("mean",)
    assert set(outputs.coords) == {"clinic"}


def test_trusted_numbers_in_priors_are_all_listed():
    def model():
        centre = pm.Data("centre", 0.3)
        b = pm.Normal("b", X.mean(axis=0), 1.0, shape=D, initval=np.zeros(D))
        pm.Normal("y", pm.Normal("a", centre, 1.0) + X @ b, 1.0, observed=REAL)

    records, _ = separate(zoo.build(model))
    trusted = dict(row.rsplit(": ", 1) for row in records.trusted if ": " in row)
    assert trusted["prior of a"] == "2 numbers"
    assert int(trusted["prior of b"].split()[0]) >= 4
    assert "initial value of b" in records.trusted


def test_a_deterministic_that_reads_records_cannot_be_declared_public():
    with pm.Model(coords={"patient": [f"patient {i}" for i in range(20)]}) as model:
        x = pm.Data("x", np.linspace(-1, 1, 20), dims="patient")
        b = pm.Normal("b")
        pm.Deterministic("prediction", b * x, dims="patient")
        pm.Normal("y", b * x, 1.0, observed=np.ones(20), dims="patient")
    with pytest.raises(ValueError, match="`prediction`, which reads the data `x`"):
        separate(model, public=["prediction"])
