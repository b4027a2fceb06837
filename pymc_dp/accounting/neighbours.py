"""Which data sets count as neighbours, and how far they can move a clipped sum."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from dp_accounting import NeighboringRelation

CODE_SUFFIX = re.compile(r"_(id|idx|index|code)$")


class Neighbours(Enum):
    """One record more or less, one replaced by nothing, or one replaced by another.

    >>> Neighbours("replace_one").sensitivity
    2.0
    """

    ADD_REMOVE = "add_remove"
    ZERO_OUT = "zero_out"
    REPLACE_ONE = "replace_one"

    @property
    def sensitivity(self) -> float:
        """L2 sensitivity of a clipped sum, in units of its clip norm."""
        return 2.0 if self is Neighbours.REPLACE_ONE else 1.0

    @property
    def relation(self) -> NeighboringRelation:
        """What dp-accounting calls them."""
        from dp_accounting import NeighboringRelation as Relation

        return {
            Neighbours.ADD_REMOVE: Relation.ADD_OR_REMOVE_ONE,
            Neighbours.ZERO_OUT: Relation.REPLACE_SPECIAL,
            Neighbours.REPLACE_ONE: Relation.REPLACE_ONE,
        }[self]

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        *names, last = (repr(relation.value) for relation in cls)
        raise ValueError(f"neighbours={value!r} is unknown: use {', '.join(names)} or {last}.")


def unit_label(unit: str | None) -> str:
    """Return the name of the privacy unit, in all of whose records neighbours differ.

    >>> unit_label("subject_id"), unit_label("household"), unit_label(None)
    ('subject', 'household', 'record')
    """
    return "record" if unit is None else CODE_SUFFIX.sub("", unit)
