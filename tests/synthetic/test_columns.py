"""Columns of every type are modelled, fitted within one budget, and drawn with their levels."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_dp
from pymc_dp import Column, Columns, Ledger
from pymc_dp.synthetic import columns as module

ROWS = 400
TERMS = {"epsilon": 1.0, "delta": 1e-5, "backend": "python", "progressbar": False}
TYPES = {
    "job": Column.categories(["farm", "office", "none"]),
    "age": Column.number(18, 90, squared=True),
    "school": Column.ordered([0, 2, 5, 9]),
    "mood": Column.ordered(["low", "middle", "high"]),
    "voted": Column.yes_no("no", "yes"),
    "visits": Column.count(20),
    "ill": Column.waiting_time(24),
}


def frame(rows=ROWS, seed=0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "job": rng.choice(["farm", "office", "none"], rows),
            "age": rng.uniform(18, 90, rows),
            "school": rng.choice([0, 2, 5, 9], rows),
            "mood": rng.choice(["low", "middle", "high"], rows),
            "voted": rng.choice(["no", "yes"], rows),
            "visits": rng.poisson(3, rows),
            "ill": np.minimum(rng.exponential(12, rows), 24),
        }
    )


def drawn_from_prior(columns: Columns, draws=8) -> xr.DataTree:
    """Take draws of the prior for a posterior."""
    with columns.model(frame()) as model:
        latents = [x.name for x in model.free_RVs]
        found = pm.sample_prior_predictive(draws, random_seed=1, var_names=latents)
    return xr.DataTree.from_dict({"posterior": found["prior"].to_dataset()})


@pytest.fixture(scope="module")
def tables() -> list[pd.DataFrame]:
    columns = Columns(TYPES)
    return columns.synthesize(drawn_from_prior(columns), n=300, m=4, random_seed=1)


def test_data_sets_have_the_columns_and_their_levels(tables):
    assert len(tables) == 4
    for table in tables:
        assert list(table) == list(TYPES)
        assert len(table) == 300
        assert list(table["job"].cat.categories) == ["farm", "office", "none"]
        assert table["mood"].cat.ordered
        assert set(table["school"]) <= {0, 2, 5, 9}
        assert set(table["voted"]) <= {"no", "yes"}
        assert (table["visits"] >= 0).all()
        assert table["ill"].between(0, 24).all()


def test_records_are_what_the_posterior_says():
    """Log odds, slopes and effects that are almost certain show in what is drawn."""
    columns = Columns({x: TYPES[x] for x in ("job", "age", "voted")})
    tree = drawn_from_prior(columns, 2)
    at = tree["posterior"].to_dataset()
    for name in at.data_vars:
        at[name] = at[name] * 0.0
    at["age sd"] += 0.2
    at["job intercepts"] += [0.0, 0.0, -30.0]
    at["age by job"] += [0.5, -0.5, 0.0]
    at["voted slopes"] += [100.0, 0.0]
    [table, _] = columns.synthesize(
        xr.DataTree.from_dict({"posterior": at}), n=4000, m=2, random_seed=2
    )
    means = table.groupby("job", observed=True)["age"].mean()
    assert set(means.index) == {"farm", "office"}
    assert abs(means["farm"] - (54 + 18)) < 1
    assert abs(means["office"] - (54 - 18)) < 1
    assert abs(table["age"].std() - (18**2 + (0.2 * 36) ** 2) ** 0.5) < 1
    assert ((table["voted"] == "yes") == (table["age"] > 54)).mean() > 0.98


@pytest.fixture(scope="module")
def fits() -> dict[str, xr.DataTree]:
    columns = Columns({x: TYPES[x] for x in ("job", "voted")})
    return columns.fit(frame(), **TERMS)


@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")
def test_all_fits_together_keep_to_the_budget(fits):
    together = pymc_dp.compose(list(fits.values()), delta=1e-5)
    assert 0.97 < together.epsilon <= 1
    each = [idata["privacy"].attrs["epsilon"] for idata in fits.values()]
    assert max(each) < 0.8


def test_budgets_that_do_not_compose_are_refused(monkeypatch, tmp_path):
    """Planted fault: each fit takes the whole budget. The composition before the fits sees it."""
    ledger = Ledger(tmp_path / "budget.json", dataset="made up", epsilon=2, delta=1e-5)
    monkeypatch.setattr(module, "shares", lambda models: dict.fromkeys(models, 1.0))
    columns = Columns({x: TYPES[x] for x in ("job", "voted")})
    with pytest.raises(ValueError, match="No fits of all columns keep to epsilon=1"):
        columns.fit(frame(), ledger=ledger, **TERMS)
    assert ledger.spent.epsilon == 0


def test_bad_input_to_the_last_fit_costs_nothing(tmp_path):
    ledger = Ledger(tmp_path / "budget.json", dataset="made up", epsilon=2, delta=1e-5)
    columns = Columns({x: TYPES[x] for x in ("job", "voted")})
    with pytest.raises(ValueError, match="values that its levels lack"):
        columns.fit(frame().assign(voted="perhaps"), ledger=ledger, **TERMS)
    with pytest.raises(ValueError, match="take no method="):
        columns.fit(frame(), ledger=ledger, method="vips", **TERMS)
    assert ledger.spent.epsilon == 0


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("school", [1.0, 2.0], "`x` has values that its levels lack"),
        ("job", ["farm", None], "or missing ones"),
        ("age", [20.0, np.nan], "missing or infinite"),
        ("visits", [1.5, 2.0], "not counts"),
        ("ill", [0.0, 3.0], "not above 0"),
    ],
)
def test_values_that_a_type_does_not_have_are_refused(name, values, reason):
    with pytest.raises(ValueError, match=reason) as refused:
        Columns({"x": TYPES[name]}).model(pd.DataFrame({"x": values}))
    assert not any(str(x) in str(refused.value) for x in values if isinstance(x, float))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Column.number(3, 1), "must be below"),
        (lambda: Column.count(0), "above 0"),
        (lambda: Column.ordered([3, 1, 2]), "must increase"),
        (lambda: Column.categories(["a", "b"]), "yes_no"),
        (lambda: Column.categories(["a", "b", "a"]), "different"),
        (lambda: Columns(TYPES).model(frame().drop(columns="age")), "lacks the column `age`"),
    ],
)
def test_descriptions_that_make_no_sense_are_refused(make, reason):
    with pytest.raises(ValueError, match=reason):
        make()
