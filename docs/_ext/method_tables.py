"""Tables of the methods, made from the registry; run it to rewrite them where they stand.

A test fails where a page holds another table than this.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from pymc_dp.methods.options import MethodSpec
from pymc_dp.methods.registry import METHODS

ROOT = Path(__file__).parents[2]
START, END = "<!-- methods: made by docs/_ext/method_tables.py -->", "<!-- /methods -->"


def readme() -> str:
    """Return the table of the README: what each method fits, and how."""
    rows = [(f'`"{name}"`', spec.fits, spec.by) for name, spec in METHODS.items()]
    return table(("`method=`", "fits", "by"), rows)


def index() -> str:
    """Return the table of the methods' pages."""
    pages: dict[str, list[MethodSpec]] = {}
    for spec in METHODS.values():
        pages.setdefault(spec.page, []).append(spec)
    rows = []
    for page, specs in pages.items():
        names = ", ".join(f'`"{spec.name}"`' for spec in specs)
        ways = "; ".join(dict.fromkeys(spec.by for spec in specs))
        rows.append((names, ways, f"[{page}]({page}.md)"))
    return table(("`method=`", "by", "page"), rows)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Lay out a table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


TABLES = {ROOT / "README.md": readme, ROOT / "docs/methods/index.md": index}


def filled(text: str, made: str) -> str:
    """Put a table between the marks of a page."""
    return re.sub(f"{START}.*?{END}", f"{START}\n\n{made}\n\n{END}", text, flags=re.DOTALL)


if __name__ == "__main__":
    for path, make in TABLES.items():
        path.write_text(filled(path.read_text(encoding="utf-8"), make()), encoding="utf-8")
