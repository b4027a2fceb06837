"""Whatever numbers are kept in: the posterior of float64, or a sentence before any budget.

Every kind goes through four doors: `pm.Data`, ``observed=``, ``data=`` and a formula of bambi. What
reaches the wall is the same to the last bit as from an array of float64, or the door is closed.
"""

import logging
import warnings
from decimal import Decimal

import bambi as bmb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pymc as pm
import pytest
import sparse
import xarray as xr
from scipy.sparse import csr_array

import pymc_dp
from pymc_dp.calibration.budget import Budget
from pymc_dp.driver.fit import model_in_use, separation
from pymc_dp.privacy.private_data import open_private
from pymc_dp.tables import given
from pymc_dp.tables.formula import check_formula, formula_of

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.PrivacyWarning")

N = 40
rng = np.random.default_rng(0)
K = rng.integers(0, 5, N)
F = rng.integers(-8, 9, N) / 4
Y = np.round(rng.normal(size=N) * 16) / 16
GAPS = np.where(K == 3, np.nan, F)
DECIMALS = [Decimal(str(x)) for x in F]
DAYS = pd.Series(pd.date_range("2020", periods=N))
LISTED = pd.Categorical(K, categories=range(7))

# the values as float64, None where no number stands for them; and what a person has
KINDS = {
    "int64": (K, K),
    "uint64": (K, K.astype("uint64")),
    "bool": (K > 2, K > 2),
    "big-endian float": (F, F.astype(">f8")),
    "float16": (F, F.astype("float16")),
    "float32": (F, F.astype("float32")),
    "list": (F, F.tolist()),
    "beyond 2^31": (K + 2**40, K + 2**40),
    "beyond 2^63": (None, K.astype("uint64") + np.uint64(2**63)),
    "complex": (None, F + 1j * K),
    "nullable int, missing": (4 * GAPS, pd.Series(4 * F, dtype="Int64").mask(K == 3)),
    "nullable bool, missing": (None, pd.Series(K > 2, dtype="boolean").mask(K == 3)),
    "Arrow int": (K, pd.Series(K, dtype="int64[pyarrow]")),
    "Arrow float, missing": (GAPS, pd.Series(F, dtype="double[pyarrow]").mask(K == 3)),
    "Arrow decimal": (F, pd.Series(DECIMALS, dtype=pd.ArrowDtype(pa.decimal128(9, 2)))),
    "Arrow array, missing": (GAPS, pa.array(GAPS, from_pandas=True)),
    "polars, missing": (GAPS, pl.Series(GAPS, nan_to_null=True)),
    "decimals": (F, pd.Series(DECIMALS)),
    "array of objects": (K, np.array(K.tolist(), dtype=object)),
    "text": (None, pd.Series(K.astype(str))),
    "categories of numbers": (K, pd.Series(LISTED)),
    "dates": (None, DAYS),
    "periods": (None, DAYS.dt.to_period("D")),
    "masked": (GAPS, np.ma.masked_array(F, K == 3)),
    "missing": (GAPS, pd.Series(GAPS)),
    "sparse of pandas": (K, pd.Series(pd.arrays.SparseArray(K))),
    "sparse COO": (F, sparse.COO(F)),
    "sparse of SciPy": (None, csr_array(F[:, None])),
    "matrix": (None, np.asmatrix(F).T),
    "xarray": (F, xr.DataArray(F)),
    "labels twice": (F, pd.Series(F, index=np.arange(N) // 2)),
    "labels in another order": (F, pd.Series(F, index=np.arange(N)[::-1])),
}
# the last are PyMC's, of missing values, and that of sparse, of arrays that are not dense
SENTENCES = (ValueError, TypeError, NotImplementedError, RuntimeError)


def regression(x, y):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("b", 0, 1) * pm.Data("x", x), 1.0, observed=y)
    return model


TEMPLATE = regression(np.zeros(3), np.zeros(3))


def of_formula(x):
    logging.getLogger("bambi").setLevel(logging.ERROR)
    frame = pd.DataFrame({"x": x})
    normal, half = bmb.Prior("Normal", mu=0, sigma=1), bmb.Prior("HalfNormal", sigma=1)
    priors = {"x": normal, "sigma": half}
    return bmb.Model("y ~ 0 + x", frame.assign(y=Y), priors=priors, auto_scale=False)


DOORS = {
    "pm.Data": lambda x: (regression(x, pd.Series(Y)), None),
    "observed=": lambda x: (regression(pd.Series(Y), x), None),
    "data=": lambda x: (TEMPLATE, {"x": x, "y": pd.Series(Y)}),
    "bambi": lambda x: (of_formula(x), None),
}


def at_the_wall(door, values):
    """Return what of the values a fit would read, or None where the door is closed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model, data = DOORS[door](values)
            if formula := formula_of(model):
                check_formula(formula, None, [])
            model = model_in_use(model)
            budget = Budget(epsilon=1.0, delta=1e-5)
            _, checked = separation(model, budget, data=data)(model)
            opened = open_private(checked())
        except SENTENCES:
            return None
    values = opened.take(np.arange(opened.number)).values()
    return sorted(np.asarray(x, "float64").tobytes() for x in values)


CASES = [(door, kind) for door in ("data=", "observed=") for kind in KINDS]
# what these read is known from the others
CASES += [(door, kind) for door in ("pm.Data", "bambi") for kind in list(KINDS)[::2]]


@pytest.mark.parametrize(("door", "kind"), CASES)
def test_a_kind_is_read_as_float64_is_or_refused(door, kind):
    numbers, read = KINDS[kind][0], at_the_wall(door, KINDS[kind][1])
    assert read is not None or door != "data=" or kind not in ("bool", "float32", "decimals")
    if read is not None:
        assert numbers is not None
        assert read == at_the_wall(door, np.asarray(numbers, "float64"))


@pytest.mark.parametrize("door", ["pm.Data", "observed=", "data="])
def test_rows_of_the_same_labels_in_another_order_are_not_paired_by_position(door):
    assert at_the_wall(door, KINDS["labels in another order"][1]) is None


@pytest.mark.parametrize("fault", ["beyond 2^31", "dates", "labels in another order"])
def test_without_a_look_at_what_pymc_was_given_other_numbers_are_fitted(monkeypatch, fault):
    """The planted fault."""
    monkeypatch.setattr(given, "_fault", lambda data, converted: "")
    monkeypatch.setattr(given, "_refuse_orders", lambda labels: None)
    assert at_the_wall("observed=", KINDS[fault][1]) is not None


# --- indices -------------------------------------------------------------------------------------

MISSING = pd.Series(LISTED.remove_categories([3])).cat.codes
INDICES = {
    "codes with an unused level": (pd.Series(LISTED).cat.codes, ""),
    "codes of missing labels": (MISSING, "negative numbers, as pandas writes for missing"),
    "unsigned less one": (K.astype("uint8") - np.uint8(1), "beyond its last entry"),
    "a group too many": (K + 3, "beyond its last entry"),
}


def groups(index):
    with pm.Model(coords={"group": range(7)}) as model:
        a = pm.Normal("a", dims="group")
        pm.Normal("y", a[pm.Data("g", index)], 1.0, observed=np.zeros(len(index)))
    return model


@pytest.mark.parametrize("kind", INDICES)
@pytest.mark.parametrize("door", ["pm.Data", "data="])
def test_an_index_picks_the_group_that_it_says_or_is_refused(door, kind):
    index, sentence = INDICES[kind]
    data = {"g": index, "y": np.zeros(N)} if door == "data=" else None
    model = groups(np.arange(4) if data else index)
    settings = {"model": model, "data": data, "epsilon": 1, "delta": 1e-5, "backend": "python"}
    if sentence:
        with pytest.raises(ValueError, match=f"The index `g` of `a` .*{sentence}"):
            pymc_dp.plan(**settings)
    else:
        pymc_dp.plan(**settings)


# --- tables --------------------------------------------------------------------------------------


def test_a_table_of_other_rows_hides_no_two_in_different_orders():
    model = regression(pd.Series(F, index=range(N, 0, -1)), pd.Series(Y, index=range(N, 0, -1)))
    assert model_in_use(model) is model  # labels in one order
    with pm.Model() as model:
        pm.Data("by_region", pd.Series([1.0, 2]))
        x = pm.Data("x", pd.Series(F, name="x", index=range(N, 0, -1)))
        y = pd.Series(Y, name="y", index=range(1, N + 1))
        pm.Normal("y", pm.Normal("b") * x, observed=y)
    with pytest.raises(ValueError, match="The rows of `x` and of `y` have the same labels"):
        model_in_use(model)
