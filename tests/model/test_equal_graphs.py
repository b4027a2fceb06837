"""Equal graphs are rewritten once, and no others; nothing of what they computed with is kept."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr

import pymc_dp
from pymc_dp.model import compilation as kept
from pymc_dp.model.compilation import function
from pymc_dp.testing import deterministic_noise
from tests.zoo import build, hierarchical

X = np.array([1.0, 2.0, -0.0])
EVEN = np.array([3.0, 1.0, 2.0])


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(kept, "_kept", kept.Kept())


def affine(slope=2.0, offset=X, name="x", swapped=False):
    x, y = pt.vector(name), pt.vector("y")
    graph = slope * x - y + pt.constant(offset)
    return function([y, x] if swapped else [x, y], graph, "python")


def test_an_equal_graph_is_not_rewritten_again():
    first, second = affine(), affine()
    assert first.maker is second.maker
    early, later = first(X, EVEN), second(EVEN, X)
    np.testing.assert_array_equal(first(X, EVEN), early)
    assert not np.shares_memory(early, later)


@pytest.mark.parametrize(
    "other",
    [
        {"slope": np.nextafter(2.0, 3.0)},
        {"offset": np.array([1.0, 2.0, 0.0])},
        {"offset": np.array([[1.0, 2.0, -0.0]])},
        {"name": "z"},
        {"swapped": True},
    ],
    ids=str,
)
def test_any_difference_makes_another_function(other):
    """A sign of zero, the last bit of a number, and names, which stand in errors, are enough."""
    assert affine().maker is not affine(**other).maker


@pytensor.wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
def of_python(x):
    return x * 2


def test_what_may_keep_state_and_large_constants_are_compiled_each_time():
    x = pt.vector("x")
    shared, large = pytensor.shared(X), pt.constant(np.zeros(kept.LARGEST_CONSTANT + 1))
    for graph in (x + shared, x + large, of_python(x)):
        pair = [function([x], graph, "python") for _ in range(2)]
        assert pair[0].maker is not pair[1].maker


def test_arguments_and_results_are_not_kept():
    """A function computes with records: none may outlive it."""
    used = np.array([1.0, 2.0, 3.0])
    fn = affine()
    result = fn(used, EVEN)
    seen = [weakref.ref(used), weakref.ref(result)]
    del used, result, fn
    gc.collect()
    assert len(kept._kept.made) == 1
    assert [ref() for ref in seen] == [None, None]


def log_roots():
    """Half the log determinants of some matrices, each decomposed by itself."""
    A = pt.tensor3("A")
    diagonal = pt.diagonal(pt.linalg.cholesky(A), axis1=1, axis2=2)
    return function([A], pt.log(diagonal).sum(axis=1), "python")


def test_a_graph_that_stores_what_it_computes_with_is_not_kept(monkeypatch):
    """A loop over batches has its matrices in a place that all functions of the graph share."""
    first, second = log_roots(), log_roots()
    assert first.maker is not second.maker
    assert not kept._kept.made
    monkeypatch.setattr(kept, "writes_into_itself", lambda graph: False)  # the planted fault
    looped = [fn.maker.fgraph.apply_nodes for fn in (log_roots(), log_roots())]
    assert looped[0] is looped[1]


def test_a_thread_keeps_graphs_of_its_own():
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(affine).result().maker is not affine().maker


def test_a_model_that_is_fitted_again_is_not_rewritten():
    """And its result is the same to the last bit."""

    def fitted():
        with deterministic_noise(1):
            idata = pymc_dp.fit(
                model=build(hierarchical), epsilon=1.0, delta=1e-5, n=3, draws=5, random_seed=1,
                progressbar=False,
            )  # fmt: skip
        return idata["posterior"].to_dataset(), list(kept._kept.made)

    (first, graphs), (second, again) = fitted(), fitted()
    assert len(graphs) >= 4
    assert set(graphs) == set(again)
    xr.testing.assert_identical(first, second)
