"""Records are taken from the tables that people keep them in, and bad ones are refused at once."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pymc as pm
import pytest
import xarray as xr
import zarr
from scipy import sparse

from pymc_dp.driver.fit import set_up
from pymc_dp.model import separate
from pymc_dp.model.columns import read_tables
from pymc_dp.privacy.private_data import Blocks, open_private
from pymc_dp.privacy.wall import PrivacyWall
from tests import zoo

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

SECRET = 98765.4321
X = np.random.default_rng(0).normal(size=(30, 2))
Y = np.arange(30) % 2
FRAME = pd.DataFrame(X, columns=["a", "b"]).assign(y=Y, person=np.arange(30) // 2)


@pytest.fixture(scope="module")
def model():
    return zoo.odds(np.eye(2), np.array([0, 1]), person=np.arange(2))


def columns_of(model, **data):
    _, private = separate(model, data=read_tables(data))
    return open_private(private).columns


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (lambda x: pd.DataFrame(x), lambda y: pd.Series(y, dtype="Int64")),
        (lambda x: pl.DataFrame(x), lambda y: pl.Series(y)),
        (lambda x: pa.table({"a": x[:, 0], "b": x[:, 1]}), lambda y: pa.chunked_array([y])),
        (lambda x: xr.DataArray(x), lambda y: xr.DataArray(y)),
        (lambda x: zarr.array(x), lambda y: zarr.array(y)),
        (lambda x: x.tolist(), lambda y: y.tolist()),
    ],
)
def test_every_table_is_read_by_position(model, kind, column):
    columns = columns_of(model, X=kind(X), y=column(Y))
    np.testing.assert_array_equal(columns["X"].take(np.arange(30)), X)
    np.testing.assert_array_equal(columns["y"].take(np.arange(30)), Y)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_a_frame_holds_all_columns(frame):
    with pm.Model() as model:
        pm.Normal("y", pm.Data("x", np.zeros(2)) * pm.Normal("b"), observed=np.zeros(2))
    _, private = separate(model, data=read_tables(frame({"x": X[:, 0], "y": X[:, 1]})))
    columns = open_private(private).columns
    np.testing.assert_array_equal(columns["y"].take(np.arange(30)), X[:, 1])


BAD = {
    "nan in pandas": (pd.DataFrame(np.where(X > 1, np.nan, X)), "has missing values"),
    "null in Arrow": (pa.table({"a": [1.0, None], "b": [1.0, 2.0]}), "has missing values"),
    "text": (pd.DataFrame({"a": ["x"] * 30, "b": 1.0}), "holds object values, and"),
    "categories": (pd.DataFrame({"a": pd.Categorical(["x"] * 30)}), "number categories"),
    "a lazy frame": (pl.DataFrame({"a": [1.0]}).lazy(), "takes numbers"),
    "a mask": (np.ma.masked_array(X, X > 1), "has missing values under its mask"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_are_refused_with_a_sentence(model, case):
    values, sentence = BAD[case]
    with pytest.raises(ValueError, match=f"data=`X` .*{sentence}|data=`X` {sentence}"):
        columns_of(model, X=values, y=Y)


# --- chunks --------------------------------------------------------------------------------------


def chunked(rows=10, **changed):
    """Data in chunks of some rows."""
    given = {"X": X, "y": Y} | changed
    return {
        name: da.from_array(v, chunks=(rows, *v.shape[1:])) if isinstance(v, np.ndarray) else v
        for name, v in given.items()
    }


def parts_of(column):
    assert type(column.values) is Blocks
    return column.values.lengths


def test_chunks_become_blocks_of_the_same_rows(model):
    columns = columns_of(model, **chunked(12) | {"X": da.from_array(X, chunks=(12, 1))})
    assert parts_of(columns["X"]) == parts_of(columns["y"]) == (12, 12, 6)
    assert columns["X"].rows == 30
    assert "30" not in repr(columns["X"].values)


def test_arrays_beside_chunks_are_cut_alike(model):
    data = chunked(12) | {"y": pd.Series(Y)}
    assert parts_of(columns_of(model, **data)["y"]) == (12, 12, 6)
    data = {"X": sparse.csr_array(X), "y": da.from_array(Y, chunks=11)}
    assert parts_of(columns_of(model, **data)["X"]) == (11, 11, 8)


MASKED = np.ma.masked_array(np.where(X > 1, -999.0, X), X > 1)
MASKED_CHUNKS = {
    "of a masked array": lambda: da.from_array(MASKED, chunks=(10, 2)),
    "masked block by block": lambda: da.from_array(X, chunks=(10, 2)).map_blocks(
        lambda block: np.ma.masked_array(block, block > 1), meta=X
    ),
}


@pytest.mark.parametrize("kind", MASKED_CHUNKS)
def test_numbers_under_a_mask_are_not_fitted(model, kind):
    with pytest.raises(ValueError, match="data=`X` .*missing values"):
        columns_of(model, **chunked(10, X=MASKED_CHUNKS[kind]()))
    if "block by block" not in kind:
        with pytest.raises(ValueError, match="data=`X` .*missing values"):
            columns_of(model, X=MASKED_CHUNKS[kind](), y=Y)


def test_codes_under_a_mask_are_refused(model):
    codes = da.ma.masked_equal(da.from_array(FRAME["person"].to_numpy(), chunks=10), 3)
    with pytest.raises(ValueError, match="data=`person` has masked entries"):
        fitted_by_person(model, codes)


def test_a_parquet_folder_an_xarray_and_a_zarr_in_chunks_are_taken(model, tmp_path):
    dd.from_pandas(FRAME, npartitions=3).to_parquet(tmp_path)
    frame = dd.read_parquet(tmp_path)
    assert parts_of(columns_of(model, X=frame[["a", "b"]], y=frame["y"])["X"]) == (10, 10, 10)
    x = xr.DataArray(X, dims=("row", "column")).chunk({"row": 10})
    assert parts_of(columns_of(model, X=x, y=Y)["X"]) == (10, 10, 10)
    stored = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(8, 2), dtype="float32")
    stored[:] = X
    assert parts_of(columns_of(model, X=da.from_zarr(stored), y=Y)["X"]) == (8, 8, 8, 6)


def with_a_block(change):
    """Return X, of which the second block is another one than its description says."""

    def changed(block, block_info=None):
        return change(block) if block_info[0]["chunk-location"][0] else block

    whole = da.from_array(X, chunks=(10, 2))
    return whole.map_blocks(changed, dtype="float64", meta=np.empty((0, 0)))


UNKNOWN = da.from_array(X, chunks=(10, 2))[da.from_array(X[:, 0], chunks=10) < 9]
WRONG_CHUNKS = {
    "unknown sizes": ({"X": UNKNOWN}, "chunks of unknown sizes"),
    "unequal lengths": ({"y": da.from_array(Y[:20], chunks=10)}, "not as many records"),
    "no rows": ({"X": da.zeros((0, 2)), "y": da.zeros(0, dtype=int)}, "have no records"),
    "nan": ({"X": with_a_block(lambda b: b * np.nan)}, "`X` has missing values in one of its"),
    "text in a block": ({"X": with_a_block(lambda b: b.astype(str))}, "`X` has a partition of <U"),
    "another width": ({"X": with_a_block(lambda b: b[:, :1])}, "`X` .* another length or width"),
    "floats as outcomes": ({"y": da.from_array(X[:, 0], chunks=10)}, "holds float64 values"),
    "a bag": ({"X": dd.from_pandas(FRAME[["a"]], npartitions=2).size}, "is a Dask"),
}


@pytest.mark.parametrize("case", WRONG_CHUNKS)
def test_wrong_chunks_are_refused_before_any_budget_is_spent(model, case, monkeypatch):
    monkeypatch.setattr(PrivacyWall, "__init__", lambda *args: pytest.fail("a wall was built"))
    changed, sentence = WRONG_CHUNKS[case]
    with pytest.raises(Exception, match=sentence) as caught:
        set_up(model, "dp_advi", None, data=chunked(**changed), epsilon=1.0, delta=1e-5)
    assert isinstance(caught.value, ValueError)


def test_frames_of_other_partitions_and_records_along_another_axis_are_refused(model):
    one, other = (dd.from_pandas(FRAME, npartitions=n) for n in (3, 4))
    with pytest.raises(ValueError, match="`y` and data=`X` differ in their lengths"):
        columns_of(model, X=one[["a", "b"]], y=other["y"])
    with pm.Model() as model:
        x = pm.Data("X", np.eye(2, 3))
        pm.Bernoulli("y", logit_p=pm.Normal("b", shape=2) @ x, observed=np.array([0, 1, 1]))
    with pytest.raises(ValueError, match="`X` is chunked, which needs the records along axis 0"):
        columns_of(model, X=da.from_array(X[:2, :2], chunks=(2, 2)), y=Y[:2])


def test_what_cannot_be_read_is_refused_and_quotes_nothing(model):
    def lost(block):
        raise OSError(f"secret {SECRET}")

    with pytest.raises(ValueError, match="The records cannot be read: a partition .*OSError") as e:
        columns_of(model, **chunked(X=with_a_block(lost)))
    assert str(SECRET) not in str(e.value)
    frame = dd.from_pandas(FRAME, npartitions=3).map_partitions(lost, meta=FRAME)
    with pytest.raises(ValueError, match="cannot be read .OSError") as e:
        read_tables({"X": frame[["a", "b"]], "y": frame["y"]})
    assert str(SECRET) not in str(e.value)
    assert e.value.__suppress_context__


def fitted_by_person(model, codes):
    data = chunked(person=codes)
    return set_up(model, "dp_advi", None, data=data, epsilon=1.0, delta=1e-5, unit="person")


def test_persons_lie_in_one_partition_each(model):
    fitted = fitted_by_person(model, da.from_array(np.arange(30) // 5, chunks=10))
    assert open_private(fitted.data).units.numbers == (2, 2, 2)
    with pytest.raises(ValueError, match="unit=`person` has persons whose records lie in several"):
        fitted_by_person(model, da.from_array(np.arange(30) // 4, chunks=10))
    with pytest.raises(ValueError, match="The records cannot be read: a partition failed"):
        fitted_by_person(model, da.from_array(np.arange(30) - 20, chunks=10))


def test_groups_are_counted_over_all_partitions():
    with pm.Model() as model:
        g = pm.Data("g", np.array([0, 1]))
        a = pm.Normal("a", shape=40)
        pm.Normal("y", a[g], 1.0, observed=np.zeros(2))
    every = {"g": da.from_array(np.arange(30), chunks=10), "y": np.zeros(30)}
    with pytest.raises(ValueError, match="`a` has an entry for every single record"):
        separate(model, data=read_tables(every))
    twice = {"g": da.from_array(np.tile(np.arange(3), 10), chunks=10), "y": np.zeros(30)}
    separate(model, data=read_tables(twice))  # ten in each, four or fewer in each partition


@pytest.mark.parametrize("index", [lambda g: g, lambda g: 1 - g], ids=["data", "computed"])
def test_groups_are_counted_beside_a_sparse_design(index):
    with pm.Model() as model:
        effects = pm.Normal("a", shape=2)[index(pm.Data("g", Y))]
        pm.Normal("y", effects + pm.Data("X", X) @ pm.Normal("b", shape=2), 1, observed=X[:, 0])
    _, private = separate(model, data={"g": Y, "X": sparse.csr_matrix(X), "y": X[:, 0]})
    assert sparse.issparse(open_private(private).columns["X"].values)
