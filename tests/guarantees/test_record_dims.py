"""Neither the number of records nor their labels leave: not by a shape, a coord or a number."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_dp
from pymc_dp.errors import NotSeparableError
from pymc_dp.model import constrained, separate
from tests.zoo import separated

N, J, K = 23, 4, 2
REAL = np.random.default_rng(0).normal(size=N)
TABLE = np.random.default_rng(1).normal(size=(N, J))
IDS = [f"patient {i}" for i in range(N)]


def build(describe) -> pm.Model:
    with pm.Model(coords={"patient": IDS, "factor": range(K)}) as model:
        describe()
    return model


def observe(mean, **settings):
    pm.Normal("y", mean, 1.0, observed=REAL, dims="patient", **settings)


def length() -> pt.TensorVariable:
    return pm.modelcontext(None).dim_lengths["patient"]


def replicates():
    mu = pm.Normal("mu")
    observe(mu)
    pm.Normal("y_rep", mu, 1.0, dims="patient")


def only_in_a_deterministic():
    observe(pm.Normal("mu"))
    pm.Deterministic("double", 2 * pm.Normal("y_rep", shape=N))


@pytest.mark.parametrize("describe", [replicates, only_in_a_deterministic])
@pytest.mark.parametrize("method", ["dp_advi", "vips"])
def test_a_latent_that_no_data_inform_is_refused(describe, method):
    with pytest.raises(NotSeparableError, match=r"`y_rep`.*pymc_dp\.predict"):
        pymc_dp.plan(build(describe), method=method, epsilon=1, delta=1e-5)


@pytest.mark.parametrize("shape", [{"dims": "patient"}, {"shape": N}])
def test_a_latent_in_bijection_with_the_records_is_refused(shape):
    def describe():
        observe(pt.dot(pm.Data("x", np.eye(N)[::-1].copy()), pm.Normal("a", **shape)))

    with pytest.raises(NotSeparableError, match="`a` has the records' own|`x` has a column of its"):
        separate(build(describe))


STACKS = {
    "labels": lambda mu: pm.Deterministic("fitted", pt.stack([mu] * N), dims="patient"),
    "length": lambda mu: pm.Deterministic("fitted", pt.stack([mu] * N)),
    "rows": lambda mu: pm.Deterministic("fitted", pt.stack([pt.stack([mu, 2 * mu])] * N)),
    "other labels": lambda mu: pm.Deterministic("fitted", pt.stack([mu, -mu]), dims="factor"),
}


def with_stack(name):
    def describe():
        mu = pm.Normal("mu")
        observe(mu)
        STACKS[name](mu)

    return describe


@pytest.mark.parametrize("name", STACKS)
def test_a_deterministic_in_the_shape_of_the_records_or_with_labels_of_its_own_is_withheld(name):
    outputs = separate(build(with_stack(name)))[0].outputs
    assert outputs.withheld == ("fitted",)
    assert not outputs.coords


def test_no_declaration_frees_the_records_labels():
    describe = with_stack("labels")
    with pytest.raises(ValueError, match="`fitted`.*dimension `patient`"):
        separate(build(describe), public=["fitted"])


READERS = {
    "a prior": lambda: observe(pm.Gamma("q", length(), 1.0)),
    "a likelihood": lambda: observe(pm.Normal("mu") * (length() / 1000.0) ** 40),
    "a sum in a likelihood": lambda: observe(pm.Normal("mu") * pt.ones(length()).sum()),
}


@pytest.mark.parametrize("describe", READERS.values(), ids=READERS)
def test_a_model_that_computes_with_the_number_of_records_is_refused(describe):
    with pytest.raises(NotSeparableError, match="number of records|dimension `patient`"):
        separate(build(describe))


def test_the_length_of_a_dimension_that_no_variable_has_is_private_too():
    def describe():
        pm.modelcontext(None).add_coord("row", range(N))
        rate = pm.modelcontext(None).dim_lengths["row"]
        pm.Normal("y", pm.Gamma("q", rate, 1.0), 1.0, observed=REAL)

    with pytest.raises(NotSeparableError, match="`q` reads the length of the dimension `row`"):
        separate(build(describe))


def test_the_records_dimension_may_size_them_and_a_latents_own_may_scale_it():
    def describe():
        scale = 1 / pt.sqrt(pm.modelcontext(None).dim_lengths["factor"].astype("float64"))
        w = pm.Normal("w", 0, scale, dims="factor")
        observe(pt.zeros(length()) + w[0] + w[1])

    records, columns = separated(build(describe))
    assert set(columns) == {"y"}
    assert set(records.outputs.coords) == {"factor"}


@pytest.mark.parametrize("name", ["centre", None])
def test_a_shared_number_that_is_no_data_of_the_model_is_refused(name):
    def describe():
        observe(pm.Normal("mu", pytensor.shared(REAL.mean(), name=name), 1e-3))

    words = "`centre`" if name else "an unnamed number"
    with pytest.raises(NotSeparableError, match=f"`mu` reads {words}.*pm.Data"):
        separate(build(describe))


def test_what_a_result_trusts_does_not_count_the_records():
    def describe(rows):
        w, z = pm.Normal("w", shape=(J, K)), pm.Normal("z", np.zeros((rows, K)), 1.0)
        pm.Normal("y", pt.dot(z, w.T), 1.0, observed=TABLE[:rows])

    one_more, one_less = (
        separate(constrained(build(lambda n=rows: describe(n))))[0].trusted for rows in (N, N - 1)
    )
    assert one_more == one_less
