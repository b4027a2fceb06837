"""Curvature along few directions, which noise hides much less than a whole matrix."""

import numpy as np

from pymc_dp.methods.gaussian.belief import Curvature, symmetric
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.factors import Believed
from pymc_dp.methods.gaussian.release import Along


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


def measured_along(believed: Believed, along_way: Along) -> Believed:
    """Combine what is believed of the curvature along the way so far with what was released of it.

    Where outcomes become certain the curvature falls most along the way, which a model of factors
    cannot express: what is believed from one has a large noise there.
    """
    V, released = along_way
    own = along(believed.curvature, V)
    doubt = DEFAULTS.doubt_along_way if believed.is_modelled else 0.0
    there = Curvature(own.estimate, np.maximum(own.noise, doubt * own.estimate)).combined(released)
    there = there._replace(estimate=np.maximum(there.estimate, 0.0))
    # noises change alike whatever the estimates are
    error, without_model = (
        known_along(Curvature(x, x), V, there).noise
        for x in (believed.error, believed.without_model)
    )
    curvature = known_along(believed.curvature, V, there)
    return believed._replace(curvature=curvature, error=error, without_model=without_model)
