"""Releases that find where rounds begin, in place of the model's initial point."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from pymc.distributions.transforms import Transform, log, logodds, simplex

from pymc_dp.methods.method import Method
from pymc_dp.model import Records
from pymc_dp.model.graphs import pt
from pymc_dp.model.modes import AS_WRITTEN

# {name of a latent: its value, on its own scale}
Values = Mapping[str, np.ndarray]
TRANSFORMS: tuple[Transform, ...] = (log, logodds, simplex)


class PrivateStart(NamedTuple):
    """A method that comes before rounds."""

    share: float  # of the budget
    # (the first method of the rounds, values -> its first state) -> the method before it, and what
    # the last state of that one hands over
    before: Callable[[Method, Callable[[Values], Any]], tuple[Method, Callable[[Any], Any]]]


# compiles what it needs: None where rounds begin at the initial point
FindStart = Callable[[], PrivateStart | None]


def point_at(records: Records, found: Values) -> np.ndarray:
    """Return the initial point, shape (d,), with latents where they were found."""
    at = {**found}
    for name, value in found.items():
        for transform in TRANSFORMS:
            transformed = f"{name}_{transform.name}__"
            if transformed in records.point:
                at[transformed] = transform.forward(pt.constant(value)).eval(mode=AS_WRITTEN)
    return np.concatenate([np.ravel(at.get(name, own)) for name, own in records.point.items()])


def reported_as(own: Method, method: Method, found: Callable[[Any], Any]) -> Method:
    """Let a method report its states as another does: by what ``found`` makes of them."""
    return own._replace(
        posterior=lambda state, draws, rng: method.posterior(found(state), draws, rng),
        noise_aware=None,
        describe=lambda state: method.describe(found(state)),
        trace=lambda state: method.trace(found(state)),
        doubts=lambda state: method.doubts(found(state)),
        settings=method.settings,
        algorithms=method.algorithms,
    )
