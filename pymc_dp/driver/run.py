"""The loop of every fit: ask, release, update; and its progress bar."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from inspect import isroutine
from traceback import format_exception_only
from typing import Any

import numpy as np
from rich.progress import Progress

from pymc_dp.accounting.release import Release
from pymc_dp.driver.checkpoint import Checkpoint
from pymc_dp.driver.setup import Setup
from pymc_dp.driver.undisturbed import undisturbed
from pymc_dp.ledger.ledger import Ledger
from pymc_dp.methods.method import Compiled, in_words
from pymc_dp.privacy.partitions import nothing
from pymc_dp.privacy.query import Noisy, Query
from pymc_dp.privacy.wall import PrivacyWall
from pymc_dp.results.build import Outcome

# the releases to make, and what to call whenever a partition has answered
Steps = tuple[Iterator[int], Callable[[], None]]


@contextmanager
def progress(positions: range, partitions: int, shown: bool) -> Iterator[Steps]:
    """Show how far a fit is while the block runs; a screen that is gone ends no fit."""
    bar = Progress(disable=not shown)
    what = "Private releases" if partitions == 1 else "Private passes over partitions"
    completed = positions.start * partitions
    task = bar.add_task(what, total=positions.stop * partitions, completed=completed)

    def counted() -> Iterator[int]:
        for i in positions:
            yield i
            bar.update(task, completed=(i + 1) * partitions)

    with suppress(Exception):
        bar.start()
    try:
        yield counted(), lambda: bar.advance(task)
    finally:
        with suppress(Exception):
            bar.stop()


Callback = Callable[[Any, None, int], Any]  # called as (state, None, i), like those of pm.fit


def run_releases(
    setup: Setup,
    compiled: Compiled,
    rng: np.random.Generator,
    steps: Iterable[int],
    callbacks: Sequence[Callback] = (),
    ledger: Ledger | None = None,
    done: Callable[[], None] = nothing,
    checkpoint: Checkpoint | None = None,
) -> tuple[list[Any], Outcome]:
    """Put the data behind a wall and make the releases; return the states along the way.

    Releases that a checkpoint holds are not made again: states follow from them. What a ledger has
    set aside for them is settled at the end, however it comes about.
    """
    method, plan = setup.method, setup.plan
    ask, update = partial(method.query, rng=rng), compiled.update
    kept = checkpoint.kept() if checkpoint else []
    states = [method.init(rng)]
    for name, noisy in kept:
        with undisturbed():
            query = ask(states[-1])
            if query.name != name:
                raise ValueError("The checkpoint holds releases that this fit does not make.")
            states.append(update(states[-1], query, noisy))
    with ExitStack() as ends:
        account = None if ledger is None else partial(_account, ends, setup, ledger, checkpoint)
        made = [name for name, *_ in kept]
        wall = build_wall(setup, compiled, reserve=account, done=done, made=made)
        release = wall.release if checkpoint is None else partial(checkpoint.release, wall)
        states = run(release, states, ask, update, steps, callbacks)
    source = wall.random
    outcome = Outcome(
        setup.name,
        plan,
        wall.made,
        source.label,
        source.valid,
        compiled.is_exact,
        algorithm=in_words(method.algorithms),
    )
    return states, outcome


def _account(
    ends: ExitStack, setup: Setup, ledger: Ledger, checkpoint: Checkpoint | None
) -> Callable[[Release], None] | None:
    """Set the plan aside, to be settled at the end.

    Return what books releases, None if the checkpoint does.
    """
    if checkpoint is None:
        return ends.enter_context(ledger.reserve(setup.name, setup.plan))
    checkpoint.books(ends.enter_context(checkpoint.reserve(ledger, setup)))
    return None


def build_wall(setup: Setup, compiled: Compiled, **settings: Any) -> PrivacyWall:
    """Put the data behind a wall, which checks that they are those of the plan."""
    return PrivacyWall(
        setup.data, compiled.contributions, setup.plan, compile_again=compiled.again, **settings
    )


def run(
    release: Callable[[Query], Noisy],
    states: list[Any],
    ask: Callable[[Any], Query],
    update: Callable[[Any, Query, Noisy], Any],
    steps: Iterable[int],
    callbacks: Sequence[Callback] = (),
) -> list[Any]:
    """Release once a step; return the states so far and along the way, the last one last.

    A callback's StopIteration, or an interrupt, ends the fit with what was released until then. A
    callback that fails is not called again: the budget is spent, so that the fit goes on.
    """
    states, callbacks = list(states), list(callbacks)
    try:
        for i in steps:
            with undisturbed():
                query = ask(states[-1])
                states.append(update(states[-1], query, release(query)))
            for callback in tuple(callbacks):
                try:
                    callback(read_only(states[-1]), None, i)
                except StopIteration:
                    raise
                except Exception as error:
                    callbacks = [other for other in callbacks if other is not callback]
                    _warn(callback, i, error)
    except (StopIteration, KeyboardInterrupt):
        pass
    return states


def read_only(value: Any) -> Any:
    """Copy a state, with views of its arrays that cannot be written to.

    Earlier states that it holds stay as they are.

    >>> read_only({"mean": np.zeros(2)})["mean"].flags.writeable
    False
    """
    if isinstance(value, np.ndarray):
        view = value.view()
        view.flags.writeable = False
        return view
    if isinstance(value, dict):
        return {key: read_only(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [item if type(item) is type(value) else read_only(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _warn(callback: Callback, i: int, error: Exception) -> None:
    name = callback.__name__ if isroutine(callback) else type(callback).__name__
    reason = format_exception_only(error)[-1].strip()  # also of one that has no text
    with undisturbed():
        warnings.warn(
            f"The callback {name} failed after release {i} ({reason}) and is "
            "not called again. The fit goes on: its budget is spent. A private fit calls it as "
            "(state, None, i), with what was released, in place of an approximation and losses.",
            RuntimeWarning,
            stacklevel=3,
        )
