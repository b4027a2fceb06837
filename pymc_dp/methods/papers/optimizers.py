"""Steps along noisy gradients: a decaying Adam, and any optimizer of PyMC."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import shared

from pymc_dp.compiling.compile import function
from pymc_dp.methods.papers.families import Params
from pymc_dp.methods.papers.gradient_defaults import DEFAULTS

new_variable: Callable[..., Any] = shared


class Optimizer(NamedTuple):
    """``init(params) -> state``; ``step(state, params, gradient, t) -> state, params``, uphill."""

    init: Callable[[Params], Any]
    step: Callable[[Any, Params, Params, int], tuple[Any, Params]]


def decaying_adam(rates: Mapping[str, float], n: int) -> Optimizer:
    """Adam (Kingma and Ba 2015) whose rates, one a parameter, fall linearly over ``n`` steps."""
    last, beta1, beta2, tiny = DEFAULTS.last_rate, 0.9, 0.999, 1e-8

    def init(params: Params) -> tuple[Params, Params]:
        zeros = {name: np.zeros_like(value) for name, value in params.items()}
        return zeros, dict(zeros)

    def step(
        state: tuple[Params, Params], params: Params, gradient: Params, t: int
    ) -> tuple[tuple[Params, Params], Params]:
        m = {k: beta1 * state[0][k] + (1 - beta1) * g for k, g in gradient.items()}
        v = {k: beta2 * state[1][k] + (1 - beta2) * g**2 for k, g in gradient.items()}
        scale = 1 - (1 - last) * t / n
        scale *= math.sqrt(1 - beta2 ** (t + 1)) / (1 - beta1 ** (t + 1))
        return (m, v), {
            k: x + rates[k] * scale * m[k] / (np.sqrt(v[k]) + tiny) for k, x in params.items()
        }

    return Optimizer(init, step)


def from_pymc(obj_optimizer: Callable[..., Any]) -> Optimizer:
    """Wrap an optimizer of PyMC, which keeps its state in shared variables and reads no data."""
    if not callable(obj_optimizer):
        raise TypeError(
            f"obj_optimizer={obj_optimizer!r} must be an optimizer of PyMC, such as "
            "pm.adam(learning_rate=0.05)."
        )

    def init(params: Params) -> tuple[dict[str, Any], Callable[..., Any]]:
        variables = {name: new_variable(value.copy(), name) for name, value in params.items()}
        gradients = {name: pt.vector(name, dtype="float64") for name in params}
        downhill = [-g for g in gradients.values()]
        updates = obj_optimizer(downhill, list(variables.values()))
        return variables, function(list(gradients.values()), [], "python", updates)

    def step(state: Any, params: Params, gradient: Params, t: int) -> tuple[Any, Params]:
        variables, advance = state
        for name, variable in variables.items():
            variable.set_value(params[name])
        advance(*[np.asarray(gradient[name]) for name in variables])
        return state, {name: variable.get_value() for name, variable in variables.items()}

    return Optimizer(init, step)
