"""Outcomes of which one row may count several persons."""

from collections.abc import Iterator

import numpy as np
import pymc as pm
from pymc.distributions.multivariate import DirichletMultinomialRV
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import BetaBinomialRV, BinomialRV, MultinomialRV, PoissonRV

from pymc_dp.accounting.neighbours import unit_label
from pymc_dp.model.graph_types import AnyVariable, Node

TRIALS = (BinomialRV, BetaBinomialRV, MultinomialRV, DirichletMultinomialRV)


def advice_on_counts(model: pm.Model, unit: str | None) -> tuple[str, ...]:
    """Say of which outcomes a row may count several persons, by their distributions alone.

    A number of trials is read where the author wrote it as one number; no data are.
    """
    whom = "person" if unit is None else unit_label(unit)
    found = []
    for rv in model.observed_RVs:
        kinds = {_kind(node) for node in _distributions(model, rv)} - {""}
        found += [
            f"`{rv.name}` counts {kind} in a row. A row must be of one {whom}: where it adds up "
            f"several, expand the counts to one row for each, or epsilon protects less than a "
            f"{whom}."
            for kind in sorted(kinds)
        ]
    return tuple(found)


def _distributions(model: pm.Model, rv: AnyVariable) -> Iterator[Node]:
    """Yield the nodes that draw an outcome, and those inside a mixture or a bound."""
    latents = [other for other in model.basic_RVs if other is not rv]
    for variable in ancestors([rv], blockers=latents):
        if variable.owner is not None and variable not in latents:
            yield variable.owner


def _kind(node: Node) -> str:
    if isinstance(node.op, TRIALS):
        return "" if _is_one(node.op.dist_params(node)[0]) else "several trials"
    return "events, or cells of a table," if isinstance(node.op, PoissonRV) else ""


def _is_one(number: AnyVariable) -> bool:
    while number.owner is not None and isinstance(number.owner.op, DimShuffle):
        number = number.owner.inputs[0]
    return isinstance(number, Constant) and np.size(number.data) == 1 and number.data.item() == 1
