"""All that a record of a result says: what the library proves, what is left, what was declared."""

import dataclasses
import json
import math
from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np
import xarray as xr

from pymc_dp.auditing.audit import Audit
from pymc_dp.filing.attack import attack_bounds
from pymc_dp.filing.balance import LedgerState
from pymc_dp.filing.proofs import in_short, proofs_of
from pymc_dp.results.allow_list import privacy_of, released_part
from pymc_dp.results.report import NUMERICS, contribution, neighbours_in_words
from pymc_dp.results.summary import by_label, noise_sd_of, share_of

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


def checked(declare: Mapping[str, str] | None) -> dict[str, str]:
    """Refuse statements that are no text, and names that no record has a place for."""
    for name, text in (declare or {}).items():
        if name not in DECLARED:
            raise ValueError(f"declare= has no {name!r}: it may state {', '.join(DECLARED)}.")
        if not isinstance(text, str) or not text.strip():
            raise TypeError(f"declare= gives {text!r} for {name!r}: state it as text.")
    found = dict(declare or {})
    if "publication_date" in found:
        _check_date(found["publication_date"])
    return found


def _check_date(text: str) -> None:
    try:
        same = date.fromisoformat(text).isoformat() == text
    except ValueError:
        same = False
    if not same:
        raise ValueError(f"declare= gives publication_date={text!r}: write it as YYYY-MM-DD.")


def record_of(
    idata: xr.DataTree,
    text: str,
    *,
    ledger: LedgerState | None,
    declare: Mapping[str, str],
    audit: Audit | None,
) -> dict[str, Any]:
    """Return the record as nested mappings.

    **Privacy.** Reads what the fit released and public settings. What was added to the tree since
    is not read, and a ledger's fits count as planned, not as far as they went.
    """
    released = released_part(idata)
    privacy = privacy_of(released)
    attrs = {
        str(name): json.loads(value) if name in OF_JSON else value
        for name, value in privacy.attrs.items()
    }
    bounds = attack_bounds(privacy)
    proofs = proofs_of(attrs)
    proved = {
        "guarantee": _guarantee(attrs, privacy),
        "fit": {k: v for k, v in attrs.items() if k not in {"released", "epsilon", "delta"}},
        "released": attrs["released"],
        "numerics": NUMERICS[attrs["numerics"]],
        "trust": TRUST,
        "threat": THREAT,
        "proofs": {**proofs, "in_words": in_short(proofs)},
        "attack_success": bounds and {**bounds._asdict(), "in_words": str(bounds)},
        "accuracy": _accuracy(released),
    }
    return {
        "record": "pymc_dp privacy record",
        "proved": _plain(proved),
        "audit": None if audit is None else _plain(dataclasses.asdict(audit)),
        "ledger": ledger and {**_plain(ledger._asdict()), "in_words": str(ledger)},
        "declared": dict(declare),
        "report": text,
    }


def _guarantee(attrs: dict[str, Any], privacy: xr.Dataset) -> dict[str, Any]:
    return {
        "kind": attrs["guarantee"],
        "epsilon": attrs["epsilon"],
        "delta": attrs["delta"],
        "privacy_unit": attrs["privacy_unit"],
        "neighbours": neighbours_in_words(attrs),
        "unit_contributes": contribution(attrs),
        "epsilon_at_delta": [*zip(privacy["delta"].values, privacy["epsilon"].values, strict=True)],
    }


def _accuracy(released: xr.DataTree) -> dict[str, dict[str, float]]:
    """Return each released quantity's posterior sd, by group, and the noise's part of it."""
    if "noise_sd" not in released.children:
        return {}
    noise = noise_sd_of(released)
    sd = released["posterior"].to_dataset()[[*noise.data_vars]].std(("chain", "draw"))
    columns = {
        "posterior_sd": by_label(sd),
        "noise_sd": by_label(noise),
        "noise_share": by_label(share_of(released, noise)),
    }
    labels = [*columns["posterior_sd"].index]
    return {label: {name: column[label] for name, column in columns.items()} for label in labels}


def _plain(value: Any) -> Any:
    """Return numbers of NumPy as Python's; what is not finite has no place in JSON."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
