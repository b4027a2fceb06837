"""Whether arrays of the records have equal values decides nothing but a refusal."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.errors import NotSeparableError
from pymc_dp.model import harden as harden_module
from pymc_dp.model import separate
from pymc_dp.model.harden import harden
from tests.zoo import build as model_of

N = 60
rng = np.random.default_rng(11)
AGE, Y, CODES = rng.normal(size=N), rng.integers(0, 2, N), rng.integers(0, 3, N)
RARE = np.zeros((2, N))  # two rare conditions, which nobody has
ONE_HAS = RARE.copy()
ONE_HAS[1, 17] = 1.0


def with_conditions(conditions):
    def build():
        b = pm.Normal("b", 0, 1, shape=3)
        asthma, gout = conditions
        logit = b[0] * AGE + b[1] * asthma + b[2] * gout
        pm.Bernoulli("y", logit_p=logit, observed=Y)

    return model_of(build)


def leaves(model):
    return [(leaf.name, leaf.declared) for leaf in harden(model).leaves.values()]


def directions(conditions):
    model, terms = with_conditions(conditions), {"epsilon": 1, "delta": 1e-5, "progressbar": False}
    return int(pymc_dp.fit(model=model, draws=10, backend="python", **terms)["fit"]["directions"])


@pytest.mark.filterwarnings("ignore:.* has a column that is 1 for fewer")  # as one condition does
def test_a_result_does_not_tell_whether_two_columns_are_equal(monkeypatch):
    assert directions(RARE) == directions(ONE_HAS)
    assert leaves(with_conditions(RARE)) == leaves(with_conditions(ONE_HAS))
    # the planted fault: columns are merged by their values
    by_value = lambda leaf, value: not leaf.declared and np.array_equal(leaf.value, value)  # noqa: E731
    monkeypatch.setattr(harden_module, "_is_same", by_value)
    assert leaves(with_conditions(RARE)) != leaves(with_conditions(ONE_HAS))


def test_one_array_that_is_used_twice_is_one_leaf():
    def build():
        a, b = pm.Normal("a", shape=3), pm.Normal("b", shape=3)
        pm.Normal("y", a[CODES] + b[CODES] * AGE + a[0] * AGE, observed=Y)

    assert len(leaves(model_of(build))) == 3


def censored(number, sign):
    """Return limits of which some are reached, as survival times are written."""
    limits = np.where(np.arange(N) < number, AGE, sign * np.inf)
    lower, upper = (None, limits) if sign > 0 else (limits, None)

    def build():
        dist = pm.Normal.dist(pm.Normal("a"), pm.HalfNormal("s"))
        pm.Censored("y", dist, lower=lower, upper=upper, observed=AGE)

    return separate(model_of(build))[0]


@pytest.mark.parametrize("sign", [-1, 1])
def test_whether_anybody_is_censored_is_in_no_graph(sign, monkeypatch):
    nobody, somebody = censored(0, sign), censored(1, sign)
    assert nobody.shapes == somebody.shapes
    assert nobody.trusted == somebody.trusted
    assert len(nobody.shapes) == 2
    # the planted fault: PyMC leaves infinite limits out
    monkeypatch.setattr(harden_module, "_keep_limits", lambda fgraph: None)
    assert censored(0, sign).shapes != censored(1, sign).shapes


def as_a_row_of_prior_means():
    z = pm.Normal("z", np.stack([AGE, -AGE]), 0.01, shape=(2, N))
    pm.Normal("y", z.sum() * AGE.copy(), 1, observed=Y)


def a_view_of_a_few_as_prior_means():
    pm.Normal("y", pm.Normal("z", AGE[:4], 1, shape=4).sum() * AGE, 1, observed=Y)


def as_initial_values():
    pm.Normal("y", pm.Normal("z", shape=N, initval=Y.astype(float)).sum() + AGE, 1, observed=Y)


COPIES = [as_a_row_of_prior_means, a_view_of_a_few_as_prior_means, as_initial_values]


@pytest.mark.parametrize("build", COPIES)
@pytest.mark.parametrize("number_is_public", [False, True])
def test_the_records_stand_in_no_prior_whatever_the_neighbours(build, number_is_public):
    with pytest.raises(NotSeparableError, match="`z`"):
        separate(model_of(build), number_is_public=number_is_public)


def test_records_in_chunks_stand_in_no_prior_either():
    dask = pytest.importorskip("dask.array")

    def build():
        z = pm.Normal("z", Y.copy(), 0.01, shape=N)
        pm.Normal("y", z.sum(), 1, observed=np.zeros(4))

    terms = {"epsilon": 1, "delta": 1e-5, "neighbours": "zero_out"}
    with pytest.raises(NotSeparableError, match="`z` holds a number for each record"):
        pymc_dp.plan(model=model_of(build), data={"y": dask.from_array(Y, chunks=20)}, **terms)


def test_a_declaration_covers_no_copy_of_the_records():
    def build():
        mu = pm.Normal("mu", shape=3)
        pm.Normal("y", mu[CODES], 1.0, observed=AGE)
        pm.Deterministic("fitted", mu[CODES.copy()])

    assert separate(model_of(build))[0].outputs.withheld == ("fitted",)
    with pytest.raises(NotSeparableError, match="formula of `fitted`"):
        separate(model_of(build), public=["fitted"])


def test_regular_prior_means_may_be_what_a_column_holds():
    def build():
        z = pm.Normal("z", np.zeros(N), 1, shape=N)
        b = pm.Normal("b", [0.5, 1.5], 1, shape=2)
        pm.Normal("y", z.sum() + b[0] * RARE[0] + b[1] * CODES, 1, observed=AGE)

    assert set(separate(model_of(build), number_is_public=True)[0].latents) == {"z", "b"}
