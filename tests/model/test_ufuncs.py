"""Functions on the Python linker make no call for each number, nor for each record."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.linalg import solve_triangular

from pymc_dp.compiling.compile import function

x = pt.dvector("x")
VALUES = np.r_[np.linspace(-40, 40, 81), -800.0, 800.0, 1e-300, 0.0]
SCALAR = {
    "softplus": pt.softplus(x),
    "log1mexp": pt.log1mexp(-pt.abs(x) - 1e-9),
    "clip": pt.clip(x, -1.0, 2.0),
    "clip to limits that cross": pt.clip(x, 2.0, -1.0),
    "tri_gamma": pt.tri_gamma(pt.abs(x) + 0.1),
    "a long sum": pt.add(*[x + k for k in range(40)]),
}


def plain(inputs, graph):
    """Compile without rewrites, number by number."""
    with pytensor.config.change_flags(cxx=""):
        return pytensor.function(inputs, graph, mode=Mode(linker="py", optimizer=None))


@pytest.mark.parametrize("name", SCALAR)
def test_ufuncs_agree_with_the_loops_that_they_replace(name):
    fn = function([x], SCALAR[name], "python")
    if name == "a long sum":
        expected = 40 * VALUES + 780
    else:
        expected = plain([x], SCALAR[name])(VALUES)
    np.testing.assert_allclose(fn(VALUES), expected, rtol=1e-12, atol=1e-300)
    nodes = [n for n in fn.maker.fgraph.toposort() if isinstance(n.op, Elemwise)]
    assert {node.op.nfunc_spec is not None for node in nodes} == {True}


def test_one_triangular_matrix_is_inverted_once_for_all_records():
    a, b = pt.dmatrix("a"), pt.dtensor3("b")
    lower = np.tril(np.random.default_rng(0).normal(size=(3, 3))) + 3 * np.eye(3)
    many = np.random.default_rng(1).normal(size=(50, 3, 2))
    solved = solve_triangular(a[None], b, lower=True, b_ndim=2)
    fn = function([a, b], solved, "python")
    expected = np.linalg.solve(lower, many)
    np.testing.assert_allclose(fn(lower, many), expected, rtol=1e-10)
    assert not [
        n
        for n in fn.maker.fgraph.toposort()
        if "SolveTriangular" in str(n.op) and isinstance(n.op, Blockwise)
    ]


@pytest.mark.parametrize("shape", [(50, 1), (1, 4)])
@pytest.mark.parametrize("sides", [1, 2])
def test_triangular_matrices_are_inverted_once_for_all_that_share_them(shape, sides):
    a = pt.tensor("a", shape=(*(1 if n == 1 else None for n in shape), 3, 3), dtype="float64")
    b = pt.tensor("b", shape=(None, None, 3, 2)[: 2 + sides], dtype="float64")
    rng = np.random.default_rng(0)
    lower = np.tril(rng.normal(size=(*shape, 3, 3))) + 3 * np.eye(3)
    many = rng.normal(size=(50, 4, 3, 2)[: 2 + sides])
    fn = function([a, b], solve_triangular(a, b, lower=True, b_ndim=sides), "python")
    right = many if sides == 2 else many[..., None]
    expected = np.linalg.solve(lower, right)
    np.testing.assert_allclose(
        fn(lower, many), expected if sides == 2 else expected[..., 0], rtol=1e-10
    )
    nowhere = many.copy()
    nowhere[7, 2] = np.nan  # one right side says nothing of the others
    there = np.isnan(fn(lower, nowhere)).any(axis=tuple(range(2, 2 + sides)))
    assert there[7, 2]
    assert there.sum() == 1


@pytest.mark.parametrize("core", [1, 2])
def test_diagonals_are_made_for_all_records_at_once(core):
    values = np.random.default_rng(2).normal(size=(7, 4, 3)[: core + 1])
    batch = pt.tensor("batch", shape=(None,) * values.ndim, dtype="float64")
    one = pt.tensor("one", shape=(None,) * core, dtype="float64")
    graph = pytensor.graph.replace.vectorize_graph(
        pt.diag(one) if core == 1 else pt.basic.alloc_diag(one), {one: batch}
    )
    fn = function([batch], graph, "python")
    each = plain([one], pt.diag(one) if core == 1 else pt.basic.alloc_diag(one))
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
