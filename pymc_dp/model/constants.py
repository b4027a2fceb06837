"""Numbers in a model that no check can see into: they are trusted, and listed by name."""

from collections.abc import Container, Hashable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from pymc.distributions.mixture import MixtureRV
from pytensor.graph.traversal import walk

from pymc_dp.model.axis import RecordAxes
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.harden import DataLeaf, is_size, is_structural
from pymc_dp.model.split import Split
from pymc_dp.model.terms import KEPT_WHOLE
from pymc_dp.model.walk import inner_variables, tensor_constants

# what PyMC itself adds to a mixture are shapes; the others are as PyTensor makes them
CLOSED = (MixtureRV, *KEPT_WHOLE)


class Trusted(NamedTuple):
    """What is trusted: names are the author's, and may hold any text, so none is made of them."""

    kind: str
    name: str
    numbers: str = ""

    def __str__(self) -> str:
        """Write the line that a result lists."""
        return f"{self.kind} {self.name}" + (f": {self.numbers}" if self.numbers else "")


def trusted_constants(
    split: Split,
    read: Mapping[str, Iterable[AnyVariable]],
    operations: Iterable[str],
    released: Iterable[AnyVariable],
) -> dict[Trusted, tuple[float, ...]]:
    """Count the numbers in a model that no check can see into; one line for each name.

    Initial values and the ``operations`` that were declared public have a line each, too.

    A line maps to the single numbers among its arguments, which are for the curator alone; to none
    if it is of what goes by records, where one can be their number.

    ``read`` maps the name of each random variable and potential to the graphs that the refusals
    walk. A line separates the numbers among its arguments from those in its density alone: in a
    formula of PyMC's, or closed over. Deterministics that are ``released`` have those of formulas.

    Arrays that go by records do not count, since the number of their entries is private, nor those
    that are declared public, which have a list of their own.
    """
    model = split.hardened.model
    counted = {
        variable: leaf
        for variable, leaf in split.hardened.leaves.items()
        if variable not in split.axes.axis
        and variable is not split.unit_latents.column
        and leaf.name not in split.hardened.public
    }
    # an observed distribution may read records that its term does not, such as trials
    single = {variable: leaf for variable, leaf in counted.items() if leaf.value.ndim == 0}
    variables = set(model.basic_RVs)
    lines: dict[Trusted, tuple[float, ...]] = {}
    kinds = {rv.name: "likelihood" for rv in model.observed_RVs}
    kinds |= {potential.name: "potential" for potential in model.potentials}
    for name, graphs in read.items():
        kind = kinds.get(name, "prior")
        arrays = single if kind == "likelihood" else counted
        densities = [graph for graph in graphs if graph not in variables]
        # a distribution is read by its arguments, since its own parents have lines of their own
        own = [x for g in graphs if g in variables and g.owner for x in g.owner.inputs] or densities
        arguments = _numbers(own, variables, arrays, split.axes)
        density = _numbers(densities, variables, counted, split.axes)
        count = sum(arguments.values())
        others = sum(density[key] for key in density.keys() - arguments.keys())
        if count or others:
            text = _in_words(count) + (f", and {others} in its density" if others else "")
            line = Trusted(f"{kind} of", name, text)
            lines[line] = () if name in split.terms else _shown(arguments)
    for variable in released:
        numbers = _numbers([variable], variables, counted, split.axes)
        if count := sum(numbers.values()):
            line = Trusted("deterministic of", str(variable.name), _in_words(count))
            lines[line] = _shown(numbers)
    named = [Trusted("initial value of", name) for name in split.hardened.initvals]
    named += [Trusted("operation", name) for name in sorted(operations)]
    return {**lines, **{line: () for line in named}}


def _in_words(count: int) -> str:
    return f"{count} number{'s' * (count != 1)}"


def _shown(numbers: Iterable[Hashable]) -> tuple[float, ...]:
    return tuple(sorted(float(key) for key in numbers if isinstance(key, str)))


def _numbers(
    graphs: Iterable[AnyVariable],
    blockers: Container[AnyVariable],
    leaves: Mapping[AnyVariable, DataLeaf],
    axes: RecordAxes,
) -> dict[Hashable, int]:
    """Map a key of each array in some graphs to how many numbers the array may carry."""
    # Sizes of random variables and the number of records are left out. PyMC writes the author's
    # numbers anew with other types and axes, so that keys are values.

    def operands(variable: AnyVariable) -> list[AnyVariable]:
        node = variable.owner
        return [
            x
            for i, x in enumerate(node.inputs if node else ())
            if x not in blockers and (node, i) not in axes.counts and not is_size(node, x)
        ]

    found = list(walk([graph for graph in graphs if graph not in blockers], operands))
    values = [leaves[v].value for v in found if v in leaves]
    values += [v.data for v in tensor_constants([*found, *inner_variables(found, CLOSED)])]
    # a regular array, such as ones, carries at most two numbers
    return {_key(x): min(np.size(x), 2 if is_structural(x) else np.size(x)) for x in values}


def _key(value: np.ndarray) -> Hashable:
    value = np.asarray(value)
    if value.size == 1:
        return str(float(value.item()))
    return value.shape, str(value.dtype), value.tobytes()
