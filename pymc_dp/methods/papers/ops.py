"""One posterior sample (Wang, Fienberg and Smola 2015, algorithm 1): the exponential mechanism.

A posterior whose log likelihoods are bounded is private by itself, as far as its draws are exact.
"""

import math
from dataclasses import dataclass

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dp.accounting.plan import ReleaseSpec
from pymc_dp.contributions.posterior_draw import EXPONENTIAL, posterior_draw
from pymc_dp.errors import NotSeparableError
from pymc_dp.methods.algorithm import POSTERIOR_SAMPLING
from pymc_dp.methods.method import Compiled, Draws, Method
from pymc_dp.methods.model_class import MethodSpec
from pymc_dp.methods.options import Options, option
from pymc_dp.methods.papers.sampling_defaults import DEFAULTS
from pymc_dp.methods.refusal import require_shared_latents
from pymc_dp.model import Records
from pymc_dp.privacy.query import Query
from pymc_dp.sampling.samplers import FixedSize, Full


@dataclass(frozen=True, kw_only=True)
class OpsOptions(Options):
    """The options of `dp_ops`."""

    loglik_bound: float | None = option(
        None,
        "bound that a record's log likelihood is clipped to; 5 for each outcome, and without noise "
        "none",
    )
    transitions: int = option(
        DEFAULTS.transitions, "steps of PyMC's NUTS behind a draw, the first half of which adapt"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampling is FixedSize:
            raise ValueError("dp_ops reads every record for a draw: leave sampling= out.")
        if self.transitions < DEFAULTS.least_transitions:
            raise ValueError(
                f"transitions={self.transitions} are too few for a sampler to find its way: give "
                f"at least {DEFAULTS.least_transitions}."
            )
        if self.loglik_bound is not None and not self.loglik_bound > 0:
            raise ValueError(f"loglik_bound={self.loglik_bound!r} must be above 0.")


State = tuple[np.ndarray, ...]  # the draws that were released, each of shape (size,)


def build(records: Records, options: OpsOptions) -> Method:
    """Build private posterior sampling for one model.

    Its ``n`` draws share the budget, epsilon / n each, and each has a chain of its own.

    **Privacy.** ``n`` draws from the posterior whose log likelihoods, clipped to B, are divided
    by a temperature. One costs 2 B / temperature, and 4 B / temperature under replace-one
    neighbours, *if it is exact*. A chain is not, and how far it is off is unknown; so a result
    states ``epsilon_if_exact``, and no epsilon.
    """
    require_shared_latents(records)
    _refuse_improper(records)
    given, transitions = options.loglik_bound, options.transitions
    # for each outcome of a record, of which there may be several
    outcomes = sum(math.prod(n or 1 for n in t.type.shape[1:]) for t in records.batch.terms)
    bound = options.default_clip_norm(float(DEFAULTS.bound_per_outcome * outcomes))
    bound = bound if given is None else float(given)
    count = 1 if options.n is None else options.n

    def compile_parts(backend: str) -> Compiled:
        contributions = {"draw": posterior_draw(records, backend, transitions)}
        return Compiled(contributions, lambda state, query, noisy: (*state, noisy.value))

    def released(state: State) -> np.ndarray:
        return np.array(state or [records.start])

    def posterior(state: State, draws: int, rng: np.random.Generator) -> Draws:
        return dict(zip(records.point, records.split(released(state)[:draws]), strict=True))

    def describe(state: State) -> xr.Dataset:
        draws = {"released_draws": (("draws", "rows"), released(state))}
        return xr.Dataset(draws, {"rows": records.labels})

    return Method(
        size=records.size,
        releases=(ReleaseSpec("draw", Full(), bound, count, mechanism=EXPONENTIAL),),
        compile=compile_parts,
        init=lambda rng: (),
        query=lambda state, rng: Query("draw", records.start),
        posterior=posterior,
        describe=describe,
        trace=lambda state: {"sample_path": (("rows",), released(state)[-1])},
        settings={"loglik_bound": bound, "transitions": transitions},
        algorithms=(POSTERIOR_SAMPLING,),
        defaults=(DEFAULTS,),
        most_draws=count,
    )


DP_OPS = MethodSpec(
    name="dp_ops",
    build=build,
    options=OpsOptions,
    fits="no latents of single records; private if its draws are exact",
    by=str(POSTERIOR_SAMPLING),
    algorithm=POSTERIOR_SAMPLING,
    page="posterior_sampling",
)


def _refuse_improper(records: Records) -> None:
    """A bounded likelihood cannot make up for a prior without a total."""
    for name, op in records.distributions.items():
        if issubclass(op, (pm.Flat.rv_type, pm.HalfFlat.rv_type)):
            raise NotSeparableError(
                f"`{name}` has a flat prior: with bounded likelihoods there is then no posterior "
                "to draw from. Give it a proper prior."
            )
