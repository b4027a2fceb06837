"""The number of records is no length of what leaves, and of nothing that a prior reads."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp
from pymc_dp.errors import NotSeparableError
from pymc_dp.model import separate, value_checks
from tests.zoo import build as model_of

N = 40
Y = np.random.default_rng(0).normal(size=N)


def entries_for_all():
    b = pm.Normal("b", shape=N)
    pm.Normal("y", b.sum(), 1, observed=Y)


def as_a_factor():
    b = pm.Normal("b")
    pm.Normal("y", b / pt.as_tensor(np.ones(N)).sum(), 1, observed=Y)


def as_a_range_that_pytensor_writes_as_numbers():
    member, b = pm.Data("member", np.arange(N) % 2), pm.Normal("b", shape=(2, 3 * N))
    x = pm.Normal("x", b[0, 0], 1, observed=Y)
    total = b[member[:, None], pt.arange(x.shape[0])[None, :]].sum(axis=1)
    pm.Normal("y", total, 1, observed=Y)


def test_a_last_row_number_is_refused():
    def as_a_last_entry():
        b = pm.Normal("b")
        pm.Potential("p", -((b - pt.as_tensor(np.arange(N))[-1]) ** 2) * np.ones(3))
        pm.Normal("y", b, 1, observed=Y)

    with pytest.raises(NotSeparableError):
        separate(model_of(as_a_last_entry))


ATTACKS = [entries_for_all, as_a_factor, as_a_range_that_pytensor_writes_as_numbers]


@pytest.mark.parametrize("build", ATTACKS)
def test_a_length_of_as_many_as_records_is_refused(build, monkeypatch):
    with pytest.raises(NotSeparableError):
        separate(model_of(build))
    # the planted fault
    monkeypatch.setattr(value_checks, "refuse_as_many", lambda *arguments: None)
    assert "b" in separate(model_of(build))[0].latents


@pytest.mark.parametrize("neighbours", ["zero_out", "replace_one"])
def test_a_number_that_is_public_may_be_a_length(neighbours):
    pymc_dp.plan(model=model_of(entries_for_all), epsilon=1, delta=1e-5, neighbours=neighbours)
    with pytest.raises(NotSeparableError, match="`b` has as many entries"):
        pymc_dp.plan(model=model_of(entries_for_all), epsilon=1, delta=1e-5)


def with_persons(length):
    def build():
        b = pm.Normal("b", shape=length)
        pm.Data("person_id", np.repeat(np.arange(N // 2), 2))
        pm.Normal("y", b.sum(), 1, observed=Y)

    return model_of(build)


@pytest.mark.parametrize("neighbours", ["add_remove", "zero_out", "replace_one"])
def test_neither_the_number_of_persons_nor_that_of_their_rows_is_a_length(neighbours):
    terms = {"epsilon": 1, "delta": 1e-5, "neighbours": neighbours, "unit": "person_id"}
    # replaced or zeroed persons are as many, of any number of rows
    private = [N // 2] if neighbours == "add_remove" else [N, N - 1]
    public = {N // 2, N // 4} - {*private}
    for length in public:
        pymc_dp.plan(model=with_persons(length), **terms)
    for length in private:
        with pytest.raises(NotSeparableError, match="`b` has as many entries"):
            pymc_dp.plan(model=with_persons(length), **terms)


PLACES = np.random.default_rng(1).normal(size=N)
KERNEL = np.exp(-((PLACES[:, None] - PLACES) ** 2)) + 1e-6 * np.eye(N)
COUPLED = {
    "a kernel matrix": KERNEL,
    "a kernel matrix beside an intercept": np.c_[np.ones(N), KERNEL],
    "an intercept beside its Cholesky factor": np.c_[np.linalg.cholesky(KERNEL), np.full(N, 2.0)],
    "indicators of all records but one": np.eye(N)[:, 1:],
    "indicators beside predictors": np.c_[np.eye(N)[:, 1:], PLACES, PLACES**2],
    "indicators of all persons but one": np.eye(N // 2)[:, 1:].repeat(2, axis=0),
}


def weighted(matrix, named):
    def build():
        w = pm.Normal("w", 0, 1, shape=matrix.shape[1])
        pm.Data("person_id", np.repeat(np.arange(N // 2), 2))
        pm.Normal("y", (pm.Data("K", matrix) if named else matrix) @ w, 1.0, observed=Y)

    return model_of(build)


@pytest.mark.parametrize("what", COUPLED)
@pytest.mark.parametrize(("neighbours", "named"), [("add_remove", False), ("zero_out", True)])
def test_a_matrix_of_all_records_with_all_is_refused(what, neighbours, named):
    unit = {"unit": "person_id"} if "persons" in what else {}
    terms = {"epsilon": 1, "delta": 1e-5, "neighbours": neighbours, **unit}
    with pytest.raises(NotSeparableError, match="public|coarser groups|its own"):
        pymc_dp.plan(model=weighted(COUPLED[what], named), **terms)


def test_data_decide_and_not_the_template_that_they_replace():
    def build():
        pm.Normal("y", pm.Data("K", KERNEL[:5, :5]) @ pm.Normal("w", shape=5), 1, observed=Y[:5])

    terms = {"epsilon": 1, "delta": 1e-5, "model": model_of(build)}
    pymc_dp.plan(data={"K": KERNEL[:, :5], "y": Y}, **terms)
    with pytest.raises(NotSeparableError, match="`K` has as many columns"):
        pymc_dp.plan(data={"K": KERNEL[:6, :5], "y": Y[:6]}, **terms)


def test_a_public_matrix_may_be_square_where_the_number_of_records_is_public():
    terms = {"epsilon": 1, "delta": 1e-5, "public": ["K"]}
    model = weighted(KERNEL, named=True)
    pymc_dp.plan(model=model, neighbours="zero_out", **terms)
    with pytest.raises(NotSeparableError, match="as many"):
        pymc_dp.plan(model=model, **terms)
