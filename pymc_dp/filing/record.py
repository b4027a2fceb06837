"""What a record of a result says: what the library proves, what is left, what was declared.

A record rests on what the fit released and on public settings. In the order of this file: what
people declare is checked; the ledger that the fit was booked in gives its terms and its balance;
the record is put together, as nested mappings, from the guarantee, bounds on the success of any
attack, pages of proofs with digests of the code, and the accuracy; the label is a record in a few
lines.

Whoever guesses between two neighbouring data sets makes two kinds of errors. A pair (epsilon,
delta) bounds the curve of both from below; a result has such a pair at each of many deltas, and
all hold at once (Kairouz, Oh and Viswanath 2015; Dong, Roth and Su 2022, proposition 6).
"""

import dataclasses
import functools
import hashlib
import io
import json
import math
import os
import textwrap
import tokenize
from collections.abc import Mapping
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_dp.auditing.audit import Audit
from pymc_dp.ledger.file import Entry
from pymc_dp.ledger.ledger import Account, Ledger, balances, open_ledger
from pymc_dp.results.build import privacy_of, released_part
from pymc_dp.results.report import (
    NUMERICS,
    by_label,
    contribution,
    neighbours_in_words,
    noise_sd_of,
    share_of,
)

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
# characters of a line of the label, and what begins its further ones
WIDTH = 48
INDENT = "   "
PACKAGE = Path(__file__).parents[1]


class AttackBounds(NamedTuple):
    """The largest success of any attack, whatever it computes and knows beside the unit."""

    advantage: float  # true positive rate less false positive rate
    # probability of a correct guess, where both data sets are equally likely beforehand
    correct: float
    odds: float  # factor by which the odds change, up to a probability of the result's delta
    true_positives: Mapping[float, float]  # the true positive rate at each false positive rate

    def __str__(self) -> str:
        rates = ", ".join(f"{hits:.3g} at {rate:g}" for rate, hits in self.true_positives.items())
        return (
            f"advantage at most {self.advantage:.3g}; a guess between two equally likely data sets "
            f"is right with probability at most {self.correct:.3g}; true positive rate at most "
            f"{rates} false positives"
        )


class LedgerState(NamedTuple):
    """Terms and balance of a ledger."""

    dataset: str
    epsilon: float  # of all fits together
    delta: float
    neighbours: str
    unit: str
    filter: str
    fits: int
    # epsilons at the ledger's delta, as if all fits had made all planned releases: how far a fit
    # that ended early went may depend on the data, and is not for publication
    spent: float
    left: float

    def __str__(self) -> str:
        return (
            f"Ledger of {self.dataset!r}: ({self.epsilon:g}, {self.delta:g})-differential privacy "
            f"per {self.unit} ({self.neighbours}) for all fits together. Its {self.fits} fits, "
            f"this one among them, are counted as planned: together they spend an epsilon of at "
            f"most {self.spent:.4g} if no setting depended on an earlier result, and leave at "
            f"least {self.left:.4g} for a fit of all records."
        )


def checked(declare: Mapping[str, str] | None) -> dict[str, str]:
    """Refuse statements that are no text, and names that no record has a place for."""
    for name, text in (declare or {}).items():
        if name not in DECLARED:
            raise ValueError(f"declare= has no {name!r}: it may state {', '.join(DECLARED)}.")
        if not isinstance(text, str) or not text.strip():
            raise TypeError(f"declare= gives {text!r} for {name!r}: state it as text.")
    stated = dict(declare or {})
    if "publication_date" in stated:
        _check_date(stated["publication_date"])
    return stated


def _check_date(text: str) -> None:
    try:
        same = date.fromisoformat(text).isoformat() == text
    except ValueError:
        same = False
    if not same:
        raise ValueError(f"declare= gives publication_date={text!r}: write it as YYYY-MM-DD.")


def ledger_state(
    ledger: Ledger | str | os.PathLike[str] | None, attrs: Mapping[str, Any]
) -> LedgerState | None:
    """Return the state of the ledger of a result, or refuse one that does not hold its fit."""
    opened = open_ledger(ledger)
    if opened is None:
        return None
    account = Account.opened(opened.path, {})
    terms, fits = account.terms, account.fits
    _refuse_others(account, attrs)
    # whole plans may exceed a limit that fits kept by ending early: then nothing is left
    spent, left = balances(account.filter, [fit._replace(ended=False) for fit in fits])
    return LedgerState(*terms[:6], len(fits), spent.epsilon, left.epsilon)


def _refuse_others(account: Account, attrs: Mapping[str, Any]) -> None:
    terms = account.terms
    unit = attrs.get("unit", "record")
    if (terms.neighbours, terms.unit) != (attrs["neighbours"], unit):
        raise ValueError(
            f"The ledger counts {terms.neighbours} neighbours and the unit {terms.unit!r}, the "
            f"result {attrs['neighbours']} and {unit!r}: it is not the result's ledger."
        )
    if not any(_is_of(fit, attrs) for fit in account.fits):
        raise ValueError(
            f"The ledger of {terms.dataset!r} holds no fit of method={attrs['method']!r} with "
            f"{attrs['releases']} releases: give the ledger that the fit was booked in."
        )


def _is_of(fit: Entry, attrs: Mapping[str, Any]) -> bool:
    """Whether an entry can be a result's: a result does not say under which number it is booked."""
    if "selected" in attrs:
        return fit.method == f"tune of {len(json.loads(attrs['selected_from']))} settings"
    return (fit.method, fit.planned) == (attrs["method"], attrs["releases"])


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


def attack_bounds(privacy: xr.Dataset) -> AttackBounds | None:
    """Return the bounds that a result's ``privacy`` group implies; None if it claims nothing."""
    if not math.isfinite(privacy.attrs["epsilon"]):
        return None
    epsilon, delta = privacy["epsilon"].values, privacy["delta"].values
    growth = np.exp(np.minimum(epsilon, LARGEST_EXPONENT))
    advantage = float(np.min(np.tanh(epsilon / 2) + 2 * delta / (growth + 1)).clip(0, 1))
    hits = {
        rate: float(np.minimum(delta + growth * rate, 1 - (1 - delta - rate) / growth).min())
        for rate in FALSE_ALARMS
    }
    hits = {rate: min(most, 1.0) for rate, most in hits.items()}
    odds = math.exp(min(privacy.attrs["epsilon"], LARGEST_EXPONENT))
    return AttackBounds(advantage, (1 + advantage) / 2, odds, hits)


def proofs_of(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return pages, versions and digests for the ``privacy`` attributes of a result."""
    return {
        "pages": [f"docs/proofs/{page}.md" for page in pages_of(attrs)],
        "version_of_fit": attrs["pymc_dp_version"],
        "version_of_record": version("pymc-dp"),
        "accountant": attrs["accountant_version"],
        "digests": digests(),
    }


def pages_of(attrs: Mapping[str, Any]) -> list[str]:
    """Name the pages of docs/proofs that a result rests on."""
    pages = [*EVERY_SUM, *PAGES.get(attrs["method"], CHECKS)]
    pages += ["units"] * ("unit" in attrs) + ["tune"] * ("selected" in attrs)
    return [*dict.fromkeys(pages)]


@functools.cache
def digests() -> dict[str, str]:
    """Return the digest of every file of the package, as pages of proofs list them."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {
        path.relative_to(PACKAGE.parent).as_posix(): digest(path.read_text(encoding="utf-8"))
        for path in files
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


def in_short(proofs: Mapping[str, Any]) -> str:
    """Name the pages, and give one digest of all files in place of each file's."""
    lines = "\n".join(f"{name} {each}" for name, each in proofs["digests"].items())
    whole = hashlib.sha256(lines.encode()).hexdigest()[:16]
    pages = ", ".join(Path(page).stem for page in proofs["pages"])
    return (
        f"{pages} (docs/proofs of pymc_dp {proofs['version_of_fit']}); code digest {whole} of "
        f"pymc_dp {proofs['version_of_record']}, which wrote this record"
    )


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


def label_of(privacy: xr.Dataset, ledger: LedgerState | None) -> str:
    """Return the lines of the label, from a ``privacy`` group of a finite epsilon."""
    rows = _rows(privacy, ledger).items()
    lines = [
        textwrap.fill(f"{name}: {text}", WIDTH, subsequent_indent=INDENT) for name, text in rows
    ]
    return "\n".join(lines)


def _rows(privacy: xr.Dataset, ledger: LedgerState | None) -> dict[str, str]:
    attrs, bounds = privacy.attrs, attack_bounds(privacy)
    made = f"{attrs['method']}, {attrs['releases']} releases, {attrs['mechanism']}"
    attack = bounds and (
        f"of guesses between two equally likely data sets at most {bounds.correct:.1%} are right; "
        f"at 1% false positives at most {bounds.true_positives[0.01]:.1%} of positives are found"
    )
    released = [name for name in json.loads(attrs["released"]) if name != "privacy"]
    left = "no ledger was given"
    if ledger is not None:
        left = (
            f"at least {ledger.left:.3g} of {ledger.epsilon:g} at delta {ledger.delta:g} "
            f"({ledger.dataset}, {ledger.fits} fits)"
        )
    return {
        "Epsilon": f"{attrs['epsilon']:.3g}   Delta: {attrs['delta']:.3g}",
        "Protects": f"one {attrs['privacy_unit']}; {neighbours_in_words(attrs)}",
        "Released": ", ".join(released),
        "By": made,
        "Attack success": attack or "no bound",
        "Left in the ledger": left,
        "Numerics": f"{attrs['numerics']}; {attrs['rng']}",
        "Proofs": f"{', '.join(pages_of(attrs))} of pymc_dp {attrs['pymc_dp_version']}",
    }
