"""Several fits within one budget, all of whose settings are fixed before the first one runs."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dp.accounting.plan import Plan
from pymc_dp.calibration.budget import Budget
from pymc_dp.driver import calibration
from pymc_dp.driver.fit import fit
from pymc_dp.driver.plan import WHILE_RUNNING
from pymc_dp.driver.setup import set_up

# the noise grows by so much until plans, whose epsilons are rounded, keep to the budget together
GROWTH, MOST_TRIES = 1.01, 4
ONE: dict[str, Any] = {"sample_rate": 1.0, "n": 1, "sampling": "full"}
METHOD = "dp_advi"
# what belongs to one model, or to one fit
REFUSED = ("noise_multiplier", "model", "method", "n", "data", "public_start", "unit", "checkpoint")
TERMS = ("neighbours", "accountant", "num_records")


def fit_all(
    models: Mapping[str, pm.Model], epsilon: float, delta: float, settings: Mapping[str, Any]
) -> dict[str, xr.DataTree]:
    """Fit models of one data set, each with a share in proportion to its latents.

    **Privacy.** The plans of all fits are made, and composed, before the first release; nothing in
    them depends on a release. What a fit refuses of its inputs is refused then.
    """
    for name in REFUSED:
        if name in settings:
            raise ValueError(f"Fits of columns take no {name}=.")
    each = _epsilons(models, epsilon, delta, settings)
    return {
        name: fit(model=model, method=METHOD, epsilon=each[name], delta=delta, **settings)
        for name, model in models.items()
    }


def _epsilons(
    models: Mapping[str, pm.Model], epsilon: float, delta: float, settings: Mapping[str, Any]
) -> dict[str, float]:
    """Return the epsilon of every fit, so that all of them keep to the budget together."""
    Budget(epsilon, delta)
    if epsilon == math.inf:
        return dict.fromkeys(models, epsilon)
    terms = {key: settings[key] for key in TERMS if key in settings}
    of_plan = {key: x for key, x in settings.items() if key not in {*WHILE_RUNNING, "backend"}}
    parts = shares(models)
    noise = calibration.calibrate(epsilon=epsilon, delta=delta, **ONE, **terms)
    for _ in range(MOST_TRIES):
        each = {
            name: calibration.epsilon(
                noise_multiplier=noise / share**0.5, delta=delta, **ONE, **terms
            )
            for name, share in parts.items()
        }
        plans = [
            set_up(models[x], METHOD, None, epsilon=each[x], delta=delta, **of_plan).plan
            for x in models
        ]
        if _together(plans).epsilon() <= epsilon:
            return each
        noise *= GROWTH
    raise ValueError(f"No fits of all columns keep to epsilon={epsilon:g}: give a larger one.")


def shares(models: Mapping[str, pm.Model]) -> dict[str, float]:
    """Return each model's share of all latents: noise then widens all of them by one factor."""
    sizes = {}
    for name, model in models.items():
        start = model.initial_point()
        sizes[name] = sum(np.size(start[v.name]) for v in model.value_vars)
    return {name: size / sum(sizes.values()) for name, size in sizes.items()}


def _together(plans: list[Plan]) -> Plan:
    """Put the releases of all plans into one."""
    return replace(plans[0], releases=tuple(one for plan in plans for one in plan.releases))
