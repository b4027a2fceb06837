"""What a result guarantees, in words, and as a record that is written to a file.

With a path `privacy_report` puts one record together, as nested mappings, and writes it as text, as
JSON, as YAML for the registry of deployments of differential privacy, or as JSON for output
checking by ACRO.
"""

import dataclasses
import datetime
import functools
import hashlib
import io
import json
import math
import os
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pymc_dp.auditing.audit import Audit
from pymc_dp.ledger.file import Entry, Terms, fits_of
from pymc_dp.ledger.ledger import Ledger, balances, filter_of, open_ledger
from pymc_dp.results import report
from pymc_dp.results.tree import privacy_of, released_part
from pymc_dp.tables.public_table import PublicTable

ENDINGS = (".md", ".txt", ".json", ".yaml", ".yml")
ACRO_VERSION = "0.4.0"  # the format's version that SACRO Viewer writes; it refuses older ones
FALSE_ALARMS = (0.001, 0.01, 0.1)
LARGEST_EXPONENT = 700.0
EVERY_SUM = ("gaussian_sum", "batches", "accountants")
ROUNDS = ("whitened_rounds", "gradients", "histograms")
# pages of docs/proofs, by method; a method's options decide between those after the common ones
PAGES: Mapping[str, tuple[str, ...]] = {
    "dp_advi": ROUNDS,
    "dp_fullrank_advi": ROUNDS,
    "vips": (*ROUNDS, "closed_form"),
    "dp_sep": (*ROUNDS, "sites"),
    "dp_sgld": ("gradients", "posterior_sampling"),
    "dp_ops": ("posterior_sampling",),
}
# `pymc_dp.ppc` and `pymc_dp.score`, whose results name no method of `pymc_dp.fit`
CHECKS = ("checks", "histograms")
UNREAD = {tokenize.COMMENT, tokenize.NL}
LAYOUT = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
TRUST = (
    "Trusted: the curator, who holds the data and ran the fit, and the machines, systems and "
    "packages of the curator. No record leaves them."
)
THREAT = (
    "Attackers see all that was released and know the model, the settings, the code and every "
    "other record, with any amount of computing. They see neither the secret random numbers nor "
    "running times, memory, warnings and errors."
)
# attributes of a result that hold JSON
OF_JSON = {
    *("dp_event", "declared_public", "trusted_constants", "withheld", "doubts", "settings"),
    *("defaults", "released", "selected", "selected_from"),
}
# what people state, and the library cannot know; each is a question of the registry, too
DECLARED: Mapping[str, str] = {
    "name": "name of the data product",
    "curator": "who publishes it",
    "curator_type": "such as Government, Industry or Nonprofit",
    "description": "what the data product is, in a few sentences",
    "intended_use": "what it is for",
    "region": "the region that the data describe",
    "sector": "such as Government, Healthcare, Education or Technology",
    "publication_date": "YYYY-MM-DD",
    "data_domain": "which data sets could have stood in place of this one",
    "unprotected": "what was published of the data without noise",
    "preprocessing": "what was done with the data before the fit, and how settings were chosen",
    "justification": "why this unit, epsilon and delta",
    "author": "who wrote this record",
}
BALANCE = (
    "Ledger of {dataset!r}: ({epsilon:g}, {delta:g})-differential privacy per {unit} "
    "({neighbours}) for all fits together. Its {fits} fits, this one among them, are counted as "
    "planned: together they spend an epsilon of at most {spent:.4g} if no setting depended on an "
    "earlier result, and leave at least {left:.4g} for a fit of all records."
)
LEFT = "at least {left:.3g} of {epsilon:g} at delta {delta:g} ({dataset}, {fits} fits)"
PACKAGE = Path(__file__).parent


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
        A file to write a record to; what exists there is replaced. It is a label and the report
        where the path ends in ``.md`` or ``.txt``, all fields in ``.json``, an entry for the
        registry of deployments of differential privacy in ``.yaml`` or ``.yml``, and a record for
        output checking by ACRO and SACRO Viewer in ``acro.json``, with the folder ``checksums``.
    model : pymc.Model, optional
        The model that was fitted: single numbers in its priors and potentials that were taken on
        trust are then shown with their values, which a result does not hold. Look before you
        publish: one may have been computed from the data by mistake.
    metadata : PublicTable, optional
        Of `read_csvw`: what the file declares of ``model`` is then said to be declared there.
    ledger : Ledger or path, optional
        The ledger that the fit was booked in, whose terms and balance are then reported. All fits
        count as planned, also those that ended early.
    audit : Audit, optional
        What `pymc_dp.audit` returned for the same method.
    declare : mapping of str to str, optional
        What people state and no program can check, kept apart from what the library proves:
        ``name``, ``curator``, ``curator_type``, ``description``, ``intended_use``, ``region``,
        ``sector``, ``publication_date``, ``data_domain``, ``unprotected``, ``preprocessing``,
        ``justification``, ``author``.
    files : iterable of str or Path, optional
        For ``acro.json`` alone: the files that are to be released, in the same folder.

    Returns
    -------
    str
        Paragraphs of plain text.

    Raises
    ------
    ValueError
        The tree is no result of pymc_dp, or has no guarantee to register; ``metadata`` is given
        without ``model``; another argument has no meaning here, or is not of this fit.

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
    declared, released = dict(declare or {}), tuple(map(Path, files))
    _check_declared(declared)
    if path is not None:
        _check_target(Path(path), released)
    if audit is not None and getattr(audit, "method", None) != (method := attrs["method"]):
        raise ValueError(f"audit={audit!r:.60} is not what pymc_dp.audit returns for {method!r}.")
    state = _ledger_state(ledger, attrs)
    parts = [report.in_words(idata, model, metadata)]
    parts += [state["in_words"]] if state else []
    parts += [f"Audit: {audit}"] if audit else []
    parts += [f"Declared, and not checked: {name}: {text}" for name, text in declared.items()]
    text = "\n\n".join(parts)
    if path is not None:
        _write(_record_of(idata, text, state, declared, audit), Path(path), released)
    return text


def _check_declared(declared: Mapping[str, str]) -> None:
    """Refuse statements that are no text, and names that no record has a place for."""
    for name, text in declared.items():
        if name not in DECLARED:
            raise ValueError(f"declare= has no {name!r}: it may state {', '.join(DECLARED)}.")
        if not isinstance(text, str) or not text.strip():
            raise TypeError(f"declare= gives {text!r} for {name!r}: state it as text.")
        if name == "publication_date" and not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            raise ValueError(f"declare= gives publication_date={text!r}: write it as YYYY-MM-DD.")


def _check_target(path: Path, files: tuple[Path, ...]) -> None:
    if path.suffix not in ENDINGS:
        raise ValueError(
            f"{str(path)!r} names no record: end it in one of {', '.join(ENDINGS)} or acro.json."
        )
    if _is_acro(path) != bool(files):
        raise ValueError(
            f"{str(path)!r}: a record that ends in acro.json, and no other, names the files that "
            "are to be released, in the same folder, such as files=['result.nc']."
        )
    for file in files:
        if not file.is_file() or file.resolve().parent != path.resolve().parent:
            raise ValueError(f"files= names {str(file)!r}, which is no file beside {str(path)!r}.")


def _is_acro(path: Path) -> bool:
    return f".{path.name}".endswith(".acro.json")


def _ledger_state(
    ledger: Ledger | str | os.PathLike[str] | None, attrs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return terms and balance of a result's ledger, or refuse one that does not hold its fit."""
    opened = open_ledger(ledger)
    if opened is None:
        return None
    terms, fits = opened.terms, fits_of(opened.path)
    _refuse_others(terms, fits, attrs)
    # as if all fits had made all planned releases: how far one went may depend on the data. Whole
    # plans may exceed a limit that fits kept by ending early: then nothing is left
    spent, left = balances(filter_of(terms), [fit._replace(ended=False) for fit in fits])
    state = {"fits": len(fits), "spent": spent.epsilon, "left": left.epsilon, **terms._asdict()}
    return state | {"in_words": BALANCE.format_map(state)}


def _refuse_others(terms: Terms, fits: list[Entry], attrs: Mapping[str, Any]) -> None:
    protects = (attrs["neighbours"], attrs.get("unit", "record"))
    booked = (attrs["method"], attrs["releases"])
    if "selected" in attrs:
        booked = (f"tune of {len(json.loads(attrs['selected_from']))} settings", 1)
    # a result does not say under which number it is booked
    every = [(fit.method, fit.planned) for fit in fits]
    if booked not in every or protects != (terms.neighbours, terms.unit):
        raise ValueError(
            f"The ledger of {terms.dataset!r}, of {terms.neighbours} neighbours and the unit "
            f"{terms.unit!r}, holds no fit of method={booked[0]!r} with {booked[1]} releases, "
            f"{protects[0]} neighbours and the unit {protects[1]!r}: give the fit's own ledger."
        )


def _record_of(
    idata: xr.DataTree,
    text: str,
    ledger: Mapping[str, Any] | None,
    declared: dict[str, str],
    audit: Audit | None,
) -> dict[str, Any]:
    """Return the record as nested mappings, of what the fit released and public settings alone."""
    released = released_part(idata)
    privacy = privacy_of(released)
    attrs = {str(k): json.loads(x) if k in OF_JSON else x for k, x in privacy.attrs.items()}
    points = zip(privacy["delta"].values, privacy["epsilon"].values, strict=True)
    guarantee = {
        "kind": attrs["guarantee"],
        **{name: attrs[name] for name in ("epsilon", "delta", "privacy_unit")},
        "neighbours": report.neighbours_in_words(attrs),
        "unit_contributes": report.contribution(attrs),
        "epsilon_at_delta": [*points],
    }
    proved = {
        "guarantee": guarantee,
        "fit": {k: v for k, v in attrs.items() if k not in {"released", "epsilon", "delta"}},
        "released": attrs["released"],
        "numerics": report.NUMERICS[attrs["numerics"]],
        "trust": TRUST,
        "threat": THREAT,
        "proofs": proofs_of(attrs),
        "attack_success": attack_bounds(privacy),
        "accuracy": _accuracy(released),
    }
    proved = _plain(proved)
    return {
        "record": "pymc_dp privacy record",
        "label": _label(proved, ledger),
        "proved": proved,
        "audit": _plain(audit and dataclasses.asdict(audit)),
        "ledger": _plain(ledger),
        "declared": declared,
        "report": text,
    }


def attack_bounds(privacy: xr.Dataset) -> dict[str, Any] | None:
    """Bound the success of any attack on a result, whatever it knows; None if it claims nothing."""
    # A pair (epsilon, delta) bounds the curve of both errors of a guess between neighbouring data
    # sets from below. A result has such a pair at each of many deltas, and all hold at once
    # (Kairouz, Oh and Viswanath 2015; Dong, Roth and Su 2022, proposition 6).
    if not math.isfinite(privacy.attrs["epsilon"]):
        return None
    epsilon, delta = privacy["epsilon"].values, privacy["delta"].values
    growth = np.exp(np.minimum(epsilon, LARGEST_EXPONENT))
    advantage = float(np.min(np.tanh(epsilon / 2) + 2 * delta / (growth + 1)).clip(0, 1))
    rate = np.array(FALSE_ALARMS)[:, None]
    bounds = np.minimum(delta + growth * rate, 1 - (1 - delta - rate) / growth)
    hits = dict(zip(FALSE_ALARMS, bounds.min(1, initial=1.0).tolist(), strict=True))
    correct, rates = (1 + advantage) / 2, ", ".join(f"{x:.3g} at {r:g}" for r, x in hits.items())
    return {
        "advantage": advantage,  # true positive rate less false positive rate
        "correct": correct,
        # factor by which the odds change, up to a probability of the result's delta
        "odds": math.exp(min(privacy.attrs["epsilon"], LARGEST_EXPONENT)),
        "true_positives": hits,  # by false positive rate
        "in_words": f"advantage at most {advantage:.3g}; a guess between two equally likely data "
        f"sets is right with probability at most {correct:.3g}; true positive rate at most {rates} "
        "false positives",
    }


def proofs_of(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return pages, versions and digests for the ``privacy`` attributes of a result."""
    pages, of_fit, of_record = pages_of(attrs), attrs["pymc_dp_version"], version("pymc-dp")
    whole = hashlib.sha256(json.dumps(digests()).encode()).hexdigest()[:16]
    return {
        "pages": [f"docs/proofs/{page}.md" for page in pages],
        "version_of_fit": of_fit,
        "version_of_record": of_record,
        "accountant": attrs["accountant_version"],
        "digests": digests(),
        "in_words": f"{', '.join(pages)} (docs/proofs of pymc_dp {of_fit}); code digest {whole} of "
        f"pymc_dp {of_record}, which wrote this record",
    }


def pages_of(attrs: Mapping[str, Any]) -> list[str]:
    """Name the pages of docs/proofs that a result rests on."""
    pages = [*EVERY_SUM, *PAGES.get(attrs["method"], CHECKS)]
    pages += ["units"] * ("unit" in attrs) + ["tune"] * ("selected" in attrs)
    return [*dict.fromkeys(pages)]


@functools.cache
def digests() -> dict[str, str]:
    """Return the digest of every file of the package, as pages of proofs list them."""
    return {
        path.relative_to(PACKAGE.parent).as_posix(): digest(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def digest(source: str) -> str:
    """Return sixteen digits of the digest of a source text, whatever its comments and layout."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    kept = (
        tokenize.tok_name[token.type] if token.type in LAYOUT else token.string
        for token in tokens
        if token.type not in UNREAD
    )
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()[:16]


def _accuracy(released: xr.DataTree) -> dict[str, dict[str, float]]:
    """Return each released quantity's posterior sd, by group, and the noise's part of it."""
    if "noise_sd" not in released.children:
        return {}
    noise = report.noise_by_label(released)
    sd = released["posterior"].to_dataset()[[*released["noise_sd"]]].std(("chain", "draw"))
    table: Any = pd.DataFrame({"posterior_sd": report.by_label(sd), **noise})
    return dict(table.to_dict("index"))


def _label(proved: Mapping[str, Any], ledger: Mapping[str, Any] | None) -> dict[str, str]:
    """Return what a reader must know of the release, by heading."""
    fit, attack = proved["fit"], proved["attack_success"]
    epsilon, delta = (proved["guarantee"][name] for name in ("epsilon", "delta"))
    return {
        "Epsilon": "none" if epsilon is None else f"{epsilon:.3g} at delta {delta:.3g}",
        "Protects": f"one {fit['privacy_unit']}; {proved['guarantee']['neighbours']}",
        "Released": ", ".join(name for name in proved["released"] if name != "privacy"),
        "By": f"{fit['method']}, {fit['releases']} releases, {fit['mechanism']}",
        "Attack success": attack["in_words"] if attack else "no bound",
        "Left in the ledger": LEFT.format_map(ledger) if ledger else "no ledger was given",
        "Numerics": f"{fit['numerics']}; {fit['rng']}",
        "Proofs": proved["proofs"]["in_words"],
    }


def _plain(value: Any) -> Any:
    """Return what JSON holds of a value: numbers of Python, and None for what is not finite."""
    text = json.dumps(value, default=lambda array: array.tolist())
    return json.loads(text, parse_constant=lambda not_finite: None)


def _write(record: Mapping[str, Any], path: Path, files: tuple[Path, ...]) -> None:
    if _is_acro(path):
        text = _as_acro(record, path, files)
    elif path.suffix == ".json":
        text = json.dumps(record, indent=2, allow_nan=False, ensure_ascii=False)
    elif path.suffix in (".yaml", ".yml"):
        text = "\n".join(_yaml(_entry(record)))
    else:
        label = "\n".join(f"- {name}: {words}" for name, words in record["label"].items())
        most = record["proved"]["guarantee"]["unit_contributes"]
        parts = ["# Privacy report", label, record["report"], most, f"{TRUST} {THREAT}"]
        text = "\n\n".join(parts)
    path.write_text(f"{text}\n", encoding="utf-8")


class Question(str):
    """What nobody has stated: a comment, in the place of a value of an entry."""


def _entry(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of the registry, which is valid once its questions are answered.

    Source: the template in github.com/opendp/deployments-registry-data, September 2026.
    """
    proved, declared = record["proved"], record["declared"]
    fit, guarantee = proved["fit"], proved["guarantee"]
    if guarantee["epsilon"] is None:
        raise ValueError(f"This result has no guarantee to register: {guarantee['kind']}.")
    stated = {name: declared.get(name, Question(text)) for name, text in DECLARED.items()}
    slug = re.sub(r"[^a-z0-9]+", "-", stated["name"].lower()).strip("-")
    curators: Any = Question("who publishes it (curator), and of which type (curator_type)")
    if declared.keys() >= {"curator", "curator_type"}:
        name, kind = stated["curator"], stated["curator_type"]
        curators = [{"data_curator_name": name, "data_curator_type": kind}]
    public = next(p for p in record["report"].split("\n\n") if p.startswith("Taken as public"))
    if "unprotected" in declared:
        public = f"{public}\n\nDeclared: {stated['unprotected']}"
    balance = record["ledger"]["in_words"] if record["ledger"] else ""
    tier = 3 if declared.keys() >= {"data_domain", "preprocessing", "justification"} else 2
    deployment = {
        "basic": {
            "name": stated["name"],
            "data_curators": curators,
            "description": stated["description"],
            "intended_use": stated["intended_use"],
            "data_product_type": "Machine learning model",
            "data_product_region": stated["region"],
            "data_product_sector": stated["sector"],
            "publication_date": stated["publication_date"],
        },
        "dp_variant": {
            "variant_name": "Approximate DP",
            "data_domain": stated["data_domain"],
            "unprotected_quantities": public,
        },
        "privacy_loss": {
            "privacy_unit": f"{guarantee['privacy_unit'].capitalize()}-level",
            "privacy_unit_details": f"{guarantee['neighbours']}. {guarantee['unit_contributes']}",
            "privacy_parameters": {name: guarantee[name] for name in ("epsilon", "delta")},
            "privacy_parameters_details": (
                f"Computed by {fit['accountant']} ({fit['accountant_version']}) for all planned "
                f"releases.\n\nAny attack has an {proved['attack_success']['in_words']}."
            ),
        },
        "deployment_model": {
            "model_name": "Central",
            "trust_assumptions": TRUST,
            "actors": THREAT,
            "release_type": "One release",
            "release_type_details": balance or "Other fits on the same data add up.",
            "data_source_type": "Static",
            "access_type": "Non-interactive",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": stated["preprocessing"],
            "mechanisms": (
                f"{fit['mechanism']}, in {fit['releases']} planned releases of {fit['sampling']} "
                f"batches.\n\n{fit['rng']}.\n\n{proved['numerics']}\n\n"
                f"Proofs: {proved['proofs']['in_words']}."
            ),
            "composition": balance or report.LIMITS,
            "post_processing": f"{fit['algorithm'] or fit['method']}. It reads the releases alone.",
            "justification": stated["justification"],
            "additional_information": record["report"],
        },
        "administrative": {
            "evidence_sources": Question("publications and code, in the form of the template"),
            "status": "Draft",
            "registry_authors": [stated["author"]] if "author" in declared else stated["author"],
            "tier": tier,
        },
    }
    return {"url_slug": slug if "name" in declared else stated["name"], "deployment": deployment}


def _yaml(entry: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for key, value in entry.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _yaml(value, f"{indent}  ")
        elif isinstance(value, Question):
            yield f"{indent}# {key}: FILL IN: {value}"
        else:
            yield f"{indent}{key}: {_scalar(value, indent)}"


def _scalar(value: Any, indent: str) -> str:
    """Write what every reader of YAML takes for text, or for the number that it is."""
    if isinstance(value, float):  # without a point, 1e-05 is text in YAML 1.1
        return np.format_float_positional(value, trim="0")
    rows = value.strip().split("\n") if isinstance(value, str) else []
    if len(rows) > 1 and all(row.isprintable() for row in rows):
        return "\n".join(["|", *(f"{indent}  {row}".rstrip() for row in rows)])
    text = json.dumps(value, ensure_ascii=False)
    return "".join(x if x.isprintable() else f"\\U{ord(x):08x}" for x in text)


def _as_acro(record: Mapping[str, Any], path: Path, files: tuple[Path, ...]) -> str:
    folder = path.parent / "checksums"
    folder.mkdir(exist_ok=True)
    for file in files:
        checksum = hashlib.sha256(file.read_bytes()).hexdigest()
        (folder / f"{file.name}.txt").write_text(checksum, encoding="utf-8")
    guarantee, method = record["proved"]["guarantee"], record["proved"]["fit"]["method"]
    status, claim = "fail", f"NOT PRIVATE: {guarantee['kind']}"
    if guarantee["epsilon"] is not None:
        pair = f"({guarantee['epsilon']:.4g}, {guarantee['delta']:g})"
        status, claim = "review", f"{pair}-differential privacy per {guarantee['privacy_unit']}"
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
    return json.dumps({"version": ACRO_VERSION, "results": {"output_0": output}}, indent=4)
