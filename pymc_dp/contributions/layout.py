"""The layout of a record's vector: named arrays, each times a public scale, one after another.

A release is one vector with one clip norm. Scales bring its parts to comparable norms, and a
symmetric matrix takes its upper triangle alone, so that no entry is noised twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, pairwise
from math import inf, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pymc_dp.privacy.norms import row_norms


def svec(matrices: np.ndarray) -> np.ndarray:
    """Upper triangle with off-diagonals times sqrt 2: its norm is the Frobenius norm."""
    rows, columns, factors = _upper_triangle(matrices.shape[-1])
    return np.asarray(matrices[..., rows, columns] * factors)


def smat(vectors: np.ndarray) -> np.ndarray:
    """Undo `svec`."""
    d = int((2 * vectors.shape[-1]) ** 0.5)
    rows, columns, factors = _upper_triangle(d)
    matrices = np.zeros((*vectors.shape[:-1], d, d))
    matrices[..., rows, columns] = vectors / factors
    matrices[..., columns, rows] = matrices[..., rows, columns]
    return matrices


@cache
def _upper_triangle(d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, columns = np.triu_indices(d)
    return rows, columns, np.where(rows == columns, 1.0, 2**0.5)


class Part(NamedTuple):
    """One array of a record's vector."""

    shape: tuple[int, ...]
    scale: float = 1.0  # positive factor of the part in the vector
    symmetric: bool = False  # whether the last two axes hold symmetric matrices

    @property
    def packed_shape(self) -> tuple[int, ...]:
        """The shape before it becomes flat, a triangle along the last axis."""
        if not self.symmetric:
            return self.shape
        d = self.shape[-1]
        return (*self.shape[:-2], d * (d + 1) // 2)

    @property
    def size(self) -> int:
        """How many entries the part has in the vector."""
        return prod(self.packed_shape)


@dataclass(frozen=True)
class Layout:
    """The parts of a vector, in order."""

    parts: Mapping[str, Part]  # {name: Part}

    def __post_init__(self) -> None:
        for name, part in self.parts.items():
            if not 0 < part.scale < inf:
                raise ValueError(f"the scale of {name!r} must be finite and above 0")

    @property
    def size(self) -> int:
        """The length of the vector."""
        return sum(part.size for part in self.parts.values())

    @property
    def slices(self) -> dict[str, slice]:
        """Where each part stands in the vector."""
        ends = accumulate((part.size for part in self.parts.values()), initial=0)
        return {
            name: slice(start, end)
            for name, (start, end) in zip(self.parts, pairwise(ends), strict=True)
        }

    def with_scales(self, **scales: float) -> "Layout":
        """Return the same layout with other scales for the parts that are named."""
        changed = {name: self.parts[name]._replace(scale=scale) for name, scale in scales.items()}
        return replace(self, parts={**self.parts, **changed})

    def pack(self, values: Mapping[str, ArrayLike]) -> np.ndarray:
        """Write arrays of shape (..., *shape of the part) into vectors of shape (..., size)."""
        packed = []
        for name, part in self.parts.items():
            value = np.asarray(values[name])
            leading = value.shape[: max(0, value.ndim - len(part.shape))]
            if value.shape != (*leading, *part.shape):
                raise ValueError(f"{name!r} must have shape {part.shape}, got {value.shape}")
            scaled = part.scale * (svec(value) if part.symmetric else value)
            packed.append(scaled.reshape(*leading, part.size))
        return np.concatenate(packed, axis=-1)

    def unpack(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        """Undo `pack`."""
        found = {}
        for (name, where), part in zip(self.slices.items(), self.parts.values(), strict=True):
            values = vectors[..., where].reshape((*vectors.shape[:-1], *part.packed_shape))
            found[name] = np.asarray((smat(values) if part.symmetric else values) / part.scale)
        return found

    def noise_variance(self, sd: float) -> dict[str, float]:
        """Return the variance of noise in entries of parts; off a diagonal it is half."""
        return {name: (sd / part.scale) ** 2 for name, part in self.parts.items()}

    def norms(self, norms: Mapping[str, np.ndarray]) -> np.ndarray:
        """Compute the norms (rows,) of packed rows from the Frobenius norms of their parts."""
        scaled = [part.scale * norms[name] for name, part in self.parts.items()]
        return row_norms(np.stack(scaled, axis=1))
