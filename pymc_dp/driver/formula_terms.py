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
_NUMBER = Computed("a number of all records", (), _OWN_COLUMN)

FUNCTIONS = {
    "center": _SCALE,
    "scale": _SCALE,
    "standardize": _SCALE,
    "poly": Computed("what makes polynomials orthogonal on the records", ("raw",), "say raw=True"),
    "binary": Computed("the first of the levels that occur", ("success",), "name it in success="),
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
# of NumPy and pandas, and of no name of one's own: np.mean(x), x.mean()
NUMBERS = ("mean", "median", "std", "var", "min", "max", "ptp", "quantile", "percentile", "average")


def refuse_computed_terms(model: pm.Model) -> None:
    """Refuse coefficients, outcomes and labels whose names show what reads all records."""
    for name in _names(model):
        for function, arguments in _calls(name):
            module, _, last = function.rpartition(".")
            found = _NUMBER if module and last in NUMBERS else FUNCTIONS.get(last)
            if found is None or _is_public(found, arguments):
                continue
            raise NotSeparableError(
                f"`{name}` has the name of a term of a formula, where {function}() takes "
                f"{found.reads}, so that each moves what is computed of all others: "
                f"{found.instead}. If no formula has made it, choose another name."
            )


def _names(model: pm.Model) -> Iterator[str]:
    yield from (str(rv.name) for rv in (*model.free_RVs, *model.observed_RVs))
    for labels in model.coords.values():
        array = np.asarray(labels if labels is not None else ())
        if array.dtype.kind in "UO":
            yield from (str(label) for label in array.ravel() if "(" in str(label))


def _calls(name: str) -> Iterator[tuple[str, str]]:
    """Yield the functions that a name calls, with the text of their arguments.

    >>> list(_calls("scale(x):np.clip(bs(z, df=4), 0, 1)[0]"))
    [('scale', 'x'), ('np.clip', 'bs(z, df=4), 0, 1'), ('bs', 'z, df=4')]
    """
    for call in re.finditer(r"([A-Za-z_][\w.]*)\(", name):
        depth, end = 1, call.end()
        while depth and end < len(name):
            depth += {"(": 1, ")": -1}.get(name[end], 0)
            end += 1
        yield call[1], name[call.end() : end - (not depth)]


def _is_public(function: Computed, arguments: str) -> bool:
    given = dict(re.findall(r"(\w+) *= *([^,]+)", arguments))
    values = [given.get(name) for name in function.public]
    return bool(values) and not {None, "None", "False"}.intersection(values)
