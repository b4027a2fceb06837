"""Expectations under a factorised posterior, exact for conjugate models.

A rule is a list of points whose plain average reproduces the expectation of a group's sufficient
statistics. What a conjugate model says about one block is linear in the statistics of every other
block, so its average over the product of their rules is its expectation.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from pymc_dp.compile import function
from pymc_dp.methods.vips.exponential import ExponentialFamily, Natural
from pymc_dp.records import Records

Point = dict[str, np.ndarray]
Rule = list[Point]
Message = Callable[[Point], Natural]


def rule_of(name: str, family: ExponentialFamily, eta: Natural) -> Rule:
    """Return the rule of one block."""
    return [{name: x} for x in family.rule(eta)]


def rule_of_normal(name: str, mean: np.ndarray, covariance: np.ndarray) -> Rule:
    """Return a rule for a Gaussian vector: exact for polynomials of degree three.

    >>> import numpy as np
    >>> points = rule_of_normal("x", np.zeros(2), np.eye(2))
    >>> float(np.mean([point["x"][0] ** 2 for point in points]))
    1.0000000000000002
    """
    values, vectors = np.linalg.eigh(covariance)
    steps = (vectors * np.sqrt(np.maximum(values, 0.0) * len(mean))).T
    return [{name: mean + sign * step} for step in steps for sign in (1, -1)]


def grid(rules: Iterable[Rule]) -> Iterator[Point]:
    """Combine the points of independent groups in every way."""
    for points in product(*rules):
        yield {name: x for point in points for name, x in point.items()}


def average(fn: Callable[[Point], Any], rules: Iterable[Rule]) -> list[np.ndarray]:
    """Average a function's arrays over the product of rules."""
    values = [fn(point) for point in grid(rules)]
    return [np.mean(parts, axis=0) for parts in zip(*values, strict=True)]


def prior_messages(
    records: Records, families: Mapping[str, ExponentialFamily]
) -> dict[str, Message]:
    """Compile what the prior says about each block, as functions of a point of all latents."""
    latents = list(records.latents.values())

    def message(name: str) -> Message:
        graphs = families[name].statistics(records.prior, records.latents[name])
        fn = function(latents, list(graphs), "python")
        return lambda point: tuple(fn(*[point[latent] for latent in records.latents]))

    return {name: message(name) for name in families}


def agree_closely(first: Mapping[str, Natural], second: Mapping[str, Natural]) -> bool:
    """Whether two posteriors are the same up to rounding: updates in turn have converged."""
    return all(
        np.allclose(a, b, rtol=1e-13, atol=0)
        for name in first
        for a, b in zip(first[name], second[name], strict=True)
    )
