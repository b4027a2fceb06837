"""One posterior sample (Wang, Fienberg and Smola 2015, algorithm 1): the exponential mechanism.

A posterior whose log likelihoods are bounded is private by itself, as far as its draws are exact.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dp.contributions.posterior_draw import posterior_draw
from pymc_dp.errors import NotSeparableError
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.refusal import require_shared_latents
from pymc_dp.query import Noisy, Query
from pymc_dp.records import Records
from pymc_dp.release import Release, check_count

# log densities of about unit scale: a normal outcome reaches -5 at three standard deviations
BOUND_PER_OUTCOME = 5.0
TRANSITIONS = 1000
FEWEST_TRANSITIONS = 100


class State(NamedTuple):
    """The draws that were released, each of shape (size,)."""

    draws: tuple[np.ndarray, ...]


def dp_ops(
    records: Records,
    *,
    sampling: str,
    num_records: int | None,
    noise: float,
    n: int | None = None,
    loglik_bound: float | None = None,
    transitions: int = TRANSITIONS,
) -> Method:
    """Build private posterior sampling for one model.

    Parameters
    ----------
    records : Records
    sampling, num_records
        Every draw reads all records; batches of fixed size are refused.
    noise : float
        Relative noise multiplier: 1, or 0 for a fit without privacy.
    n : int, default 1
        Draws. They share the budget, epsilon / n each, and each has a chain of its own.
    loglik_bound : float, optional
        A record's log likelihood is clipped to plus or minus this number; by default 5 for each
        of its outcomes.
    transitions : int, default 1000
        Steps of PyMC's NUTS behind a draw, the first half of which adapt.

    Returns
    -------
    Method

    Raises
    ------
    NotSeparableError
        A latent belongs to single records, or has no proper prior.
    ValueError
        A setting is out of its range.

    Notes
    -----
    **Privacy.** ``n`` draws from the posterior whose log likelihoods, clipped to B, are divided
    by a temperature. One costs 2 B / temperature, and 4 B / temperature under replace-one
    neighbours, *if it is exact*. A chain is not, and how far it is off is unknown; so a result
    states ``epsilon_if_exact``, and no epsilon.
    """
    require_shared_latents(records)
    _refuse_improper(records)
    if sampling == "fixed_size":
        raise ValueError("dp_ops reads every record for a draw: leave sampling= out.")
    bound = _default_bound(records) if loglik_bound is None else float(loglik_bound)
    check_count("transitions", transitions)
    if transitions < FEWEST_TRANSITIONS:
        raise ValueError(
            f"transitions={transitions} are too few for a sampler to find its way: give at least "
            f"{FEWEST_TRANSITIONS}."
        )
    if not bound > 0:
        raise ValueError(f"loglik_bound={bound!r} must be above 0.")
    count = 1 if n is None else n

    def compile_parts(backend: str) -> Compiled:
        return Compiled({"draw": posterior_draw(records, backend, transitions)}, _update)

    def released(state: State) -> np.ndarray:
        return np.array(state.draws or [records.start])

    def posterior(state: State, draws: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return dict(zip(records.point, records.split(released(state)[:draws]), strict=True))

    return Method(
        size=records.size,
        releases=(Release("draw", "full", 1.0, bound, noise, count, "exponential"),),
        compile=compile_parts,
        init=lambda rng: State(()),
        query=lambda state, rng: Query("draw", records.start),
        posterior=posterior,
        describe=lambda state: _describe(released(state), records.labels),
        trace=lambda state: {"sample_path": (("rows",), released(state)[-1])},
        settings={"loglik_bound": bound, "transitions": transitions},
        most_draws=count,
    )


def _update(state: State, query: Query, noisy: Noisy) -> State:
    return State((*state.draws, noisy.value))


def _refuse_improper(records: Records) -> None:
    """A bounded likelihood cannot make up for a prior without a total."""
    for name, op in records.distributions.items():
        if isinstance(op, pm.Flat.rv_type | pm.HalfFlat.rv_type):
            raise NotSeparableError(
                f"`{name}` has a flat prior: with bounded likelihoods there is then no posterior "
                "to draw from. Give it a proper prior."
            )


def _default_bound(records: Records) -> float:
    """Return the bound for each outcome, times the outcomes of a record."""
    widths = [math.prod(length or 1 for length in t.type.shape[1:]) for t in records.batch.terms]
    return BOUND_PER_OUTCOME * sum(widths)


def _describe(draws: np.ndarray, labels: list[str]) -> xr.Dataset:
    variables: dict[str, Any] = {"released_draws": (("draws", "rows"), draws)}
    return xr.Dataset(variables, {"rows": labels})
