"""What is public about a table: ranges, levels and keys, from whoever keeps the data.

`read_csvw` reads them from metadata in the W3C's CSVW, with the terms that CSVW-SAFE adds; a
`PublicTable` prepares columns by them.
"""

import json
import math
import os
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pymc_dp.model.released import NUMBERS, Trusted

NUMERIC = {"number", "decimal", "double", "float", "integer", "int", "long", "short", "byte"}
NUMERIC |= {"nonNegativeInteger", "positiveInteger", "unsignedInt", "unsignedLong"}
LOWEST = ("minimum", "minInclusive", "minExclusive")
HIGHEST = ("maximum", "maxInclusive", "maxExclusive")


class PublicColumn(NamedTuple):
    """What is public about one column."""

    name: str
    source: str  # the file that declares it
    low: float | None = None  # low, high: the range of its numbers
    high: float | None = None
    levels: tuple[Hashable, ...] | None = None  # all that it can hold, in their order

    @property
    def centre(self) -> float:
        """The middle of the range."""
        return sum(self._range()) / 2

    @property
    def half_range(self) -> float:
        """Half the length of the range, by which numbers are scaled."""
        low, high = self._range()
        return (high - low) / 2

    def scaled(self, values: Any) -> np.ndarray:
        """Clip numbers to the range, and bring it to -1 to 1; shape (n,)."""
        numbers = np.asarray(values, "float64")
        if np.isnan(numbers).any():
            raise ValueError(
                f"The column `{self.name}` has missing values: drop the incomplete records, or put "
                "a public number in their place."
            )
        return (np.clip(numbers, *self._range()) - self.centre) / self.half_range

    def unscaled(self, scaled: Any) -> Any:
        """Bring numbers from -1 to 1 back to the range, as predictions are read."""
        return self.centre + self.half_range * scaled

    def categories(self, values: Any) -> pd.Categorical:
        """Give values the order of all levels; those that the file does not list are refused."""
        levels = pd.Index(self._levels(), dtype="object")
        codes = levels.get_indexer(pd.Series(values).astype("object"))
        if (codes < 0).any():
            raise ValueError(
                f"The column `{self.name}` has values that {self.source} does not list, or missing "
                "ones: drop these records, or put a level that it lists in their place."
            )
        return pd.Categorical.from_codes(codes, categories=self._levels(), ordered=True)

    def _range(self) -> tuple[float, float]:
        if self.low is None or self.high is None:
            raise ValueError(f"{self.source} declares no range for the column `{self.name}`.")
        return self.low, self.high

    def _levels(self) -> tuple[Hashable, ...]:
        if self.levels is None:
            raise ValueError(f"{self.source} lists no levels for the column `{self.name}`.")
        return self.levels


@dataclass(frozen=True)
class PublicTable:
    """The public metadata of a table, as `read_csvw` reads them."""

    source: str  # the name of the file
    columns: Mapping[str, PublicColumn]  # by name
    num_records: int | None = None  # of the table, where it is public
    unit: str | None = None  # the column that says who a record belongs to

    def __getitem__(self, name: str) -> PublicColumn:
        if name not in self.columns:
            raise ValueError(f"{self.source} has no column `{name}`: it has {[*self.columns]}.")
        return self.columns[name]

    def prepared(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Prepare the columns of a data frame by public numbers, each record by itself.

        Numbers are clipped to their range and scaled to -1 to 1, listed values become ordered
        categories, and whom a record belongs to becomes a whole number.
        Columns of which the file says nothing of the kind are left out.
        """
        made: dict[str, Any] = {}
        for name in self.columns.keys() & set(frame.columns):
            column, values = self.columns[name], frame[name]
            if name == self.unit:
                made[name] = _numbered(name, values)
            elif column.levels is not None:
                made[name] = column.categories(values)
            elif column.low is not None:
                made[name] = column.scaled(values)
        return pd.DataFrame({x: made[x] for x in frame.columns if x in made}, index=frame.index)

    def coords(self, *names: str) -> dict[str, list[Hashable]]:
        """Return the levels of columns as coords of a model; by default of all that have some."""
        listed = [name for name, column in self.columns.items() if column.levels is not None]
        return {name: list(self[name]._levels()) for name in names or listed}

    def declared(self, trusted: Mapping[Trusted, tuple[float, ...]]) -> set[str]:
        """Return the lines of what a model takes on trust whose numbers the file declares.

        They are ranges, their ends, halves and lengths, beside the numbers of formulas, such as 0.
        """
        own: set[float] = set()
        for c in self.columns.values():
            if c.low is not None:
                low, high = c._range()
                own |= {low, high, c.centre, c.half_range, high - low}
        return {
            str(line)
            for line, numbers in trusted.items()
            # a line may count numbers of arrays, too
            if line.numbers.startswith(f"{len(numbers)} number")
            and own.issuperset(set(numbers).difference(NUMBERS))
            and not own.isdisjoint(numbers)
        }


def _numbered(name: str, values: pd.Series) -> np.ndarray:
    codes = np.asarray(pd.factorize(values)[0])
    if (codes < 0).any():
        raise ValueError(f"The column `{name}` has records of nobody: drop those without a value.")
    return codes


def read_csvw(path: str | os.PathLike[str]) -> PublicTable:
    """Read what is public about a table from its CSVW metadata.

    Of the W3C's *Metadata Vocabulary for Tabular Data* it takes names, data types, ranges
    (``minimum``, ``maximum``) and alternatives (``"format": "low|middle|high"``); of CSVW-SAFE the
    public partitions of a column as its levels, the privacy unit and the public length. Prefixes
    of terms, such as ``csvw-safe:public.``, may be any or none.

    Parameters
    ----------
    path : str or path
        A JSON file that describes one table.

    Returns
    -------
    PublicTable
        ``prepared(frame)`` scales, orders and numbers the columns of a data frame; ``coords()`` are
        those of a model; ``table["age"]`` has ``centre``, ``half_range``, ``scaled`` and
        ``unscaled``. Given as ``metadata=``, `plan` and `privacy_report` say which numbers the file
        declares.

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
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError(f"{source} is no JSON, as metadata in CSVW are.") from None
    table = _the_table(source, found)
    listed = [_plain(each) for each in table["tableSchema"]["columns"]]
    columns = {c.name: c for each in listed if (c := _column(source, each)) is not None}
    units = [_name(each) for each in listed if each.get("privacyId") is True]
    unit = table.get("privacyUnit") or (units[0] if len(units) == 1 else None)
    return PublicTable(source, columns, table.get("length"), unit)


def _plain(terms: Any) -> dict[str, Any]:
    items = terms.items() if isinstance(terms, Mapping) else ()
    return {re.split(r"[:.]", key)[-1]: value for key, value in items}


def _the_table(source: str, found: Any) -> dict[str, Any]:
    table = _plain(found)
    tables = table.get("tables", [table])
    if len(tables) != 1:
        raise ValueError(f"{source} describes {len(tables)} tables: give a file of one.")
    table = _plain(tables[0])
    table["tableSchema"] = schema = _plain(table.get("tableSchema"))
    if not isinstance(schema.get("columns"), list):
        raise ValueError(
            f"{source} has no tableSchema with a list of columns, as metadata in CSVW do."
        )
    return table


def _name(column: Mapping[str, Any]) -> str:
    titles = column.get("titles", "")
    title = titles[0] if isinstance(titles, list) and titles else titles
    return str(column.get("name") or title)


def _column(source: str, column: Mapping[str, Any]) -> PublicColumn | None:
    kind = column.get("datatype", "string")
    details = _plain(kind) if isinstance(kind, Mapping) else {"base": kind}
    base, name = details.get("base", "string"), _name(column)
    if not name:
        return None
    if base == "boolean":
        return PublicColumn(name, source, levels=(False, True))
    levels = tuple(_levels(column)) or _alternatives(details)
    if base in NUMERIC and not levels:
        low, high = _range(source, name, {**details, **column})
        return PublicColumn(name, source, low, high)
    if len(set(levels)) < len(levels):
        raise ValueError(f"{source} lists a level of the column `{name}` twice.")
    return PublicColumn(name, source, levels=levels or None)


def _levels(column: Mapping[str, Any]) -> Iterator[Hashable]:
    """Yield the levels that a column lists as public partitions; intervals are none."""
    for each in column.get("partitions", column.get("publicPartitions", ())):
        terms = _plain(each)
        terms = _plain(terms["predicate"]) if "predicate" in terms else terms
        if "partitionValue" in terms or not terms:
            yield terms["partitionValue"] if terms else each


def _alternatives(details: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the levels of a pattern that is nothing but alternatives, such as ``yes|no``."""
    pattern = str(details.get("format", ""))
    plain = re.fullmatch(r"[\w /,'-]+(\|[\w /,'-]+)+", pattern)
    return tuple(pattern.split("|")) if plain else ()


def _range(
    source: str, name: str, terms: Mapping[str, Any]
) -> tuple[float, float] | tuple[None, None]:
    lows, highs = ([terms[key] for key in keys if key in terms] for keys in (LOWEST, HIGHEST))
    if not lows or not highs:
        return None, None
    try:
        low, high = float(lows[0]), float(highs[0])
    except (TypeError, ValueError):
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"{source} has no minimum below a maximum for the column `{name}`.")
    return low, high
