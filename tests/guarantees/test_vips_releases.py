"""What a VIPS fit asks, releases and hands out depends on the data through releases alone.

Soundness, rule 8: the number of records leaves no trace under add_remove; rule 14: sizes are
public; rule 23: structure is decided on made-up rows; rule 24: nothing but functions of releases
is stored. The release itself is tested in `test_vips`.
"""

import pickle
import warnings

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.privacy.wall import PrivacyWall
from pymc_dp.testing import deterministic_noise
from tests.guarantees import vips_toys
from tests.guarantees.test_allow_list import (
    NUMBER,
    SETTINGS,
    build,
    everything,
    found_in,
    saved,
    structure,
)
from tests.guarantees.vips_toys import prepared
from tests.zoo import build as model_of


def queries(build, **settings):
    """Return the first state, and the queries of three releases with repeatable noise."""
    found = prepared(build, 3, **{"noise_multiplier": 2.0, **settings})
    compiled, method = found.method.compile("python"), found.method
    rng = np.random.default_rng(1)
    first = state = method.init(rng)
    asked = []
    with deterministic_noise(1):
        wall = PrivacyWall(found.data, compiled.contributions, found.plan)
        for _ in range(found.plan.total):
            asked.append(method.query(state, rng=rng))
            state = compiled.update(state, asked[-1], wall.release(asked[-1]))
    return first, asked


def on_other_data(monkeypatch):
    """Replace the toys' data by values of the same kinds, a hundred times as large and shuffled."""
    rng = np.random.default_rng(2)
    for name in ("X", "SWEEP", "REAL"):
        monkeypatch.setattr(vips_toys, name, 100 * rng.permutation(getattr(vips_toys, name)))
    for name in ("YES", "COUNTS", "TRIALS", "GROUP"):
        monkeypatch.setattr(vips_toys, name, rng.permutation(getattr(vips_toys, name)))
    monkeypatch.setattr(vips_toys, "COUNTS", np.minimum(vips_toys.COUNTS + 1, 6))


def differ(first, second):
    try:
        np.testing.assert_equal(first, second)
    except AssertionError:
        return True
    return False


def check_first_query(monkeypatch, model, **settings):
    start, asked = queries(model, **settings)
    on_other_data(monkeypatch)
    other_start, other_asked = queries(model, **settings)
    np.testing.assert_equal(start, other_start)
    np.testing.assert_equal(asked[0], other_asked[0])
    # the later ones follow the releases, so this test would see a difference
    assert differ(asked[1], other_asked[1])


# what is asked does not depend on the link
ASKED = [vips_toys.two_outcomes, vips_toys.categorical, vips_toys.mixture]


@pytest.mark.parametrize("model", ASKED)
def test_the_first_query_is_the_same_for_any_data(model, monkeypatch):
    check_first_query(monkeypatch, model)


def settled(build):
    return prepared(build, None, noise_multiplier=5.0).method


@pytest.mark.parametrize(
    ("model", "rest"),
    [
        (vips_toys.logistic_with_precision, vips_toys.logistic),
        (vips_toys.poisson_hierarchy, vips_toys.poisson),
    ],
)
def test_what_only_a_hyper_parameter_needs_is_not_released(model, rest):
    assert settled(model).size == settled(rest).size


def test_a_hyper_parameter_carries_no_noise_of_its_own():
    model = model_of(vips_toys.poisson_hierarchy)
    settings = {"noise_multiplier": 5.0, "delta": 1e-5, "sampling": "full", "backend": "python"}
    settings["clip_norm"] = 3.0  # asks for sums, where rounds are the default
    idata = pymc_dp.fit(model=model, method="vips", draws=2, progressbar=False, **settings)
    # its shape is 2 by the prior plus 2 by the one rate below it, and so known exactly
    assert idata["fit"]["rate.log_coefficient"].item() == pytest.approx(3, abs=1e-9)
    assert idata["fit"]["rate.rate_noise_sd"].item() == 0
    assert idata["fit"]["r.rate_noise_sd"].item() > 0


def test_statistics_of_the_record_alone_are_released_once():
    for once in (vips_toys.poisson, vips_toys.poisson_hierarchy, vips_toys.categorical):
        assert settled(once).releases[0].count == 1
    assert settled(vips_toys.mixture).releases[0].count > 1


# --- canaries ------------------------------------------------------------------------------------


def waits(rows=40):
    with pm.Model(coords={"patient": [f"CANARY-{i}" for i in range(rows)]}) as model:
        y = NUMBER + np.arange(rows)
        pm.Exponential("y", pm.Gamma("rate", 2, 1), observed=y, dims="patient")
    return model


def bumps(rows=40):
    with pm.Model(coords={"patient": [f"CANARY-{i}" for i in range(rows)]}) as model:
        w, mu = pm.Dirichlet("w", np.ones(2)), pm.Normal("mu", 0, 3, shape=2, initval=[-1.0, 1.0])
        y = NUMBER + np.arange(rows)
        pm.NormalMixture("y", w, mu, tau=1.0, observed=y, dims="patient")
    return model


def fitted(make, *rows, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pymc_dp.PrivacyWarning)
        with make(*rows):
            return pm.fit(**{"method": "vips", "backend": "python", **SETTINGS, **settings})


@pytest.mark.parametrize("make", [build, waits, bumps])
def test_no_canary_is_in_a_byte_of_the_result(make, tmp_path):
    idata = fitted(make)
    assert found_in(*everything(idata), saved(idata, tmp_path)) == set()


def shape_of(idata):
    """All of a result but the values that follow from releases."""
    return {
        key: value[:3] if isinstance(value, tuple) and "fit" in key[0] else value
        for key, value in structure(idata).items()
    }


@pytest.mark.parametrize("make", [build, bumps])
def test_the_number_of_records_leaves_no_trace(make):
    few, many = (fitted(make, rows) for rows in (25, 60))
    for idata in (few, many):
        for group in ("posterior", "noise_sd"):
            idata[group] = idata[group].to_dataset() * 0
    assert shape_of(few) == shape_of(many)
    assert len(pickle.dumps(few)) == len(pickle.dumps(many))
