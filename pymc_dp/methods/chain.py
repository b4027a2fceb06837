"""Stages of a fit, one after the other, as one method.

What comes after a first method, such as rounds in whitened coordinates or a score, is a method like
any other to the plan, the wall, the driver and the result.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.accounting.plan import ReleaseSpec
from pymc_dp.methods.method import Both, Compiled, Method
from pymc_dp.privacy.query import Noisy, Query


class Stage(NamedTuple):
    """What follows in a chain: a method that starts where the one before it ends."""

    # its own initial state is not used; shares of its releases are of the budget of the whole chain
    method: Method
    # last state of the method before -> first state
    hand_over: Callable[[Any], Any] = lambda state: state


class Staged(NamedTuple):
    """A state of a chain."""

    stage: int  # which stage it belongs to; 0 is the first method
    left: int  # how many releases the stage has before it hands over
    state: Any  # that of the stage


def chain(first: Method, *stages: Stage) -> Method:
    """Let stages follow a method.

    **Privacy.** The releases of all stages stand in one plan, in which each stage has its share of
    the whole budget. Handing over is post-processing.
    """
    parts = (first, *(stage.method for stage in stages))
    counts = [sum(release.count for release in part.releases) for part in parts]

    def start(stage: int, state: Any) -> Staged:
        return Staged(stage, counts[stage], state)

    def by_stage(name: str) -> Callable[..., Any]:
        return lambda staged, *args, **kw: getattr(parts[staged.stage], name)(
            staged.state, *args, **kw
        )

    def noise_aware(staged: Staged, draws: int, rng: np.random.Generator) -> Both | None:
        draw = parts[staged.stage].noise_aware
        return draw and draw(staged.state, draws, rng)

    def compile_parts(backend: str) -> Compiled:
        compiled = [part.compile(backend) for part in parts]

        def update(staged: Staged, query: Query, noisy: Noisy) -> Staged:
            stage, left, state = staged
            state, left = compiled[stage].update(state, query, noisy), left - 1
            if left or stage == len(stages):
                return Staged(stage, left, state)
            return start(stage + 1, stages[stage].hand_over(state))

        contributions = {k: c for part in compiled for k, c in part.contributions.items()}
        runs_on = {part.runs_on for part in compiled}
        return Compiled(contributions, update, runs_on.pop() if len(runs_on) == 1 else None)

    aware = any(part.noise_aware for part in parts)
    return first._replace(
        size=max(part.size for part in parts),
        releases=with_shares(
            first.releases, *(spec for part in parts[1:] for spec in part.releases)
        ),
        compile=compile_parts,
        init=lambda rng: start(0, first.init(rng)),
        query=by_stage("query"),
        posterior=by_stage("posterior"),
        noise_aware=noise_aware if aware else None,
        describe=by_stage("describe"),
        trace=by_stage("trace"),
        doubts=by_stage("doubts"),
        rehearsal=partial(_trials, first, stages, start),
        algorithms=tuple(dict.fromkeys(each for part in parts for each in part.algorithms)),
        defaults=tuple(dict.fromkeys(found for part in parts for found in part.defaults)),
    )


def _trials(
    first: Method,
    stages: Sequence[Stage],
    start: Callable[[int, Any], Staged],
    rng: np.random.Generator,
) -> tuple[Staged, ...]:
    """Return states to try every kind of release at: each stage begins where the first one does."""
    tried = [start(0, state) for state in first.trials(rng)]
    state = first.init(rng)
    for i, stage in enumerate(stages, 1):
        state = stage.hand_over(state)
        tried.append(start(i, state))
    return tuple(tried)


def with_shares(before: Iterable[ReleaseSpec], *added: ReleaseSpec) -> tuple[ReleaseSpec, ...]:
    """Append releases that take their shares of a budget from those before."""
    left = 1 - sum(spec.share or 0.0 for spec in added)
    kept = (
        spec if spec.share is None else replace(spec, share=spec.share * left) for spec in before
    )
    return (*kept, *added)
