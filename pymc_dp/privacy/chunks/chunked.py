"""Records in chunks: Dask runs on each partition what the wall asks of it.

Tasks run on local threads, or on the workers of the active ``distributed.Client``. A task reads its
rows, and hands over one vector. Noise, booking and the ledger stay in the process of the fit.
"""

import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import dask
import numpy as np
from dask.callbacks import Callback

from pymc_dp.privacy.blocks import UnitBlocks
from pymc_dp.privacy.chunks.shipping import keep, packed
from pymc_dp.privacy.chunks.tasks import Layout, Question, Sealed, compiles, on_partition
from pymc_dp.privacy.contribution import Contribution, Contributions
from pymc_dp.privacy.partitions import Answer, Ask, LostError, PartitionError, nothing
from pymc_dp.privacy.private_data import Columns, Partition

# how long a fit waits for a worker while its cluster has none: adaptive clusters start some late
NO_WORKERS_SECONDS = 300.0


class Chunked:
    """Columns in blocks; blocks at the same place are one partition."""

    def __init__(self, columns: Columns, units: UnitBlocks | None) -> None:
        self._columns, self._units = columns, units
        lengths = next(iter(columns.values())).values.lengths
        self.numbers = np.array(lengths if units is None else units.numbers)
        self._fit = uuid.uuid4().hex  # in the keys of tasks: Dask hands out results of equal keys

    def ready(
        self,
        contributions: Contributions,
        compile_again: Callable[[], Contributions],
        done: Callable[[], None],
    ) -> None:
        """Ship the contributions, and compile them once to see that this can be done."""
        found = {name: c for name, c in contributions.items() if isinstance(c, Contribution)}
        for name in contributions.keys() - found.keys():
            raise ValueError(
                f"Release {name!r} reads all records at once, and records in chunks may not fit "
                "into memory: use another method, or give arrays."
            )
        self._done = done
        try:
            self._recipe = packed(compile_again)
            keep(self._recipe, found)
            _computed([dask.delayed(compiles, pure=False)(Sealed(self._recipe))], nothing)
        except Exception as error:
            raise ValueError(
                f"The model cannot be sent to the workers ({type(error).__name__}): they need "
                "the same versions of pymc_dp, PyMC and Python as this process. Nothing was "
                "released."
            ) from error

    def clipped_sums(self, ask: Ask) -> Iterator[Answer]:
        """Let every partition draw, clip and add up where its rows are.

        What a partition draws follows from its key, so that a task that is run again, or twice, has
        the same answer.
        """
        keys = ask.random.keys(len(self.numbers))
        recipe = dask.delayed(Sealed(self._recipe), name=f"pymc-dp-{self._recipe.digest}")
        tasks = []
        for k, (size, key) in enumerate(zip(ask.sizes, keys, strict=True)):
            question = Question(ask.position, k, ask.name, int(size), key, ask.context, ask.grid)
            label = f"release-{ask.position}"
            tasks.append(self._task(label, k, Sealed(question), recipe, self._columns))
        yield from _answers(_computed(tasks, self._done))

    def read(self, function: Callable[[Partition], Any], names: Iterable[str] = ()) -> list[Any]:
        """Call a function of some columns, all by default, in every partition."""
        chosen = {name: self._columns[name] for name in tuple(names) or self._columns}
        label = f"check-{uuid.uuid4().hex}"
        tasks = [
            self._task(label, k, Sealed(function), None, chosen) for k in range(len(self.numbers))
        ]
        try:
            return _answers(_computed(tasks, nothing))
        except PartitionError as error:
            raise ValueError(f"The records cannot be read: {error}.") from None

    def whole(self) -> NoReturn:
        """Refuse: not all records fit into memory."""
        raise PartitionError("records in chunks are not read at once")

    def __reduce__(self) -> NoReturn:
        raise TypeError("Partitions hold data and must not be pickled or copied.")

    def _task(self, label: str, k: int, question: Sealed, recipe: Any, columns: Columns) -> Any:
        values = {name: column.values for name, column in columns.items()}
        [rows] = {blocks.lengths[k] for blocks in values.values()}
        kinds = {name: (column.spec, column.values.dtype) for name, column in columns.items()}
        layout = Layout(kinds, rows, self._units and self._units.name, int(self.numbers[k]))
        return dask.delayed(on_partition, pure=False)(
            question,
            recipe,
            Sealed(layout),
            [blocks.parts[k] for blocks in values.values()],
            self._units and self._units.codes.parts[k],
            dask_key_name=f"pymc-dp-{self._fit}-{label}-{k}",
        )


def _answers(results: list[Any]) -> list[Any]:
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def _computed(tasks: Sequence[Any], done: Callable[[], None]) -> list[Any]:
    """Compute tasks where Dask does, call ``done`` after each, and return results in order."""
    try:
        return _locally(tasks, done) if (client := _client()) is None else _by(client, tasks, done)
    except Exception as error:  # of what reads the rows, and of Dask; its text may quote data
        kind = type(error).__name__
        # how much memory a task needs may depend on the rows that it drew: no second draw
        if isinstance(error, MemoryError) or kind == "KilledWorker":
            raise PartitionError(
                "a partition, or what was drawn from it, took more memory than there is, or killed "
                f"every worker that tried it ({kind}): cut the records into smaller partitions"
            ) from None
        raise LostError(f"a partition could not be read, or its worker was lost ({kind})") from None


def _locally(tasks: Sequence[Any], done: Callable[[], None]) -> list[Any]:
    keys = {task.key for task in tasks}

    def after(key: Any, *state: Any) -> None:
        if key in keys:
            done()

    with Callback(posttask=after):
        return list(dask.compute(*tasks))


def _by(client: Any, tasks: Sequence[Any], done: Callable[[], None]) -> list[Any]:
    from distributed import as_completed

    futures = client.compute(list(tasks))
    left = set(futures)
    while left:
        try:
            for future in as_completed(list(left), timeout=NO_WORKERS_SECONDS):
                left.discard(future)
                done()
        except TimeoutError:  # by default Dask lets tasks wait for ever when no worker is left
            client.wait_for_workers(1, timeout=NO_WORKERS_SECONDS)
    return [future.result() for future in futures]


def _client() -> Any:
    """Return the active client, if there is one; nobody has one who has not imported it."""
    if "distributed" not in sys.modules:
        return None
    from distributed import default_client

    try:
        return default_client()
    except ValueError:
        return None
