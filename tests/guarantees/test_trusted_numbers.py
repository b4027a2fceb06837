"""Numbers that hide in closures, loops and scalars are withheld, refused, or at least listed.

Guard 6 of the tests of a guarantee. Soundness, rule 21: a deterministic that holds a number from
elsewhere stays behind, since ``b * y_sd`` beside ``b`` gives ``y_sd`` away; constants that no check
can see into are listed in the result. Rules 8 and 14: no list tells how many records there are.
"""

import json
import re
from functools import cache
from importlib import import_module

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from pytensor.compile.builders import OpFromGraph
from pytensor.scan import scan

import pymc_dp
from pymc_dp.model import separate
from pymc_dp.results.tree import Outcome, with_guarantee
from tests import zoo
from tests.zoo import build as model_of

separate_module = import_module("pymc_dp.model.separate")

N = 40
Y = np.random.default_rng(0).normal(size=N)


def trusted(build, **settings):
    return [*map(str, separate(model_of(build), **settings)[0].trusted)]


def test_numbers_in_potentials_are_listed():
    def sharp_potential():
        b = pm.Normal("b", 0, 1)
        pm.Potential("p", -1e8 * (b - Y.mean()) ** 2)
        pm.Normal("y", b, 1, observed=Y)

    assert "potential of p: 3 numbers" in trusted(sharp_potential)


SECRET = 0.123456789
transforms = pm.distributions.transforms


# --- deterministics ------------------------------------------------------------------------------


def with_deterministic(of_latent):
    def build():
        b = pm.Normal("b", shape=2)
        pm.Deterministic("d", of_latent(b))
        pm.Normal("y", b.sum(), 1.0, observed=Y)

    return model_of(build)


def in_a_loop(b):
    return scan(lambda p: p * SECRET, outputs_info=b, n_steps=2, return_updates=False)[-1]


def in_a_nested_graph(b):
    x = pt.vector("x", shape=(2,))
    return OpFromGraph([x], [x * SECRET])(b)


# tests/model/test_released.py has more of them
REVEALING = {
    "a draw": lambda b: b + pm.Normal.dist(SECRET, 1e-9, shape=2),
    "a loop": in_a_loop,
    "a nested graph": in_a_nested_graph,
}


@pytest.mark.parametrize("case", REVEALING)
def test_a_deterministic_with_a_number_of_its_own_stays_behind(case):
    assert separate(with_deterministic(REVEALING[case]))[0].outputs.withheld == ("d",)


def test_a_fit_releases_a_number_of_the_authors_where_it_is_declared_public():
    terms = {"n": 6, "noise_multiplier": 2.0, "delta": 1e-5, "draws": 2, "progressbar": False}
    model = with_deterministic(lambda b: b * SECRET)
    idata = pymc_dp.fit(model=model, **terms)
    assert list(idata["posterior"].data_vars) == ["b"]
    assert json.loads(idata["privacy"].attrs["withheld"]) == ["d"]
    idata = pymc_dp.fit(model=model, public=(name for name in ["d"]), **terms)
    assert "d" in idata["posterior"]
    assert json.loads(idata["privacy"].attrs["declared_public"]) == ["d"]


# --- priors and likelihoods ----------------------------------------------------------------------


MEANS = np.array([0.123, 4.56, 0.789])


@pytest.mark.parametrize(
    "prior",
    [
        lambda: pm.Normal("b", pt.as_tensor(MEANS).sum(), 1),
        lambda: pm.CustomDist("b", logp=lambda value: -((value - pt.as_tensor(MEANS).sum()) ** 2)),
        lambda: pm.CustomDist(
            "b", dist=lambda size: pm.Normal.dist(pt.as_tensor(MEANS).sum(), 1, size=size)
        ),
    ],
)
def test_a_prior_that_reads_an_array_of_another_shape_is_refused(prior):
    with pytest.raises(pymc_dp.NotSeparableError, match="`b` reads an unnamed array"):
        trusted(lambda: pm.Normal("y", prior(), 1.0, observed=Y))


def test_a_likelihood_that_reads_an_array_of_its_own_is_refused():
    def logp(value, mu):
        return -((value - mu * pt.as_tensor(MEANS).sum()) ** 2)

    def build():
        pm.CustomDist("y", pm.Data("x", Y) * pm.Normal("b"), logp=logp, observed=Y)

    with pytest.raises(pymc_dp.NotSeparableError, match="reads an unnamed array"):
        separate(model_of(build))


class Scaled(transforms.Transform):
    """A transform whose backward graph, or Jacobian, holds a number of its own."""

    name = "scaled"

    def __init__(self, backward=1.0, jacobian=0.0):
        self.scale, self.shift = backward, jacobian

    def forward(self, value, *inputs):
        return value / self.scale

    def backward(self, value, *inputs):
        return value * self.scale

    def log_jac_det(self, value, *inputs):
        return pt.zeros_like(value) + self.shift


def by_start(number):
    def start(rv, size):
        return pt.constant(number)

    return pm.CustomDist("b", logp=lambda value: -(value**2), support_point=start)


def by_nested_graph(number):
    x = pt.scalar("x")
    return pm.Normal("b", OpFromGraph([x], [x + number])(pt.constant(0.5, dtype="float64")), 3.0)


def by_loop(number):
    start = pt.constant(5.0, dtype="float64")
    steps = scan(lambda p: p * number, outputs_info=start, n_steps=2, return_updates=False)
    return pm.Normal("b", steps[-1], 3.0)


# what a walk of distributions alone would miss, and what it would see
OUTSIDE = {
    "a density": lambda x: pm.CustomDist("b", logp=lambda value: -((value - x) ** 2)),
    "a start": by_start,
    "bounds": lambda x: pm.Normal("b", transform=transforms.Interval(-7.7, x)),
    "a transform back": lambda x: pm.Normal("b", transform=Scaled(backward=x)),
    "a Jacobian": lambda x: pm.Normal("b", transform=Scaled(jacobian=x)),
}
INSIDE = {
    "a distribution": lambda x: pm.CustomDist("b", dist=lambda size: pm.Normal.dist(x, 3.0)),
    "one entry": lambda x: pm.Normal("b", np.array([x]), 3.0, shape=1)[0],
    "a nested graph": by_nested_graph,
    "a loop": by_loop,
}
HIDDEN = OUTSIDE | INSIDE


def listed(what, build, **settings):
    lines = [line for line in trusted(build, **settings) if line.startswith(f"{what}: ")]
    return sum(map(int, re.findall("[0-9]+", " ".join(lines))))


def more_are_listed(where):
    """Whether a number that the formula lacks is listed, beside one that it has already."""
    public = ["Scaled"] if where in ("a transform back", "a Jacobian") else []

    def count(number):
        def build():
            pm.Normal("y", HIDDEN[where](number), 1, observed=Y)

        return listed("prior of b", build, public=public)

    return count(SECRET) == count(2.0) + 1


@pytest.mark.parametrize("where", HIDDEN)
def test_a_number_is_listed_wherever_in_a_prior_it_hides(where):
    assert more_are_listed(where)


@pytest.mark.parametrize("where", OUTSIDE)
def test_a_list_that_walks_distributions_alone_would_miss_it(where, monkeypatch):
    """The planted fault: what was listed before."""
    everything = separate_module.proved_graphs

    def distributions_alone(model, hardened, *others):
        read, *more = everything(model, hardened, *others)
        rvs = hardened.model.basic_RVs
        return {name: [g for g in graphs if g in rvs] for name, graphs in read.items()}, *more

    monkeypatch.setattr(separate_module, "proved_graphs", distributions_alone)
    monkeypatch.setattr(separate_module, "refuse_hidden", lambda *arguments: None)
    assert not more_are_listed(where)


@pytest.mark.parametrize(
    "likelihood",
    [
        lambda b, x: pm.CustomDist("y", b, logp=lambda v, mu: -((v - mu * x) ** 2), observed=Y),
        lambda b, x: pm.Normal("y", b * np.array([x]), 1, observed=Y),
        lambda b, x: pm.Censored("y", pm.Normal.dist(b, 1), lower=None, upper=x, observed=Y),
    ],
)
def test_a_number_is_listed_wherever_in_a_likelihood_it_hides(likelihood):
    def count(number):
        return listed("likelihood of y", lambda: likelihood(pm.Normal("b"), number))

    assert count(SECRET + 10) == count(2.0) + 1


REGULAR = [np.full((3, 4), SECRET), np.array([3, 4711]), SECRET * np.eye(3)]


def by_array(array):
    b = pm.Normal("b")
    pm.Normal("y", (b * array).sum(), 1, observed=Y)


@pytest.mark.parametrize("array", REGULAR)
def test_regular_arrays_of_a_likelihood_count_as_two_numbers(array, monkeypatch):
    def by_name():
        by_array(pm.Data("w", array))

    declared = listed("likelihood of y", by_name, public=["w"])
    lengths = set(array.shape) - {2}  # a square has the number 2 already
    count = listed("likelihood of y", lambda: by_array(pt.as_tensor(array)))
    assert count == declared + 2 + len(lengths)
    # the planted fault: the list leaves arrays out
    constants = import_module("pymc_dp.model.releasable")
    numbers = constants._numbers

    def scalars_alone(graphs, blockers, leaves, axes):
        scalars = {v: leaf for v, leaf in leaves.items() if v.ndim == 0}
        return numbers(graphs, blockers, scalars, axes)

    monkeypatch.setattr(constants, "_numbers", scalars_alone)
    assert listed("likelihood of y", lambda: by_array(pt.as_tensor(array))) < count


def test_a_list_of_trusted_numbers_does_not_tell_how_many_records_there_are():
    def ones():
        pm.Normal("y", pm.Normal("b", pt.as_tensor(np.ones(N)).sum(), 1), 1, observed=Y)

    lines = trusted(ones, number_is_public=True)
    assert not any(str(count) in line for line in lines for count in range(N - 1, N + 4))


@cache
def any_plan():
    """The plan has no part in what a result lists."""
    return pymc_dp.plan(model=zoo.mean(Y, name="b"), epsilon=1, delta=1e-5).plan


def results_of(rows, name, inside=""):
    with pm.Model(name=inside) as model:
        b = pm.Normal("b")
        pm.Normal(name, b * 100.0, pm.HalfNormal("s"), observed=np.resize(Y, rows))
    outcome = Outcome("dp_advi", any_plan(), (), "", True, True)
    of = {"posterior": xr.Dataset()}, separate(model)[0], outcome, {"withheld": (), "doubts": ()}
    attrs = with_guarantee(*of)["privacy"].attrs
    return json.loads(attrs["trusted_constants"])


# a named model writes a colon in all names
NAMES = [("y", ""), ("y", "survey"), ("likelihood of y: 1", "")]


@pytest.mark.parametrize(("name", "inside"), NAMES)
def test_a_result_lists_the_same_of_one_record_more_whatever_the_names(name, inside):
    """A hundred is a number of the model: where it is that of records, one number fewer counts."""
    assert results_of(100, name, inside) == results_of(101, name, inside)


@pytest.mark.parametrize(("name", "inside"), NAMES[1:])
def test_lines_that_are_cut_at_a_colon_would_count_the_records(name, inside, monkeypatch):
    """The planted fault: what read names out of text."""

    def cut(line):
        return line._replace(name=str(line).partition(":")[0].partition(" of ")[2])

    every = separate_module.trusted_constants
    monkeypatch.setattr(
        separate_module,
        "trusted_constants",
        lambda *read: {cut(line): numbers for line, numbers in every(*read).items()},
    )
    with pytest.raises(AssertionError):
        test_a_result_lists_the_same_of_one_record_more_whatever_the_names(name, inside)


def test_an_initial_value_has_the_shape_of_its_latent():
    with pm.Model() as model:
        model.add_coord("g", length=3)
        b = pm.Normal("b", 0, 1, dims="g", initval=Y)
        pm.Normal("y", b.sum(), 1, observed=Y)
    with pytest.raises(ValueError, match=r"initial value of `b` has the shape .* it needs \(3,\)"):
        pymc_dp.plan(model, epsilon=1, delta=1e-5)
