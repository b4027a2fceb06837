"""The methods of `pymc_dp.fit`, by name, and the part of its help that is made from them."""

import textwrap
from inspect import cleandoc

from pymc_dp.methods.advi.advi import DP_ADVI, DP_FULLRANK_ADVI
from pymc_dp.methods.model_class import MethodSpec
from pymc_dp.methods.sampling.ops import DP_OPS
from pymc_dp.methods.sampling.sgld import DP_SGLD
from pymc_dp.methods.sep.sep import DP_SEP, SEP
from pymc_dp.methods.vips.vips import VIPS

WIDTH = 100

METHODS: dict[str, MethodSpec] = {
    spec.name: spec for spec in (DP_ADVI, DP_FULLRANK_ADVI, VIPS, DP_SEP, SEP, DP_SGLD, DP_OPS)
}


def method_named(name: str) -> MethodSpec:
    """Return the method of a name, in any case of letters."""
    found = METHODS.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"method={name!r} is unknown: use one of {sorted(METHODS)}.")
    return found


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
