"""Numbers in a model that no check can see into: they are trusted, and listed by name."""

from collections.abc import Iterable

import numpy as np
from pymc.distributions.mixture import MixtureRV
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import TensorType

from pymc_dp.records.harden import HardenedModel, is_structural


def inner_constants(graph: Iterable[Variable]) -> list[Variable]:
    """Return the constants inside operations that are graphs themselves, however deep."""
    found: list[Variable] = []
    for variable in ancestors(graph):
        op = variable.owner and getattr(variable.owner.op, "core_op", variable.owner.op)
        # what PyMC puts into a mixture of its own accord are shapes
        if isinstance(op, HasInnerGraph) and not isinstance(op, MixtureRV):
            inner = op.inner_outputs
            found += [v for v in ancestors(inner) if isinstance(v, Constant)]
            found += inner_constants(inner)
    return [v for v in found if isinstance(v.type, TensorType)]


def trusted_constants(hardened: HardenedModel, records: set[Variable]) -> tuple[str, ...]:
    """List, by the variable that reads them, the numbers in a model that no check can see into.

    Arrays that go by ``records`` do not count: how many numbers they hold is private.
    """
    model, rows = hardened.model, []
    parts = {
        "prior": model.free_RVs,
        "likelihood": model.observed_RVs,
        "potential": model.potentials,
    }
    for part, variables in parts.items():
        for variable in variables:
            others = [v for v in model.basic_RVs if v is not variable]
            inputs = [variable] if part == "potential" else variable.owner.inputs
            read = set(ancestors(inputs, blockers=others))
            count = sum(map(_is_number, read)) + sum(map(_is_number, _closed_over(variable)))
            for leaf in hardened.leaves:  # a likelihood's arrays are records or declared
                trusted = part != "likelihood" or leaf.variable.ndim == 0
                if trusted and leaf.variable in read and leaf.variable not in records:
                    # a regular array, such as ones, says no more than two numbers
                    size = np.size(leaf.value)
                    count += min(size, 2) if is_structural(leaf.value) else size
            if count:
                rows.append(f"{part} of {variable.name}: {count} number{'s' * (count > 1)}")
    return (*rows, *(f"initial value of {name}" for name in hardened.initvals))


def _is_number(variable: Variable) -> bool:
    return (
        isinstance(variable, Constant)
        and not isinstance(variable.type, RandomType)
        and getattr(variable, "ndim", None) == 0
    )


def _closed_over(variable: Variable) -> list[Variable]:
    """Return the real numbers inside the function that makes a variable."""
    op = variable.owner and variable.owner.op
    if not isinstance(op, HasInnerGraph) or isinstance(op, MixtureRV):
        return []
    return [v for v in inner_constants([variable]) if v.dtype.startswith("float")]
