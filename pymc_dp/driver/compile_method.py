"""A method that is compiled, and tried on made-up rows, before any budget is spent."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pymc_dp.compiling.compile import compile_mode
from pymc_dp.contributions.padding import padded
from pymc_dp.driver.run_time import ReleaseTime, expected_batch, run_time, seconds_of, timed
from pymc_dp.driver.setup import Setup
from pymc_dp.driver.undisturbed import undisturbed
from pymc_dp.methods.method import Compiled
from pymc_dp.privacy.contribution import (
    Contribution,
    Contributions,
    FactoredContribution,
    for_units,
    rehearse,
    unit_vector,
)
from pymc_dp.privacy.probe import FaultyContributionError, is_same_in_any_batch, probe
from pymc_dp.privacy.query import Noisy, Query

# seconds on the Python linker from which on Numba, which compiles for up to a minute, is tried too
WORTH_COMPILING = 60.0


def compile_method(setup: Setup, backend: str | None) -> Compiled:
    """Compile a method for a backend, by default the one on which made-up rows take less time."""
    if backend is not None:
        compile_mode(backend)
        return _compile(setup, backend)
    at_once = _compile(setup, "python")
    if at_once.runs_on or _seconds(setup, at_once) < WORTH_COMPILING:
        return at_once
    try:
        compiled = _compile(setup, "numba")
    except NotImplementedError:  # it does not know every operation
        return at_once
    return min(at_once, compiled, key=partial(_seconds, setup))


def _seconds(setup: Setup, compiled: Compiled) -> float:
    without_updates = {name: x._replace(update=0.0) for name, x in compiled.times.items()}
    return run_time(setup.plan, without_updates).seconds


def _compile(setup: Setup, backend: str) -> Compiled:
    """Compile a method, try it on made-up rows, and time its releases."""
    method, spec = setup.method, setup.data.spec
    compiled = method.compile(backend)
    backend = compiled.runs_on or backend
    axes = {name: column.axis for name, column in spec.items()}
    for_backend = partial(_for_backend, method.compile, backend, axes)
    compiled = compiled._replace(
        contributions=for_backend(compiled.contributions),
        again=lambda: for_backend(method.compile(backend).contributions),
    )
    times: dict[str, ReleaseTime] = {}
    exact = backend == "python"
    for state in method.trials(np.random.default_rng(0)):
        query = method.query(state, rng=np.random.default_rng(0))
        times |= _rehearse(setup, compiled, state, query)
        exact = exact and _is_exact(setup, compiled.contributions[query.name], query)
    return compiled._replace(times=times, is_exact=exact)


def _for_backend(
    compile_parts: Callable[[str], Compiled],
    backend: str,
    axes: dict[str, int],
    contributions: Contributions,
) -> Contributions:
    """Pad batches where every size is compiled anew; take those that jump from Python."""
    adapted = {
        name: padded(c, axes) if backend == "jax" and isinstance(c, Contribution) else c
        for name, c in contributions.items()
    }
    jumping = [name for name, c in contributions.items() if getattr(c, "jumps", False)]
    if jumping and backend != "python":
        in_python = compile_parts("python").contributions
        adapted |= {name: in_python[name] for name in jumping}
    return adapted


def _is_exact(setup: Setup, contribution: Any, query: Query) -> bool:
    """Whether the proof of a release holds for the arithmetic of the machine, in Python."""
    if not isinstance(contribution, Contribution):
        return False
    of_units = setup.data.unit is not None
    if of_units:
        contribution = for_units(contribution)
        if unit_vector(contribution).rows is None:
            return False
    elif isinstance(contribution, FactoredContribution) and not contribution.sum_is_bounded:
        return False
    with np.errstate(all="ignore"):
        return is_same_in_any_batch(contribution, setup.data.spec, query.context, of_units=of_units)


def _rehearse(setup: Setup, compiled: Compiled, state: Any, query: Query) -> dict[str, ReleaseTime]:
    """Try the graphs on made-up rows before any release; return times of noisy sums by name."""
    contribution, data = compiled.contributions[query.name], setup.data
    batch = {name: spec.zeros(2) for name, spec in data.spec.items()}
    try:
        with undisturbed():
            if isinstance(contribution, Contribution):
                value = rehearse(contribution, batch, query.context, data.unit is not None)
                in_use = contribution if data.unit is None else for_units(contribution)
                probe(in_use, data.spec, query.context)
            else:
                value = contribution.rehearse(batch, query.context)
            # made-up rows may lie outside the likelihood's support; noise there always is
            noisy = Noisy(np.nan_to_num(value, posinf=0.0), 1.0, 1.0)
            updating = seconds_of(partial(compiled.update, state, query, noisy))
            if not isinstance(contribution, Contribution):
                return {}
            expected = expected_batch(setup.plan, query.name)
            time = timed(in_use, data, query.context, expected)
            return {query.name: time._replace(update=updating)}
    except FaultyContributionError as fault:
        raise NotImplementedError(
            f"Release {query.name!r} would not be private on this backend: on made-up records, "
            f"{fault}. Nothing was released; try backend='python', or report this as a bug."
        ) from fault
    except Exception as error:
        raise NotImplementedError(
            f"The model's graph does not run on this backend ({type(error).__name__}: {error}). "
            "Nothing was released; try backend='python'."
        ) from error
