"""Ufuncs that are called at once compute what PyTensor's own linker computes, without loops."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.tensor.elemwise import Elemwise

from pymc_dp.model.compilation import as_written, function

x, k, small = pt.dmatrix("x"), pt.ivector("k"), pt.bvector("small")
INPUTS = [x, k, small]
NUMBERS = np.r_[np.random.default_rng(0).normal(size=25), np.nan, np.inf, -np.inf, 1e308, 5e-324]
VALUES = [NUMBERS.reshape(10, 3), np.array([3, -2, 0], "int32"), np.array([1, -7, 100], "int8")]
GRAPHS = {
    "a ufunc": pt.exp(x),
    "many operands": pt.add(x, k, x, 2.0, small),
    "whole numbers in double precision": pt.sqrt(small),
    "a cast": pt.cast(x[:9, 0] * 0 + 3.7, "int32"),
    "truth values": pt.invert(pt.lt(x, 0.0)),
    "a switch": pt.switch(pt.gt(x, k), x, -x),
    "a view": pt.real(x),
    "a row for all": x * x[0],
    "no entries": pt.log(x[:0]) + k,
}


@pytest.mark.parametrize("name", GRAPHS)
def test_results_are_those_of_pytensors_linker(name, monkeypatch):
    graph = GRAPHS[name]
    with pytensor.config.change_flags(cxx=""), np.errstate(all="ignore"):
        theirs = pytensor.function(
            INPUTS, graph, mode=Mode(linker="py", optimizer="None"), on_unused_input="ignore"
        )
        expected = theirs(*VALUES)
    monkeypatch.setattr(Elemwise, "perform", None)
    [result] = as_written(INPUTS, [graph])(*VALUES)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)
    assert not any(np.shares_memory(result, value) for value in VALUES)


def test_lengths_that_are_one_by_chance_are_refused():
    fn = function([x, k], x + k, "python")
    with pytest.raises(ValueError, match="Runtime broadcasting not allowed"):
        fn(VALUES[0], np.array([1], "int32"))
    assert fn(VALUES[0][:, :1], np.array([1], "int32")).shape == (10, 1)


z = pt.dvector("z")
MANY = np.r_[np.linspace(-40, 40, 81), -800.0, 800.0, 1e-300, 0.0]
SCALAR = {
    "softplus": pt.softplus(z),
    "log1mexp": pt.log1mexp(-pt.abs(z) - 1e-9),
    "clip to limits that cross": pt.clip(z, 2.0, -1.0),
    "tri_gamma": pt.tri_gamma(pt.abs(z) + 0.1),
}


@pytest.mark.parametrize("name", SCALAR)
def test_ufuncs_agree_with_the_loops_that_they_replace(name):
    fn = function([z], SCALAR[name], "python")
    with pytensor.config.change_flags(cxx=""):  # without rewrites, number by number
        plain = pytensor.function([z], SCALAR[name], mode=Mode(linker="py", optimizer=None))
    np.testing.assert_allclose(fn(MANY), plain(MANY), rtol=1e-12, atol=1e-300)
    nodes = [n for n in fn.maker.fgraph.toposort() if isinstance(n.op, Elemwise)]
    assert {node.op.nfunc_spec is not None for node in nodes} == {True}
