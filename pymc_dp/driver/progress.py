"""The progress bar of a fit, which counts partitions where records are in chunks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rich.progress import Progress


class Steps(NamedTuple):
    """The releases to make, and what to call whenever a partition has answered."""

    positions: Iterator[int]
    done: Callable[[], None]


@contextmanager
def progress(positions: range, partitions: int, shown: bool) -> Iterator[Steps]:
    """Show how far a fit is while the block runs."""
    with Progress(disable=not shown) as bar:
        what = "Private releases" if partitions == 1 else "Private passes over partitions"
        completed = positions.start * partitions
        task = bar.add_task(what, total=positions.stop * partitions, completed=completed)

        def counted() -> Iterator[int]:
            for i in positions:
                yield i
                bar.update(task, completed=(i + 1) * partitions)

        yield Steps(counted(), lambda: bar.advance(task))
