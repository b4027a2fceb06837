"""Teach ``pm.fit`` the private methods; everything else goes to PyMC untouched."""

import functools
import inspect

import pymc as pm
import pymc.variational
import pymc.variational.inference

from pymc_dp.fit import fit as private_fit
from pymc_dp.prepare import METHODS

# the modules that bind pm.fit by name
MODULES = (pm, pymc.variational, pymc.variational.inference)

# what PyMC's own methods do not know: whoever gives it asks for privacy
BUDGET = {"epsilon", "delta", "noise_multiplier"}


def install() -> None:
    """Wrap ``pm.fit`` where it is bound, once."""
    original = pymc.variational.inference.fit
    if getattr(original, "__pymc_dp__", False):
        return
    wrapped = _wrap(original)
    for module in MODULES:
        module.fit = wrapped


def _wrap(original):
    signature = inspect.signature(original)

    @functools.wraps(original)
    def fit(*args, **kwargs):
        # n=10000 is PyMC's default: only what the caller gave must reach a private method
        given = signature.bind_partial(*args, **kwargs).arguments
        method = given.get("method", "advi")
        if isinstance(method, str) and method.lower() in METHODS:
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
