"""Ufuncs that are called at once compute what PyTensor's own linker computes, to the last bit."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.conditional.op import ifelse
from pytensor.tensor.elemwise import Elemwise

from pymc_dp.compiling.compile import function
from pymc_dp.model.modes import UfuncLinker, as_written

x, k, small = pt.dmatrix("x"), pt.ivector("k"), pt.bvector("small")
INPUTS = [x, k, small]
NUMBERS = np.r_[np.random.default_rng(0).normal(size=25), np.nan, np.inf, -np.inf, 1e308, 5e-324]
VALUES = [NUMBERS.reshape(10, 3), np.array([3, -2, 0], "int32"), np.array([1, -7, 100], "int8")]
GRAPHS = {
    "a ufunc": pt.exp(x),
    "many operands": pt.add(x, k, x, 2.0, small),
    "whole numbers that are divided": k / (1 + abs(small)),
    "whole numbers in double precision": pt.sqrt(small),
    "a cast": pt.cast(x[:9, 0] * 0 + 3.7, "int32"),
    "truth values": pt.invert(pt.lt(x, 0.0)),
    "a switch": pt.switch(pt.gt(x, k), x, -x),
    "a view": pt.real(x),
    "no ufunc of NumPy": pt.softplus(x),
    "numbers without axes": pt.exp(x[0, 0]) * 2,
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
    [found] = as_written(INPUTS, [graph])(*VALUES)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    assert not any(np.shares_memory(found, value) for value in VALUES)


def test_nothing_warns():
    a = pt.dmatrix("a")
    found = function([a], pt.log(a) @ pt.exp(a), "python")(np.array([[-1.0, 800], [0, 1e308]]))
    assert not np.isfinite(found).any()


def test_lengths_that_are_one_by_chance_are_refused():
    fn = function([x, k], x + k, "python")
    with pytest.raises(ValueError, match="Runtime broadcasting not allowed"):
        fn(VALUES[0], np.array([1], "int32"))
    assert fn(VALUES[0][:, :1], np.array([1], "int32")).shape == (10, 1)


def test_a_branch_that_is_not_taken_is_not_computed():
    a = pt.dvector("a")
    graph = ifelse(pt.gt(a.sum(), 0), pt.exp(a) + 1, pt.log(a) - 1)
    fn = pytensor.function([a], graph, mode=Mode(linker=UfuncLinker(), optimizer="None"))
    np.testing.assert_array_equal(fn(np.ones(2)), np.exp(np.ones(2)) + 1)
