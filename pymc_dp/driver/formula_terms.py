"""Terms that a formula library computes from all records, by the names that it gives them.

Bambi names coefficients by their terms, and libraries of design matrices name columns so:
``scale(age)``, ``bs(income, df=6)[0]``. By then NumPy has computed the columns, and no graph shows
that every record moves them.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pymc as pm

from pymc_dp.errors import NotSeparableError


class Computed(NamedTuple):
    """A function of formulas that reads all records."""

    reads: str  # what it takes from them
    public: tuple[str, ...]  # the arguments that take its place, if there are any
    instead: str


_OWN_COLUMN = "compute a column before the formula by public numbers, such as (age - 50) / 20"
_KNOTS = ("knots", "lower_bound", "upper_bound")
_PUBLIC_KNOTS = "give public numbers in knots=, lower_bound= and upper_bound="
_SCALE = Computed("the mean of the records, and mostly their scale", (), _OWN_COLUMN)
_OTHER = Computed(
    "what may be of all records",
    (),
    "compute the column before the formula, from one record each and public numbers, and give it "
    "by its name",
)
_LEVELS = Computed("the levels that occur", ("levels",), "name all in C(..., levels=[...])")

FUNCTIONS = {
    "center": _SCALE,
    "scale": _SCALE,
    "standardize": _SCALE,
    "poly": Computed("what makes polynomials orthogonal on the records", ("raw",), "say raw=True"),
    "binary": Computed("the first of the levels that occur", ("success",), "name it in success="),
    "B": Computed("the first of the levels that occur", ("success",), "name it in success="),
    "C": _LEVELS,
    "T": _LEVELS,
    "S": _LEVELS,
    "bs": Computed("knots and bounds from the records", _KNOTS, _PUBLIC_KNOTS),
    "cr": Computed("knots and bounds from the records", _KNOTS, _PUBLIC_KNOTS),
    "cc": Computed("knots and bounds from the records", _KNOTS, _PUBLIC_KNOTS),
    "te": Computed("knots and means from the records", (), "take products of columns of bs()"),
    "hsgp": Computed(
        "the centre of its basis from the records, even with L=",
        (),
        "write the model in PyMC: pm.gp.HSGP with a public L=, after gp.prior_linearized of a "
        "public grid",
    ),
}
# what takes one record at a time, by whatever name of a module it is called: NumPy's functions of
# numbers, marks of formulas, and what an outcome of Bambi is written with
PRODUCTS = {"matmul", "matvec", "vecdot", "vecmat"}
ELEMENTWISE = {name for name in dir(np) if isinstance(getattr(np, name), np.ufunc)} - PRODUCTS
ELEMENTWISE |= {"clip", "where", "round", "around", "logit", "expit", "I", "Q", "Treatment", "Sum"}
ELEMENTWISE |= {"offset", "p", "prop", "proportion", "c", "censored", "truncated", "constrained"}
ELEMENTWISE |= {"weighted", "astype", "int", "float"}


def refuse_computed_terms(model: pm.Model) -> None:
    """Refuse coefficients, outcomes and columns whose names show what may read all records."""
    for name in _names(model):
        for function, arguments in _calls(name):
            last = function.rpartition(".")[2]
            found = FUNCTIONS.get(last, _OTHER)
            if _is_public(found, arguments) or (last in ELEMENTWISE and not _picks(arguments)):
                continue
            raise NotSeparableError(
                f"`{name}` has the name of a term of a formula, where {function}() takes "
                f"{found.reads}, so that each moves what is computed of all others: "
                f"{found.instead}. If no formula has made it, choose another name."
            )


def refuse_weights(model: pm.Model, is_weighted: bool) -> None:
    """Refuse the weights of a formula of which ``weights=`` says no largest one."""
    for name in (str(rv.name) for rv in model.observed_RVs):
        for function, arguments in _calls(name):
            if function == "weighted" and not is_weighted:
                column = arguments.rpartition(",")[2].strip()
                raise NotSeparableError(
                    f"`{name}` has weights of records, and nothing says how large one can be: give "
                    f"weights=pymc_dp.SurveyWeights({column!r}, upper=...) with a public number, "
                    "and method='dp_advi'; or leave weighted() out."
                )


def _names(model: pm.Model) -> Iterator[str]:
    yield from (str(rv.name) for rv in (*model.free_RVs, *model.observed_RVs))
    for labels in model.coords.values():
        array = np.asarray(labels if labels is not None else ())
        texts = [str(label) for label in array.ravel()] if array.dtype.kind in "UO" else []
        # labels such as "cr(mg/dl)" are no columns of a formula, which has others beside them
        if any(text == "Intercept" or re.search(r"\)\[[^]]*\]$", text) for text in texts):
            yield from texts


def _calls(name: str) -> Iterator[tuple[str, str]]:
    """Yield the functions that a name calls, with the text of their arguments.

    >>> list(_calls("scale(x):np.clip(bs(z, df=4), 0, 1)[0]"))
    [('scale', 'x'), ('np.clip', 'bs(z, df=4), 0, 1'), ('bs', 'z, df=4')]
    """
    for call in re.finditer(r"([A-Za-z_][\w.]*) *\(", name):
        depth, end = 1, call.end()
        while depth and end < len(name):
            depth += {"(": 1, ")": -1}.get(name[end], 0)
            end += 1
        yield call[1], name[call.end() : end - (not depth)]


def _is_public(function: Computed, arguments: str) -> bool:
    given = dict(re.findall(r"(\w+) *= *([^,]+)", arguments))
    values = {name: given.get(name, "None").strip() for name in function.public}
    left_out = {"None", "False"}.intersection(values.values()) or values.get("raw") == "0"
    return bool(values) and not left_out


def _picks(arguments: str) -> bool:
    """Whether arguments pick records, or add up over them.

    >>> _picks("x - x[0]"), _picks("x @ x"), _picks("x in [1, 2]")
    (True, True, False)
    """
    return bool(re.search(r"[\w)]\[|@", arguments))
