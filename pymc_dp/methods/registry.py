"""The methods of `pymc_dp.fit`, by name, and the part of its help that is made from them.

The algorithms to the letter of their papers (`pymc_dp.papers`) are loaded when one is asked for.
The options of those that are methods by themselves stand here, for the help.
"""

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from inspect import cleandoc
from typing import Any

from pymc_dp.methods.advi import dp_advi, dp_fullrank_advi
from pymc_dp.methods.method import POSTERIOR_SAMPLING, SGLD
from pymc_dp.methods.options import BatchOptions, MethodSpec, Options, option, with_forms
from pymc_dp.methods.sep import sep
from pymc_dp.methods.vips import vips

REGRESSIONS = "linear predictors"
WIDTH = 100
LEAST_TRANSITIONS = 100


@dataclass(frozen=True, kw_only=True)
class SgldOptions(BatchOptions):
    """The options of `dp_sgld`."""

    released = "score"

    step: float | None = option(
        None, "first step size, in squared units of the unconstrained latents"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step is not None and not 0 < self.step < math.inf:
            raise ValueError(f"step={self.step!r} must be above 0 and finite.")


@dataclass(frozen=True, kw_only=True)
class OpsOptions(Options):
    """The options of `dp_ops`."""

    loglik_bound: float | None = option(
        None,
        "bound that a record's log likelihood is clipped to; 5 for each outcome, and without noise "
        "none",
    )
    transitions: int = option(
        1000, "steps of PyMC's NUTS behind a draw, the first half of which adapt"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.transitions < LEAST_TRANSITIONS:
            raise ValueError(
                f"transitions={self.transitions} are too few for a sampler to find its way: give "
                f"at least {LEAST_TRANSITIONS}."
            )
        if self.loglik_bound is not None and not self.loglik_bound > 0:
            raise ValueError(f"loglik_bound={self.loglik_bound!r} must be above 0.")


def of_paper(file: str, name: str) -> Callable[..., Any]:
    """Return a function of `pymc_dp.papers`, whose file is loaded when it is called."""
    return lambda *terms: getattr(import_module(f"pymc_dp.papers.{file}"), name)(*terms)


DP_SGLD = MethodSpec(
    name="dp_sgld",
    build=of_paper("sampling", "build_sgld"),
    options=SgldOptions,
    integrates=True,
    fits="as dp_advi, a baseline: posterior draws, released one by one",
    by=str(SGLD),
    algorithm=SGLD,
    page="posterior_sampling",
)

DP_OPS = MethodSpec(
    name="dp_ops",
    build=of_paper("sampling", "build_ops"),
    options=OpsOptions,
    fits="no latents of single records; private if its draws are exact",
    by=str(POSTERIOR_SAMPLING),
    algorithm=POSTERIOR_SAMPLING,
    page="posterior_sampling",
)

# {class of models: {value of ``form=``: what builds it}}
OF_VIPS = {
    REGRESSIONS: {form: of_paper("regression", form) for form in ("absolute", "paper")},
    "topic models": {"absolute": of_paper("regression", "absolute_topics")},
}
OF_SEP = {REGRESSIONS: {form: of_paper("regression", form) for form in ("damped", "algorithm3")}}
CLASSES_OF_SEP = with_forms(sep.MODEL_CLASSES, OF_SEP)

METHODS: dict[str, MethodSpec] = {
    spec.name: spec
    for spec in (
        dp_advi(of_paper("gradient_steps", "mean_field")),
        dp_fullrank_advi(of_paper("gradient_steps", "full_rank")),
        vips.vips(with_forms(vips.MODEL_CLASSES, OF_VIPS)),
        sep.dp_sep(CLASSES_OF_SEP),
        sep.sep(CLASSES_OF_SEP),
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
