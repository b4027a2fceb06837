"""Which pages prove a result's guarantee, and digests of the code that made it."""

import functools
import hashlib
import io
import tokenize
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
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


def pages_of(attrs: Mapping[str, Any]) -> list[str]:
    """Name the pages of docs/proofs that a result rests on."""
    pages = [*EVERY_SUM, *PAGES.get(attrs["method"], CHECKS)]
    pages += ["units"] * ("unit" in attrs) + ["tune"] * ("selected" in attrs)
    return [*dict.fromkeys(pages)]


def proofs_of(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return pages, versions and digests for the ``privacy`` attributes of a result."""
    return {
        "pages": [f"docs/proofs/{page}.md" for page in pages_of(attrs)],
        "version_of_fit": attrs["pymc_dp_version"],
        "version_of_record": version("pymc-dp"),
        "accountant": attrs["accountant_version"],
        "digests": digests(),
    }


def in_short(proofs: Mapping[str, Any]) -> str:
    """Name the pages, and give one digest of all files in place of each file's."""
    lines = "\n".join(f"{name} {each}" for name, each in proofs["digests"].items())
    whole = hashlib.sha256(lines.encode()).hexdigest()[:16]
    pages = ", ".join(Path(page).stem for page in proofs["pages"])
    return (
        f"{pages} (docs/proofs of pymc_dp {proofs['version_of_fit']}); code digest {whole} of "
        f"pymc_dp {proofs['version_of_record']}, which wrote this record"
    )


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
