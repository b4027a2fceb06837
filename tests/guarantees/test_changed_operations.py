"""An operation is proved by its exact class, and by plain settings: another one is refused.

Guard 6 of the tests of a guarantee. Soundness, rule 40: proofs go by exact type, and by what the
attributes may be.
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.scalar.basic import Abs, same_out
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.special import Softmax, XLogY

from pymc_dp.compiling import compile as compiling
from pymc_dp.compiling.compile import function
from pymc_dp.errors import NotSeparableError
from pymc_dp.model import graphs, separate
from pymc_dp.model.axis import needs
from tests.zoo import separated

N = 30
Y = np.abs(np.random.default_rng(0).normal(size=N))
X = np.stack([1 + Y, 2 * Y], axis=1)


def changed(thing, **attributes):
    """Give an object of PyTensor attributes of one's own."""
    vars(thing).update(attributes)
    return thing


def absolute(**settings):
    return Elemwise(Abs(same_out, name="abs_"), **settings)


class Mixing(XLogY):
    """Another inner graph than that of the class that has a rule."""

    def build_inner_graph(self, x, y):
        return [x * (y - y.mean())]


class MixingSoftmax(Softmax):
    def build_inner_graph(self, x):
        return [x - x.mean()]


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
    "a subclass with another graph and settings": lambda x: MixingSoftmax(axis=(1,))(x),
    "a method": lambda x: changed(absolute(), perform=lambda *given: None)(x),
    "an array": lambda x: changed(absolute(), held=Y)(x),
}


def scanned(**settings):
    def build(b):
        step = lambda a: 0.1 * pt.tanh(a) + a  # noqa: E731
        return pytensor.scan(step, outputs_info=[b], n_steps=2, return_updates=False, **settings)[
            -1
        ]

    return build


def regression(change=None, of_latent=None):
    with pm.Model() as model:
        b = pm.Normal("b", shape=2)
        x = pm.Data("X", X)
        if of_latent is not None:
            pm.Potential("p", -(of_latent(b) ** 2).sum())
        pm.Normal("y", (x if change is None else change(x)) @ b, 1, observed=Y)
    return model


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_an_operation_or_a_variable_that_was_changed_is_no_proof(change):
    x = pt.matrix("x", shape=(None, 2))
    assert graphs.unproved_in([change(x)])


def test_a_likelihood_that_reads_it_is_refused_whatever_is_declared():
    change = CHANGED["a function's name"]
    with pytest.raises(NotSeparableError, match="`y` is computed by .* as they are\\."):
        separate(regression(change))
    [name] = graphs.unproved_in([change(pt.matrix("x", shape=(None, 2)))])
    with pytest.raises(ValueError, match="no operation of your own, of that name"):
        separate(regression(change), public=[name])


@pytest.mark.filterwarnings("ignore:The `mode` argument:FutureWarning")
def test_a_loop_with_a_compiler_of_its_own_is_refused():
    separate(regression(of_latent=scanned()))
    for settings in ({"mode": "FAST_COMPILE"}, {"profile": True}):
        with pytest.raises(NotSeparableError, match="`p` is computed by the operation `changed Sc"):
            separate(regression(of_latent=scanned(**settings)))


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
