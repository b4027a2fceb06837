"""One release of all records, beside any fit: settled, reserved, made and told like a fit's."""

from collections.abc import Callable
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_dp.accounting.budget import Budget
from pymc_dp.accounting.release import ReleaseSpec
from pymc_dp.accounting.samplers import Full
from pymc_dp.contributions import Contribution
from pymc_dp.driver.run import run_releases
from pymc_dp.driver.setup import Setup, compile_method
from pymc_dp.ledger.ledger import Ledger, open_ledger
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.model import PrivateData, Records
from pymc_dp.privacy.contribution import UnitVector
from pymc_dp.privacy.query import Noisy, Query
from pymc_dp.results.build import Outcome


class Question(NamedTuple):
    """What is asked of the records: one noisy sum."""

    name: str
    records: Records
    data: PrivateData
    compile: Callable[[str], Contribution]  # backend -> Contribution
    context: Any  # of the contribution; public values
    size: int  # of the sum
    clip_norm: float


def ask(
    question: Question,
    budget: Budget,
    ledger: Ledger | str | PathLike[str] | None,
    backend: str | None,
) -> tuple[Noisy, Outcome]:
    """Make the release; all bad input is refused before any budget is spent.

    **Privacy.** One Gaussian release of all records by the wall, from the plan that the ledger sets
    aside. An interrupted one is paid for, unless the interrupt came before it was booked.
    """
    # what is compiled is sent to workers, and may hold no data
    name, compile_one = question.name, question.compile
    method = Method(
        size=question.size,
        releases=(ReleaseSpec(name, Full(), question.clip_norm, count=1),),
        compile=lambda backend: Compiled(
            {name: compile_one(backend)}, lambda state, query, noisy: noisy
        ),
        init=lambda rng: None,
        query=lambda state, rng: Query(name, question.context),
        # no posterior follows from it
        posterior=lambda state, draws, rng: {},
        describe=lambda state: xr.Dataset(),
        trace=lambda state: {},
        settings={},
    )
    plan = budget.settle(method.releases)
    setup = Setup(name, question.records, question.data, method, plan)
    ledger = open_ledger(ledger)
    compiled = compile_method(setup, backend)
    rng = np.random.default_rng(0)
    states, outcome = run_releases(setup, compiled, rng, range(1), ledger=ledger)
    if states[-1] is None:
        raise KeyboardInterrupt(
            f"The release of {name!r} was interrupted: count its budget as spent, unless the "
            "fit has a ledger; the ledger's report says whether it was booked."
        )
    return states[-1], outcome


def mean_of_unit(size: int, rows: Callable[[Any, Any], np.ndarray]) -> UnitVector:
    """Let a unit's vector be the mean of its records': each unit counts once.

    **Privacy.** A mean lies in every ball, and in every convex set, that holds what it is of: the
    bound of a record's vector is that of a unit's.
    """

    def with_one(prepared: Any, context: Any) -> np.ndarray:
        found = rows(prepared, context)
        return np.column_stack([found, np.ones(len(found))])

    return UnitVector(
        size + 1, lambda sums, context: sums[:, :-1] / np.maximum(sums[:, -1:], 1.0), rows=with_one
    )
