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

from pymc_dp.contributions.local_latents import gauss_hermite
from pymc_dp.model.graphs import Tensor, pt

SHIFTS = "shifts of predictors"
# for so many predictors of a record scores are averaged over q; those of more are taken at m
MOST_PREDICTORS = 2
# nodes of quadrature in each direction
NODES = 5
# where the tilted densities of drawn outcomes are summed, in spreads of the cavity; the largest
# logarithm of one there, over that at the cavity's mean
GRID, LARGEST_LOG = np.linspace(-4.5, 4.5, 37), 300.0
# logits count as no further from 0 than this, and their root mean squares as no nearer
FARTHEST, NEAREST = 700.0, 1e-6
# the least chance of an outcome, and the least share that a tilted variance is of the cavity's
LEAST, LEAST_TILTED = 1e-280, 1e-2


class Along(NamedTuple):
    """Scores of a batch along the predictors of its records, which are normal under q."""

    # (c, rows, d): slopes of the predictors; none where weights are the scores, and c is d
    vectors: np.ndarray
    # shifts of the predictors, (c, rows) -> (rows, outcomes, c), with the observed outcome first: a
    # score is the sum of vectors, each times its weight
    weights: Callable[[np.ndarray], np.ndarray]
    has_both: bool  # whether records have two outcomes, which follow the observed one
    # A, (c, c, rows): A'A is the covariance of the predictors under q, where there is one
    root: np.ndarray = np.empty((0, 0, 0))

    def at(self, node: np.ndarray) -> np.ndarray:
        """Return the weights, (rows, outcomes, c), where predictors are A'u from their mean."""
        return self.weights(
            np.add.reduce([u * row for u, row in zip(node, self.root, strict=True)])
        )


class Estimated(NamedTuple):
    """What a record adds for each of its outcomes, the observed one first."""

    weights: np.ndarray  # (rows, outcomes, c): of the record's vectors
    # (rows,): minus the slope of its mean along the predictor, where a record has one; else
    # outcomes that are drawn from q show it
    slope: np.ndarray | None = None
    # (rows,): what it adds to the precision of q, where that is not the slope
    precision: np.ndarray | None = None


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Divide by numbers above 0; beside others it is 1, if the part is finite."""
    one = np.where(np.isfinite(part), 1.0, np.nan)
    return np.asarray(np.divide(part, whole, out=one, where=whole > 0))


class Estimating(NamedTuple):
    """What a method makes of scores."""

    estimate: Callable[[Along], Estimated]
    left_out: float = 0.0  # how many of the equal sites of q it leaves out
    has_precision: bool = False  # whether records add a precision to q that is not their slope

    def share(self, number: float) -> float:
        """Return the share of the records' precision that q has."""
        return 1 - self.left_out / max(number, 2.0)


def shifted(
    known: Mapping[Tensor, Tensor], predictors: Sequence[tuple[Tensor, int]], shifts: Tensor
) -> dict[Tensor, Tensor]:
    """Add shifts, (c, rows), to the arrays, by what they are known as, that hold predictors."""
    moved = {}
    for array, axis in dict.fromkeys(predictors):
        own = shifts[[k for k, (other, _) in enumerate(predictors) if other is array]]
        value = known[array]
        core = [value.shape[k] for k in range(value.ndim) if k != axis]
        moved[array] = value + pt.moveaxis(own.T.reshape((own.shape[1], *core)), 0, axis)
    return moved


def averaged(along: Along) -> Estimated:
    """Average scores and slopes over q: the evidence lower bound (Khan and Rue 2023)."""
    total = np.zeros(())
    slope = np.zeros(())  # stays one number where products of scores must show the slope
    for node, share in _rule(along):
        each = along.at(node)
        total = total + share * each
        if _is_binary(along, each):
            slope = slope - share * each[:, 1, 0] * each[:, 2, 0]
        elif each.shape[1] > 1 and each.shape[2] == 1:  # by Stein's lemma
            slope = slope - share * node[0] * each[:, 1:, 0].mean(axis=1)
    if slope.ndim and not along.has_both:  # that was the slope times the root
        slope = ratio(slope, along.root[0, 0])
    return Estimated(total, slope if slope.ndim else None)


def _site_of_scores(along: Along) -> Estimated:
    """Take sites of drawn outcomes, whose log density along the predictor is that of its slopes.

    With u the predictor in units of its spread s under the cavity, and E and V the mean and the
    variance of u under the tilted density, the site adds E / (s V), and (1 / V - 1) / s^2 to the
    precision.
    """
    rule, root = _rule(along), along.root[0, 0][:, None]
    slopes = [root * along.at(node)[:, :, 0] for node, _ in rule]
    whole, mean, square = np.zeros((3, *slopes[0].shape))
    # what integrates the polynomial of the slopes at the points of the rule from 0 on
    powers, points = np.arange(len(rule)), np.array([node[0] for node, _ in rule])
    of_powers = GRID[:, None] ** (powers + 1) / (powers + 1)
    for u, row in zip(GRID, of_powers @ np.linalg.inv(points[:, None] ** powers), strict=True):
        log_density = sum(share * slope for share, slope in zip(row, slopes, strict=True))
        density = np.exp(np.minimum(log_density - u**2 / 2, LARGEST_LOG))  # 1 at the cavity's mean
        whole += density
        mean += u * density
        square += u**2 * density
    mean /= whole
    variance = np.maximum(square / whole - mean**2, LEAST_TILTED)
    slope = (1 / variance[:, 1:] - 1).mean(axis=1)
    return Estimated(ratio(mean / variance, root)[:, :, None], ratio(slope, root[:, 0] ** 2))


def _rule(along: Along) -> list[tuple[np.ndarray, float]]:
    """Return points and weights of Gauss-Hermite quadrature, by products for two predictors."""
    return list(zip(*gauss_hermite(NODES, len(along.root)), strict=True))


def polya_gamma(along: Along) -> Estimated:
    """Take the expected score of a logistic outcome with a Pólya-Gamma variable (Park et al. 2020).

    With psi ~ N(mu, s^2) under q it is y - 1/2 - omega mu, where omega is tanh(c / 2) / (2 c) at
    c^2 = mu^2 + s^2. Its slope in mu is s^2 / c^2 parts omega, and mu^2 / c^2 parts p (1 - p) at c.
    Records that do not have two outcomes and one predictor add `averaged` scores.
    """
    here = along.at(np.zeros(len(along.root)))
    if not _is_binary(along, here):
        return averaged(along)
    no, yes = here[:, 1, 0], here[:, 2, 0]
    unit = yes - no  # the slope of psi along what is called the predictor, which may be -psi
    with np.errstate(divide="ignore"):
        mu = np.clip(np.log(np.abs(no)) - np.log(np.abs(yes)), -FARTHEST, FARTHEST)
    s = np.abs(unit * along.root[0, 0])
    c = np.maximum(np.hypot(mu, s), NEAREST)
    omega, share = np.tanh(c / 2) / (2 * c), (s / c) ** 2
    of_density = 1 / (4 * np.cosh(c / 2) ** 2)
    added = -(0.5 + omega * mu) * unit - no  # the same for both outcomes
    slope = unit**2 * (share * omega + (1 - share) * of_density)
    return Estimated(here + added[:, None, None], slope, unit**2 * omega)


def site(along: Along) -> Estimated:
    """Take the site of an outcome, its tilted moments over those of q; else `averaged` scores."""
    here = along.at(np.zeros(len(along.root)))
    if _is_binary(along, here):
        return _site_of_yes_no(along, here)
    is_drawn, has_one_predictor = here.shape[1] > 1, here.shape[2] == 1
    return _site_of_scores(along) if is_drawn and has_one_predictor else averaged(along)


def _site_of_yes_no(along: Along, here: np.ndarray) -> Estimated:
    """Take the site of a yes-no outcome; ``here`` are its weights at the mean of q.

    With Z = E p(y | psi) under q, the cavity of the average site, and g and beta the first and
    second derivative of log Z in the mean of psi, whose variance is s^2, the site adds
    g / (1 + s^2 beta), and -beta / (1 + s^2 beta) to the precision (Minka 2001; Li et al. 2015).
    """
    root = along.root[0, 0]
    Z, first, second = np.zeros((2, len(root))), 0.0, 0.0
    for node, share in _rule(along):
        no, yes = along.at(node)[:, 1:, 0].T
        unit = np.where(yes == no, 1.0, yes - no)
        p = -no / unit
        Z += share * np.stack([yes / unit, p])
        first = first + share * p * yes
        second = second + share * p * yes * node[0]  # is E p'' times the root
    signs = np.array([[-1.0], [1.0]])
    Z = np.maximum(Z, LEAST)
    g = signs * first / Z
    squared_beta = signs * root * second / Z - root**2 * g**2  # s^2 beta
    variance_share = np.maximum(1 + squared_beta, LEAST_TILTED)  # of the tilted density
    each = g / variance_share
    s2 = np.maximum(root**2, LEAST)
    slope = (Z * -squared_beta / variance_share).sum(axis=0) / s2
    unit = here[:, 2, 0] - here[:, 1, 0]
    is_yes = np.divide(here[:, 0, 0] - here[:, 1, 0], unit, out=0 * here[:, 0, 0], where=unit != 0)
    observed = each[0] + is_yes * (each[1] - each[0])
    return Estimated(np.stack([observed, *each], axis=1)[:, :, None], slope)


def _is_binary(along: Along, weights: np.ndarray) -> bool:
    return along.has_both and weights.shape[2] == 1


AT_POINT = Estimated(np.empty((0, 0, 0)))
AVERAGED = Estimating(averaged)
POLYA_GAMMA = Estimating(polya_gamma, has_precision=True)
SITES = Estimating(site, left_out=1.0)
