"""The methods of `pymc_dp.fit`, by name, and the part of its help that is made from them."""

import textwrap
from functools import partial
from inspect import cleandoc

from pymc_dp.methods.advi import dp_advi, dp_fullrank_advi
from pymc_dp.methods.options import MethodSpec, with_forms
from pymc_dp.methods.papers.gradient_steps import FULL_RANK, MEAN_FIELD, by_steps
from pymc_dp.methods.papers.regression import FORMS_OF_VIPS, build_algorithm3
from pymc_dp.methods.papers.sampling import DP_OPS, DP_SGLD
from pymc_dp.methods.sep import sep
from pymc_dp.methods.vips import vips

REGRESSIONS = "linear predictors"
WIDTH = 100

METHODS: dict[str, MethodSpec] = {
    spec.name: spec
    for spec in (
        dp_advi(partial(by_steps, MEAN_FIELD)),
        dp_fullrank_advi(partial(by_steps, FULL_RANK)),
        vips.vips(with_forms(vips.MODEL_CLASSES, {REGRESSIONS: FORMS_OF_VIPS})),
        sep.dp_sep(with_forms(sep.MODEL_CLASSES, {REGRESSIONS: {"algorithm3": build_algorithm3}})),
        sep.SEP,
        DP_SGLD,
        DP_OPS,
    )
}


def method_named(name: str) -> MethodSpec:
    """Return the method of a name, in any case of letters."""
    spec = METHODS.get(name.lower()) if isinstance(name, str) else None
    if spec is None:
        raise ValueError(f"method={name!r} is unknown: use one of {sorted(METHODS)}.")
    return spec


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
