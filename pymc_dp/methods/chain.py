"""Stages of a fit, one after the other, as one method.

What comes after a first method, such as rounds in whitened coordinates or a score, is a method like
any other to the plan, the wall, the driver and the result.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_dp.accounting.release import ReleaseSpec, with_shares
from pymc_dp.methods.method import Compiled, Draws, Method, Trace, no_doubts
from pymc_dp.privacy.query import Noisy, Query


class Stage(NamedTuple):
    """What follows in a chain: a `Method` that starts where the stage before it ends."""

    hand_over: Callable[[Any], Any]  # last state of the stage before -> first state
    # what it asks for; shares are of the budget of the whole chain
    releases: tuple[ReleaseSpec, ...]
    # compile, query, posterior, noise_aware, describe, trace, doubts, defaults: as in `Method`, for
    # states of this stage
    compile: Callable[[str], Compiled]
    query: Callable[..., Query]
    posterior: Callable[[Any, int, np.random.Generator], Draws]
    describe: Callable[[Any], xr.Dataset]
    trace: Callable[[Any], Trace]
    noise_aware: Callable[[Any, int, np.random.Generator], Draws | None] | None = None
    doubts: Callable[[Any], tuple[str, ...]] = no_doubts
    defaults: tuple[Any, ...] = ()


def as_stage(method: Method, hand_over: Callable[[Any], Any]) -> Stage:
    """Let a method follow another one; its own initial state is not used."""
    parts = {name: getattr(method, name) for name in Stage._fields if name != "hand_over"}
    return Stage(hand_over=hand_over, **parts)


class Staged(NamedTuple):
    """A state of a chain."""

    stage: int  # which stage it belongs to; 0 is the first method
    left: int  # how many releases the stage has before it hands over
    state: Any  # that of the stage


def chain(first: Method, *stages: Stage) -> Method:
    """Let stages follow a method.

    Every part of the chain answers by the stage of its state. The last stage does not hand over.

    Notes
    -----
    **Privacy.** The releases of all stages stand in one plan, in which each stage has its share of
    the whole budget. Handing over is post-processing.
    """
    parts: tuple[Method | Stage, ...] = (first, *stages)
    counts = [sum(release.count for release in part.releases) for part in parts]

    def start(stage: int, state: Any) -> Staged:
        return Staged(stage, counts[stage], state)

    def by_stage(name: str) -> Callable[..., Any]:
        return lambda staged, *args, **kw: getattr(parts[staged.stage], name)(
            staged.state, *args, **kw
        )

    def noise_aware(staged: Staged, draws: int, rng: np.random.Generator) -> Draws | None:
        draw = parts[staged.stage].noise_aware
        return draw and draw(staged.state, draws, rng)

    def trials(rng: np.random.Generator) -> tuple[Staged, ...]:
        tried = [start(0, state) for state in first.trials(rng)]
        state = first.init(rng)
        for i, stage in enumerate(stages, 1):
            state = stage.hand_over(state)
            tried.append(start(i, state))
        return tuple(tried)

    def compile_parts(backend: str) -> Compiled:
        compiled = [part.compile(backend) for part in parts]

        def update(staged: Staged, query: Query, noisy: Noisy) -> Staged:
            stage, left, state = staged
            state, left = compiled[stage].update(state, query, noisy), left - 1
            if left or stage == len(stages):
                return Staged(stage, left, state)
            return start(stage + 1, stages[stage].hand_over(state))

        contributions = {k: c for part in compiled for k, c in part.contributions.items()}
        return Compiled(contributions, update)

    aware = any(part.noise_aware for part in parts)
    return first._replace(
        releases=with_shares(
            first.releases, *(spec for stage in stages for spec in stage.releases)
        ),
        compile=compile_parts,
        init=lambda rng: start(0, first.init(rng)),
        query=by_stage("query"),
        posterior=by_stage("posterior"),
        noise_aware=noise_aware if aware else None,
        describe=by_stage("describe"),
        trace=by_stage("trace"),
        doubts=by_stage("doubts"),
        rehearsal=trials,
        defaults=tuple(dict.fromkeys(found for part in parts for found in part.defaults)),
    )
