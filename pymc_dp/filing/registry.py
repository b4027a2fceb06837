"""A record for the registry of deployments of differential privacy, in YAML.

The fields are those of the registry's template of September 2026
(github.com/opendp/deployments-registry-data). What people must state is a comment until it is
declared.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pymc_dp.filing.record import DECLARED
from pymc_dp.results.report import LIMITS

# what no statement in words can fill in
SOURCES = "publications and code, in the form of the registry's template"
QUESTIONS = {**DECLARED, "evidence_sources": SOURCES}
TIER_3 = {"data_domain", "preprocessing", "justification"}


class Human(NamedTuple):
    """A field that only people can fill in, by its name in ``declare=``."""

    name: str


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
    """Write text that every reader of YAML takes for text, and numbers that it takes for numbers.

    Without a point, 1e-05 is text in YAML 1.1.
    """
    if isinstance(value, float):
        digits, e, exponent = repr(value).partition("e")
        return (digits if "." in digits else f"{digits}.0") + e + exponent
    if isinstance(value, int):
        return str(value)
    rows = value.strip().split("\n")
    if len(rows) == 1 or not all(row.isprintable() for row in rows):
        text = json.dumps(value, ensure_ascii=False)
        return "".join(x if x.isprintable() else f"\\U{ord(x):08x}" for x in text)
    return "\n".join(["|", *(f"{indent}  {row}".rstrip() for row in rows)])
