"""What travels to workers: how to compile, and nothing that an author's functions may hold."""

import sys

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.logprob.transforms import Transform

from pymc_dp.driver.fit import set_up
from pymc_dp.driver.run import compile_method
from pymc_dp.privacy import chunks
from tests.zoo import build as model_of

separate = sys.modules["pymc_dp.model.separate"]  # the package has a function of that name

RECORDS = 400
Y = np.random.default_rng(0).normal(size=RECORDS)
SECRET = Y[3].tobytes()


def density(value, mu=0.0):
    return -0.5 * (value - mu) ** 2


def reads_records(draw):
    """A function of an author's that holds the records in its closure."""
    records = {"y": Y}
    return lambda *args, **settings: (records["y"], draw(*args, **settings))[1]


def standard(rng=None, size=None):
    return rng.normal(size=size)


def around(mu, rng=None, size=None):
    return rng.normal(mu, size=size)


def random_of_a_prior():
    a = pm.CustomDist("a", logp=density, random=reads_records(standard))
    pm.Normal("y", a, observed=Y[:4])


def random_of_an_outcome():
    pm.CustomDist("y", pm.Normal("a"), logp=density, random=reads_records(around), observed=Y[:4])


def density_of_a_prior():
    a = pm.CustomDist("a", logp=reads_records(density), random=standard)
    pm.Normal("y", a, observed=Y[:4])


def graph_of_an_outcome():
    made = reads_records(lambda mu, size: pm.Normal.dist(mu, 1, size=size))
    pm.CustomDist("y", pm.Normal("a"), dist=made, observed=Y[:4])


def transform_of_a_prior():
    class Own(Transform):
        name = "own"
        records = Y

        def forward(self, value, *inputs):
            return pt.log(value)

        def backward(self, value, *inputs):
            return pt.exp(value)

        def log_jac_det(self, value, *inputs):
            return value

    a = pm.HalfNormal("a", transform=Own(), default_transform=None)
    pm.Normal("y", a, observed=Y[:4])


MODELS = [random_of_a_prior, random_of_an_outcome, density_of_a_prior, graph_of_an_outcome]


def recipe(build, method="dp_advi", **settings):
    da = pytest.importorskip("dask.array")
    model = model_of(build)
    data = {"y": da.from_array(Y, chunks=100)}
    setup = set_up(model, method, None, data=data, epsilon=1.0, delta=1e-5, **settings)
    return chunks.packed(compile_method(setup, "python").again)


@pytest.mark.parametrize(
    ("build", "method"),
    [*((build, "dp_advi") for build in MODELS), (random_of_an_outcome, "dp_sgld")],
)
def test_no_function_of_an_authors_carries_records_to_workers(build, method):
    assert SECRET not in recipe(build, method)


def test_a_function_that_is_declared_public_travels_with_what_it_holds():
    """It draws outcomes where the records are, and its author says that it holds no records."""
    assert SECRET in recipe(random_of_an_outcome, public=["CustomDist_y"])


def test_a_recipe_that_holds_the_class_of_an_author_is_caught(monkeypatch):
    monkeypatch.setattr(separate, "listed", type)
    assert SECRET in recipe(random_of_a_prior)


def test_graphs_travel_without_the_transforms_that_their_tags_hold():
    assert SECRET not in recipe(transform_of_a_prior, public=["Own"])


def test_a_graph_that_travels_with_its_tags_is_caught(monkeypatch):
    monkeypatch.setattr(chunks, "Scratchpad", ())
    assert SECRET in recipe(transform_of_a_prior, public=["Own"])
