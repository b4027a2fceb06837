"""The mode of the local latents of every unit, by Newton's method, each unit by itself."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# a unit stops where another step would raise its log density by no more than rounding
ROUNDING = np.finfo(float).eps ** 0.5
MOST_STEPS = 40
# of the largest eigenvalue of a unit's curvature, the least that another may be
FLATTEST = 1e-8


class Density(NamedTuple):
    """Log densities of units, with their first two derivatives in the local latents."""

    value: np.ndarray  # (units,)
    slope: np.ndarray  # (units, k)
    curvature: np.ndarray  # (units, k, k): minus the second derivative


def find_modes(
    density: Callable[[np.ndarray], Density], here: Density
) -> tuple[np.ndarray, np.ndarray]:
    """Climb from 0, where the density is ``here``, to the mode of each unit, (units, k).

    Return also the symmetric roots of the inverse curvatures there, (units, k, k). ``density``
    takes latents of shape (units, k). A step that does not climb is shortened. No
    unit's steps depend on another unit.
    """
    u, length = np.zeros(here.slope.shape), np.ones(len(here.value))
    values, axes = _eigen(here.curvature)
    step = _step(here.slope, values, axes)
    climbing = np.isfinite(here.value)
    for _ in range(MOST_STEPS):
        climbing &= np.vecdot(here.slope, step) / 2 > ROUNDING
        if not climbing.any():
            break
        trial = u + np.where(climbing, length, 0.0)[:, None] * step
        there = density(trial)
        better = climbing & (there.value >= here.value)
        u = np.where(better[:, None], trial, u)
        here = Density(*(_chosen(better, new, old) for new, old in zip(there, here, strict=True)))
        length = np.where(better, np.fmin(1.0, 4 * length), length / 4)
        values, axes = _eigen(here.curvature)
        step = _step(here.slope, values, axes)
    return u, np.asarray(np.einsum("uij,uj,ukj->uik", axes, values**-0.5, axes))


def _step(slope: np.ndarray, values: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Return the step to the mode of a quadratic, uphill also where the density is not concave."""
    along = np.einsum("uij,ui->uj", axes, slope) / values
    return np.asarray(np.einsum("uij,uj->ui", axes, along))


def _eigen(curvature: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues that are above 0, and eigenvectors; not finite ones count as a unit."""
    k = curvature.shape[-1]
    finite = np.isfinite(curvature).all(axis=(1, 2))[:, None, None]
    curvature = np.where(finite, curvature, np.eye(k))
    scale = np.fmax(np.abs(curvature).max(axis=(1, 2), keepdims=True), np.finfo(float).tiny)
    values, axes = _decomposed(curvature / scale)
    values = values * scale[:, 0]
    largest = np.abs(values).max(axis=1, keepdims=True, initial=0.0)
    return np.fmax(np.abs(values), np.fmax(FLATTEST * largest, np.finfo(float).tiny ** 0.5)), axes


def _decomposed(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Decompose each matrix by itself where one of them has no decomposition: it gets nan."""
    try:
        values, axes = np.linalg.eigh(matrices)
        return values, axes
    except np.linalg.LinAlgError:
        values, axes = np.full(matrices.shape[:2], np.nan), np.full(matrices.shape, np.nan)
        for i in range(len(matrices) if len(matrices) > 1 else 0):
            [values[i]], [axes[i]] = _decomposed(matrices[i : i + 1])
        return values, axes


def _chosen(which: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    return np.where(which.reshape(-1, *[1] * (new.ndim - 1)), new, old)
