"""A fitted model is opened for one more release, of all records, which is made like a fit's."""

import json
import math
import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dp.accounting.release import ReleaseSpec
from pymc_dp.calibration.budget import Budget
from pymc_dp.driver.compile_method import compile_method
from pymc_dp.driver.run import run_releases
from pymc_dp.driver.setup import Setup, separation
from pymc_dp.errors import PrivacyWarning
from pymc_dp.ledger.ledger import Ledger
from pymc_dp.ledger.opening import open_ledger
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.options import require_shared_latents
from pymc_dp.model import PrivateData, Records, constrained
from pymc_dp.model.missing import MASK
from pymc_dp.privacy.contribution import RowContribution, UnitVector
from pymc_dp.privacy.query import Noisy, Query
from pymc_dp.results.allow_list import privacy_of
from pymc_dp.results.build import Outcome
from pymc_dp.sampling.samplers import Full


class Fitted(NamedTuple):
    """Graphs of a model with latents on their own scales, its data, and released draws."""

    records: Records
    data: PrivateData
    points: np.ndarray  # (draws, records.size)
    public: tuple[str, ...]  # what the fit declared public


def later_budget(
    idata: xr.DataTree, *, neighbours: str | None, unit: str | None, **terms: Any
) -> Budget:
    """Return the budget of a release of all records: what is None in these two is as in the fit."""
    attrs = privacy_of(idata).attrs
    return Budget(
        neighbours=neighbours or attrs["neighbours"],
        unit=attrs.get("unit") if unit is None else unit,
        sampling="full",
        **terms,
    )


def open_fitted(
    idata: xr.DataTree,
    model: pm.Model,
    data: Mapping[str, Any] | None,
    budget: Budget,
    draws: int,
    numbers: Mapping[str, tuple[float, ...]] = MappingProxyType({}),
) -> Fitted:
    """Split a model into its records again, and take draws of its posterior as points.

    ``numbers`` are public, by what they are, for a comparison with the records. Raises ValueError
    where the result is not private, although the budget asks for privacy, or is that of another
    model. Warns where the budget protects something else than the fit did.
    """
    privacy = privacy_of(idata).attrs
    if budget.noisy and not math.isfinite(privacy["epsilon"]):
        raise ValueError(
            f"The guarantee of this result is {privacy['guarantee']!r}. What is computed from it "
            "would be no more private: give a private result, or epsilon=inf here as well."
        )
    fits, asked = (privacy["neighbours"], privacy.get("unit")), (budget.neighbours, budget.unit)
    if budget.noisy and fits != asked:
        warnings.warn(
            "The fit has neighbours={!r} and unit={!r}, and this release {!r} and {!r}: what their "
            "epsilons protect is not the same, and they do not add up. Leave neighbours= and unit= "
            "out to take those of the fit.".format(*fits, *asked),
            PrivacyWarning,
            stacklevel=4,
        )
    public = tuple(json.loads(privacy["declared_public"]))
    separated = separation(model, budget, public=public, data=data, numbers=numbers)
    records, checked = separated(constrained(model))
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


def drawn_leaves(records: Records, instead: str) -> dict[str, str]:
    """Return the data of each observed variable; ``instead`` is what to do where none is drawn."""
    if records.outcomes is None:
        raise ValueError(
            "The model does not say how its outcomes are drawn, record by record: a pm.Potential "
            f"has a density alone. {instead}"
        )
    return {name: leaf for leaf, name in records.drawn.items()}


def ask(
    name: str,
    fitted: Fitted,
    budget: Budget,
    ledger: Ledger | str | PathLike[str] | None,
    backend: str,
    *,
    compile_one: Callable[[str], RowContribution],
    context: Any,
    size: int,
    clip_norm: float,
) -> tuple[Noisy, Outcome]:
    """Release one noisy sum of a size; all bad input is refused before any budget is spent.

    ``compile_one`` compiles the contribution for a backend, and ``context`` is its own. Units of
    several records add the means of their records' vectors.

    **Privacy.** One Gaussian release of all records by the wall, from the plan that the ledger sets
    aside. An interrupted one is paid for, unless the interrupt came before it was booked.
    """
    # what is compiled is sent to workers, and may hold no data
    method = Method(
        size=size,
        releases=(ReleaseSpec(name, Full(), clip_norm, count=1),),
        compile=lambda backend: Compiled(
            {name: averaged_by_unit(compile_one(backend))}, lambda state, query, noisy: noisy
        ),
        init=lambda rng: None,
        query=lambda state, rng: Query(name, context),
        # no posterior follows from it
        posterior=lambda state, draws, rng: {},
        describe=lambda state: xr.Dataset(),
        trace=lambda state: {},
        settings={},
        algorithms=(),
    )
    plan = budget.settle(method.releases)
    setup = Setup(name, fitted.records, fitted.data, method, plan)
    ledger = open_ledger(ledger)
    compiled = compile_method(setup, backend)
    rng = np.random.default_rng(0)
    states, outcome = run_releases(setup, compiled, rng, range(1), ledger=ledger)
    if states[-1] is None:
        raise KeyboardInterrupt(
            f"The release of {name!r} was interrupted: count its budget as spent, unless the "
            "fit has a ledger; the ledger's report says whether it was booked."
        )
    return states[-1], outcome._replace(public=fitted.public)


def averaged_by_unit(contribution: RowContribution) -> RowContribution:
    """Let a unit's vector be the mean of its records': each unit counts once.

    **Privacy.** A mean lies in every ball, and in every convex set, that holds what it is of: the
    bound of a record's vector is that of a unit's.
    """

    def with_one(prepared: Any, context: Any) -> np.ndarray:
        vectors = contribution.rows(prepared, context)
        return np.column_stack([vectors, np.ones(len(vectors))])

    def mean(sums: np.ndarray, context: Any) -> np.ndarray:
        return np.asarray(sums[:, :-1] / np.maximum(sums[:, -1:], 1.0))

    unit = UnitVector(contribution.size + 1, mean, rows=with_one)
    return contribution._replace(unit=unit)
