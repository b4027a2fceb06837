"""Public metadata of a table: what a file declares prepares data, and reads so in reports."""

import json

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_dp

REGIONS = ["north", "south", "west"]
COLUMNS = [
    {"name": "age", "datatype": "integer", "minimum": 18, "maximum": 90},
    {"name": "income", "datatype": {"base": "decimal", "minimum": 0, "maximum": 500}},
    {"titles": ["health"], "datatype": {"base": "string", "format": "poor|fair|good"}},
    {
        "name": "region",
        "datatype": "string",
        "csvw-safe:public.partitions": [
            {"@type": "csvw-safe:Partition", "csvw-safe:predicate": {"partitionValue": x}}
            for x in REGIONS
        ],
    },
    {"name": "visits", "datatype": "integer", "dp:publicPartitions": [0, 1, 2]},
    {"name": "height", "datatype": {"base": "double", "minInclusive": 100, "maxInclusive": 200}},
    {"name": "member", "datatype": "boolean"},
    {"name": "person", "datatype": "string", "csvw-safe:public.privacyId": True},
    {"name": "note", "datatype": "string"},
]
TABLE = {"@context": "http://www.w3.org/ns/csvw", "tableSchema": {"columns": COLUMNS}}
FRAME = pd.DataFrame(
    {
        "age": [18, 54, 120],
        "income": [0.0, 250, 500],
        "health": ["poor", "good", "poor"],
        "region": ["south", "south", "north"],
        "visits": [2, 0, 2],
        "height": [100, 150, 300],
        "member": [True, False, True],
        "person": ["ann", "bob", "ann"],
        "note": ["a", "b", "c"],
        "other": [1, 2, 3],
    }
)


def written(path, content):
    file = path / "survey.json"
    file.write_text(json.dumps(content))
    return file


@pytest.fixture
def table(tmp_path):
    return pymc_dp.read_csvw(written(tmp_path, TABLE | {"csvw-safe:public.length": 300}))


def test_columns_are_prepared_by_public_numbers_alone(table):
    made = table.prepared(FRAME)
    pd.testing.assert_frame_equal(made.head(2), table.prepared(FRAME.head(2)))
    assert list(made) == [*FRAME.columns[:8]]  # of the others the file says nothing
    np.testing.assert_array_equal(made[["age", "income", "height"]].T, [[-1, 0, 1]] * 3)
    assert made["health"].cat.categories.tolist() == ["poor", "fair", "good"]
    assert made["region"].cat.ordered
    assert made["visits"].cat.categories.tolist() == [0, 1, 2]
    assert made["member"].cat.codes.tolist() == [1, 0, 1]
    assert made["person"].tolist() == [0, 1, 0]


def test_a_model_takes_its_coords_and_its_unit_from_the_file(table):
    assert table.coords("region") == {"region": REGIONS}
    assert set(table.coords()) == {"health", "region", "visits", "member"}
    assert table.unit == "person"
    assert pymc_dp.Columns({"age": table["age"]}).model(FRAME.drop(columns="note"))
    assert table["age"].unscaled(table["age"].scaled([60])) == 60


@pytest.mark.parametrize(
    ("column", "values", "sentence"),
    [
        ("region", ["east", "north", "north"], "`region` has values that its levels lack"),
        ("person", [None, "ann", "bob"], "records of nobody"),
    ],
)
def test_values_that_the_file_does_not_declare_are_refused(table, column, values, sentence):
    with pytest.raises(ValueError, match=sentence):
        table.prepared(FRAME.assign(**{column: values}))


def of_columns(*columns):
    return {"tableSchema": {"columns": list(columns)}}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("age: 18 to 90", "is no JSON"),
        ([], "no tableSchema"),
        ({"tables": [TABLE, TABLE]}, "describes 2 tables"),
        (of_columns(COLUMNS[0] | {"minimum": 95}), "no minimum below a maximum for .*`age`"),
        (of_columns(COLUMNS[4] | {"dp:publicPartitions": [1, 1]}), "a level .*`visits` twice"),
    ],
)
def test_a_file_that_declares_nothing_sensible_is_refused(tmp_path, content, sentence):
    file = written(tmp_path, content)
    if isinstance(content, str):
        file.write_text(content)
    with pytest.raises(ValueError, match=f"survey.json .*{sentence}"):
        pymc_dp.read_csvw(file)


# --- what a plan and a report say ----------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    with pm.Model(coords={"region": REGIONS}) as model:
        region = pm.Data("place", rng.integers(0, 3, 300))
        mean = pm.Normal("mean", 54.0, 36.0)  # the middle and half the length of ages 18 to 90
        by_region = pm.Normal("by_region", 0, 3.7, dims="region")
        y = rng.uniform(18, 90, 300)
        pm.Normal("age", mean + by_region[region], pm.HalfNormal("sd", 36.0), observed=y)
    return model


BUDGET = {"epsilon": 1, "delta": 1e-5, "num_records": 300, "backend": "python"}


def test_a_plan_says_which_numbers_the_file_declares(table, model):
    said = str(pymc_dp.plan(model, metadata=table, **BUDGET))
    assert "prior of mean: 2 numbers, and 3 in its density: declared in survey.json" in said
    assert "prior of by_region: 2 numbers, and 3 in its density: trusted" in said
    assert "declared" not in str(pymc_dp.plan(model, **BUDGET))


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_a_report_says_so_too(table, model):
    idata = pymc_dp.fit(model=model, progressbar=False, draws=5, **BUDGET)
    said = pymc_dp.privacy_report(idata, model=model, metadata=table)
    declared, trusted = said.partition("Declared in survey.json: ")[2].split(" Trusted, because")
    assert "prior of mean" in declared
    assert "(0, 3.7)" in trusted
    assert "num_records=300, as declared in survey.json" in said
    assert "the levels of `region`, declared in survey.json" in said
    assert "survey.json" not in pymc_dp.privacy_report(idata, model=model)
    with pytest.raises(ValueError, match="metadata= needs model="):
        pymc_dp.privacy_report(idata, metadata=table)
