"""Ufuncs that are called at once compute what PyTensor's own linker computes, without loops."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.conditional.op import ifelse
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.linalg import solve_triangular

from pymc_dp.compiling.compile import function
from pymc_dp.model.modes import UfuncLinker, as_written

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


def test_nothing_warns():
    a = pt.dmatrix("a")
    result = function([a], pt.log(a) @ pt.exp(a), "python")(np.array([[-1.0, 800], [0, 1e308]]))
    assert not np.isfinite(result).any()


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


z = pt.dvector("z")
MANY = np.r_[np.linspace(-40, 40, 81), -800.0, 800.0, 1e-300, 0.0]
SCALAR = {
    "softplus": pt.softplus(z),
    "log1mexp": pt.log1mexp(-pt.abs(z) - 1e-9),
    "clip to limits that cross": pt.clip(z, 2.0, -1.0),
    "tri_gamma": pt.tri_gamma(pt.abs(z) + 0.1),
    "a long sum": pt.add(*[z + k for k in range(40)]),
}


def plain(inputs, graph):
    """Compile without rewrites, number by number."""
    with pytensor.config.change_flags(cxx=""):
        return pytensor.function(inputs, graph, mode=Mode(linker="py", optimizer=None))


@pytest.mark.parametrize("name", SCALAR)
def test_ufuncs_agree_with_the_loops_that_they_replace(name):
    fn = function([z], SCALAR[name], "python")
    if name == "a long sum":
        expected = 40 * MANY + 780
    else:
        expected = plain([z], SCALAR[name])(MANY)
    np.testing.assert_allclose(fn(MANY), expected, rtol=1e-12, atol=1e-300)
    nodes = [n for n in fn.maker.fgraph.toposort() if isinstance(n.op, Elemwise)]
    assert {node.op.nfunc_spec is not None for node in nodes} == {True}


@pytest.mark.parametrize("shape", [(50, 1), (1, 4)])
def test_triangular_matrices_are_inverted_once_for_all_that_share_them(shape):
    a = pt.tensor("a", shape=(*(1 if n == 1 else None for n in shape), 3, 3), dtype="float64")
    b = pt.tensor("b", shape=(None, None, 3), dtype="float64")
    rng = np.random.default_rng(0)
    lower = np.tril(rng.normal(size=(*shape, 3, 3))) + 3 * np.eye(3)
    many = rng.normal(size=(50, 4, 3))
    fn = function([a, b], solve_triangular(a, b, lower=True, b_ndim=1), "python")
    expected = np.linalg.solve(lower, many[..., None])[..., 0]
    np.testing.assert_allclose(fn(lower, many), expected, rtol=1e-10)
    many[7, 2] = np.nan  # one right side says nothing of the others
    there = np.isnan(fn(lower, many)).any(axis=2)
    assert there[7, 2]
    assert there.sum() == 1


@pytest.mark.parametrize("core", [1, 2])
def test_diagonals_are_made_for_all_records_at_once(core):
    values = np.random.default_rng(2).normal(size=(7, 4, 3)[: core + 1])
    batch = pt.tensor("batch", shape=(None,) * values.ndim, dtype="float64")
    one = pt.tensor("one", shape=(None,) * core, dtype="float64")
    diagonal = pt.basic.alloc_diag(one)
    fn = function([batch], pytensor.graph.replace.vectorize_graph(diagonal, {one: batch}), "python")
    each = plain([one], diagonal)
    np.testing.assert_array_equal(fn(values), np.stack([each(v) for v in values]))
    assert not [n for n in fn.maker.fgraph.toposort() if isinstance(n.op, Blockwise)]


def test_a_solve_without_records_is_left_as_it_is():
    """A rewrite that replaced it would find its own replacement, again and again."""
    a, b = pt.dmatrix("a"), pt.dmatrix("b")
    fn = function([a, b], solve_triangular(a, b, lower=True, b_ndim=2), "python")
    lower, right = np.array([[2.0, 0.0], [1.0, 3.0]]), np.eye(2)
    np.testing.assert_allclose(fn(lower, right), np.linalg.inv(lower))


@pytest.mark.parametrize("shared", [True, False])
def test_values_at_indices_are_taken_for_all_records_at_once(shared):
    rng = np.random.default_rng(3)
    tables = rng.normal(size=(1 if shared else 7, 4, 3))
    rows, columns = rng.integers(4, size=(7, 2)), rng.integers(3, size=(7, 2))
    table, i, j = pt.dmatrix("table"), pt.lvector("i"), pt.lvector("j")
    many = pt.tensor("many", shape=(1 if shared else None, None, None), dtype="float64")
    graph = pytensor.graph.replace.vectorize_graph(
        table[i, j], {table: many, i: pt.lmatrix("rows"), j: pt.lmatrix("columns")}
    )
    inputs = [many, *graph.owner.inputs[1:]]
    fn = function(inputs, graph, "python")
    each = zip(np.broadcast_to(tables, (7, 4, 3)), rows, columns, strict=True)
    expected = [t[r, c] for t, r, c in each]
    np.testing.assert_array_equal(fn(tables, rows, columns), expected)
    assert not [n for n in fn.maker.fgraph.toposort() if isinstance(n.op, Blockwise)]
