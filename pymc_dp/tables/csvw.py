"""Public metadata of a table in the W3C's CSVW, with the terms that CSVW-SAFE adds."""

import json
import math
import os
import re
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pymc_dp.tables.public_table import PublicColumn, PublicTable

NUMERIC = {"number", "decimal", "double", "float", "integer", "int", "long", "short", "byte"}
NUMERIC |= {"nonNegativeInteger", "positiveInteger", "unsignedInt", "unsignedLong"}
LOWEST = ("minimum", "minInclusive", "minExclusive")
HIGHEST = ("maximum", "maxInclusive", "maxExclusive")


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
