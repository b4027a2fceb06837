"""The random variable of a model whose records have one outcome, and nothing else that is drawn."""

from typing import NamedTuple

from pymc_dp.model import Records
from pymc_dp.model.batch import Outcomes
from pymc_dp.model.graphs import AnyVariable, Node


class OnlyOutcome(NamedTuple):
    """How the outcome of a record is drawn."""

    name: str  # of the array of the batch
    graph: AnyVariable
    node: Node  # of its random variable
    stage: Outcomes


def only_outcome(records: Records) -> OnlyOutcome | None:
    """Return the outcome, or None where there are several, or it is computed from what is drawn."""
    if records.outcomes is None or len(records.outcomes) > 1:
        return None
    [stage] = records.outcomes
    if len(stage.drawn) > 1:
        return None
    [(name, graph)] = stage.drawn.items()
    return OnlyOutcome(name, graph, graph.owner, stage) if graph.owner else None
