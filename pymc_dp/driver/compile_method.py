"""A method that is compiled, and tried on made-up rows, before any budget is spent."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pymc_dp.compiling.compile import compile_mode
from pymc_dp.contributions.padding import padded
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


def compile_method(setup: Setup, backend: str) -> Compiled:
    """Compile a method for a backend, and try it on made-up rows."""
    compile_mode(backend)
    method, spec = setup.method, setup.data.spec
    compiled = method.compile(backend)
    backend = compiled.runs_on or backend
    axes = {name: column.axis for name, column in spec.items()}
    for_backend = partial(_for_backend, method.compile, backend, axes)
    compiled = compiled._replace(
        contributions=for_backend(compiled.contributions),
        again=lambda: for_backend(method.compile(backend).contributions),
    )
    exact = backend == "python"
    for state in method.trials(np.random.default_rng(0)):
        query = method.query(state, rng=np.random.default_rng(0))
        _rehearse(setup, compiled, state, query)
        exact = exact and _is_exact(setup, compiled.contributions[query.name], query)
    return compiled._replace(is_exact=exact)


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


def _rehearse(setup: Setup, compiled: Compiled, state: Any, query: Query) -> None:
    """Try the graphs on made-up rows before any release."""
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
            compiled.update(state, query, noisy)
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
