"""What of a posterior may leave: the latents, and deterministics that hide no number."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert
from pytensor.scalar.basic import Composite
from pytensor.tensor.elemwise import Elemwise

import pymc_dp
from pymc_dp.model import releasable as released_module
from pymc_dp.model import separate
from tests import zoo
from tests.zoo import COUNT, GROUP, REAL, D, N, X

NAMES = [f"patient {i}" for i in range(N)]
CLINICS = ["north", "south"]


def patients():
    """Describe a model with two latents and data; return what deterministics are made of."""
    pm.modelcontext(None).add_coords({"patient": NAMES, "clinic": CLINICS})
    x = pm.Data("x", X[:, 0], dims="patient")
    sd = pm.Data("sd", 3.25)
    table = pm.Data("table", np.array([1.5, 7.0]), dims="clinic")
    b, alpha = pm.Normal("b"), pm.Normal("alpha", dims="clinic")
    y = pm.Normal("y", b * x + alpha[GROUP], 1.0, observed=REAL, dims="patient")
    return x, sd, table, b, alpha, y


def composite(b):
    """Hide a number in an operation on single entries."""
    x = pytensor.scalar.float64()
    return Elemwise(Composite([x], [x * 97.5]))(b)


def polynomial(b):
    """Write a formula that is longer than anybody's, of ever new operations."""
    terms = [b]
    while len(terms) < 300:
        terms += [terms[-1] + terms[len(terms) // 2]]
    return terms[-1]


def released(deterministic, *, dims=None, public=()):
    def model():
        pm.Deterministic("it", deterministic(*patients()), dims=dims)

    return separate(zoo.build(model), public=public)[0].outputs


CLEAN = {
    "a formula": lambda x, sd, table, b, alpha, y: pm.math.exp(-b / 2) + alpha.sum() ** 2,
    "a contrast": lambda x, sd, table, b, alpha, y: alpha[1] - alpha[0],
    "a softmax": lambda x, sd, table, b, alpha, y: pm.math.softmax(alpha),
    "a column": lambda x, sd, table, b, alpha, y: alpha[:, None] * alpha[None, :],
    "all but the last": lambda x, sd, table, b, alpha, y: alpha[1:] - alpha[:-1],
    "backwards": lambda x, sd, table, b, alpha, y: alpha[::-1] + b,
    "as long as a latent": lambda x, sd, table, b, alpha, y: pt.zeros_like(alpha) + b,
    "a matrix of a latent's length": lambda x, sd, table, b, alpha, y: pt.eye(2) * alpha,
    "latents backwards": lambda x, sd, table, b, alpha, y: alpha[np.arange(2)[::-1]],
    "a checked formula": lambda x, sd, table, b, alpha, y: Assert("positive")(pt.exp(b), b < 2),
    "a correlation": lambda x, sd, table, b, alpha, y: pt.linalg.inv(
        pt.linalg.cholesky(pt.eye(2) + pt.outer(alpha, alpha))
    ),
}
PRIVATE = {
    "a scalar constant": lambda x, sd, table, b, alpha, y: b * 3.25,
    "scalar data": lambda x, sd, table, b, alpha, y: b * sd,
    "a table": lambda x, sd, table, b, alpha, y: alpha * table,
    "a constant array": lambda x, sd, table, b, alpha, y: alpha * np.array([1.5, 7.0]),
    "one whole number, repeated": lambda x, sd, table, b, alpha, y: b * np.full(3, 97),
    "a prediction": lambda x, sd, table, b, alpha, y: b * x,
    "a statistic of the data": lambda x, sd, table, b, alpha, y: b * x.mean(),
    "the outcome": lambda x, sd, table, b, alpha, y: b * y,
    "the number of records": lambda x, sd, table, b, alpha, y: b * x.shape[0],
    "in the shape of the data": lambda x, sd, table, b, alpha, y: b + pt.zeros_like(x),
    "a size": lambda x, sd, table, b, alpha, y: pt.ones(97) * b,
    "groups that are all one": lambda x, sd, table, b, alpha, y: alpha[np.zeros(N, int)],
    "a position": lambda x, sd, table, b, alpha, y: pt.outer(alpha, alpha).ravel()[3],
    "the end of a slice": lambda x, sd, table, b, alpha, y: alpha[:17],
    "a position that is written to": lambda x, sd, table, b, alpha, y: pt.set_subtensor(
        pt.zeros(2)[[1, 1]], b
    ),
    "repeats": lambda x, sd, table, b, alpha, y: pt.repeat(alpha, np.array([3, 10])),
    "a tile": lambda x, sd, table, b, alpha, y: pt.tile(alpha, N),
    "an identity": lambda x, sd, table, b, alpha, y: pt.eye(N) * b,
    "a diagonal": lambda x, sd, table, b, alpha, y: pt.diag(alpha, k=17),
    "a part of a split": lambda x, sd, table, b, alpha, y: pt.split(alpha, [1, 1, 0, 0])[0],
    "a reshape": lambda x, sd, table, b, alpha, y: pt.alloc(b, 2 * N).reshape((N, 2)),
    "axes": lambda x, sd, table, b, alpha, y: b.dimshuffle(*"xxxxx"),
    "a stack of copies": lambda x, sd, table, b, alpha, y: pt.stack([b, b]),
    "a join of copies": lambda x, sd, table, b, alpha, y: pt.concatenate([alpha, alpha]),
    "a sum over groups": lambda x, sd, table, b, alpha, y: sum(alpha[k] for k in GROUP),
    "a count": lambda x, sd, table, b, alpha, y: b + 1 + 1 + 1 + 1,
    "powers of powers": lambda x, sd, table, b, alpha, y: ((b**2) ** 2) ** 2,
    "a long formula": lambda x, sd, table, b, alpha, y: polynomial(b),
    "uninitialised memory": lambda x, sd, table, b, alpha, y: pt.empty(2) * alpha,
    "a branch": lambda x, sd, table, b, alpha, y: pytensor.ifelse(b > 0, b, b * 97),
    "a fused operation": lambda x, sd, table, b, alpha, y: composite(b),
}


@pytest.mark.parametrize("deterministic", CLEAN.values(), ids=CLEAN)
def test_formulas_of_the_latents_leave(deterministic):
    outputs = released(deterministic)
    assert set(outputs.graphs) == {"b", "alpha", "it"}
    assert outputs.withheld == ()


@pytest.mark.parametrize(
    ("what", "name"), [("scalar data", "sd"), ("a table", "table"), ("a scalar constant", "it")]
)
def test_a_number_leaves_when_it_is_declared_public(what, name):
    assert "it" in released(PRIVATE[what], public=[name]).graphs


def test_declaring_one_number_public_frees_no_other():
    both = released(lambda x, sd, table, b, alpha, y: alpha * table * sd, public=["table"])
    assert both.withheld == ("it",)


def test_no_name_is_lost_where_deterministics_are_the_same():
    def model():
        rate = pm.Gamma("rate", 2, 1)
        twice = 2 * rate
        first = pm.Deterministic("first", twice)
        pm.Deterministic("of first", first)
        pm.Deterministic("second", twice)
        pm.Poisson("y", rate, observed=COUNT)

    options = {"epsilon": 4.0, "delta": 1e-5, "progressbar": False, "backend": "python"}
    posterior = pymc_dp.fit(model=zoo.build(model), **options)["posterior"]
    assert list(posterior) == ["rate", "first", "of first", "second"]
    for name in ("first", "of first", "second"):
        np.testing.assert_array_equal(posterior[name], 2 * posterior["rate"])


def deterministics_that_are_data():
    x = pm.Data("x", X[:, 0])
    pm.Deterministic("d", x)
    pm.Deterministic("e", x)
    pm.Normal("y", pm.Normal("b") * x, 1.0, observed=REAL)


def test_data_keep_their_name_beside_deterministics_that_are_the_same():
    records, _ = separate(zoo.build(deterministics_that_are_data))
    assert set(records.batch.inputs) == {"x", "y"}
    assert list(records.outputs.graphs) == ["b"]
    for name in ("d", "e"):
        with pytest.raises(ValueError, match=f"`{name}`, which reads the data `x`"):
            separate(zoo.build(deterministics_that_are_data), public=[name])


def test_a_deterministic_of_a_withheld_one_stays_too():
    def model():
        _, _, _, b, _, _ = patients()
        hidden = pm.Deterministic("hidden", b * 3.25)
        pm.Deterministic("derived", pm.math.exp(hidden))

    assert set(separate(zoo.build(model))[0].outputs.withheld) == {"hidden", "derived"}


def test_axes_may_have_no_name():
    def model():
        pm.modelcontext(None).add_coords({"patient": NAMES, "term": list("abc")})
        x = pm.Data("x", X, dims=(None, "term"))
        table = pm.Normal("table", shape=(2, D))
        pm.Deterministic("double", 2 * table, dims=(None, "term"))
        pm.Normal("y", (x * table[GROUP]).sum(axis=1), 1.0, observed=REAL, dims="patient")

    described = zoo.build(model)
    before = dict(described.named_vars_to_dims)
    outputs = separate(described)[0].outputs
    assert described.named_vars_to_dims == before
    assert outputs.dims["double"] == (None, "term")
    assert list(outputs.coords) == ["term"]


@pytest.mark.parametrize("what", PRIVATE)
def test_a_deterministic_that_holds_a_number_stays_and_says_whether_a_declaration_frees_it(what):
    outputs = released(PRIVATE[what])
    assert set(outputs.graphs) == {"b", "alpha"}
    assert set(outputs.coords) == {"clinic"}  # with what is released and no others
    assert outputs.withheld == ("it",)
    try:
        freed = released(PRIVATE[what], public=["it"]).withheld == ()
    except ValueError:
        freed = False
    assert [*outputs.declarable] == (["it"] if freed else [])


def test_a_librarys_own_row_numbers_do_not_withhold_a_correlation_matrix():
    size = 5

    def model():
        sd = pm.Exponential.dist(1.0, shape=size)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=size, eta=2, sd_dist=sd)
        pm.MvNormal("y", chol=chol, observed=X @ np.ones((D, size)) + np.eye(N)[:, :size])

    outputs = separate(zoo.build(model))[0].outputs
    assert outputs.withheld == ()
    assert {"chol", "chol_corr", "chol_stds"} <= set(outputs.graphs)


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("_repeats", "a sum over groups"),
        ("_is_plain", "a diagonal"),
        ("_is_plain", "a fused operation"),
        ("_may_read", "the end of a slice"),
        ("_may_read", "groups that are all one"),
    ],
)
def test_planted_faults_release_a_number(fault, what, monkeypatch):
    assert released(PRIVATE[what]).withheld == ("it",)
    monkeypatch.setattr(released_module, fault, lambda *_: fault != "_repeats")
    assert released(PRIVATE[what]).withheld == ()


def test_a_withheld_deterministic_says_whether_a_number_or_a_dimension_is_why():
    with pm.Model(coords={"arm": ["a", "b"]}) as model:
        b = pm.Normal("b", shape=2)
        pm.Deterministic("scaled", 2.54 * b)
        pm.Deterministic("labelled", b, dims="arm")
        pm.Normal("y", b[0], 1, observed=np.arange(50.0))
    text = pymc_dp.explain(model).withheld
    assert "`scaled`: a number in it may come" in text
    assert "`labelled`: labels of `arm` may come" in text


def test_trusted_numbers_in_priors_are_all_listed():
    def model():
        b = pm.Normal("b", X.mean(axis=0), 1.0, shape=D, initval=np.zeros(D))
        pm.Normal("y", pm.Normal("a", 0.3, 1.0) + X @ b, 1.0, observed=REAL)

    records, _ = separate(zoo.build(model))
    trusted = dict(row.rsplit(": ", 1) for row in map(str, records.trusted) if ": " in row)
    assert trusted["prior of a"] == "2 numbers, and 3 in its density"
    assert int(trusted["prior of b"].split()[0]) >= 4
    assert "initial value of b" in map(str, records.trusted)
