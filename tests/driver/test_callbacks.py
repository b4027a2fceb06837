"""Whatever a callback does, or an interrupt cuts short: nothing leaks, and nothing paid is lost."""

from functools import cache

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.privacy.randomness import SecretRandom
from pymc_dp.testing import deterministic_noise

N = 40
rng = np.random.default_rng(0)
X, Y, OTHER = rng.normal(size=(N, 2)), rng.normal(size=N), rng.normal(size=(N, 2))
RELEASES = 6
GOOD = {"n": RELEASES, "noise_multiplier": 4.0, "delta": 1e-5, "sampling": "full", "draws": 3}
GOOD |= {"random_seed": 1, "progressbar": False, "backend": "python", "public": ["scale"]}
# rounds, which other methods make of this model too, and steps whose states are draws
METHODS = ["dp_advi", "dp_sgld"]


def regression():
    with pm.Model() as model:
        scale = pm.Data("scale", np.ones(2))
        b = pm.Normal("b", 0, scale, shape=2)
        pm.Normal("y", pm.Data("X", X) @ b, 1.0, observed=pm.Data("Y", Y))
    return model


def fit(model, method="dp_advi", callbacks=()):
    with deterministic_noise(3):
        return pymc_dp.fit(model=model, method=method, callbacks=callbacks, **GOOD)


@cache
def undisturbed(method="dp_advi"):
    return fit(regression(), method)


def same(first, second):
    return all(
        first[group].to_dataset().identical(second[group].to_dataset()) for group in first.children
    )


def arrays_of(value):
    """Every array that can be reached from a state."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict):
        yield from arrays_of(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from arrays_of(item)


@pytest.mark.parametrize("method", METHODS)
def test_a_callback_that_writes_into_states_changes_nothing(method):
    refused = []

    def write(state, _, i):
        for array in arrays_of(state):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 123.0
            refused.append(i)
        for item in state:
            if isinstance(item, dict):
                item.clear()

    assert same(undisturbed(method), fit(regression(), method, [write]))
    assert refused


def test_arrays_that_can_be_written_to_are_caught(monkeypatch):
    monkeypatch.setattr("pymc_dp.driver.run.read_only", lambda state: state)

    def write(state, _, i):
        for array in arrays_of(state):
            np.copyto(array, 1.5 * array, casting="unsafe")

    assert not same(undisturbed(), fit(regression(), callbacks=[write]))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["X", "Y", "scale"])
def test_data_that_are_set_during_a_fit_are_not_read(method, name):
    new = {"X": OTHER, "Y": OTHER[:, 0], "scale": np.full(2, 9.0)}[name]
    model = regression()
    after = fit(model, method, [lambda *_: pm.set_data({name: new}, model=model)])
    assert same(undisturbed(method), after)


def test_a_callback_that_fails_costs_nothing_that_is_paid_for():
    calls, others = [], []

    def fail(state, _, i):
        calls.append(i)
        raise RuntimeError("the plot is gone")

    said = r"fail failed after release 0 \(RuntimeError: the plot is gone\) and is not called again"
    with pytest.warns(RuntimeWarning, match=said):
        idata = fit(regression(), callbacks=[fail, lambda *_: others.append(1)])
    assert calls == [0]
    assert len(others) == idata["privacy"].attrs["releases_made"] == RELEASES
    assert same(undisturbed(), idata)


def interrupt_at(monkeypatch, count):
    """Interrupt a fit while its noise is drawn."""
    gaussian, calls = SecretRandom.rounded_gaussian, []

    def interrupted(self, sd, *of):
        calls.append(sd)
        if len(calls) == count:
            raise KeyboardInterrupt
        return gaussian(self, sd, *of)

    monkeypatch.setattr(SecretRandom, "rounded_gaussian", interrupted)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("count", [1, 6])
def test_an_interrupt_inside_a_release_leaves_what_was_released_before(monkeypatch, method, count):
    interrupt_at(monkeypatch, count)
    idata = fit(regression(), method)
    attrs = idata["privacy"].attrs
    assert attrs["releases_made"] == count  # the one that was interrupted is paid for
    assert idata["fit_stats"].sizes["release"] == count - 1
    assert all(np.isfinite(value).all() for value in idata["posterior"].data_vars.values())
