"""Expectations under a factorised posterior, exact for conjugate models.

A rule is a list of points whose plain average reproduces the expectation of a group's sufficient
statistics. What a conjugate model says about one block is linear in the statistics of every other
block, so its average over the product of their rules is its expectation.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType, lscalar

from pymc_dp.compile import function, without_c
from pymc_dp.contributions.gradients import spread
from pymc_dp.methods.blocks.exponential import ExponentialFamily, Natural
from pymc_dp.records import Records

Point = dict[str, np.ndarray]
Rule = list[Point]
# rounds of updates over blocks whose priors depend on each other; they cost nothing
ROUNDS = 50


@dataclass(frozen=True)
class Message:
    """What the prior says about one block, as a function of a point.

    Attributes
    ----------
    evaluate : points -> natural parameters, stacked along a first axis
    needs : tuple of str
        The latents that it depends on; the block itself may be among them.
    """

    evaluate: Callable[[Sequence[Point]], Natural]
    needs: tuple[str, ...]

    def __call__(self, point: Point) -> Natural:
        """Evaluate at a point of at least the latents that are needed."""
        return tuple(part[0] for part in self.evaluate([point]))

    def average(self, rules: Iterable[Rule]) -> Natural:
        """Average over the product of rules."""
        return tuple(part.mean(axis=0) for part in self.evaluate(list(grid(rules))))


def at_points(
    records: Records, graphs: Sequence[Variable]
) -> tuple[Callable[[Sequence[Point]], Natural], tuple[str, ...]]:
    """Compile graphs of all latents for many points at once, and name the latents they depend on.

    Points name these latents at least.
    """
    with without_c():
        plain = rewrite_graph(list(graphs))  # before: shapes of points would be dependences, too
    reached = set(ancestors(plain))
    needs = tuple(name for name, latent in records.latents.items() if latent in reached)
    count = lscalar("count")
    latents = [records.latents[name] for name in needs]
    many = {x: TensorType(x.dtype, (None, *x.type.shape))() for x in latents}
    rows = zip(vectorize_graph(plain, many), plain, strict=True)
    fn = function([count, *many.values()], [spread(*row, count) for row in rows], "python")

    def evaluate(points: Sequence[Point]) -> Natural:
        return tuple(fn(len(points), *[np.stack([at[name] for at in points]) for name in needs]))

    return evaluate, needs


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
    """Compile what the prior says about each block."""

    def message(name: str) -> Message:
        graphs = families[name].statistics(records.prior, records.latents[name])
        evaluate, needs = at_points(records, graphs)
        return Message(evaluate, needs)

    return {name: message(name) for name in families}


def prior_says(
    name: str,
    messages: Mapping[str, Message],
    families: Mapping[str, ExponentialFamily],
    posterior: Mapping[str, Natural],
) -> Natural:
    """Expectation of a block's message: its own reference point, the other blocks averaged."""
    rules = [
        [{name: families[name].reference(posterior[name])}]
        if other == name
        else rule_of(other, families[other], posterior[other])
        for other in messages[name].needs
    ]
    return messages[name].average(rules)


def in_turn(
    names: Iterable[str],
    messages: Mapping[str, Message],
    families: Mapping[str, ExponentialFamily],
    says: Mapping[str, Natural],
    posterior: Mapping[str, Natural],
    rounds: int = ROUNDS,
) -> dict[str, Natural]:
    """Set each block to its prior's natural parameters plus what the likelihood ``says`` of it.

    Blocks whose priors depend on each other are taken in turn until they agree.
    """
    names, posterior = tuple(names), dict(posterior)
    for _ in range(rounds):
        before = dict(posterior)
        for name in names:
            own = prior_says(name, messages, families, posterior)
            of_records = says.get(name, (0.0,) * len(own))
            posterior[name] = tuple(a + b for a, b in zip(own, of_records, strict=True))
        if agree_closely(before, posterior):
            break
    return posterior


def agree_closely(first: Mapping[str, Natural], second: Mapping[str, Natural]) -> bool:
    """Whether two posteriors are the same up to rounding: updates in turn have converged."""
    return all(
        np.allclose(a, b, rtol=1e-13, atol=0)
        for name in first
        for a, b in zip(first[name], second[name], strict=True)
    )
