"""Records in chunks: Dask runs on each partition what the wall asks of it.

Tasks run on local threads, or on the workers of the active ``distributed.Client``. A task reads its
rows, and hands over one vector. Noise, booking and the ledger stay in the process of the fit.
Contributions travel as a recipe: a pickled function without data, which is made in the curator's
process, and called once on each of the curator's own workers.
"""

import hashlib
import io
import pickle
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import _lru_cache_wrapper, cache, partial
from typing import Any

import cloudpickle
import dask
import numpy as np
from dask.callbacks import Callback
from pytensor.graph.utils import Scratchpad
from scipy.sparse import issparse

from pymc_dp.privacy.clipping import Answer, Ask, LostError, PartitionError, clipped_sum
from pymc_dp.privacy.contribution import Contribution, Contributions
from pymc_dp.privacy.private_data import (
    Column,
    Columns,
    Partition,
    UnitBlocks,
    opaque,
    secret,
    units_of,
)
from pymc_dp.privacy.randomness import KEY_BYTES, SecretRandom, keyed

# recipes whose compiled contributions a process keeps: one is in use, and a few are of other fits
KEPT = 4

_FREE: dict[bytes, list[Contributions]] = {}  # compiled contributions that no thread uses just now
_COMPILING = threading.Lock()  # PyTensor compiles in one thread at a time


def packed(compile_again: Callable[[], Contributions]) -> bytes:
    """Return a recipe: a function that compiles contributions, as bytes."""
    file = io.BytesIO()
    _Pickler(file).dump(compile_again)
    return file.getvalue()


def keep(recipe: bytes, contributions: Contributions) -> None:
    """Add compiled contributions to those that are free."""
    _FREE.setdefault(recipe, []).append(contributions)
    for other in list(_FREE)[:-KEPT]:
        _FREE.pop(other, None)


@contextmanager
def borrowed(recipe: bytes) -> Iterator[Contributions]:
    """Lend compiled contributions to one thread: compiled functions are not shared by threads."""
    try:
        contributions = _FREE[recipe].pop()
    except (KeyError, IndexError):
        with _COMPILING:
            contributions = pickle.loads(recipe)()
    try:
        yield contributions
    finally:
        keep(recipe, contributions)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles functions without what they have compiled, and graphs without an author's tags."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Scratchpad):
            return Scratchpad, ()
        if isinstance(obj, _lru_cache_wrapper):
            return cache, (obj.__wrapped__,)
        return super().reducer_override(obj)


@opaque
class Sealed:
    """A value that Dask does not look into, nor print."""

    def __init__(self, value: Any) -> None:
        self.value = value


def answer(ask: Ask, place: int, key: bytes, partition: Partition, recipe: bytes) -> Answer:
    """Draw, clip and add up for one release; the key is secret."""
    with borrowed(recipe) as contributions:
        return clipped_sum(ask, place, partition, contributions, keyed(key))


def compiles(recipe: Sealed) -> bool:
    """Compile the contributions, to see whether that can be done here."""
    with borrowed(recipe.value):
        return True


def on_partition(
    function: Sealed, recipes: Sequence[Sealed], put: Sealed, blocks: Sequence[Any], codes: Any
) -> Any:
    """Call a function of a partition, and of a recipe if there is one.

    Where that fails, return the error that the wall is told, which holds no values and no numbers
    of records. Nothing is raised: Dask would log the arguments.
    """
    try:
        partition = put.value(blocks, codes)
        return function.value(partition, *(recipe.value for recipe in recipes))
    except PartitionError as error:  # anew, without the frames that hold rows
        return PartitionError(str(error))
    except Exception as error:  # its text may quote data
        return PartitionError(f"a partition failed with {type(error).__name__}")


def put_together(
    kinds: Mapping[str, Any], rows: int, unit: str | None, number: int, blocks: Any, codes: Any
) -> Partition:
    """Put blocks together: specs and dtypes, rows and units are those with which the fit began."""
    columns = {}
    for (name, (spec, dtype)), block in zip(kinds.items(), blocks, strict=True):
        values = as_rows(f"data=`{name}`", block)
        if values.shape != spec.shape_of(rows):
            raise PartitionError(f"data=`{name}` has a partition of another length or width")
        if not np.can_cast(values.dtype, dtype, casting="same_kind"):
            raise PartitionError(
                f"data=`{name}` has a partition of {values.dtype} values among those of {dtype}"
            )
        columns[name] = Column(values, spec.axis, spec.dtype)
    if unit is None:
        return Partition(columns, None)
    codes = as_rows("unit=", codes)
    units = units_of(codes, unit)
    if codes.shape != (rows,) or units.number != number:
        raise PartitionError(f"unit=`{unit}` has a partition with other codes than before")
    return Partition(columns, units)


def as_rows(what: str, block: Any) -> Any:
    """Return a block as an array, or as a sparse matrix that rows can be gathered from."""
    if np.ma.isMaskedArray(block):  # NumPy would take the numbers under the mask
        raise PartitionError(
            f"{what} has masked entries, and a private fit takes no missing values"
        )
    return block.tocsr() if issparse(block) else np.asarray(block)


# how long a fit waits for a worker while its cluster has none: adaptive clusters start some late
NO_WORKERS_SECONDS = 300.0


@secret
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
        for name, contribution in contributions.items():
            if not isinstance(contribution, Contribution):
                raise ValueError(
                    f"Release {name!r} reads all records at once, and records in chunks may not "
                    "fit into memory: use another method, or give arrays."
                )
        self._done = done
        try:
            self._recipe = packed(compile_again)
            keep(self._recipe, contributions)
            _computed([dask.delayed(compiles, pure=False)(Sealed(self._recipe))], lambda: None)
        except Exception as error:
            raise ValueError(
                f"The model cannot be sent to the workers ({type(error).__name__}): they need the "
                "versions of pymc_dp, PyMC and Python of this process. Nothing was released."
            ) from error

    def clipped_sums(self, ask: Ask, random: SecretRandom) -> Iterator[Answer]:
        """Let partitions draw, clip and add up where rows are; a repeated task is the same."""
        digest = hashlib.sha256(self._recipe).hexdigest()
        recipe = dask.delayed(Sealed(self._recipe), name=f"pymc-dp-{digest}")
        label = f"release-{ask.position}"
        keys = [random.generator.bytes(KEY_BYTES) for _ in self.numbers]
        tasks = []
        for k, key in enumerate(keys):
            function = partial(answer, ask._replace(sizes={k: int(ask.sizes[k])}), k, key)
            tasks.append(self._task(label, k, Sealed(function), [recipe], self._columns))
        yield from _computed(tasks, self._done)

    def read(self, function: Callable[[Partition], Any], names: Iterable[str] = ()) -> list[Any]:
        """Call a function of some columns, all by default, in every partition."""
        chosen = {name: self._columns[name] for name in tuple(names) or self._columns}
        label = f"check-{uuid.uuid4().hex}"
        tasks = [
            self._task(label, k, Sealed(function), [], chosen) for k in range(len(self.numbers))
        ]
        try:
            return _computed(tasks, lambda: None)
        except PartitionError as error:
            raise ValueError(f"The records cannot be read: {error}.") from None

    def _task(
        self, label: str, k: int, function: Sealed, recipes: Sequence[Any], columns: Columns
    ) -> Any:
        values = {name: column.values for name, column in columns.items()}
        [rows] = {blocks.lengths[k] for blocks in values.values()}
        kinds = {name: (column.spec, column.values.dtype) for name, column in columns.items()}
        unit, number = self._units and self._units.name, int(self.numbers[k])
        return dask.delayed(on_partition, pure=False)(
            function,
            recipes,
            Sealed(partial(put_together, kinds, rows, unit, number)),
            [blocks.parts[k] for blocks in values.values()],
            self._units and self._units.codes.parts[k],
            dask_key_name=f"pymc-dp-{self._fit}-{label}-{k}",
        )


def _computed(tasks: Sequence[Any], done: Callable[[], None]) -> list[Any]:
    """Compute tasks where Dask does, call ``done`` after each, and return results in order."""
    keys = {task.key for task in tasks}

    def after(key: Any, *state: Any) -> None:
        if key in keys:
            done()

    try:
        if (client := _client()) is not None:
            results = _by(client, tasks, done)
        else:
            with Callback(posttask=after):
                results = list(dask.compute(*tasks))
    except Exception as error:  # of what reads the rows, and of Dask; its text may quote data
        kind = type(error).__name__
        # how much memory a task needs may depend on the rows that it drew: no second draw
        if isinstance(error, MemoryError) or kind == "KilledWorker":
            text = f"a partition, or its draw, took more memory than there is ({kind})"
            raise PartitionError(f"{text}: cut the records into smaller partitions") from None
        raise LostError(f"a partition could not be read, or its worker was lost ({kind})") from None
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


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
    try:
        return sys.modules["distributed"].default_client()
    except (KeyError, ValueError):
        return None
