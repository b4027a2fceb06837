"""The type of a table's column: what is public about it, and how its values become numbers."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

Kind = Literal["number", "count", "yes_no", "ordered", "categories", "waiting_time"]
LISTED = ("yes_no", "ordered", "categories")


@dataclass(frozen=True)
class Column:
    """What is public about one column of a table: its type, and its range or levels.

    Make one by `number`, `count`, `yes_no`, `ordered`, `categories` or `waiting_time`. All numbers
    and levels must be public: from a questionnaire or a law, never from the records.

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
        found = cls("ordered", levels=_levels(levels, 3), squared=squared)
        found.scores()
        return found

    @classmethod
    def categories(cls, levels: Sequence[Hashable]) -> "Column":
        """Describe values without an order: later columns have an effect of each."""
        return cls("categories", levels=_levels(levels, 3))

    def codes(self, name: str, values: Any) -> np.ndarray:
        """Prepare the values of a column, each by itself: levels become their places."""
        if self.kind in LISTED:
            codes = pd.Index(self.levels, dtype="object").get_indexer(
                pd.Series(values).astype("object")
            )
            if (codes < 0).any():
                raise ValueError(
                    f"The column `{name}` has values that its levels= lack, or missing ones: drop "
                    "these records, or put one of the levels in their place."
                )
            return np.asarray(codes)
        return self._numbers(name, np.asarray(values, "float64"))

    def _numbers(self, name: str, values: np.ndarray) -> np.ndarray:
        """Check numbers, and clip them to what is public."""
        if not np.isfinite(values).all():
            raise ValueError(
                f"The column `{name}` has missing or infinite values: drop these records, or put a "
                "public number in their place."
            )
        if self.kind == "number":
            return np.asarray(np.clip(values, self.low, self.high))
        if self.kind == "waiting_time":
            if not (values > 0).all():
                raise ValueError(
                    f"The column `{name}` has times that are not above 0: add half of the unit in "
                    "which they are rounded."
                )
            return np.asarray(np.minimum(values, self.high))
        if not ((values >= 0) & (values == np.floor(values))).all():
            raise ValueError(f"The column `{name}` has values that are not counts: 0, 1, 2 ...")
        return values.astype("int64")

    def made_up(self) -> np.ndarray:
        """Return two values that stand for the column where no record is at hand."""
        if self.kind in (*LISTED, "count"):
            return np.arange(2)
        return np.array([(self.low + self.high) / 2, self.high])

    def labelled(self, values: np.ndarray) -> Any:
        """Put levels in the place of their codes."""
        if self.kind not in LISTED:
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
    found = tuple(levels)
    if isinstance(levels, str) or len(set(found)) < max(len(found), fewest):
        raise ValueError(
            f"levels={levels!r} must be {fewest} or more different values; of two, say "
            "pymc_dp.Column.yes_no(first, second)."
        )
    return found
