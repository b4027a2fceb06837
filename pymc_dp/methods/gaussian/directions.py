"""Curvature along few directions, which noise hides much less than a whole matrix."""

import numpy as np

from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.methods.gaussian.belief import TINY, Curvature, symmetric
from pymc_dp.methods.gaussian.factors import Believed
from pymc_dp.methods.gaussian.noise_floor import mean_if_positive
from pymc_dp.methods.gaussian.path import Path


def along(found: Curvature, V: np.ndarray) -> Curvature:
    """Return a curvature along directions, (d, m)."""
    return Curvature(*(symmetric(V.T @ x @ V) for x in found))


def known_along(found: Curvature, V: np.ndarray, known: Curvature) -> Curvature:
    """Condition a noisy curvature on what is known along directions, (d, m).

    >>> found, V = Curvature(np.diag([3.0, 1.0]), np.eye(2)), np.array([[1.0], [1.0]])
    >>> known = Curvature(np.full((1, 1), 8.0), np.full((1, 1), 1e-9))
    >>> known_along(found, V, known).estimate
    array([[4., 1.],
           [1., 2.]])
    """
    own = along(found, V)
    A = np.linalg.solve(own.noise, V.T @ found.noise).T  # Q V (V' Q V)^-1
    estimate, noise = (
        symmetric(x + A @ (there - here) @ A.T)
        for x, there, here in zip(found, known, own, strict=True)
    )
    return Curvature(estimate, noise)


def measured_along(believed: Believed, found: Curvature, path: Path) -> Believed:
    """Combine what was found of the curvature along the path with what was released of it alone.

    Where outcomes become certain the curvature falls most along the path, which a model of factors
    cannot express: of the path nothing is believed from one.
    """
    V = path.vector[:, None]
    released = Curvature(np.full((1, 1), path.curvature), np.full((1, 1), path.noise_sd))
    is_diagonal = len(found.estimate) > MANY_LATENTS  # which says nothing of a path
    own = found if believed.is_modelled else believed.curvature
    there = released if is_diagonal else along(own, V).combined(released)
    positive = np.maximum(mean_if_positive(there.estimate, there.noise), TINY * there.noise)
    there = there._replace(estimate=positive)
    # noises change alike whatever the estimates are
    error = known_along(Curvature(believed.error, believed.error), V, there).noise
    curvature = known_along(believed.curvature, V, there)
    path = Path(path.vector, there.estimate.item(), there.noise.item())
    return believed._replace(curvature=curvature, error=error, path=path)
