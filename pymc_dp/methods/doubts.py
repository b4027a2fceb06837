"""What is doubtful about a posterior, for the result, the report, `pymc_dp.check` and a warning."""

import json
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What is doubtful."""

    UNCENTRED = "uncentred"  # clipping may bias the posterior
    MISFIT = "misfit"  # outcomes are not distributed as the model says
    HIDDEN = "hidden"  # noise hides the curvature
    MERGED = "merged"  # components of a mixture may have become one, or have no records
    UNFINISHED = "unfinished"  # the mode may not have been reached
    MIXING = "mixing"  # Markov chains did not move
    TOO_NARROW = "too narrow"  # updates leave variance out
    INCOMPLETE = "incomplete"  # the result lacks variables


class Doubt(NamedTuple):
    """A doubt about a posterior; programs read its kind and its names, people its text."""

    kind: Kind
    names: tuple[str, ...]  # of the variables, or elements of them, that it is about
    text: str  # a sentence or more: what is doubtful, and what to do


def doubts_in(attribute: str) -> tuple[Doubt, ...]:
    """Read the attribute ``doubts`` of a result.

    >>> doubts_in('[{"kind": "misfit", "names": ["y"], "text": "Look at it."}]')[0].names
    ('y',)
    """
    return tuple(
        Doubt(Kind(each["kind"]), tuple(each["names"]), each["text"])
        for each in json.loads(attribute)
    )


# what to do about it, for methods that clip to a norm of the caller's
BY_ROUNDS = (
    "A larger clip_norm= clips less. method='dp_advi' centres contributions, where outcomes have "
    "distributions, in place of potentials, and a CustomDist a random= that public= names."
)
MOST_NAMED = 6  # more elements of one array than these are not named one by one


def uncentred(names: Iterable[str], advice: str) -> Doubt:
    """Say that clipping may bias a posterior, and what to do about it.

    >>> uncentred(["y"], BY_ROUNDS).text[:52]
    'Contributions of `y` are clipped without being centr'
    """
    names = tuple(names)
    text = (
        f"Contributions of {quoted(names)} are clipped without being centred: no draws of outcomes "
        "say what their clipped mean should be, so where they are skewed the posterior is biased. "
        f"{advice}"
    )
    return Doubt(Kind.UNCENTRED, names, text)


def quoted(names: Iterable[str]) -> str:
    """Join names for a sentence; of many elements of one array, tell how many they are.

    >>> quoted(["a", "b[1]"])
    '`a`, `b[1]`'
    >>> quoted(["a", *[f"b[{k}]" for k in range(12)]])
    '`a`, 12 elements of `b`'
    >>> quoted(["sd_log__", "groups of z[0]"])  # as the author calls them
    '`sd`, `z[0]`'
    """
    arrays: dict[str, list[str]] = {}
    for name in map(without_transform, names):
        arrays.setdefault(name.partition("[")[0], []).append(f"`{name}`")
    return ", ".join(
        ", ".join(own) if len(own) <= MOST_NAMED else f"{len(own)} elements of `{array}`"
        for array, own in arrays.items()
    )


def without_transform(name: str) -> str:
    """Return a coordinate's name without what transforms and the search add to it."""
    return re.sub(r"_[a-z0-9]+__(?=\[|$)", "", name.removeprefix("groups of "))
