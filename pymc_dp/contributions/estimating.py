"""Estimating functions: what methods make of the scores of records.

A method solves that a sum over records, and the slope of the log prior, vanish. What a record adds
is its score at a point m, or follows from its scores along its predictors v'z, which are normal
under the posterior q = N(m, S) that earlier releases gave: the score averaged over q, for one. The
record's vectors v stay the same, and so do clipping, noise, and all that is made of a release.

**Privacy.** What a record adds is a function of the record, of m and of S alone, and every number
of it is made from numbers of its own row.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.channels import Place
from pymc_dp.model.graph_types import Tensor, pt

SHIFTS = "shifts of predictors"
# for so many predictors of a record scores are averaged over q; those of more are taken at m
MOST_PREDICTORS = 2
# nodes of quadrature along a predictor: where records have two outcomes, and where they have drawn
# ones, which makes scores many
NODES, FEW_NODES = 5, 3


class Along(NamedTuple):
    """Scores of a batch along the predictors of its records, which are normal under q."""

    # shifts of the predictors, (c, rows) -> weights of the scores there, (rows, outcomes, c), with
    # the observed outcome first
    weights: Callable[[np.ndarray], np.ndarray]
    root: np.ndarray  # A, (c, c, rows): A'A is the covariance of the predictors
    has_both: bool  # whether records have two outcomes, which follow the observed one

    def at(self, node: np.ndarray) -> np.ndarray:
        """Return the weights, (rows, outcomes, c), where predictors are A'u from their mean."""
        return self.weights(sum(u * of_one for u, of_one in zip(node, self.root, strict=True)))


class Estimated(NamedTuple):
    """What a record adds for each of its outcomes, the observed one first."""

    weights: np.ndarray  # (rows, outcomes, c): of the record's vectors
    # (rows,): minus the slope of its mean along the predictor, where a record has one, and two
    # outcomes; else outcomes that are drawn from q show it
    slope: np.ndarray | None = None

    @property
    def slope_share(self) -> np.ndarray | None:
        """Return the slope as a share of what it would be of scores at a point, (rows,)."""
        if self.slope is None:
            return None
        at_point = -self.weights[:, 1, 0] * self.weights[:, 2, 0]
        return np.divide(self.slope, at_point, out=np.ones_like(at_point), where=at_point > 0)


Estimate = Callable[[Along], Estimated]


def shifted(
    known: Mapping[Tensor, Tensor], predictors: Sequence[Place], shifts: Tensor
) -> dict[Tensor, Tensor]:
    """Add shifts, (c, rows), to the arrays, by what they are known as, that hold predictors."""
    places: dict[Tensor, list[int]] = {}
    for k, place in enumerate(predictors):
        places.setdefault(place.array, []).append(k)
    return {
        array: known[array] + _in_place(known[array], predictors[own[0]].axis, shifts[own])
        for array, own in places.items()
    }


def _in_place(array: Tensor, axis: int, shifts: Tensor) -> Tensor:
    """Bring shifts, (width, rows), to the shape of an array whose records lie along an axis."""
    core = [array.shape[k] for k in range(array.ndim) if k != axis]
    return pt.moveaxis(shifts.T.reshape((shifts.shape[1], *core)), 0, axis)


def averaged(along: Along) -> Estimated:
    """Average scores over q: the gradient of the evidence lower bound (Khan and Rue 2023).

    So is the slope: the curvature of the log likelihood, averaged over q.
    """
    total, slope = 0.0, 0.0
    for node, share in _rule(along):
        each = along.at(node)
        total = total + share * each
        if along.has_both and each.shape[2] == 1:
            slope = slope - share * each[:, 1, 0] * each[:, 2, 0]
    return Estimated(np.asarray(total), slope if isinstance(slope, np.ndarray) else None)


def _rule(along: Along) -> list[tuple[np.ndarray, float]]:
    """Return points and weights of Gauss-Hermite quadrature, by products for two predictors."""
    points, weights = np.polynomial.hermite_e.hermegauss(NODES if along.has_both else FEW_NODES)
    weights = weights / weights.sum()
    if len(along.root) == 1:
        return [(np.array([u]), float(w)) for u, w in zip(points, weights, strict=True)]
    pairs = [(i, j) for i in range(len(points)) for j in range(len(points))]
    return [(points[[i, j]], float(weights[i] * weights[j])) for i, j in pairs]
