"""Operations that hold data outside the graph are refused or withheld, wherever they stand.

Guard 6 of the tests of a guarantee. Soundness, rule 29: Python state is data.
"""

import json
from functools import partial
from importlib import import_module

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions import transforms
from pymc.distributions.transforms import Transform
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Exp, UnaryScalarOp
from pytensor.scan import scan
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise

import pymc_dp
from pymc_dp.errors import NotSeparableError
from pymc_dp.model import graphs, separate
from pymc_dp.model.graphs import is_known_transform, tensor_constants
from tests.zoo import build as model_of

N = 40
X = np.random.default_rng(0).normal(size=(N, 2))
Y = X[:, 0] + 0.5
METHODS = ["dp_advi", "vips", "dp_sep"]


@pytensor.wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
def standardised(row):
    """Centre and scale by all records, which the graph does not show."""
    return (row - X.mean(axis=0)) / X.std(axis=0)


class Shift(Op):
    """Add an array that is an attribute."""

    __props__ = ()

    def __init__(self, by):
        self.by = by

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] + self.by


class Disguised(Shift):
    """Claim to be one of PyTensor's own."""

    __module__ = "pytensor.tensor.elemwise"
    __qualname__ = "DimShuffle"


class Times(UnaryScalarOp):
    """Multiply every entry by a number that is an attribute of the class."""

    by = float(Y.mean())

    def impl(self, x):
        return x * self.by

    def pullback(self, inputs, outputs, gradients):
        return [gradients[0] * self.by]


class Loud(Elemwise):
    """Inherit from one of PyTensor's own."""

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] + X.mean(axis=0)


def of_changed(x):
    scalar = Exp(pytensor.scalar.upgrade_to_float, name="exp")
    scalar.impl = lambda value: value + Y.mean()
    return Elemwise(scalar)(x)


def in_a_nested_graph(x):
    v = pt.dvector()
    return OpFromGraph([v], [standardised(v)])(x)


def in_a_loop(x):
    return scan(standardised, outputs_info=x, n_steps=1, return_updates=False)[-1]


def in_a_branch(x):
    return pytensor.ifelse(x[0] > 0, standardised(x), x)


def by_gradient(x):
    v = pt.dvector()
    inner = OpFromGraph([v], [2 * v], pullback=lambda inputs, outputs, g: [g[0] * Y.sum()])
    return Blockwise(inner, signature="(n)->(n)")(x[None])[0]


def by_the_name_of_a_function(x):
    return Elemwise(
        Exp(pytensor.scalar.upgrade_to_float, name="exp"),
        nfunc_spec=(f"{__name__}.mean_of_y", 1, 1),
    )(x)


def mean_of_y(x, *outputs, **settings):
    return x + Y.mean()


def by_the_name_of_a_generalised_function(x):
    op = Blockwise(pt.exp, signature="(n)->(n)", gufunc_spec=(f"{__name__}.mean_of_y", 1, 1))
    return op(x[None])[0]


def by_a_function_with_arguments(x):
    scalar = Exp(pytensor.scalar.upgrade_to_float, name="exp")
    scalar.held = (partial(mean_of_y, Y), {"y": [Y]})
    return Elemwise(scalar)(x)


ATTACKS = {
    "a function's name": by_the_name_of_a_function,
    "a function's name in a block": by_the_name_of_a_generalised_function,
    "a function in a tuple": by_a_function_with_arguments,
    "a Python function": standardised,
    "an attribute": lambda x: Shift(X.mean(axis=0))(x),
    "a false name": lambda x: Disguised(X.mean(axis=0))(x),
    "a subclass": lambda x: Loud(Exp(pytensor.scalar.upgrade_to_float, name="e"))(x),
    "a scalar operation": lambda x: Elemwise(Times(pytensor.scalar.upgrade_to_float))(x),
    "a changed method": of_changed,
    "a nested graph": in_a_nested_graph,
    "a loop": in_a_loop,
    "a branch": in_a_branch,
    "a vectorized function": lambda x: Blockwise(standardised, signature="(n)->(n)")(x[None])[0],
    "a gradient of one's own": by_gradient,
}


def regression(prior=None, deterministic=None, potential=None, x=X, mean=None):
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2) if prior is None else prior()
        if deterministic is not None:
            pm.Deterministic("d", deterministic(b))
        if potential is not None:
            pm.Potential("p", -(potential(b) ** 2).sum())
        x = pm.Data("X", x)
        pm.Normal("y", x @ b if mean is None else mean(x, b), 1, observed=Y)
    return model


def plan(model, method="dp_advi", **settings):
    return pymc_dp.plan(model, method=method, epsilon=1, delta=1e-5, num_records=N, **settings)


def shifted_by_records(x, b):
    return Blockwise(standardised, signature="(n)->(n)")(x) @ b


@pytest.mark.parametrize("method", METHODS)
def test_a_likelihood_that_standardises_by_all_records_is_refused(method):
    with pytest.raises(NotSeparableError, match=r"`y`.*`standardised`.*It holds `X`"):
        plan(regression(mean=shifted_by_records), method)


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_what_holds_data_is_refused_in_potentials_and_withheld_in_deterministics(attack):
    with pytest.raises(NotSeparableError, match="`p` is computed by the operation"):
        separate(regression(potential=attack))
    assert separate(regression(deterministic=attack))[0].outputs.withheld == ("d",)
    with pytest.raises(NotSeparableError, match="`d` is computed by the operation"):
        separate(regression(deterministic=attack), public=["d"])


def test_no_fit_releases_rows_by_a_deterministic():
    idata = pymc_dp.fit(
        model=regression(deterministic=standardised),
        epsilon=1,
        delta=1e-5,
        num_records=N,
        draws=2,
        progressbar=False,
    )
    assert set(idata["posterior"].data_vars) == {"b"}
    assert json.loads(idata["privacy"].attrs["withheld"]) == ["d"]


class Hiding(Transform):
    """Go back by an operation that holds data."""

    name = "hiding"

    def forward(self, value, *inputs):
        return value

    def backward(self, value, *inputs):
        return Shift(Y.mean())(value)

    def log_jac_det(self, value, *inputs):
        return pt.zeros(())


class Leaping(Hiding):
    """Go forward by an operation that holds data: this decides where a fit starts."""

    def forward(self, value, *inputs):
        return Shift(Y.mean())(value)

    def backward(self, value, *inputs):
        return value


def by_random():
    def random(rng=None, size=None):
        return np.full(2, Y.mean())

    def logp(value):
        return -(value**2)

    return pm.CustomDist("b", logp=logp, random=random, shape=2, initval="prior")


PRIORS = {
    "a parameter": lambda: pm.Normal("b", standardised(pt.zeros(2)), 1, shape=2),
    "a density": lambda: pm.CustomDist("b", logp=lambda v: -(standardised(v) ** 2), shape=2),
    "a distribution": lambda: pm.CustomDist(
        "b", dist=lambda size: pm.Normal.dist(standardised(pt.zeros(2)), 1, size=size), shape=2
    ),
    "a start": lambda: pm.CustomDist(
        "b",
        logp=lambda v: -(v**2),
        support_point=lambda rv, size: standardised(pt.zeros(2)),
        shape=2,
    ),
    "a random start": by_random,
    "a transform back": lambda: pm.Flat("b", shape=2, transform=Hiding()),
    "a transform": lambda: pm.Flat("b", shape=2, transform=Leaping()),
    "a table": lambda: pm.CustomDist(
        "b", logp=lambda v: pm.distributions.dist_math.SplineWrapper(np.polyfit)(v), shape=2
    ),
}


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_a_prior_that_holds_data_is_refused_wherever_it_holds_them(prior):
    with pytest.raises(NotSeparableError, match="`b` is computed by the operation"):
        separate(regression(prior=prior))


def test_a_potential_that_draws_random_numbers_is_refused():
    with pytest.raises(NotSeparableError, match="density of `p` draws random numbers"):
        separate(regression(potential=lambda b: b - pm.Normal.dist(0, 1)))


def test_an_operation_that_the_author_declared_is_accepted_and_listed():
    model = regression(deterministic=standardised, potential=lambda b: Shift(0.5)(b))
    public = ["standardised", "Shift"]
    records, _ = separate(model, public=public)
    assert records.outputs.withheld == ()
    assert {"operation Shift", "operation standardised"} <= {*map(str, records.trusted)}


def test_a_result_and_its_report_name_an_operation_that_was_allowed():
    model = regression(deterministic=lambda b: Shift(0.5)(b))
    settings = {"n": 6, "noise_multiplier": 2.0, "delta": 1e-5, "draws": 2, "progressbar": False}
    idata = pymc_dp.fit(model=model, public=["Shift"], **settings)
    assert "d" in idata["posterior"]
    assert json.loads(idata["privacy"].attrs["declared_public"]) == ["Shift"]
    assert "operation Shift" in json.loads(idata["privacy"].attrs["trusted_constants"])
    assert "`Shift`, as declared" in pymc_dp.privacy_report(idata)


def test_a_name_that_nothing_has_is_refused_and_data_allow_no_operation():
    with pytest.raises(ValueError, match="public= names `Shift`, but the model has"):
        separate(regression(), public=["Shift"])
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        pm.Potential("p", -(Shift(0.5)(b) ** 2).sum())
        pm.Normal("y", pm.Data("Shift", X) @ b, 1, observed=Y)
    with pytest.raises(NotSeparableError, match="`p` is computed by the operation `Shift`"):
        separate(model, public=["Shift"])


def of_trees(b):
    """A sum of trees, as pymc-bart makes it: its class holds the records."""
    held = {"X": X, "Y": Y, "m": 20, "perform": Shift.perform}
    return type("BART_mu", (Shift,), held)(0.5)(b)


def of_a_list(b):
    return Shift([0.1, 0.2])(b)


def of_a_function_in_a_function(b):
    mean = Y.mean()

    def inner(values):
        return values + mean

    @pytensor.wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
    def outer(values):
        return inner(values)

    return outer(b)


@pytensor.wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
def doubled(values):
    return np.multiply(values, 2)


HOLDING = {
    of_trees: r"`BART_mu`.*It holds `X`, `Y`, `by`",
    of_a_list: "`Shift`.*It holds `by`",
    of_a_function_in_a_function: "`outer`.*It holds `inner`",
    standardised: "`standardised`.*It holds `X`",
}


@pytest.mark.parametrize("operation", HOLDING)
def test_no_refusal_offers_to_declare_public_what_holds_numbers(operation):
    with pytest.raises(NotSeparableError, match=HOLDING[operation]) as refusal:
        separate(regression(potential=operation))
    assert "public=" not in str(refusal.value)


def test_a_refusal_offers_to_declare_public_what_holds_nothing():
    with pytest.raises(NotSeparableError, match=r"or declare public=\['doubled'\]"):
        separate(regression(potential=doubled))


def drawn_by_a_function():
    """A distribution whose ``random=`` holds the records."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1)
        pm.CustomDist(
            "y",
            b,
            logp=lambda value, mu: -((value - mu) ** 2),
            random=lambda mu, rng=None, size=None: rng.choice(Y, size=size),
            observed=Y,
        )
    return model


def test_outcomes_are_drawn_by_no_function_that_public_does_not_name():
    """It would draw outside of the wall, and for a record by what it holds of others."""
    assert separate(drawn_by_a_function())[0].outcomes is None
    assert separate(drawn_by_a_function(), public=["CustomDist_y"])[0].outcomes is not None


def test_without_the_proof_such_a_function_would_draw(monkeypatch):
    """The planted fault: what draws outcomes is asked for no proof."""
    separation = import_module("pymc_dp.model.separate")
    found = separation.unproved_in
    monkeypatch.setattr(separation, "unproved_in", lambda graph, **kw: found(graph, drawn=False))
    assert separate(drawn_by_a_function())[0].outcomes is not None


def test_a_distribution_of_ones_own_is_fitted_and_draws_no_predictions():
    model = drawn_by_a_function()
    settings = {"n": 6, "noise_multiplier": 2.0, "delta": 1e-5, "draws": 2, "progressbar": False}
    idata = pymc_dp.fit(model=model, **settings)
    with pytest.raises(ValueError, match="drawn by `CustomDist_y`.*written with dist=. It"):
        pymc_dp.predict(idata, model, rows=3)
    allowed = pymc_dp.fit(model=model, public=["CustomDist_y"], **settings)
    assert pymc_dp.predict(allowed, model, rows=3)["predictions"]["y"].shape == (1, 2, 3)


def accepted(attack):
    try:
        separate(regression(potential=attack))
    except NotSeparableError:
        return False
    return True


def only_the_outer(op):
    yield op


def by_module(op):
    return type(op).__module__.startswith(("pytensor.", "pymc."))


def with_subclasses(op):
    return isinstance(op, tuple(graphs.LISTED - {Op})) and not isinstance(op, Shift)


def by_class_alone(op):
    return type(op) in graphs.LISTED


FAULTS = {
    "no recursion": (graphs, "layers", only_the_outer, "a vectorized function"),
    "the module's name": (graphs, "is_proved", by_module, "a false name"),
    "a function's class": (graphs, "is_proved", by_module, "a Python function"),
    "subclasses": (graphs, "is_proved", with_subclasses, "a subclass"),
    "no look at attributes": (graphs, "is_proved", by_class_alone, "a changed method"),
    "no look at gradients": (graphs, "is_proved", by_class_alone, "a gradient of one's own"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_planted_faults_let_an_attack_in(fault, monkeypatch):
    module, name, faulty, attack = fault
    assert not accepted(ATTACKS[attack])
    monkeypatch.setattr(module, name, faulty)
    assert accepted(ATTACKS[attack])


class Later(Transform):
    """Add nothing while the checks ask, and data when a result is built."""

    name = "later"

    def __init__(self, calls=0):
        self.left = calls

    def _made(self, value):
        self.left -= 1
        return value + 0.0 if self.left >= 0 else value * 0.0 + pt.constant(Y[:2].copy())

    def forward(self, value, *inputs):
        return self._made(value)

    def backward(self, value, *inputs):
        return self._made(value)

    def log_jac_det(self, value, *inputs):
        return pt.zeros_like(value)


class Own(transforms.LogTransform):
    """Inherit from one of PyMC's own."""


def with_a_method_of_an_author():
    changed = transforms.LogTransform()
    changed.backward = Later().backward
    return changed


STATEFUL = [
    Later,
    Own,
    with_a_method_of_an_author,
    lambda: transforms.Interval(bounds_fn=lambda *inputs: (0.0, None)),
    lambda: transforms.Chain([transforms.log, Later()]),
]


def transformed(transform):
    def prior():
        return pm.Normal("b", shape=2, initval=[1.0, 2.0], transform=transform)

    return regression(prior=prior)


@pytest.mark.parametrize("transform", STATEFUL)
def test_a_transform_that_is_no_librarys_is_refused(transform):
    """It makes its graphs anew when a result is built: the checks have seen others."""
    with pytest.raises(NotSeparableError, match="`b` is computed by the operation"):
        separate(transformed(transform()))


def test_a_transform_in_public_is_trusted_and_listed():
    records, _ = separate(transformed(Later(10**9)), public=["Later"])
    assert "operation Later" in map(str, records.trusted)


def returns_data(calls):
    try:
        graph = separate(transformed(Later(calls)))[0].outputs.graphs["b"]
    except NotSeparableError:
        return False
    return any(np.array_equal(x.data, Y[:2]) for x in tensor_constants(ancestors([graph])))


def test_a_check_of_graphs_alone_would_pass_what_is_made_later(monkeypatch):
    """The planted fault: what was checked before."""
    assert not any(map(returns_data, range(9)))
    monkeypatch.setattr(graphs, "is_known_transform", lambda transform: True)
    assert any(map(returns_data, range(9)))


LATENTS = {
    "log": lambda: pm.HalfNormal("b"),
    "log odds": lambda: pm.Beta("b", 2, 3),
    "an interval": lambda: pm.Uniform("b", -1, pm.HalfNormal("s")),
    "a half line": lambda: pm.Pareto("b", 2, 3.0),
    "an interval of one's own": lambda: pm.Normal("b", transform=transforms.Interval(0, None)),
    "a triangle": lambda: pm.Triangular("b", 0, 1, 0.5),
    "a truncated one": lambda: pm.Truncated("b", pm.Normal.dist(), 0, 2),
    "a mixture": lambda: pm.Mixture("b", [0.5, 0.5], [pm.Uniform.dist(0, 1)] * 2),
    "a circle": lambda: pm.VonMises("b", 0, 1),
    "an order": lambda: pm.Normal("b", shape=3, transform=transforms.ordered),
    "a chain": lambda: pm.Uniform(
        "b", 0, 1, shape=3, transform=transforms.Chain([transforms.logodds, transforms.ordered])
    ),
    "a simplex": lambda: pm.Dirichlet("b", np.ones(3)),
    "a zero sum": lambda: pm.ZeroSumNormal("b", shape=3),
    "correlations": lambda: pm.LKJCorr("b", 3, 1.0),
    "a covariance": lambda: pm.LKJCholeskyCov(
        "b", eta=1, n=2, sd_dist=pm.HalfNormal.dist(), compute_corr=False
    ),
}


@pytest.mark.parametrize("latent", LATENTS.values(), ids=LATENTS)
def test_every_transform_of_pymc_is_known(latent):
    assert all(map(is_known_transform, model_of(latent).rvs_to_transforms.values()))


def test_the_starting_point_is_that_of_the_graphs_that_are_checked():
    """The author's function for it is asked once."""
    calls = []

    def start(rv, size):
        calls.append(rv)
        return pt.constant(0.5 if len(calls) == 1 else float(Y[0]))

    with pm.Model() as model:
        b = pm.CustomDist("b", logp=lambda value: -(value**2), support_point=start)
        pm.Normal("y", b, 1, observed=Y)
    assert separate(model)[0].point["b"] == 0.5
