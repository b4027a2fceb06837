"""What `pymc_dp.privacy_report` files: every field is there, right, and nothing else is."""

import dataclasses
import hashlib
import json
import math

import numpy as np
import pymc as pm
import pytest
import xarray as xr
import yaml

import pymc_dp
from pymc_dp.auditing.audit import Audit
from pymc_dp.deployment_registry import DECLARED
from pymc_dp.testing import deterministic_noise

SECRET = 123456.78125
STATED = {name: f"stated: {name} of é" for name in DECLARED} | {
    "name": "Survey of 2025, é",
    "description": "First line: one.\n\n- a list\n\ttab",
    "publication_date": "2026-11-01",
}
FORMATS = ["a.md", "a.txt", "a.json", "a.yaml", "a.yml", "acro.json"]


with pm.Model(coords={"side": ["left", "right"]}) as MODEL:
    pm.Normal("y", pm.Normal("b", dims="side").sum(), 1.0, observed=np.linspace(-1, 1, 50))


def fit(**settings):
    terms = {"epsilon": 1.0, "delta": 1e-5, "draws": 20, "backend": "python"}
    return pymc_dp.fit(model=MODEL, progressbar=False, **terms | settings)


def new_ledger(folder, **terms):
    given = {"epsilon": 3, "delta": 1e-5, "dataset": "survey of 2025"}
    return pymc_dp.Ledger(folder / "survey.ledger", **given | terms)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("filed")


@pytest.fixture(scope="module")
def ledger(folder):
    return new_ledger(folder)


@pytest.fixture(scope="module")
def idata(ledger):
    return fit(ledger=ledger)


def filed(idata, folder, name, **settings):
    """Write a record and read it as text."""
    if name.endswith("acro.json"):
        pymc_dp.save(idata, folder / "result.nc")
        settings["files"] = [folder / "result.nc"]
    pymc_dp.privacy_report(idata, folder / name, **settings)
    return (folder / name).read_text(encoding="utf-8")


# of the registry's template of September 2026, the fields that an entry must have
REQUIRED = {
    "basic": "name data_curators description intended_use data_product_type data_product_region "
    "publication_date",
    "dp_variant": "variant_name unprotected_quantities data_domain",
    "privacy_loss": "privacy_unit privacy_parameters",
    "deployment_model": "model_name",
    "implementation": "preprocessing_and_hyperparameter_tuning justification mechanisms "
    "composition post_processing",
    "administrative": "registry_authors status tier",
}


def assert_complete(entry):
    deployment = entry["deployment"]
    assert deployment.keys() == REQUIRED.keys()
    for section, names in REQUIRED.items():
        assert {*names.split()} <= deployment[section].keys()
    assert deployment["basic"]["data_product_type"] == "Machine learning model"
    assert deployment["dp_variant"]["variant_name"] == "Approximate DP"
    assert deployment["deployment_model"]["model_name"] == "Central"


def test_a_declared_entry_of_the_registry_is_complete_and_valid(idata, ledger, folder):
    entry = yaml.safe_load(filed(idata, folder, "a.yaml", ledger=ledger, declare=STATED))
    assert_complete(entry)
    deployment, attrs = entry["deployment"], idata["privacy"].attrs
    assert entry["url_slug"] == "survey-of-2025"
    assert deployment["basic"]["name"] == STATED["name"]
    assert deployment["basic"]["description"] == STATED["description"]
    assert deployment["privacy_loss"]["privacy_parameters"] == {
        "epsilon": attrs["epsilon"],
        "delta": attrs["delta"],
    }
    assert deployment["privacy_loss"]["privacy_unit"] == "Record-level"
    assert "survey of 2025" in deployment["implementation"]["composition"]
    assert deployment["administrative"]["tier"] == 3


def test_what_nobody_declared_is_a_comment(idata, folder):
    text = filed(idata, folder, "a.yml")
    entry = yaml.safe_load(text)
    asked = {line.split(":")[0].strip(" #") for line in text.splitlines() if "# " in line}
    assert asked == {
        *("url_slug", "name", "data_curators", "description", "intended_use"),
        *("data_product_region", "data_product_sector", "publication_date", "data_domain"),
        *("preprocessing_and_hyperparameter_tuning", "justification"),
        *("evidence_sources", "registry_authors"),
    }
    assert entry["deployment"]["administrative"]["tier"] == 2


@pytest.mark.parametrize(
    "text",
    [
        *("a: b", "# no comment", "- item", "yes", "1e-5", "null"),
        *("'", '"\\', "|", "%", "@", "{a}"),
        *("a\n  b\nc", "x\r\ny", "&a", "*a", "a\n\x00", "tab\there"),
        "é\u2028x\x85y\U0001f600\x7fz",
    ],
)
def test_text_that_looks_like_yaml_stays_text(idata, folder, text):
    declared = {"intended_use": text}
    entry = yaml.safe_load(filed(idata, folder, "a.yaml", declare=declared))
    assert entry["deployment"]["basic"]["intended_use"].strip() == text.strip()


def test_json_holds_every_field(idata, ledger, folder):
    attrs = idata["privacy"].attrs
    record = json.loads(filed(idata, folder, "a.json", ledger=ledger, declare=STATED))
    proved = record["proved"]
    assert record["declared"] == STATED
    assert not any(name in proved for name in STATED)
    assert proved["guarantee"]["epsilon"] == attrs["epsilon"]
    assert [attrs["delta"], attrs["epsilon"]] in proved["guarantee"]["epsilon_at_delta"]
    assert "clipped at the norm" in proved["guarantee"]["unit_contributes"]
    assert attrs.keys() - {"released", "epsilon", "delta"} == proved["fit"].keys()
    assert proved["fit"]["rng"].startswith("ChaCha20")
    assert proved["released"] == json.loads(attrs["released"])
    assert proved["attack_success"]["odds"] == math.exp(attrs["epsilon"])
    table = pymc_dp.summary(idata)
    assert proved["accuracy"].keys() == set(table.index)
    for label, row in proved["accuracy"].items():
        np.testing.assert_allclose(row["noise_sd"], table["noise_sd"][label], rtol=0.06)
        np.testing.assert_allclose(row["noise_share"], table["noise_share"][label], rtol=0.06)
    assert record["ledger"]["left"] == ledger.left.epsilon
    assert record["report"] == pymc_dp.privacy_report(idata, ledger=ledger, declare=STATED)


def test_a_saved_result_has_the_same_record_and_a_units_name_is_text(idata, folder):
    renamed = idata.copy()
    renamed["privacy"].attrs["privacy_unit"] = "[1]"
    pymc_dp.save(renamed, folder / "saved.nc")
    loaded = json.loads(filed(pymc_dp.load(folder / "saved.nc"), folder, "a.json"))
    assert loaded == json.loads(filed(renamed, folder, "b.json"))
    assert loaded["proved"]["guarantee"]["privacy_unit"] == "[1]"
    assert loaded["proved"]["fit"]["settings"] == {"noise_aware": True}


def test_text_says_by_which_proof_and_what_is_left(idata, ledger, folder):
    text = filed(idata, folder, "a.md", ledger=ledger, declare=STATED)
    for part in (
        *("- Epsilon: 1 at delta 1e-05", "exact; ChaCha20", "Proofs: gaussian_sum, batches"),
        *("- Attack success: advantage at most", "Attackers see all", "Trusted: the curator"),
        *("Ledger of 'survey of 2025'", f"at least {ledger.left.epsilon:.4g} for a fit"),
        *("- Released: posterior, noise_sd, fit, fit_stats", "- By: dp_advi, "),
        f"- Left in the ledger: at least {ledger.left.epsilon:.3g} of 3 at delta 1e-05",
        "Declared, and not checked: justification: stated",
    ):
        assert part in text


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_that_was_added_to_the_tree_is_in_a_record(idata, folder, name):
    added = idata.copy(deep=True)
    added["log_likelihood"] = xr.Dataset({"y": SECRET})
    added["posterior"]["b"].attrs["note"] = SECRET
    added["posterior"] = (
        added["posterior"].to_dataset().assign(secret=(("chain", "draw"), np.full((1, 20), SECRET)))
    )
    added["noise_sd"] = added["noise_sd"].to_dataset().assign(secret=SECRET)
    added["privacy"].attrs["note"] = SECRET
    assert "123456" not in filed(added, folder, name)
    assert "WARNING: this tree also holds" in filed(added, folder, name)


def stop(state, _, i):
    if i >= 2:
        raise StopIteration


def test_the_balance_does_not_say_how_far_an_earlier_fit_went(tmp_path):
    records = []
    for name, callbacks in (("stopped", [stop]), ("whole", [])):
        (tmp_path / name).mkdir()
        ledger = new_ledger(tmp_path / name)
        fit(ledger=ledger, callbacks=callbacks)
        result = fit(ledger=ledger)
        records.append(filed(result, tmp_path, "a.json", ledger=ledger))
        left = json.loads(records[-1])["ledger"]["left"]
        assert left <= ledger.left.epsilon
        assert (left == ledger.left.epsilon) == (not callbacks)
    stopped, whole = (json.loads(record)["ledger"] for record in records)
    assert stopped == whole


@pytest.mark.parametrize(
    "terms", [{"neighbours": "replace_one"}, {"unit": "person"}, {"dataset": "another survey"}]
)
def test_a_ledger_that_does_not_hold_the_fit_is_refused(idata, tmp_path, terms):
    other = new_ledger(tmp_path, **terms)
    other.spend("a mean by another library", rho=0.001)
    with pytest.raises(ValueError, match="holds no fit of method="):
        pymc_dp.privacy_report(idata, tmp_path / "a.md", ledger=str(other.path))
    assert not (tmp_path / "a.md").exists()


def test_a_record_for_output_checking_is_for_review_with_checksums(idata, ledger, tmp_path):
    text = filed(idata, tmp_path, "survey.acro.json", ledger=ledger, declare=STATED)
    [output] = json.loads(text)["results"].values()
    assert json.loads(text)["version"] == "0.4.0"
    assert output.keys() == {
        *("uid", "status", "type", "properties", "files", "outcome", "command", "summary"),
        *("timestamp", "comments", "exception"),
    }
    assert (output["status"], output["type"]) == ("review", "custom")
    assert output["summary"] == "review; (1, 1e-05)-differential privacy per record"
    assert output["exception"] == STATED["justification"]
    assert output["properties"]["ledger"]["dataset"] == "survey of 2025"
    [file] = output["files"]
    checksum = (tmp_path / "checksums" / f"{file['name']}.txt").read_text()
    assert checksum == hashlib.sha256((tmp_path / "result.nc").read_bytes()).hexdigest()


def in_test_mode():
    with deterministic_noise(1):
        return fit()


def one_draw():
    return fit(method="dp_ops", n=1, draws=1)


@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")
@pytest.mark.parametrize("make", [lambda: fit(epsilon=np.inf), in_test_mode, one_draw])
def test_a_result_without_a_guarantee_fails_and_is_not_registered(make, tmp_path):
    result = make()
    [output] = json.loads(filed(result, tmp_path, "acro.json"))["results"].values()
    assert output["status"] == "fail"
    assert "NOT PRIVATE" in output["summary"]
    record = json.loads(filed(result, tmp_path, "a.json"))["proved"]
    assert record["guarantee"]["epsilon"] is None
    assert record["attack_success"] is None
    assert "- Attack success: no bound" in filed(result, tmp_path, "a.md")
    with pytest.raises(ValueError, match="no guarantee to register: none"):
        pymc_dp.privacy_report(result, tmp_path / "a.yaml")
    assert not (tmp_path / "a.yaml").exists()


AUDIT = Audit("dp_advi", 0.5, 1.0, 1e-5, 0.9999, 1000, 3.2)
AUDIT_OF_ANOTHER = dataclasses.replace(AUDIT, method="vips")


def test_an_audit_of_the_method_is_part_of_the_record(idata, folder):
    record = json.loads(filed(idata, folder, "a.json", audit=AUDIT))
    assert record["audit"]["epsilon_lower"] == 0.5
    assert "Audit: An attack on 1000 runs of dp_advi" in record["report"]


@pytest.mark.parametrize(
    ("name", "settings", "error", "sentence"),
    [
        ("a.pdf", {}, ValueError, "end it in one of .md, .txt, .json"),
        ("acro.json", {}, ValueError, "names the files that are to be released"),
        ("acro.json", {"files": ["result.nc"]}, ValueError, "is no file beside"),
        ("macro.json", {"files": ["result.nc"]}, ValueError, "ends in acro.json, and no other"),
        ("a.md", {"declare": {"curators": "x"}}, ValueError, "has no 'curators'"),
        ("a.md", {"declare": {"name": 3}}, TypeError, "for 'name': state it as text"),
        ("a.md", {"declare": {"publication_date": "1.11.26"}}, ValueError, "as YYYY-MM-DD"),
        ("a.md", {"audit": "sound"}, ValueError, "is not what pymc_dp.audit returns for 'dp_advi'"),
        ("a.md", {"audit": AUDIT_OF_ANOTHER}, ValueError, "is not what pymc_dp.audit returns for"),
        ("a.md", {"ledger": 3}, TypeError, "must be a pymc_dp.Ledger"),
        ("a.md", {"ledger": "no.ledger"}, ValueError, "does not exist"),
    ],
)
def test_a_wrong_argument_is_refused_and_nothing_is_written(
    idata, tmp_path, name, settings, error, sentence
):
    with pytest.raises(error, match=sentence):
        pymc_dp.privacy_report(idata, tmp_path / name, **settings)
    assert not [*tmp_path.iterdir()]


def test_a_predictive_check_can_be_filed(tmp_path, idata):
    found = pymc_dp.ppc(idata, MODEL, epsilon=1, delta=1e-5)
    record = json.loads(filed(found, tmp_path, "a.json"))["proved"]
    assert "docs/proofs/checks.md" in record["proofs"]["pages"]
    assert record["accuracy"] == {}
    assert_complete(yaml.safe_load(filed(found, tmp_path, "a.yaml", declare=STATED)))
