"""Contributions as they travel: a recipe that is compiled once where the records are.

A recipe is a pickled function without data. It is made in the curator's process and read by the
curator's own workers alone.
"""

import functools
import hashlib
import io
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import cloudpickle
from pytensor.graph.utils import Scratchpad

from pymc_dp.privacy.contribution import Contributions

# recipes whose compiled contributions a process keeps: one is in use, and a few are of other fits
KEPT = 4

_FREE: dict[str, list[Contributions]] = {}  # compiled contributions that no thread uses just now
_COMPILING = threading.Lock()  # PyTensor compiles in one thread at a time


class Recipe(NamedTuple):
    """How to compile the contributions of a fit, as bytes."""

    digest: str
    packed: bytes


def packed(compile_again: Callable[[], Contributions]) -> Recipe:
    """Pack a function that compiles contributions."""
    file = io.BytesIO()
    _Pickler(file).dump(compile_again)
    return Recipe(hashlib.sha256(file.getvalue()).hexdigest(), file.getvalue())


def keep(recipe: Recipe, contributions: Contributions) -> None:
    """Add compiled contributions to those that are free."""
    _FREE.setdefault(recipe.digest, []).append(contributions)
    for digest in list(_FREE)[:-KEPT]:
        _FREE.pop(digest, None)


@contextmanager
def borrowed(recipe: Recipe) -> Iterator[Contributions]:
    """Lend compiled contributions to one thread: compiled functions are not shared by threads."""
    try:
        contributions = _FREE[recipe.digest].pop()
    except (KeyError, IndexError):
        with _COMPILING:
            contributions = pickle.loads(recipe.packed)()
    try:
        yield contributions
    finally:
        keep(recipe, contributions)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles functions without what they have compiled, and graphs without an author's tags."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Scratchpad):
            return Scratchpad, ()
        if isinstance(obj, functools._lru_cache_wrapper):
            return functools.cache, (obj.__wrapped__,)
        return super().reducer_override(obj)
