"""What runs on a worker: it reads the rows of one partition, and answers one question."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.sparse import issparse

from pymc_dp.privacy.chunks.shipping import Recipe, borrowed
from pymc_dp.privacy.clipping import BeyondBoundError, clipped_sum
from pymc_dp.privacy.contribution import Contribution
from pymc_dp.privacy.grid import Grid
from pymc_dp.privacy.partitions import Answer, PartitionError
from pymc_dp.privacy.private_data import Column, ColumnSpec, Partition
from pymc_dp.privacy.randomness import keyed
from pymc_dp.privacy.units import Units, units_of


class Sealed:
    """A value that Dask does not look into."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Layout(NamedTuple):
    """What the columns of one partition are."""

    kinds: Mapping[str, tuple[ColumnSpec, np.dtype[Any]]]  # by name; dtypes are those of the values
    rows: int
    unit: str | None
    number: int  # of units


class Question(NamedTuple):
    """What one partition is asked for one release; its key is secret."""

    position: int
    partition: int
    name: str
    size: int
    key: bytes
    context: Any
    grid: Grid

    def answer(self, recipe: Recipe, partition: Partition) -> Answer:
        """Draw, clip and add up."""
        generator = keyed(self.key)
        with borrowed(recipe) as contributions:
            asked = cast(Contribution, contributions[self.name])
            found = clipped_sum(partition, asked, self.context, self.size, generator, self.grid)
        return Answer(self.position, self.partition, found)

    def __repr__(self) -> str:
        return "<Question>"


def compiles(recipe: Sealed) -> bool:
    """Compile the contributions, to see whether that can be done here."""
    with borrowed(recipe.value):
        return True


def on_partition(
    question: Sealed, recipe: Sealed | None, layout: Sealed, blocks: Sequence[Any], codes: Any
) -> Any:
    """Answer a question about a partition, or call a function of it.

    Where there is no answer, return the error that the wall is told, which holds no values and no
    numbers of records. Nothing is raised: Dask would log the arguments.
    """
    try:
        partition = _partition(layout.value, blocks, codes)
        if recipe is None:
            return question.value(partition)
        return question.value.answer(recipe.value, partition)
    except BeyondBoundError:
        return BeyondBoundError()
    except PartitionError as error:  # anew, without the frames that hold rows
        return PartitionError(str(error))
    except Exception as error:  # its text may quote data
        return PartitionError(f"a partition failed with {type(error).__name__}")


def _partition(layout: Layout, blocks: Sequence[Any], codes: Any) -> Partition:
    """Put blocks together, which must hold what was found when the fit began."""
    columns = {}
    for (name, (spec, dtype)), block in zip(layout.kinds.items(), blocks, strict=True):
        values = as_rows(f"data=`{name}`", block)
        if values.shape != spec.shape_of(layout.rows):
            raise PartitionError(f"data=`{name}` has a partition of another length or width")
        if not np.can_cast(values.dtype, dtype, casting="same_kind"):
            raise PartitionError(
                f"data=`{name}` has a partition of {values.dtype} values among those of {dtype}"
            )
        columns[name] = Column(values, spec.axis, spec.dtype)
    units = None if layout.unit is None else _units(layout, as_rows("unit=", codes), layout.unit)
    return Partition(columns, units)


def _units(layout: Layout, codes: np.ndarray, name: str) -> Units:
    """Sort by unit, and check that the units are as many as were counted: batches are of them."""
    units = units_of(codes, name)
    if codes.shape != (layout.rows,) or units.number != layout.number:
        raise PartitionError(f"unit=`{name}` has a partition with other codes than before")
    return units


def as_rows(what: str, block: Any) -> Any:
    """Return a block as an array, or as a sparse matrix that rows can be gathered from."""
    if np.ma.isMaskedArray(block):  # NumPy would take the numbers under the mask
        raise PartitionError(
            f"{what} has masked entries, and a private fit takes no missing values"
        )
    return block.tocsr() if issparse(block) else np.asarray(block)
