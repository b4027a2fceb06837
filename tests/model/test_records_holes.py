"""Holes that a proof of separability might have: each model here must be refused, or must not."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.stats import norm

from pymc_dp.errors import NotSeparableError
from pymc_dp.model import separate, separate_unread
from pymc_dp.model.separation_proof import needs
from tests import zoo
from tests.zoo import BINARY, CATEGORY, GROUP, REAL, SQUARE, D, N, X, separated

AROUND = np.random.default_rng(4).random((N, N))
ROWS = np.arange(N)


def linear(mean):
    pm.Normal("y", mean, 1.0, observed=REAL)


def coefficients(*shape):
    return pm.Normal("b", shape=shape or None)


def shares():
    """Return a table with a row per record, and the column that each record shows."""
    p = pm.math.softmax(pm.Data("x", X) @ coefficients(D, 3), axis=-1)
    return p, pm.Data("shown", CATEGORY)


def neighbours_average():
    linear(pm.Data("w", AROUND) @ pm.Data("x", X) @ coefficients(D))


def constant_row_numbers():
    p, shown = shares()
    pm.Potential("l", pt.log(p[ROWS, shown]))


def every_record_with_all():
    p, shown = shares()
    pm.Potential("l", pt.log(p[pt.arange(shown.shape[0])[None, :], shown[:, None]]).sum(axis=1))


def columns_as_many_as_records():
    theta, shown = pm.Normal("theta", shape=(N, 2)), pm.Data("shown", GROUP)
    mean = theta[pt.arange(shown.shape[0])[None, :], shown[:, None]].sum(axis=1)
    linear(mean)


def mean_as_prior():
    x = pm.Data("x", X[:, 0])
    linear(pm.Normal("a", x.mean()) * x)


def mean_as_start():
    x = pm.Data("x", X[:, 0])
    linear(pm.Normal("a", initval=x.mean()) * x)


def size_from_data():
    g = pm.Data("g", GROUP)
    linear(pm.Normal("a", shape=g.max() + 1)[g])


def centred_by_a_copy():
    linear((pt.as_tensor(X) - pt.as_tensor(X.copy()).mean(axis=0)) @ coefficients(D))


def number_of_records():
    y = pm.Data("series", REAL)
    pm.Normal("y", coefficients() / y.shape[0], 1.0, observed=y)


def number_of_records_as_trend():
    y = pm.Data("series", REAL)
    pm.Normal("y", coefficients() * pt.arange(y.shape[0]), 1.0, observed=y)


def last_of_as_many_as_records():
    y = pm.Data("series", REAL)
    pm.Normal("y", coefficients(N)[y.shape[0] - 1], 1.0, observed=y)


def undeclared_table():
    linear(pm.Data("table", np.array([3.0, 1.0, 4.0]))[pm.Data("g", CATEGORY)] * coefficients())


def masked_records():
    a = coefficients()
    pm.Potential("l", -((a - pm.Data("x", REAL)[pm.Data("treated", BINARY) > 0]) ** 2))


def group_sizes():
    g = pm.Data("g", GROUP)
    sizes = pt.inc_subtensor(pt.zeros(2)[g], 1.0)
    linear((coefficients(2) / sizes)[g])


def closure_over_data():
    x = pm.Data("x", X[:, 0])
    pm.CustomDist(
        "y", coefficients(), logp=lambda v, mu: -((v - mu - x.mean()) ** 2), observed=REAL
    )


def closure_in_a_prior():
    x = pt.as_tensor(X[:, 0])
    linear(pm.CustomDist("a", logp=lambda value: -((value - x.mean()) ** 2)) * X[:, 0])


def shared_variable():
    linear(coefficients() * pytensor.shared(X[:, 0], name="x").mean())


# fmt: off
REFUSED = {
    f: words
    for words, functions in {
        "`x`": [neighbours_average, mean_as_prior, closure_over_data,
                shared_variable, constant_row_numbers],
        "`y`": [centred_by_a_copy, group_sizes],
        "`l`": [every_record_with_all, masked_records],
        "`a`": [mean_as_start, size_from_data, closure_in_a_prior],
        "`table`": [undeclared_table],
        "paired with all": [columns_as_many_as_records],
        "number of records": [number_of_records, last_of_as_many_as_records],
        "no rule says how ARange": [number_of_records_as_trend],
    }.items()
    for f in functions
}
# fmt: on


@pytest.mark.parametrize(("describe", "words"), REFUSED.items(), ids=[f.__name__ for f in REFUSED])
def test_a_hole_is_closed_and_the_sentence_names_what_reads_the_data(describe, words):
    with pytest.raises(NotSeparableError, match=words):
        separate(zoo.build(describe))


# x has as many columns as rows, so that no length can tell the records apart
MIXED = {
    "mean": lambda x, b: (x - x.mean(axis=0)) @ b,
    "diagonal": lambda x, b: pt.diagonal(x) * b,
    "folded": lambda x, b: (x + x.T.flatten().reshape((N, N))) @ b,
    "reversed": lambda x, b: x[::-1] @ b,
    "joined halves": lambda x, b: pt.concatenate([x[:6] @ b, x[6:] @ b]),
    "overwritten": lambda x, b: pt.set_subtensor(x[0], 0.0) @ b,
    "sorted": lambda x, b: pt.sort(x, axis=0) @ b,
    "running sum": lambda x, b: pt.cumsum(x, axis=0) @ b,
    "permuted": lambda x, b: x[np.random.default_rng(0).permutation(N)] @ b,
    "softmax": lambda x, b: pm.math.softmax(x @ b, axis=0),
    "inverse": lambda x, b: pt.linalg.inv(x) @ b,
    "outer": lambda x, b: pt.outer(x @ b, x @ b).sum(axis=1),
}


@pytest.mark.parametrize("mean", MIXED.values(), ids=MIXED)
@pytest.mark.parametrize("named", [True, False], ids=["data", "constant"])
def test_operations_across_records_are_refused(mean, named):
    x = (lambda: pm.Data("x", SQUARE)) if named else (lambda: pt.as_tensor(SQUARE))
    with pytest.raises(NotSeparableError, match="`x`|`y`"):  # by structure: no value is looked at
        separate_unread(zoo.build(lambda: linear(mean(x(), coefficients(N)))))


CUBE = np.random.default_rng(1).normal(size=(N, 2, 2))
LAID_OUT = {
    "(-1, k)": lambda x: x.reshape((-1, 4)),
    "(n, -1)": lambda x: x.reshape((N, -1)),
    "(x.shape[0], -1)": lambda x: x.reshape((x.shape[0], -1)),
    "flatten(2)": lambda x: x.flatten(2),
    "and back": lambda x: x.flatten(2).reshape((x.shape[0], 2, -1)).flatten(2),
}


def of_batch(lay_out):
    records, _ = separated(zoo.build(lambda: linear(lay_out(pm.Data("x", CUBE)) @ coefficients(4))))
    inputs = [records.batch.inputs["x"], records.batch.inputs["y"], records.latents["b"]]
    return pytensor.function(inputs, records.batch.terms, on_unused_input="ignore")


@pytest.mark.parametrize("lay_out", LAID_OUT.values(), ids=LAID_OUT)
@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")
def test_a_reshape_of_each_record_is_that_of_the_record_alone(lay_out):
    b, compute = np.array([1.0, 2.0, 3.0, 4.0]), of_batch(lay_out)
    for rows in (slice(0, 1), slice(3, 8), slice(0, N)):
        mean = CUBE[rows].reshape(-1, 4) @ b
        [term] = compute(CUBE[rows], np.zeros(len(mean)), b)
        np.testing.assert_allclose(term, norm.logpdf(mean), rtol=1e-12)


def test_a_reshape_that_makes_rows_of_several_fits_no_batch():
    """It has the rows of the batch whatever its author wrote: no record is in another one's."""
    compute = of_batch(lambda x: pt.cumsum(x.reshape((-1, 8)), axis=1).reshape((N, -1)))
    for rows in range(1, N + 1):
        with pytest.raises(ValueError, match="cannot reshape"):
            compute(CUBE[:rows], REAL[:rows], np.ones(4))


@pytest.mark.parametrize(
    ("before", "after", "k"),
    [
        ((None, 6), ("rows", 5), 0),
        ((1, None, 6), (2, "rows", 6), 1),
        ((None,), ("rows", -1), 0),
        ((None, None), (-1, "rows"), 1),
    ],
)
def test_a_reshape_that_mixes_records_is_refused(before, after, k):
    x, rows = pt.tensor(dtype="float64", shape=before), pt.lscalar("rows")
    node = x.reshape([rows if n == "rows" else n for n in after]).owner
    with pytest.raises(NotSeparableError, match="a reshape m"):
        list(needs(node, 0, k))


FINE = {
    "row means": lambda x, b: (x - x.mean(axis=1, keepdims=True)) @ b,
    "a column overwritten": lambda x, b: pt.set_subtensor(x[:, 0], 0.0) @ b,
    "running sums by row": lambda x, b: pt.cumsum(x, axis=1) @ b,
    "columns joined": lambda x, b: pt.concatenate([x[:, :1], x[:, 1:] ** 2], axis=1) @ b,
    "softmax by row": lambda x, b: pm.math.softmax(x, axis=1) @ b,
    "a column made a matrix": lambda x, b: x[:, 0].reshape((-1, 1)) @ b[:1],
    "a column tiled": lambda x, b: pt.tile(x[:, 0][:, None], D) @ b,
    "own row numbers": lambda x, b: x[pt.arange(x.shape[0]), CATEGORY] * b[0],
    "ones for an intercept": lambda x, b: pt.ones(x.shape[0]) * b[0] + x @ b,
    "width of the data": lambda x, b: x @ b / x.shape[1],
    "constant trend": lambda x, b: x @ b + b[0] * np.arange(N),
    "one index twice": lambda x, b: pt.outer(b, b)[GROUP, GROUP] + x @ b,
}


@pytest.mark.parametrize("mean", FINE.values(), ids=FINE)
@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")
def test_what_each_record_computes_for_itself_is_fine(mean):
    _, columns = separated(zoo.build(lambda: linear(mean(pm.Data("x", X), coefficients(D)))))
    assert {"x", "y"} <= set(columns)


@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")
def test_a_declared_table_may_be_looked_up():
    records, columns = separated(zoo.build(undeclared_table), public=["table"])
    assert set(columns) == {"g", "y"}
    assert records.batch.valid is not None


def test_a_potential_on_public_numbers_belongs_to_the_prior():
    def model():
        b = coefficients(3)
        pm.Potential("p", -((b - pm.Data("k", [1.0, 5.0, 2.0])) ** 2))
        linear(pt.sum(b))

    records, columns = separated(zoo.build(model), public=["k"])
    assert set(columns) == {"y"}
    assert len(records.batch.terms) == 1


def test_one_index_of_two_axes_stays_inside_both():
    """A record whose index lies outside the smaller axis counts as bad, and reads no memory."""

    def model():
        g = pm.Data("g", GROUP)
        linear(pm.Normal("table", shape=(3, 2))[g, g])

    records, _ = separate(zoo.build(model))
    inputs = records.batch.inputs | records.latents
    valid = pytensor.function([*inputs.values()], records.batch.valid, on_unused_input="ignore")
    values = {"g": np.array([0, 1, 2]), "y": np.zeros(3), "table": np.zeros((3, 2))}
    assert valid(*[values[name] for name in inputs]).tolist() == [True, True, False]
