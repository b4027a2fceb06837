"""A fitted model, opened for one more release: its records, and draws of its posterior."""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dp.accounting.budget import Budget
from pymc_dp.driver.setup import separation
from pymc_dp.methods.refusal import require_shared_latents
from pymc_dp.model import PrivateData, Records, constrained
from pymc_dp.model.missing import MASK
from pymc_dp.results.allow_list import privacy_of


class Fitted(NamedTuple):
    """Graphs of a model with latents on their own scales, its data, and released draws."""

    records: Records
    data: PrivateData
    points: np.ndarray  # (draws, records.size)
    public: tuple[str, ...]  # what the fit declared public


def open_fitted(
    model: pm.Model, idata: xr.DataTree, data: Mapping[str, Any] | None, budget: Budget, draws: int
) -> Fitted:
    """Split a model into its records again, and take draws of its posterior as points.

    Raises ValueError where the result is not private, although the budget asks for privacy, or is
    that of another model.
    """
    privacy = privacy_of(idata).attrs
    if budget.noisy and not math.isfinite(privacy["epsilon"]):
        raise ValueError(
            f"The guarantee of this result is {privacy['guarantee']!r}. What is computed from it "
            "would be no more private: give a private result, or epsilon=inf here as well."
        )
    public = tuple(json.loads(privacy["declared_public"]))
    records, checked = separation(model, budget, public=public, data=data)(constrained(model))
    require_shared_latents(
        records, ", so that nothing of a single record follows from the posterior alone."
    )
    if masks := [name for name in records.batch.inputs if name.startswith(MASK)]:
        raise ValueError(
            f"The model has {masks[0]!r}: what fills the gap would count as an outcome. Check the "
            "records that are complete, by data=, with a model without missing entries."
        )
    return Fitted(records, checked(), _points(records, idata, draws), public)


def _points(records: Records, idata: xr.DataTree, most: int) -> np.ndarray:
    """Take evenly spaced draws: those of a chain are alike side by side."""
    posterior = idata["posterior"].to_dataset().stack(point=("chain", "draw"))
    parts = []
    for name, start in records.point.items():
        if name not in posterior or posterior[name].shape[:-1] != start.shape:
            raise ValueError(
                f"The posterior holds no `{name}` of shape {start.shape}: give the model that was "
                "fitted."
            )
        values = posterior[name].transpose("point", ...).to_numpy()
        parts.append(values.reshape(len(values), -1).astype("float64"))
    every = np.concatenate(parts, axis=1)
    chosen = np.unique(np.linspace(0, len(every) - 1, most).astype(int))
    return np.asarray(every[chosen])
