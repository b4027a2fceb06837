"""Trusted numbers are listed, and what holds a number for every record is refused.

Soundness, rules 8, 14 and 21.
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
from pymc_dp.results.build import Outcome, with_guarantee
from tests import zoo
from tests.zoo import build as model_of

separate_module = import_module("pymc_dp.model.separate")
proved_module = import_module("pymc_dp.model.separate")

N = 40
Y = np.random.default_rng(0).normal(size=N)


def trusted(build, **settings):
    return [*map(str, separate(model_of(build), **settings)[0].trusted)]


def sharp_potential():
    b = pm.Normal("b", 0, 1)
    pm.Potential("p", -1e8 * (b - Y.mean()) ** 2)
    pm.Normal("y", b, 1, observed=Y)


def ones():
    b = pm.Normal("b", pt.as_tensor(np.ones(N)).sum(), 1)
    pm.Normal("y", b, 1, observed=Y)


def test_numbers_in_potentials_are_listed():
    assert "potential of p: 3 numbers" in trusted(sharp_potential)


SECRET = 0.123456789
transforms = pm.distributions.transforms


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


def by_density(number):
    return pm.CustomDist("b", logp=lambda value: -((value - number) ** 2))


def by_distribution(number):
    return pm.CustomDist("b", dist=lambda size: pm.Normal.dist(number, 3.0, size=size))


def by_start(number):
    return pm.CustomDist(
        "b", logp=lambda value: -(value**2), support_point=lambda rv, size: pt.constant(number)
    )


def by_bounds(number):
    return pm.Normal("b", transform=transforms.Interval(-7.7, number))


def by_backward(number):
    return pm.Normal("b", transform=Scaled(backward=number))


def by_jacobian(number):
    return pm.Normal("b", transform=Scaled(jacobian=number))


def by_one_entry(number):
    return pm.Normal("b", np.array([number]), 3.0, shape=1)[0]


def by_nested_graph(number):
    x = pt.scalar("x")
    return pm.Normal("b", OpFromGraph([x], [x + number])(pt.constant(0.5, dtype="float64")), 3.0)


def by_loop(number):
    start = pt.constant(5.0, dtype="float64")
    steps = scan(lambda p: p * number, outputs_info=start, n_steps=2, return_updates=False)
    return pm.Normal("b", steps[-1], 3.0)


HIDDEN = (
    by_density,
    by_distribution,
    by_start,
    by_bounds,
    by_backward,
    by_jacobian,
    by_one_entry,
    by_nested_graph,
    by_loop,
)


def listed(what, build, **settings):
    lines = [line for line in trusted(build, **settings) if line.startswith(f"{what}: ")]
    return sum(map(int, re.findall("[0-9]+", " ".join(lines))))


def prior_of_b(number, prior):
    public = ["Scaled"] if prior in (by_backward, by_jacobian) else []
    return listed("prior of b", lambda: pm.Normal("y", prior(number), 1, observed=Y), public=public)


@pytest.mark.parametrize("prior", HIDDEN)
def test_a_number_is_listed_wherever_in_a_prior_it_hides(prior):
    """A number that the formula has already adds nothing to the list; any other does."""
    assert prior_of_b(SECRET, prior) == prior_of_b(2.0, prior) + 1


@pytest.mark.parametrize("prior", [by_density, by_start, by_bounds, by_backward, by_jacobian])
def test_a_list_that_walks_distributions_alone_would_miss_it(prior, monkeypatch):
    """The planted fault: what was listed before."""
    everything = proved_module._graphs_read

    def distributions_alone(model, factors, prior):
        read = everything(model, factors, prior)
        return {name: [g for g in graphs if g in model.basic_RVs] for name, graphs in read.items()}

    monkeypatch.setattr(proved_module, "_graphs_read", distributions_alone)
    monkeypatch.setattr(proved_module, "refuse_hidden", lambda *arguments: None)
    with pytest.raises(AssertionError):
        test_a_number_is_listed_wherever_in_a_prior_it_hides(prior)


def in_the_density(b, number):
    pm.CustomDist("y", b, logp=lambda value, mu: -((value - mu * number) ** 2), observed=Y)


def in_an_array(b, number):
    pm.Normal("y", b * np.array([number]), 1, observed=Y)


def in_a_bound(b, number):
    pm.Censored("y", pm.Normal.dist(b, 1), lower=None, upper=100 * number, observed=Y)


@pytest.mark.parametrize("likelihood", [in_the_density, in_an_array, in_a_bound])
def test_a_number_is_listed_wherever_in_a_likelihood_it_hides(likelihood):
    def count(number):
        return listed("likelihood of y", lambda: likelihood(pm.Normal("b"), number))

    plain = 0.02 if likelihood is in_a_bound else 2.0
    assert count(SECRET) == count(plain) + 1


REGULAR = [
    np.full(2, SECRET),
    np.full((3, 4), SECRET),
    np.array([3, 4711]),
    np.linspace(SECRET, 9.0, 5),
    SECRET * np.eye(3),
]


def by_array(array):
    b = pm.Normal("b")
    pm.Normal("y", (b * array).sum(), 1, observed=Y)


@pytest.mark.parametrize("array", REGULAR)
def test_regular_arrays_of_a_likelihood_count_as_two_numbers(array):
    def by_name():
        by_array(pm.Data("w", array))

    declared = listed("likelihood of y", by_name, public=["w"])
    lengths = set(array.shape) - {2}  # a square has the number 2 already
    count = listed("likelihood of y", lambda: by_array(pt.as_tensor(array)))
    assert count == declared + 2 + len(lengths)


@pytest.mark.parametrize("array", REGULAR)
def test_a_list_that_leaves_a_likelihoods_arrays_out_would_miss_them(array, monkeypatch):
    """The planted fault."""
    constants = import_module("pymc_dp.model.released")
    numbers = constants._numbers

    def scalars_alone(graphs, blockers, leaves, axes):
        scalars = {v: leaf for v, leaf in leaves.items() if v.ndim == 0}
        return numbers(graphs, blockers, scalars, axes)

    monkeypatch.setattr(constants, "_numbers", scalars_alone)
    with pytest.raises(AssertionError):
        test_regular_arrays_of_a_likelihood_count_as_two_numbers(array)


@pytest.mark.parametrize("array", [np.array([0.3, 1.9, 0.7]), np.array([0.3, 1.9])])
def test_an_array_inside_a_transform_is_refused(array):
    def build():
        b = pm.Normal("b", shape=array.shape, transform=Scaled(backward=array))
        pm.Normal("y", b.sum(), 1, observed=Y)

    with pytest.raises(ValueError, match="`b` reads an unnamed array"):
        trusted(build, public=["Scaled"])


def test_a_list_of_trusted_numbers_does_not_tell_how_many_records_there_are():
    lines = trusted(ones, number_is_public=True)
    assert not any(str(count) in line for line in lines for count in range(N - 1, N + 4))


@cache
def any_plan():
    """The plan has no part in what a result lists."""
    model = zoo.mean(Y, name="b")
    return pymc_dp.plan(model=model, epsilon=1, delta=1e-5).plan


def results_of(rows, name, inside=""):
    with pm.Model(name=inside) as model:
        b = pm.Normal("b")
        pm.Normal(name, b * 100.0, pm.HalfNormal("s"), observed=np.resize(Y, rows))
    groups = {"posterior": xr.Dataset()}
    about = {"withheld": (), "doubts": ()}
    outcome = Outcome("dp_advi", any_plan(), (), "", True, True)
    records = separate(model)[0]
    attrs = with_guarantee(groups, records, outcome, about)["privacy"].attrs
    return json.loads(attrs["trusted_constants"])


# a named model writes a colon in all names
NAMES = [
    ("y", ""),
    ("y", "survey"),
    ("score: total", ""),
    ("likelihood of y: 1", ""),
    ("a of b", ""),
]


@pytest.mark.parametrize(("name", "inside"), NAMES)
def test_a_result_lists_the_same_of_one_record_more_whatever_the_names(name, inside):
    """A hundred is a number of the model: where it is that of records, one number fewer counts."""
    assert results_of(100, name, inside) == results_of(101, name, inside)


@pytest.mark.parametrize(("name", "inside"), NAMES[1:4])
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


@pytest.mark.parametrize("beside", [np.ones((N, 1)), np.zeros((N, 2)), np.eye(N)[:, :3]])
def test_a_coefficient_for_every_record_is_refused_whatever_stands_beside_it(beside):
    design = np.column_stack([np.eye(N), beside])
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=design.shape[1])
        pm.Normal("y", pm.math.dot(pm.Data("Z", design), b), 1, observed=Y)
    with pytest.raises(ValueError, match="`Z` has a column of its own for every single record"):
        separate(model)
