"""Add the private methods to ``pm.fit``; all other calls go to PyMC unchanged."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pymc as pm
import pymc.variational
import pymc.variational.inference

# the modules that bind pm.fit by name
MODULES = (pm, pymc.variational, pymc.variational.inference)

# keywords that only a private method takes: PyMC's own would ignore them
BUDGET = {"epsilon", "delta", "noise_multiplier"}


def install() -> None:
    """Wrap ``pm.fit`` where it is bound, once."""
    original = pymc.variational.inference.fit
    if getattr(original, "__pymc_dp__", False):
        return
    wrapped = _wrap(original)
    for module in MODULES:
        module.fit = wrapped


def is_private(method: Any) -> bool:
    """Return whether a method is one of pymc_dp's."""
    from pymc_dp.methods.registry import METHODS  # when it is needed: it loads all methods

    return isinstance(method, str) and method.lower() in METHODS


def private_fit(**settings: Any) -> Any:
    """Call `pymc_dp.fit`."""
    from pymc_dp.driver.fit import fit

    return fit(**settings)


def _wrap(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def fit(*args: Any, **kwargs: Any) -> Any:
        # n=10000 is PyMC's default: only what the caller gave must reach a private method
        given = signature.bind_partial(*args, **kwargs).arguments
        method = given.get("method", "advi")
        if is_private(method):
            given.update(given.pop("kwargs", {}))
            return private_fit(**given)
        for term in BUDGET & kwargs.keys():
            raise TypeError(
                f"method={method!r} is not private and takes no {term}=: use method='dp_advi', or "
                "another one of pymc_dp.fit."
            )
        return original(*args, **kwargs)

    fit.__dict__.update(__pymc_dp__=True, __signature__=signature)
    return fit
