"""What is public about a table: ranges, levels and keys, from whoever keeps the data.

`Column` is what is public of a column, and how its values become numbers. `read_csvw` reads columns
from metadata in the W3C's CSVW, with the terms that CSVW-SAFE adds, into a `PublicTable`.
"""

import json
import math
import os
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from pymc_dp.model.releasable import NUMBERS, Trusted

Kind = Literal["number", "count", "yes_no", "ordered", "categories", "waiting_time"]
NUMERIC = {"number", "decimal", "double", "float", "integer", "int", "long", "short", "byte"}
NUMERIC |= {"nonNegativeInteger", "positiveInteger", "unsignedInt", "unsignedLong"}
LOWEST = ("minimum", "minInclusive", "minExclusive")
HIGHEST = ("maximum", "maxInclusive", "maxExclusive")


@dataclass(frozen=True)
class Column:
    """What is public about one column of a table: its type, and its range or levels.

    Make one by `number`, `count`, `yes_no`, `ordered`, `categories` or `waiting_time`, or read it
    by `read_csvw`. All numbers and levels must be public, never from the records.

    Examples
    --------
    >>> import pymc_dp
    >>> pymc_dp.Column.ordered(["low", "middle", "high"]).codes("income", ["high", "low"])
    array([2, 0])
    """

    kind: Kind
    low: float = 0.0  # low, high: the range by which numbers are scaled to -1 to 1
    high: float = 1.0
    levels: tuple[Hashable, ...] = ()  # all values of a column that lists them, in their order
    squared: bool = False  # whether later columns depend on its square as well

    @classmethod
    def number(cls, low: float, high: float, *, squared: bool = False) -> "Column":
        """Describe numbers from ``low`` to ``high``, normal given the columns before.

        Values beyond are clipped. With ``squared=True`` later columns depend on its square, too.
        """
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"low={low!r} must be below high={high!r}, and both finite.")
        return cls("number", float(low), float(high), squared=squared)

    @classmethod
    def count(cls, high: float, *, squared: bool = False) -> "Column":
        """Describe counts from 0 to about ``high``, negative binomial given the columns before."""
        return cls("count", 0.0, _positive("high", high), squared=squared)

    @classmethod
    def waiting_time(cls, horizon: float, *, squared: bool = False) -> "Column":
        """Describe positive times, Weibull given the columns before.

        A time of ``horizon`` or more was still going on there: it is censored, and stays so in
        synthetic data.
        """
        return cls("waiting_time", 0.0, _positive("horizon", horizon), squared=squared)

    @classmethod
    def yes_no(cls, no: Hashable = False, yes: Hashable = True) -> "Column":
        """Describe values of which there are two."""
        return cls("yes_no", levels=_levels((no, yes), 2))

    @classmethod
    def ordered(cls, levels: Sequence[Hashable], *, squared: bool = False) -> "Column":
        """Describe values with an order. Later columns depend on them as on numbers.

        Levels that are numbers keep their distances, all others are taken to be equally far apart.
        """
        column = cls("ordered", levels=_levels(levels, 3), squared=squared)
        column.scores()
        return column

    @classmethod
    def categories(cls, levels: Sequence[Hashable]) -> "Column":
        """Describe values without an order: later columns have an effect of each."""
        return cls("categories", levels=_levels(levels, 3))

    @property
    def centre(self) -> float:
        """The middle of the range."""
        return (self.low + self.high) / 2

    @property
    def half_range(self) -> float:
        """Half the length of the range, by which numbers are scaled."""
        return (self.high - self.low) / 2

    def scaled(self, values: Any, name: str = "given") -> np.ndarray:
        """Clip numbers to the range, and bring it to -1 to 1; shape (n,)."""
        return np.asarray((self.codes(name, values) - self.centre) / self.half_range)

    def unscaled(self, scaled: Any) -> Any:
        """Bring numbers from -1 to 1 back to the range, as predictions are read."""
        return self.centre + self.half_range * scaled

    def codes(self, name: str, values: Any) -> np.ndarray:
        """Check and clip the values of a column, each by itself; levels become their places."""
        if self.levels:
            places = pd.Index(self.levels, dtype="object")
            values = places.get_indexer(pd.Series(values).astype("object"))
        values, fault = np.asarray(values, "int64" if self.levels else "float64"), ""
        if self.levels and (values < 0).any():
            fault = "values that its levels lack, or missing ones: put a level in their place"
        elif not np.isfinite(values).all():
            fault = "missing or infinite values: put a public number in their place"
        elif self.kind == "waiting_time" and not (values > 0).all():
            fault = "times that are not above 0: add half of the unit to which they are rounded"
        elif self.kind == "count" and not ((values >= 0) & (values == np.floor(values))).all():
            fault = "values that are not counts, 0, 1, 2 ...: round them"
        if fault:
            raise ValueError(f"The column `{name}` has {fault}, or drop these records.")
        if self.kind in ("number", "waiting_time"):
            return np.asarray(np.clip(values, self.low, self.high))
        return np.asarray(values, "int64")

    def made_up(self) -> np.ndarray:
        """Return two values that stand for the column where no record is at hand."""
        if self.levels or self.kind == "count":
            return np.arange(2)
        return np.array([self.centre, self.high])

    def labelled(self, values: np.ndarray) -> Any:
        """Put levels in the place of their codes."""
        if not self.levels:
            return values
        if self.kind == "yes_no" or (self.kind == "ordered" and self._has_numbers):
            return np.array(self.levels)[values]
        return pd.Categorical.from_codes(values, self.levels, ordered=self.kind == "ordered")

    @property
    def _has_numbers(self) -> bool:
        return all(isinstance(x, int | float | np.number) for x in self.levels)

    def scores(self) -> list[float]:
        """Return where ordered levels lie between -1 and 1."""
        levels = self.levels if self._has_numbers else range(len(self.levels))
        places = np.asarray(levels, "float64")
        if not (np.diff(places) > 0).all():
            raise ValueError(f"levels={list(self.levels)} must increase.")
        return [float(x) for x in np.interp(places, [places[0], places[-1]], [-1, 1])]


def _positive(name: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise ValueError(f"{name}={value!r} must be a public number above 0.")
    return float(value)


def _levels(levels: Sequence[Hashable], fewest: int) -> tuple[Hashable, ...]:
    listed, hint = tuple(levels), "; of two, say pymc_dp.Column.yes_no(first, second)"
    if isinstance(levels, str) or len(set(listed)) < max(len(listed), fewest):
        raise ValueError(f"levels={levels!r} must be {fewest} or more different values{hint}.")
    return listed


@dataclass(frozen=True)
class PublicTable:
    """The public metadata of a table, as `read_csvw` reads them."""

    source: str  # the name of the file
    columns: Mapping[str, Column]  # those with a range or levels, by name
    num_records: int | None = None  # of the table, where it is public
    unit: str | None = None  # the column that says who a record belongs to

    def __getitem__(self, name: str) -> Column:
        if name not in self.columns:
            known = [*self.columns]
            raise ValueError(f"{self.source} declares nothing of `{name}`, but of {known}.")
        return self.columns[name]

    def prepared(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Prepare the columns of a data frame by public numbers, each record by itself.

        Numbers are clipped to their range and scaled to -1 to 1, listed values become ordered
        categories, and whom a record belongs to becomes a whole number. Others are left out.
        """
        made: dict[str, Any] = {}
        for name in frame.columns:
            column = self.columns.get(name)
            if name == self.unit:
                made[name] = pd.factorize(frame[name])[0]
                if (made[name] < 0).any():
                    raise ValueError(f"The column `{name}` has records of nobody: drop them.")
            elif column is not None and column.levels:
                codes = column.codes(name, frame[name])
                made[name] = pd.Categorical.from_codes(codes, column.levels, ordered=True)
            elif column is not None:
                made[name] = column.scaled(frame[name], name)
        return pd.DataFrame(made, index=frame.index)

    def coords(self, *names: str) -> dict[str, list[Hashable]]:
        """Return the levels of columns as coords of a model; by default of all that have some."""
        listed = [name for name, column in self.columns.items() if column.levels]
        return {name: list(self[name].levels) for name in names or listed}

    def declared(self, trusted: Mapping[Trusted, tuple[float, ...]]) -> set[str]:
        """Return the lines of what a model takes on trust whose numbers the file declares.

        They are ranges, their ends, halves and lengths, beside the numbers of formulas, such as 0.
        """
        ranges = [x for x in self.columns.values() if not x.levels]
        own = {n for x in ranges for n in (x.low, x.high, x.centre, x.half_range, x.high - x.low)}
        return {
            str(line)
            for line, numbers in trusted.items()
            # a line may count numbers of arrays, too
            if line.numbers.startswith(f"{len(numbers)} number")
            and own.issuperset(set(numbers).difference(NUMBERS))
            and not own.isdisjoint(numbers)
        }


def read_csvw(path: str | os.PathLike[str]) -> PublicTable:
    """Read what is public about a table from its CSVW metadata.

    Of the W3C's *Metadata Vocabulary for Tabular Data* it takes names, data types, ranges
    (``minimum``, ``maximum``) and alternatives (``"format": "low|middle|high"``); of CSVW-SAFE the
    public partitions of a column as its levels, the privacy unit and the public length.

    Parameters
    ----------
    path : str or path
        A JSON file that describes one table.

    Returns
    -------
    PublicTable
        ``prepared(frame)`` scales, orders and numbers the columns of a data frame; ``coords()`` are
        those of a model; ``table["age"]`` has ``centre``, ``half_range``, ``scaled`` and
        ``unscaled``. `plan` and `privacy_report` take it as ``metadata=``.

    Raises
    ------
    ValueError
        The file is no JSON, describes no table or several, or has a range that is none.

    Notes
    -----
    **Privacy.** Reads the file alone. Metadata that were computed from the data, as tools that
    write such files do by default, are not public: whoever keeps the data must have set them.

    Examples
    --------
    >>> import json, pathlib, tempfile, pymc_dp
    >>> columns = [{"name": "age", "datatype": "integer", "minimum": 18, "maximum": 90}]
    >>> path = pathlib.Path(tempfile.mkdtemp(), "survey.json")
    >>> _ = path.write_text(json.dumps({"tableSchema": {"columns": columns}}))
    >>> table = pymc_dp.read_csvw(path)
    >>> table["age"].scaled([18, 54, 120])
    array([-1.,  0.,  1.])
    """
    source = Path(path).name
    try:
        table = _plain(json.loads(Path(path).read_text(encoding="utf-8")))
    except ValueError:
        raise ValueError(f"{source} is no JSON, as metadata in CSVW are.") from None
    tables = table.get("tables", [table])
    if len(tables) != 1:
        raise ValueError(f"{source} describes {len(tables)} tables: give a file of one.")
    table = _plain(tables[0])
    every = _plain(table.get("tableSchema")).get("columns")
    if not isinstance(every, list):
        raise ValueError(f"{source} has no tableSchema with a list of columns, as CSVW has.")
    listed = [_plain(each) for each in every]
    read = {name: _column(source, name, each) for each in listed if (name := _name(each))}
    columns = {name: column for name, column in read.items() if column is not None}
    units = [_name(each) for each in listed if each.get("privacyId") is True]
    unit = table.get("privacyUnit") or (units[0] if len(units) == 1 else None)
    return PublicTable(source, columns, table.get("length"), unit)


def _plain(terms: Any) -> dict[str, Any]:
    """Return terms without the prefixes of their names, such as ``csvw-safe:public.``."""
    items = terms.items() if isinstance(terms, Mapping) else ()
    return {re.split(r"[:.]", key)[-1]: value for key, value in items}


def _name(column: Mapping[str, Any]) -> str:
    titles = column.get("titles", "")
    title = titles[0] if isinstance(titles, list) and titles else titles
    return str(column.get("name") or title)


def _column(source: str, name: str, column: Mapping[str, Any]) -> Column | None:
    """Return what is public of a column; None if nothing is."""
    kind = column.get("datatype", "string")
    details = _plain(kind) if isinstance(kind, Mapping) else {"base": kind}
    base = details.get("base", "string")
    levels = (False, True) if base == "boolean" else tuple(_partitions(column))
    pattern = str(details.get("format", ""))
    if not levels and re.fullmatch(r"[\w /,'-]+(\|[\w /,'-]+)+", pattern):  # such as yes|no
        levels = tuple(pattern.split("|"))
    if len(set(levels)) < len(levels):
        raise ValueError(f"{source} lists a level of the column `{name}` twice.")
    if levels:
        return Column("yes_no" if len(levels) == 2 else "ordered", levels=levels)
    terms = {**details, **column}
    lows, highs = ([terms[key] for key in keys if key in terms] for keys in (LOWEST, HIGHEST))
    if base not in NUMERIC or not lows or not highs:
        return None
    try:
        return Column.number(float(lows[0]), float(highs[0]))
    except (TypeError, ValueError):
        text = f"{source} has no minimum below a maximum for the column `{name}`."
        raise ValueError(text) from None


def _partitions(column: Mapping[str, Any]) -> Iterator[Hashable]:
    """Yield the levels that a column lists as public partitions; intervals are none."""
    for each in column.get("partitions", column.get("publicPartitions", ())):
        terms = _plain(each)
        terms = _plain(terms["predicate"]) if "predicate" in terms else terms
        if "partitionValue" in terms or not terms:
            yield terms["partitionValue"] if terms else each
