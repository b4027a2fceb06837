"""The part of `pymc_dp.fit`'s help that is about methods, made from the registry."""

import textwrap
from inspect import cleandoc

from pymc_dp.methods.registry import METHODS

WIDTH = 100


def described(doc: str) -> str:
    """Fill a docstring's ``{methods}`` with their table, and ``{options}`` with their keywords."""
    doc = cleandoc(doc).replace("{methods}", methods_table())
    return doc.replace("{options}", textwrap.indent(options_list(), "    ").lstrip())


def methods_table() -> str:
    """Return a table of the methods, and of what each fits."""
    rows = [("method", "fits"), *((f"``{name}``", spec.fits) for name, spec in METHODS.items())]
    first, second = (max(len(row[i]) for row in rows) for i in (0, 1))
    line = f"{'=' * first}  {'=' * second}"
    head, *body = [f"{name:{first}}  {fits}" for name, fits in rows]
    return "\n".join([line, head, line, *body, line])


def options_list() -> str:
    """Return a list of the methods' keywords; those that mean the same stand together."""
    takers: dict[tuple[str, str], list[str]] = {}
    for name, spec in METHODS.items():
        for keyword, field in spec.options.keywords().items():
            takers.setdefault((keyword, field.metadata["doc"]), []).append(name)
    lines = [
        f"* ``{keyword}`` ({', '.join(names)}): {doc}" for (keyword, doc), names in takers.items()
    ]
    return "\n".join(textwrap.fill(line, WIDTH - 4, subsequent_indent="  ") for line in lines)
