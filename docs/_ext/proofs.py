"""Pages of proofs and the files that they speak of: ``make proofs`` writes the files' digests anew.

A page begins with a table of files. The digest of a file is that of its tokens, so that comments
and layout may change without it. What else changes must be read beside the page.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from pymc_dp.deployment_registry import digest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "proofs"
VERSION = re.compile(r"(?<=^\| file of version )\S+(?= \| digest \|$)", flags=re.MULTILINE)
FILE = re.compile(r"^\| `(pymc_dp/[\w/]+\.py)` \| `(\w{16})` \|$", flags=re.MULTILINE)


def pages() -> list[Path]:
    """Return the pages, without their index."""
    return sorted(page for page in FOLDER.glob("*.md") if page.stem != "index")


def version() -> str:
    """Return the version of this source tree."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def files(page: str) -> dict[str, str]:
    """Return the files that the text of a page speaks of, with the digests that stand there."""
    return dict(FILE.findall(page))


def stale(page: str) -> Iterator[str]:
    """Say what of the text of a page is no longer so."""
    if VERSION.findall(page) != [version()]:
        yield f"it is not of version {version()}"
    for name, known in files(page).items():
        path = ROOT / name
        if not path.exists():
            yield f"{name} is gone"
        elif digest(path.read_text()) != known:
            yield f"{name} has changed: read it beside this page, then run make proofs"


def renewed(page: str) -> str:
    """Return the text of a page with the version and the digests of today."""
    page = VERSION.sub(version(), page)
    return FILE.sub(lambda row: row[0].replace(row[2], digest((ROOT / row[1]).read_text())), page)


if __name__ == "__main__":
    for each in pages():
        each.write_text(renewed(each.read_text()))
