"""Expectations under a factorised posterior, exact for conjugate models.

A rule is a list of points whose plain average reproduces the expectation of a group's sufficient
statistics. In a conjugate model the natural parameters that reach one block are linear in the
statistics of every other block, so their average over the product of the rules is their
expectation.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType, lscalar

from pymc_dp.compiling.compile import function
from pymc_dp.contributions.gradients import spread
from pymc_dp.methods.conjugate.exponential import ExponentialFamily, Natural
from pymc_dp.methods.prior import made_once
from pymc_dp.model import Records
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.modes import without_c

Point = dict[str, np.ndarray]
Rule = list[Point]
# most rounds of updates over blocks whose priors depend on each other; they use released values
ROUNDS = 50


@dataclass(frozen=True)
class Message:
    """Natural parameters that the prior gives to one block, as a function of a point."""

    # points -> natural parameters, stacked along a first axis
    evaluate: Callable[[Sequence[Point]], Natural]
    needs: tuple[str, ...]  # the latents that it depends on; the block itself may be among them

    def __call__(self, point: Point) -> Natural:
        """Evaluate at a point of at least the latents that are needed."""
        return tuple(part[0] for part in self.evaluate([point]))

    def average(self, rules: Iterable[Rule]) -> Natural:
        """Average over the product of rules."""
        return tuple(part.mean(axis=0) for part in self.evaluate(list(grid(rules))))


def at_points(
    records: Records, what: Hashable, graphs: Callable[[], Sequence[AnyVariable]]
) -> tuple[Callable[[Sequence[Point]], Natural], tuple[str, ...]]:
    """Compile graphs of the prior for many points at once, and name the latents that they read.

    ``what`` names the graphs among all that are made of a prior.
    """
    inputs, rows, needs = made_once(records, what, lambda: _for_points(records, graphs()))
    fn = function(inputs, rows, "python")

    def evaluate(points: Sequence[Point]) -> Natural:
        return tuple(fn(len(points), *[np.stack([at[name] for at in points]) for name in needs]))

    return evaluate, needs


def _for_points(
    records: Records, graphs: Sequence[AnyVariable]
) -> tuple[list[AnyVariable], list[AnyVariable], tuple[str, ...]]:
    """Return inputs and graphs of many points, and the names of the latents that they read."""
    with without_c():
        # before: shapes of points would be dependences, too. A list: as what it is given
        plain: Any = rewrite_graph(list(graphs), clone=True)
    ancestry = set(ancestors(plain))
    needs = tuple(name for name, latent in records.latents.items() if latent in ancestry)
    count = lscalar("count")
    latents = [records.latents[name] for name in needs]
    many = {x: TensorType(x.type.dtype, (None, *x.type.shape))() for x in latents}
    vectorized: list[AnyVariable] = vectorize_graph(plain, many)
    rows = [spread(each, one, count) for each, one in zip(vectorized, plain, strict=True)]
    return [count, *many.values()], rows, needs


def rules_of(
    families: Mapping[str, ExponentialFamily],
    posterior: Mapping[str, Natural],
    own: str | None = None,
) -> list[Rule]:
    """Return the rule of every block; of the block ``own``, its reference point alone."""
    return [
        [{name: family.reference(posterior[name])}]
        if name == own
        else [{name: x} for x in family.rule(posterior[name])]
        for name, family in families.items()
    ]


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
    """Compile the natural parameters that the prior gives to each block."""

    def message(name: str, family: ExponentialFamily) -> Message:
        graphs = partial(family.statistics, records.prior, records.latents[name])
        return Message(*at_points(records, (family.name, name), graphs))

    return {name: message(name, family) for name, family in families.items()}


class ConjugatePrior(NamedTuple):
    """A prior of conjugate blocks; both mappings are by the latent's name."""

    families: Mapping[str, ExponentialFamily]
    messages: Mapping[str, Message]

    def message(self, name: str, posterior: Mapping[str, Natural]) -> Natural:
        """Expectation of a block's message: its own reference point, the other blocks averaged."""
        message = self.messages[name]
        needed = {other: self.families[other] for other in message.needs}
        return message.average(rules_of(needed, posterior, own=name))

    def coordinate_ascent(
        self,
        names: Iterable[str],
        likelihood: Mapping[str, Natural],
        posterior: Mapping[str, Natural],
        rounds: int = ROUNDS,
    ) -> dict[str, Natural]:
        """Set each block to its prior's natural parameters plus those of the likelihood.

        Blocks whose priors depend on each other are updated in turn until they converge. A block
        without an entry in ``likelihood`` follows its prior alone.
        """
        names, posterior = tuple(names), dict(posterior)
        for _ in range(rounds):
            before = dict(posterior)
            for name in names:
                own = self.message(name, posterior)
                added = likelihood.get(name, (0.0,) * len(own))
                posterior[name] = tuple(a + b for a, b in zip(own, added, strict=True))
            if converged(before, posterior):
                break
        return posterior


def converged(first: Mapping[str, Natural], second: Mapping[str, Natural]) -> bool:
    """Whether two posteriors are the same up to rounding."""
    return all(
        np.allclose(a, b, rtol=1e-13, atol=0)
        for name in first
        for a, b in zip(first[name], second[name], strict=True)
    )
