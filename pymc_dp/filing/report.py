"""What a result guarantees, in words, and as a record that is written to a file.

`privacy_report` checks its inputs, writes the report in words and, with a path, one of four kinds
of records: text, JSON, YAML for the registry of deployments of differential privacy, or JSON for
output checking by ACRO, which SACRO Viewer reads.

The registry's fields are those of its template of September 2026
(github.com/opendp/deployments-registry-data). What people must state is a comment until it is
declared.
"""

import datetime
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pymc as pm
import xarray as xr

from pymc_dp.auditing.audit import Audit
from pymc_dp.filing.record import DECLARED, checked, ledger_state, record_of
from pymc_dp.ledger.ledger import Ledger
from pymc_dp.results.build import privacy_of
from pymc_dp.results.report import LIMITS, in_words
from pymc_dp.tables.public_table import PublicTable

ENDINGS = (".md", ".txt", ".json", ".yaml", ".yml")
# what no statement in words can fill in
SOURCES = "publications and code, in the form of the registry's template"
QUESTIONS = {**DECLARED, "evidence_sources": SOURCES}
TIER_3 = {"data_domain", "preprocessing", "justification"}
VERSION = "0.4.0"  # the format's version that SACRO Viewer writes itself; it refuses older ones


class Human(NamedTuple):
    """A field that only people can fill in, by its name in ``declare=``."""

    name: str


def privacy_report(
    idata: xr.DataTree,
    path: str | os.PathLike[str] | None = None,
    *,
    model: pm.Model | None = None,
    metadata: PublicTable | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    audit: Audit | None = None,
    declare: Mapping[str, str] | None = None,
    files: Iterable[str | os.PathLike[str]] = (),
) -> str:
    """Say in words what a result guarantees, for whom and under which assumptions.

    Parameters
    ----------
    idata : DataTree
        A result of `pymc_dp.fit`.
    path : str or Path, optional
        A file to write a record to; what exists there is replaced. Its ending says which record:

        * ``.md``, ``.txt``: the report in words, with proofs and attack success
        * ``.json``: all fields
        * ``.yaml``, ``.yml``: an entry for the registry of deployments of differential privacy
        * ``acro.json`` at the end: for output checking by ACRO and SACRO Viewer, with checksums
          in the folder ``checksums`` beside it
    model : pymc.Model, optional
        The model that was fitted: single numbers in its priors and potentials that were taken on
        trust are then shown with their values. A result does not hold them, so that one which was
        computed from the data by mistake is not published with it: look before you publish.
    metadata : PublicTable, optional
        Of `read_csvw`: numbers of ``model`` that the file declares are then said to be declared
        there, and so are the number of records and the levels of groups.
    ledger : Ledger or path, optional
        The ledger that the fit was booked in: its terms and its balance are then part of the
        report. All fits count as planned, also those that ended early.
    audit : Audit, optional
        What `pymc_dp.audit` returned for the same method.
    declare : mapping of str to str, optional
        What people state and no program can check. It is kept apart from what the library
        proves, and fills in the fields of the registry: ``name``, ``curator``, ``curator_type``,
        ``description``, ``intended_use``, ``region``, ``sector``, ``publication_date``,
        ``data_domain``, ``unprotected``, ``preprocessing``, ``justification``, ``author``.
    files : iterable of str or Path, optional
        For ``acro.json`` alone: the files that are to be released, in the same folder.

    Returns
    -------
    str
        Paragraphs of plain text.

    Raises
    ------
    ValueError
        The tree is not a result of pymc_dp; ``metadata`` is given without ``model``; the path has
        another ending; the ledger or the audit is not of this fit; ``declare`` has an unknown
        name; a result without a guarantee is to be registered.

    Notes
    -----
    **Privacy.** Post-processing of what the fit released, and public settings. What was added to
    the tree since is named in the report, and its values are in no record.

    Examples
    --------
    >>> print(pymc_dp.privacy_report(idata))  # doctest: +SKIP
    >>> pymc_dp.privacy_report(idata, "report.json", ledger="survey.ledger")  # doctest: +SKIP
    """
    attrs = privacy_of(idata).attrs
    declared, released = checked(declare), tuple(map(Path, files))
    target = None if path is None else _target(Path(path), released)
    _check_audit(audit, attrs["method"])
    state = ledger_state(ledger, attrs)
    parts = [in_words(idata, model, metadata)]
    parts += [] if state is None else [str(state)]
    parts += [] if audit is None else [f"Audit: {audit}"]
    parts += [f"Declared, and not checked: {name}: {text}" for name, text in declared.items()]
    text = "\n\n".join(parts)
    if target is not None:
        record = record_of(idata, text, ledger=state, declare=declared, audit=audit)
        _write(record, target, released)
    return text


def _target(path: Path, files: tuple[Path, ...]) -> Path:
    """Refuse a path whose record is unknown, before anything is written."""
    if path.suffix not in ENDINGS:
        raise ValueError(
            f"{str(path)!r} names no record: end it in one of {', '.join(ENDINGS)} or acro.json."
        )
    if _is_acro(path):
        check_files(path, files)
    elif files:
        raise ValueError(f"files= belongs to a record that ends in acro.json, not {str(path)!r}.")
    return path


def _is_acro(path: Path) -> bool:
    return f".{path.name}".endswith(".acro.json")


def check_files(path: Path, files: tuple[Path, ...]) -> None:
    """Refuse a record that names no file, or one that is not there."""
    if not files:
        raise ValueError(
            f"{path.name!r} is a record for output checking, which names the files that are to be "
            "released: files=['result.nc'], in the same folder."
        )
    for file in files:
        if not file.is_file() or file.resolve().parent != path.resolve().parent:
            raise ValueError(f"files= names {str(file)!r}, which is no file beside {str(path)!r}.")


def _check_audit(audit: Audit | None, method: str) -> None:
    if audit is None:
        return
    if not isinstance(audit, Audit):
        raise TypeError(f"audit={audit!r} must be what pymc_dp.audit returns.")
    if audit.method != method:
        raise ValueError(f"audit= attacked method={audit.method!r}; the result is of {method!r}.")


def _write(record: Mapping[str, Any], path: Path, files: tuple[Path, ...]) -> None:
    if _is_acro(path):
        write_acro(record, path, files)
        return
    if path.suffix == ".json":
        text = json.dumps(record, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    elif path.suffix in {".yaml", ".yml"}:
        text = registry_yaml(record)
    else:
        text = _as_text(record)
    path.write_text(text, encoding="utf-8")


def _as_text(record: Mapping[str, Any]) -> str:
    proved = record["proved"]
    attack = proved["attack_success"]
    parts = [
        f"# Privacy report\n\n{record['report']}",
        proved["guarantee"]["unit_contributes"],
        f"Randomness: {proved['fit']['rng']}.",
        f"{proved['trust']} {proved['threat']}",
        f"Proofs: {proved['proofs']['in_words']}.",
        f"Attack success: {attack['in_words']}." if attack else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def registry_yaml(record: Mapping[str, Any]) -> str:
    """Return the record as the text of a file, which is valid once its comments are filled in."""
    if record["proved"]["guarantee"]["epsilon"] is None:
        kind = record["proved"]["guarantee"]["kind"]
        raise ValueError(f"This result has no guarantee to register: {kind}.")
    declared = record["declared"]
    slug = re.sub(r"[^a-z0-9]+", "-", declared.get("name", "").lower()).strip("-")
    fields = {
        "url_slug": slug if "name" in declared else Human("name"),
        "deployment": {
            "basic": _basic(declared),
            "dp_variant": _variant(record),
            "privacy_loss": _loss(record),
            "deployment_model": _model(record),
            "implementation": _implementation(record),
            "administrative": _administrative(declared),
        },
    }
    return "\n".join(_lines(fields, declared, "")) + "\n"


def _basic(declared: Mapping[str, str]) -> dict[str, Any]:
    curator = {"data_curator_name": Human("curator"), "data_curator_type": Human("curator_type")}
    return {
        "name": Human("name"),
        "data_curators": [curator] if "curator" in declared else Human("curator"),
        "description": Human("description"),
        "intended_use": Human("intended_use"),
        "data_product_type": "Machine learning model",
        "data_product_region": Human("region"),
        "data_product_sector": Human("sector"),
        "publication_date": Human("publication_date"),
    }


def _variant(record: Mapping[str, Any]) -> dict[str, Any]:
    public = next(p for p in record["report"].split("\n\n") if p.startswith("Taken as public"))
    stated = record["declared"].get("unprotected")
    return {
        "variant_name": "Approximate DP",
        "data_domain": Human("data_domain"),
        "unprotected_quantities": public + (f"\n\nDeclared: {stated}" if stated else ""),
    }


def _loss(record: Mapping[str, Any]) -> dict[str, Any]:
    guarantee, fit = record["proved"]["guarantee"], record["proved"]["fit"]
    return {
        "privacy_unit": f"{guarantee['privacy_unit'].capitalize()}-level",
        "privacy_unit_details": f"{guarantee['neighbours']}. {guarantee['unit_contributes']}",
        "privacy_parameters": {name: guarantee[name] for name in ("epsilon", "delta")},
        "privacy_parameters_details": (
            f"Computed by {fit['accountant']} ({fit['accountant_version']}) for all planned "
            f"releases.\n\nAny attack has an {record['proved']['attack_success']['in_words']}."
        ),
    }


def _model(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "model_name": "Central",
        "trust_assumptions": record["proved"]["trust"],
        "actors": record["proved"]["threat"],
        "release_type": "One release",
        "release_type_details": _balance(record) or "Other fits on the same data add up.",
        "data_source_type": "Static",
        "access_type": "Non-interactive",
    }


def _implementation(record: Mapping[str, Any]) -> dict[str, Any]:
    fit, proved = record["proved"]["fit"], record["proved"]
    made = f"{fit['mechanism']}, in {fit['releases']} planned releases of {fit['sampling']} batches"
    return {
        "preprocessing_and_hyperparameter_tuning": Human("preprocessing"),
        "mechanisms": (
            f"{made}.\n\n{fit['rng']}.\n\n{proved['numerics']}\n\n"
            f"Proofs: {proved['proofs']['in_words']}."
        ),
        "composition": _balance(record) or LIMITS,
        "post_processing": f"{fit['algorithm'] or fit['method']}. It reads the releases alone.",
        "justification": Human("justification"),
        "additional_information": record["report"],
    }


def _administrative(declared: Mapping[str, str]) -> dict[str, Any]:
    return {
        "evidence_sources": Human("evidence_sources"),
        "status": "Draft",
        "registry_authors": [declared["author"]] if "author" in declared else Human("author"),
        "tier": 3 if declared.keys() >= TIER_3 else 2,
    }


def _balance(record: Mapping[str, Any]) -> str:
    return "" if record["ledger"] is None else str(record["ledger"]["in_words"])


def _lines(fields: Mapping[str, Any], declared: Mapping[str, str], indent: str) -> Iterator[str]:
    for key, value in fields.items():
        if isinstance(value, Human):
            value = declared.get(value.name, value)
        if isinstance(value, Human):
            yield f"{indent}# {key}: FILL IN: {QUESTIONS[value.name]}"
        elif isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _lines(value, declared, f"{indent}  ")
        elif isinstance(value, list):
            yield f"{indent}{key}:"
            for item in value:
                yield from _item(item, declared, f"{indent}  ")
        else:
            yield f"{indent}{key}: {_scalar(value, indent)}"


def _item(item: Any, declared: Mapping[str, str], indent: str) -> Iterator[str]:
    if isinstance(item, Mapping):
        yield f"{indent}-"
        yield from _lines(item, declared, f"{indent}  ")
    else:
        yield f"{indent}- {_scalar(item, indent)}"


def _scalar(value: Any, indent: str) -> str:
    """Write what every reader of YAML takes for text, or for the number that it is."""
    if isinstance(value, float):  # without a point, 1e-05 is text in YAML 1.1
        digits, e, exponent = repr(value).partition("e")
        return (digits if "." in digits else f"{digits}.0") + e + exponent
    if isinstance(value, int):
        return str(value)
    rows = value.strip().split("\n")
    if len(rows) == 1 or not all(row.isprintable() for row in rows):
        text = json.dumps(value, ensure_ascii=False)
        return "".join(x if x.isprintable() else f"\\U{ord(x):08x}" for x in text)
    return "\n".join(["|", *(f"{indent}  {row}".rstrip() for row in rows)])


def write_acro(record: Mapping[str, Any], path: Path, files: tuple[Path, ...]) -> None:
    """Write a record, and checksums of the files that are to be released.

    An officer decides: a private result is for review, and one without a guarantee fails.
    """
    text = json.dumps({"version": VERSION, "results": _result(record, files)}, indent=4)
    path.write_text(text + "\n", encoding="utf-8")
    folder = path.parent / "checksums"
    folder.mkdir(exist_ok=True)
    for file in files:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        (folder / f"{file.name}.txt").write_text(digest, encoding="utf-8")


def _result(record: Mapping[str, Any], files: tuple[Path, ...]) -> dict[str, Any]:
    proved = record["proved"]
    guarantee, method = proved["guarantee"], proved["fit"]["method"]
    private = guarantee["epsilon"] is not None
    claim = (
        (
            f"({guarantee['epsilon']:.4g}, {guarantee['delta']:g})-differential privacy per "
            f"{guarantee['privacy_unit']}"
        )
        if private
        else f"NOT PRIVATE: {guarantee['kind']}"
    )
    status = "review" if private else "fail"
    output = {
        "uid": "output_0",
        "status": status,
        "type": "custom",
        "properties": {"method": method, **record},
        "files": [{"name": file.name, "sdc": {}} for file in files],
        "outcome": {},
        "command": f"pymc_dp.fit(method={method!r})",
        "summary": f"{status}; {claim}",
        "timestamp": datetime.datetime.now().isoformat(timespec="seconds"),
        "comments": [record["report"], *record["declared"].values()],
        "exception": record["declared"].get("justification", ""),
    }
    return {"output_0": output}
