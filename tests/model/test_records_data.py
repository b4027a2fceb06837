"""The data of a model: what ``data=`` may put in its place, and values that no record should have.

Split off from the holes: those are about the graph, these about the arrays.
"""

import warnings
from functools import cache

import numpy as np
import pymc as pm
import pytest
import scipy.sparse as sp

from pymc_dp.contributions.gradients import gradient, gradient_rows, on_batch
from pymc_dp.model import separate
from tests import zoo
from tests.zoo import CATEGORY, GROUP, REAL, D, N, X, separated

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")
TEN = np.random.default_rng(8)
MORE = {"x": TEN.normal(size=(10, D)), "y": TEN.normal(size=10)}


def by_group(g=GROUP):
    pm.Normal("y", pm.Normal("alpha", shape=2)[pm.Data("g", g)], 1.0, observed=REAL)


def by_two_groups():
    alpha = pm.Normal("alpha", shape=(2, 3))
    pm.Normal("y", alpha[pm.Data("g", GROUP), pm.Data("h", CATEGORY)], 1.0, observed=REAL)


@cache
def compiled(describe):
    records, columns = separated(zoo.build(describe))
    return records, columns, gradient(records, "python")


def norms(describe, **values):
    """Return the norms of all records, with some columns of the batch replaced."""
    records, columns, contribution = compiled(describe)
    batch = zoo.take(columns, range(N)) | values
    z = np.linspace(-1, 1, records.size)[None]
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        return contribution.norms(contribution.prepare(batch, z), z)


def changed(values, row, value):
    values = values.copy()
    values[row] = value
    return values


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (MORE | {"z": MORE["y"]}, "`z`.*\\['x', 'y'\\]"),
        ({"x": MORE["x"]}, "lacks `y`, which the model reads"),
        (MORE | {"x": MORE["x"][:, 0]}, "`x` has the shape .None,., the model's has .None, 3.:"),
        (MORE | {"y": 1.0}, "`y` has the shape .., the model's has .None,.:"),
        (MORE | {"x": MORE["x"] + 1j}, "`x` holds complex128 values, but the model takes float64"),
        (MORE | {"x": MORE["x"][:, :2]}, "`x` has the shape .None, 2., the model's has .None, 3.:"),
        (MORE | {"y": MORE["y"][:9]}, "differ in number: .*10.*9|differ in number: .*9.*10"),
    ],
)
def test_data_that_do_not_fit_are_refused_with_a_sentence(data, words):
    with pytest.raises(ValueError, match=words):
        separate(zoo.line(X, REAL, x="x"), data=data)


KINDS = {
    "csr matrix": sp.csr_matrix(MORE["x"]),
    "csr array": sp.csr_array(MORE["x"]),
    "Fortran order": np.asfortranarray(MORE["x"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_replaced_data_give_the_gradients_of_a_model_built_on_them(kind):
    z, rows, x = np.array([0.3, -1.0, 2.0]), [9, 0, 0, 4], KINDS[kind]
    records, columns = separated(zoo.line(X, REAL, x="x"), data={"x": x, "y": MORE["y"]})
    wanted, known = separated(zoo.line(MORE["x"], MORE["y"], x="x"))
    replaced = on_batch(records, [], gradient_rows(records), "python")(zoo.take(columns, rows), z)
    built = on_batch(wanted, [], gradient_rows(wanted), "python")(zoo.take(known, rows), z)
    np.testing.assert_array_equal(replaced, built)


@pytest.mark.parametrize("index", [3, -4, 2**31, 2**32, -(2**32), 2**62])
def test_an_index_out_of_range_spoils_its_own_record_alone(index):
    row = 6
    for leaf, group in (("g", GROUP), ("h", CATEGORY)):
        kept = norms(by_two_groups)
        seen = norms(by_two_groups, **{leaf: changed(group.astype("int64"), row, index)})
        assert not np.isfinite(seen[row])
        np.testing.assert_array_equal(np.delete(seen, row), np.delete(kept, row))


def test_an_index_given_by_data_does_not_wrap_into_the_templates_type():
    template = zoo.build(lambda: by_group(GROUP.astype("int8")))
    data = {"g": changed(np.arange(10) // 5, 3, 2**32), "y": MORE["y"]}
    records, columns = separated(template, data=data)
    contribution, z = gradient(records, "python"), np.zeros((1, 2))
    batch = zoo.take(columns, list(range(10)))
    finite = np.isfinite(contribution.norms(contribution.prepare(batch, z), z))
    np.testing.assert_array_equal(finite, np.arange(10) != 3)


@pytest.mark.parametrize("model", ["categorical", "softmax", "ordered_logistic"])
@pytest.mark.parametrize("category", [-1, 3, 2**40])
def test_an_observed_category_out_of_range_contributes_nothing(model, category):
    kept = norms(zoo.ACCEPTED[model])
    seen = norms(zoo.ACCEPTED[model], y=changed(CATEGORY.astype("int64"), 5, category))
    assert not seen[5] > 0  # zero, or not a number
    np.testing.assert_allclose(np.delete(seen, 5), np.delete(kept, 5), rtol=1e-14)


def test_a_memory_map_is_read_where_it_is(tmp_path):
    np.save(tmp_path / "x.npy", MORE["x"])
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    _, columns = separated(zoo.line(X, REAL, x="x"), data={"x": x, "y": MORE["y"]})
    assert np.shares_memory(columns["x"].values, x)


def test_names_of_data_do_not_collide_with_those_given_to_arrays():
    def model():
        x = pm.Data("array_1", X[:, 0])
        pm.Normal("y", pm.Normal("b") * x + X[:, 1] + x * X[:, 2], 1.0, observed=REAL)

    _, columns = separated(zoo.build(model))
    assert len(columns) == 4
    np.testing.assert_array_equal(columns["array_1"].values, X[:, 0])
