"""Steps along noisy gradients: our own Adam, and any optimizer of PyMC."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_dp.compile import function
from pymc_dp.methods.families import Params


class Optimizer(NamedTuple):
    """``init(params) -> state``; ``step(state, params, gradient, t) -> state, params``, uphill."""

    init: Callable[[Params], Any]
    step: Callable[[Any, Params, Params, int], tuple[Any, Params]]


def decaying_adam(rates: Mapping[str, float], n: int, last: float = 0.1) -> Optimizer:
    """Adam (Kingma and Ba 2015) whose rates fall linearly to ``last`` times their first values.

    Parameters
    ----------
    rates : mapping
        The learning rate of every parameter, by its name.
    n : int
        The number of steps, over which the rates fall.
    last : float
    """
    beta1, beta2, tiny = 0.9, 0.999, 1e-8

    def init(params: Params) -> tuple[Params, Params]:
        zeros = {name: np.zeros_like(value) for name, value in params.items()}
        return zeros, dict(zeros)

    def step(state, params, gradient, t):
        m = {k: beta1 * state[0][k] + (1 - beta1) * g for k, g in gradient.items()}
        v = {k: beta2 * state[1][k] + (1 - beta2) * g**2 for k, g in gradient.items()}
        scale = 1 - (1 - last) * t / n
        scale *= math.sqrt(1 - beta2 ** (t + 1)) / (1 - beta1 ** (t + 1))
        return (m, v), {
            k: x + rates[k] * scale * m[k] / (np.sqrt(v[k]) + tiny) for k, x in params.items()
        }

    return Optimizer(init, step)


def from_pymc(obj_optimizer: Callable) -> Optimizer:
    """Wrap an optimizer of PyMC, ``pm.adagrad_window(learning_rate=0.1)`` say.

    It keeps its state in shared variables of its own, which never see data.

    Raises
    ------
    TypeError
        It is no function.
    """
    if not callable(obj_optimizer):
        raise TypeError(
            f"obj_optimizer={obj_optimizer!r} must be an optimizer of PyMC, such as "
            "pm.adam(learning_rate=0.05)."
        )

    def init(params: Params):
        shared = {name: pytensor.shared(value.copy(), name) for name, value in params.items()}
        gradients = {name: pt.vector(name, dtype="float64") for name in params}
        downhill = [-g for g in gradients.values()]
        updates = obj_optimizer(downhill, list(shared.values()))
        return shared, function(list(gradients.values()), [], "python", updates)

    def step(state, params, gradient, t):
        shared, advance = state
        for name, variable in shared.items():
            variable.set_value(params[name])
        advance(*[np.asarray(gradient[name]) for name in shared])
        return state, {name: variable.get_value() for name, variable in shared.items()}

    return Optimizer(init, step)
