"""No record makes a fit fail: one whose numbers arithmetic cannot take adds nothing to any release.

Soundness, rule 1. A release that fails is paid for; the largest double, which stands for a missing
value in many systems, once ended every default fit.
"""

from functools import partial

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.contributions import whitened
from pymc_dp.testing import deterministic_noise
from tests import zoo
from tests.conformance.model_classes import CLASSES, draw_data

LARGEST = np.finfo("float64").max
REALS = [np.nan, np.inf, -np.inf, 1e300, 1.7e308, LARGEST, -LARGEST]
WHOLE = [-1, 2**31, 2**53 + 1, np.iinfo("int64").max, np.iinfo("int64").min]
ROWS = 40
DATA = draw_data(ROWS, 0) | {"weight": np.linspace(0.5, 2.0, ROWS)}


def wide(data):
    # whitened scores are longer than scores
    slope = pm.Normal("slope", 0, 9, shape=2) @ pm.Data("X", data["X"]).T
    pm.Bernoulli("yes", logit_p=pm.Normal("level", 0, 9) + slope, observed=data["yes"])


def weighted(data):
    mean = pm.Data("X", data["X"]) @ pm.Normal("slope", 0, 9, shape=2)
    each = pm.logp(pm.Normal.dist(mean, 1.0), pm.Data("real", data["real"]))
    pm.Potential("likelihood", pm.Data("weight", data["weight"]) * each)


BUILDS = {**CLASSES, "wide": wide, "weighted": weighted}
# what is fitted by the same rounds is fitted once; topics by dp_advi take ten seconds
METHODS = {
    "dp_advi": ["linear", "log_linear", "factors", "wide", "weighted"],
    "vips": ["mixture", "topics", "belief_net"],
    "dp_sep": ["network"],
}
OWN_UPDATES = [{}, {"method": "vips", "form": "absolute"}, {"method": "dp_sep", "form": "damped"}]
SETTINGS = {"delta": 1e-5, "noise_multiplier": 4.0, "sampling": "full", "num_records": ROWS}
SETTINGS |= {"method": "dp_advi", "draws": 2, "random_seed": 1, "progressbar": False}
SETTINGS |= {"backend": "python"}


def model_of(build):
    return zoo.build(partial(build, DATA))


def fit(build, data, **settings):
    model = model_of(build)
    data = {name: data[name] for name in data.keys() & {*model.named_vars}}
    with deterministic_noise(1):
        return pymc_dp.fit(model=model, data=data, **{**SETTINGS, **settings})


def with_extremes(places, reals=REALS, whole=WHOLE):
    """Add copies of the first record, each with an extreme value in one place."""
    data = dict(DATA)
    for place in places:
        for value in reals if DATA[place].dtype.kind == "f" else whole:
            data = {name: np.concatenate([x, x[:1]]) for name, x in data.items()}
            data[place].reshape(len(data[place]), -1)[-1, -1] = value
    return data


@pytest.mark.filterwarnings("ignore:data=.* has missing values")
@pytest.mark.filterwarnings("ignore:.* cannot occur under the model")
@pytest.mark.filterwarnings("ignore:`effect` is indexed by groups of fewer")
@pytest.mark.parametrize(("method", "name"), [(m, name) for m in METHODS for name in METHODS[m]])
def test_a_fit_ends_whatever_records_hold(method, name):
    build = BUILDS[name]
    places = DATA.keys() & {*model_of(build).named_vars} - {"group"}  # its extremes are refused
    bad = with_extremes(sorted(places))
    own = {"noise_aware": False} if name == "mixture" else {}  # its rounds take a minute
    posterior = fit(build, bad, method=method, **own)["posterior"].to_dataset()
    assert all(np.isfinite(x).all() for x in posterior.data_vars.values())


def same(first, second):
    groups = ("posterior", "fit", "fit_stats")
    return all(first[name].to_dataset().identical(second[name].to_dataset()) for name in groups)


@pytest.mark.filterwarnings("ignore:data=.* has missing values")
@pytest.mark.filterwarnings("ignore:.* cannot occur under the model")
@pytest.mark.parametrize("settings", OWN_UPDATES)
def test_a_record_that_no_arithmetic_takes_adds_nothing(settings):
    bad = with_extremes(["X", "yes"], reals=REALS[:3], whole=WHOLE[:2])
    alone = fit(wide, DATA, **settings)
    assert same(fit(wide, bad, **settings), alone)
    assert not same(fit(wide, with_extremes(["X"], reals=[1.0]), **settings), alone)


@pytest.mark.filterwarnings("ignore:.* cannot occur under the model")
def test_a_basis_that_is_not_finite_beside_a_finite_norm_is_caught(monkeypatch):
    # the fault of an earlier version: a vector that overflowed counted as one of length 0
    genuine = whitened.orthonormal

    def as_nothing(vectors):
        Q, R = genuine(vectors)
        return Q, np.nan_to_num(R)

    monkeypatch.setattr(whitened, "orthonormal", as_nothing)
    with pytest.raises(pymc_dp.ReleaseError, match="is not finite"):
        fit(wide, with_extremes(["X"], reals=[LARGEST]))
