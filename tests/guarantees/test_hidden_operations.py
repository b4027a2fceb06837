"""Operations that hold data outside the graph are refused or withheld, wherever they stand.

Guard 6 of the tests of a guarantee. Soundness, rule 29: Python state is data.
"""

import json
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
from pytensor.scalar.basic import Abs, Exp, same_out
from pytensor.scan import scan
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.special import XLogY

import pymc_dp
from pymc_dp.errors import NotSeparableError
from pymc_dp.model import compilation as compiling
from pymc_dp.model import graphs, separate
from pymc_dp.model.compilation import function
from pymc_dp.model.graphs import is_known_transform, tensor_constants
from pymc_dp.model.separation_proof import needs
from tests.zoo import build as model_of
from tests.zoo import separated

N = 40
X = np.random.default_rng(0).normal(size=(N, 2))
Y = X[:, 0] + 0.5


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


class Loud(Elemwise):
    """Inherit from one of PyTensor's own."""

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] + X.mean(axis=0)


def exponential():
    return Exp(pytensor.scalar.upgrade_to_float, name="exp")


def of_changed(x):
    scalar = exponential()
    scalar.impl = lambda value: value + Y.mean()
    return Elemwise(scalar)(x)


def in_a_nested_graph(x):
    v = pt.dvector()
    return OpFromGraph([v], [standardised(v)])(x)


def in_a_loop(x):
    return scan(standardised, outputs_info=x, n_steps=1, return_updates=False)[-1]


def by_gradient(x):
    v = pt.dvector()
    inner = OpFromGraph([v], [2 * v], pullback=lambda inputs, outputs, g: [g[0] * Y.sum()])
    return Blockwise(inner, signature="(n)->(n)")(x[None])[0]


ATTACKS = {
    "a Python function": standardised,
    "an attribute": lambda x: Shift(X.mean(axis=0))(x),
    "a false name": lambda x: Disguised(X.mean(axis=0))(x),
    "a subclass": lambda x: Loud(exponential())(x),
    "a changed method": of_changed,
    "a nested graph": in_a_nested_graph,
    "a loop": in_a_loop,
    "a vectorized function": lambda x: Blockwise(standardised, signature="(n)->(n)")(x[None])[0],
    "a gradient of one's own": by_gradient,
}


def regression(prior=None, deterministic=None, potential=None, design=lambda x: x):
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2) if prior is None else prior()
        if deterministic is not None:
            pm.Deterministic("d", deterministic(b))
        if potential is not None:
            pm.Potential("p", -(potential(b) ** 2).sum())
        pm.Normal("y", design(pm.Data("X", X)) @ b, 1, observed=Y)
    return model


def fit(model, **settings):
    terms = {"n": 6, "noise_multiplier": 2.0, "delta": 1e-5, "draws": 2, "progressbar": False}
    return pymc_dp.fit(model=model, **terms, **settings)


@pytest.mark.parametrize("method", ["dp_advi", "vips", "dp_sep"])
def test_a_likelihood_that_standardises_by_all_records_is_refused(method):
    model = regression(design=Blockwise(standardised, signature="(n)->(n)"))
    with pytest.raises(NotSeparableError, match=r"`y`.*`standardised`.*It holds `X`"):
        pymc_dp.plan(model, method=method, epsilon=1, delta=1e-5, num_records=N)


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_what_holds_data_is_refused_in_potentials_and_withheld_in_deterministics(attack):
    with pytest.raises(NotSeparableError, match="`p` is computed by the operation"):
        separate(regression(potential=attack))
    assert separate(regression(deterministic=attack))[0].outputs.withheld == ("d",)
    with pytest.raises(NotSeparableError, match="`d` is computed by the operation"):
        separate(regression(deterministic=attack), public=["d"])


def custom(**functions):
    return pm.CustomDist("b", logp=lambda v: -(v**2), shape=2, **functions)


PRIORS = {
    "a parameter": lambda: pm.Normal("b", standardised(pt.zeros(2)), 1, shape=2),
    "a density": lambda: pm.CustomDist("b", logp=lambda v: -(standardised(v) ** 2), shape=2),
    "a distribution": lambda: pm.CustomDist(
        "b", dist=lambda size: pm.Normal.dist(standardised(pt.zeros(2)), 1, size=size), shape=2
    ),
    "a start": lambda: custom(support_point=lambda rv, size: standardised(pt.zeros(2))),
    "a random start": lambda: custom(
        random=lambda rng=None, size=None: np.full(2, Y.mean()), initval="prior"
    ),
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
    model = regression(deterministic=lambda b: standardised(Shift(0.5)(b)))
    idata = fit(model, public=["standardised", "Shift"])
    attrs = idata["privacy"].attrs
    assert "d" in idata["posterior"]
    assert {*json.loads(attrs["declared_public"])} == {"standardised", "Shift"}
    listed = json.loads(attrs["trusted_constants"])
    assert {"operation Shift", "operation standardised"} <= {*listed}
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
    signature = {"inputs_sig": [("m", "n"), ("m",), ()], "ndims_params": [2, 1, 0]}
    held = {"X": X, "Y": Y, "m": 20, "perform": Shift.perform} | signature
    return type("BART_mu", (Shift,), held)(0.5)(b)


@pytensor.wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
def doubled(values):
    return np.multiply(values, 2)


def test_a_refusal_offers_to_declare_public_what_holds_nothing_alone():
    with pytest.raises(NotSeparableError, match=r"`BART_mu`.*It holds `X`, `Y`, `by`") as refusal:
        separate(regression(potential=of_trees))
    assert "public=" not in str(refusal.value)
    with pytest.raises(NotSeparableError, match=r"or declare public=\['doubled'\]"):
        separate(regression(potential=doubled))


def drawn_by_a_function():
    """A distribution whose ``random=`` holds the records."""
    density = {"logp": lambda value, mu: -((value - mu) ** 2), "observed": Y}
    draw = lambda mu, rng=None, size=None: rng.choice(Y, size=size)  # noqa: E731
    return model_of(lambda: pm.CustomDist("y", pm.Normal("b"), random=draw, **density))


def test_outcomes_are_drawn_by_no_function_that_public_does_not_name(monkeypatch):
    """It would draw outside of the wall, and for a record by what it holds of others."""
    assert separate(drawn_by_a_function())[0].outcomes is None
    assert separate(drawn_by_a_function(), public=["CustomDist_y"])[0].outcomes is not None
    # the planted fault: what draws outcomes is asked for no proof
    separation = import_module("pymc_dp.model.separate")
    found = separation.unproved_in
    monkeypatch.setattr(separation, "unproved_in", lambda graph, **kw: found(graph, drawn=False))
    assert separate(drawn_by_a_function())[0].outcomes is not None


def test_a_distribution_of_ones_own_is_fitted_and_draws_no_predictions():
    model = drawn_by_a_function()
    idata = fit(model)
    with pytest.raises(ValueError, match="drawn by `CustomDist_y`.*written with dist=. It"):
        pymc_dp.predict(idata, model, rows=3)
    allowed = fit(model, public=["CustomDist_y"])
    assert pymc_dp.predict(allowed, model, rows=3)["predictions"]["y"].shape == (1, 2, 3)


def accepted(attack):
    try:
        separate(regression(potential=attack))
    except NotSeparableError:
        return False
    return True


def by_class_alone(op):
    return type(op) in graphs.LISTED


FAULTS = {
    "no recursion": ("layers", lambda op: iter([op]), "a vectorized function"),
    "the module's name": (
        "is_proved",
        lambda op: type(op).__module__.startswith(("pytensor.", "pymc.")),
        "a false name",
    ),
    "subclasses": (
        "is_proved",
        lambda op: isinstance(op, tuple(graphs.LISTED - {Op})) and not isinstance(op, Shift),
        "a subclass",
    ),
    "no look at attributes": ("is_proved", by_class_alone, "a changed method"),
    "no look at gradients": ("is_proved", by_class_alone, "a gradient of one's own"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_planted_faults_let_an_attack_in(fault, monkeypatch):
    name, faulty, attack = fault
    assert not accepted(ATTACKS[attack])
    monkeypatch.setattr(graphs, name, faulty)
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


def latents_of_every_transform():
    pm.HalfNormal("log")
    pm.Beta("log_odds", 2, 3)
    pm.Uniform("interval", -1, pm.HalfNormal("s"))
    pm.Pareto("half_line", 2, 3.0)
    pm.Normal("own_interval", transform=transforms.Interval(0, None))
    pm.Triangular("triangle", 0, 1, 0.5)
    pm.Truncated("truncated", pm.Normal.dist(), 0, 2)
    pm.Mixture("mixture", [0.5, 0.5], [pm.Uniform.dist(0, 1)] * 2)
    pm.VonMises("circle", 0, 1)
    pm.Normal("order", shape=3, transform=transforms.ordered)
    chain = transforms.Chain([transforms.logodds, transforms.ordered])
    pm.Uniform("chain", 0, 1, shape=3, transform=chain)
    pm.Dirichlet("simplex", np.ones(3))
    pm.ZeroSumNormal("zero_sum", shape=3)
    pm.LKJCorr("correlations", 3, 1.0)
    deviation = pm.HalfNormal.dist()
    pm.LKJCholeskyCov("covariance", eta=1, n=2, sd_dist=deviation, compute_corr=False)


def test_every_transform_of_pymc_is_known():
    used = model_of(latents_of_every_transform).rvs_to_transforms.values()
    assert all(map(is_known_transform, used))


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


# --- an operation is proved by its exact class, and by plain settings: soundness, rule 40 ---------


def absolute(**settings):
    return Elemwise(Abs(same_out, name="abs_"), **settings)


def with_an_array(x):
    op = absolute()
    op.held = Y
    return op(x)


class Mixing(XLogY):
    """Another inner graph than that of the class that has a rule."""

    def build_inner_graph(self, x, y):
        return [x * (y - y.mean())]


class WithAFunction(Elemwise):
    nfunc_spec = ("numpy.unwrap", 1, 1)


# each takes an array of two columns and returns one
CHANGED = {
    "a function's name": lambda x: absolute(nfunc_spec=("numpy.unwrap", 1, 1))(x),
    "a function's name in a class": lambda x: WithAFunction(Abs(same_out))(x),
    "a function's name in a block": lambda x: Blockwise(
        absolute(), signature="(n)->(n)", gufunc_spec=("numpy.sort_complex", 1, 1)
    )(x),
    "a subclass with another graph": lambda x: Mixing()(pt.ones_like(x), x),
    "an array": with_an_array,
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_an_operation_or_a_variable_that_was_changed_is_no_proof(change):
    x = pt.matrix("x", shape=(None, 2))
    assert graphs.unproved_in([change(x)])


def test_a_likelihood_that_reads_it_is_refused_whatever_is_declared():
    change = CHANGED["a function's name"]
    with pytest.raises(NotSeparableError, match="`y` is computed by .* as they are\\."):
        separate(regression(design=change))
    [name] = graphs.unproved_in([change(pt.matrix("x", shape=(None, 2)))])
    with pytest.raises(ValueError, match="no operation of your own, of that name"):
        separate(regression(design=change), public=[name])


@pytest.mark.filterwarnings("ignore:The `mode` argument:FutureWarning")
def test_a_loop_with_a_compiler_of_its_own_is_refused():
    def looped(**settings):
        def steps(b):
            start = {"outputs_info": [b], "n_steps": 2, "return_updates": False}
            return scan(lambda a: 0.1 * pt.tanh(a) + a, **start, **settings)[-1]

        return separate(regression(potential=steps))

    looped()
    for settings in ({"mode": "FAST_COMPILE"}, {"profile": True}):
        with pytest.raises(NotSeparableError, match="`p` is computed by the operation `changed Sc"):
            looped(**settings)


def test_no_rule_of_axes_holds_for_a_class_that_inherits_it():
    x = pt.matrix("x", shape=(None, 2))
    for change in (Mixing()(pt.ones_like(x), x), WithAFunction(Abs(same_out))(x)):
        with pytest.raises(NotSeparableError, match="no rule says how"):
            list(needs(change.owner, 0, 0))


class Array(np.ndarray):
    """It may answer each operation of NumPy as it likes."""

    def __getitem__(self, places):
        return super().__getitem__(places) + np.asarray(self).sum()


def test_records_are_read_as_numpy_reads_them_whatever_the_class_of_their_array():
    for data in (None, {"X": X.view(Array), "y": Y.view(Array)}):
        with pm.Model() as model:
            b = pm.Normal("b", shape=2)
            pm.Normal("y", pm.Data("X", X.view(Array)) @ b, 1, observed=Y.view(Array))
        _, columns = separated(model, data=data)
        np.testing.assert_array_equal(columns["X"].take(np.arange(3)), X[:3])
        np.testing.assert_array_equal(columns["y"].take(np.arange(3)), Y[:3])


def test_a_changed_operation_is_given_to_no_other_graph(monkeypatch):
    monkeypatch.setattr(compiling, "_kept", compiling.Kept())
    x, values = pt.vector("x"), np.array([0.0, 10.0, 20.0])
    function([x], [absolute(nfunc_spec=("numpy.unwrap", 1, 1))(x) * 2.0], "python")
    [result] = function([x], [pt.abs(x) * 2.0], "python")(values)
    np.testing.assert_array_equal(result, 2 * values)


@pytest.mark.parametrize("what", ["a function's name", "a function's name in a block"])
def test_without_a_look_at_settings_a_function_passes(what, monkeypatch):
    """The planted fault."""
    monkeypatch.setattr(graphs, "_runs_its_own", lambda op: True)
    assert not graphs.unproved_in([CHANGED[what](pt.matrix("x", shape=(None, 2)))])
