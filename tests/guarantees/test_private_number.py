"""The number of records is no length of what leaves, and of nothing that a prior reads."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp
from pymc_dp.errors import NotSeparableError
from pymc_dp.model import separate
from tests.guarantees.test_trusted_numbers import N, Y, separate_module


def entries_for_all():
    b = pm.Normal("b", shape=N)
    pm.Normal("y", b.sum(), 1, observed=Y)


def first_of_two_axes():
    b = pm.Normal("b", shape=(2, N))
    pm.Normal("y", b[0, 0], 1, observed=Y)


def as_a_mean():
    b = pm.Normal("b", pt.as_tensor(np.ones(N)).sum(), 1)
    pm.Normal("y", b, 1, observed=Y)


def as_a_factor():
    b = pm.Normal("b")
    pm.Normal("y", b / pt.as_tensor(np.ones(N)).sum(), 1, observed=Y)


def as_a_range_that_pytensor_writes_as_numbers():
    member, b = pm.Data("member", np.arange(N) % 2), pm.Normal("b", shape=(2, 3 * N))
    x = pm.Normal("x", b[0, 0], 1, observed=Y)
    total = b[member[:, None], pt.arange(x.shape[0])[None, :]].sum(axis=1)
    pm.Normal("y", total, 1, observed=Y)


def as_a_last_entry():
    b = pm.Normal("b")
    pm.Potential("p", -((b - pt.as_tensor(np.arange(N))[-1]) ** 2) * np.ones(3))
    pm.Normal("y", b, 1, observed=Y)


ATTACKS = [
    entries_for_all,
    first_of_two_axes,
    as_a_mean,
    as_a_factor,
    as_a_range_that_pytensor_writes_as_numbers,
    as_a_last_entry,
]


def model_of(build):
    with pm.Model() as model:
        build()
    return model


@pytest.mark.parametrize("build", ATTACKS)
def test_a_length_of_as_many_as_records_is_refused(build):
    with pytest.raises(NotSeparableError):
        separate(model_of(build))


@pytest.mark.parametrize("build", ATTACKS[:5])
def test_without_the_check_it_is_accepted(build, monkeypatch):
    """The planted fault."""
    monkeypatch.setattr(separate_module, "refuse_as_many", lambda *arguments: None)
    separate(model_of(build))


@pytest.mark.parametrize("neighbours", ["zero_out", "replace_one"])
def test_a_number_that_is_public_may_be_a_length(neighbours):
    pymc_dp.plan(model=model_of(entries_for_all), epsilon=1, delta=1e-5, neighbours=neighbours)
    with pytest.raises(NotSeparableError, match="`b` has as many entries"):
        pymc_dp.plan(model=model_of(entries_for_all), epsilon=1, delta=1e-5)


def test_the_number_of_persons_is_no_length_either():
    codes = np.repeat(np.arange(N // 2), 2)

    def build():
        b = pm.Normal("b", shape=N // 2)
        pm.Data("person_id", codes)
        pm.Normal("y", b.sum(), 1, observed=Y)

    pymc_dp.plan(model=model_of(build), epsilon=1, delta=1e-5)
    with pytest.raises(NotSeparableError, match="`b` has as many entries"):
        pymc_dp.plan(model=model_of(build), epsilon=1, delta=1e-5, unit="person_id")


def test_as_many_predictors_as_records_may_have_a_coefficient_each():
    X = np.random.default_rng(1).normal(size=(N, N))

    def build():
        b = pm.Normal("b", shape=N)
        pm.Normal("y", pm.Data("X", X) @ b, 1, observed=Y)

    separate(model_of(build))
