"""What is public about a table: ranges, levels and keys, from whoever keeps the data."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pymc_dp.model.constants import Trusted
from pymc_dp.model.formulas import NUMBERS


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
        own = {x for c in self.columns.values() if c.low is not None for x in _of_range(c)}
        return {
            str(line)
            for line, numbers in trusted.items()
            # a line may count numbers of arrays, too
            if line.numbers.startswith(f"{len(numbers)} number")
            and own.issuperset(set(numbers).difference(NUMBERS))
            and not own.isdisjoint(numbers)
        }


def _of_range(column: PublicColumn) -> tuple[float, ...]:
    low, high = column._range()
    return low, high, column.centre, column.half_range, high - low


def _numbered(name: str, values: pd.Series) -> np.ndarray:
    codes = np.asarray(pd.factorize(values)[0])
    if (codes < 0).any():
        raise ValueError(f"The column `{name}` has records of nobody: drop those without a value.")
    return codes
