"""PyMC's own doors: ``pm.fit`` takes the private methods, and others say what they do not protect.

Functions of PyMC are wrapped when this package is imported, and do what they did for all other
calls. What PyMC's conversion makes of data is noted, for a private fit of the model.
"""

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import pymc as pm
import xarray as xr
from pymc import pytensorf
from pymc.stats import log_density
from pymc.variational.inference import Inference

import pymc_dp  # what is read from it is loaded when it is needed

# keywords that only a private method takes: PyMC's own would ignore them
PRIVATE_KEYWORDS = {
    "epsilon",
    "delta",
    "noise_multiplier",
    "neighbours",
    "accountant",
    "ledger",
    "clip_norm",
}
# whether one of the functions that read records runs
_INSIDE: ContextVar[bool] = ContextVar("inside", default=False)
# what PyMC hands over as n where its caller gave none
PYMC_STEPS = inspect.signature(Inference.fit).parameters["n"].default


def install() -> None:
    """Let the functions of PyMC that have a wrapper here call it, once, in all of its modules."""
    wrapped = {function: _wrapped(function, wrapper) for function, wrapper in WRAPPERS.items()}
    for module in [m for name, m in sys.modules.items() if name.partition(".")[0] == "pymc"]:
        for name, value in [*vars(module).items()]:
            if inspect.isfunction(value) and value in wrapped:
                setattr(module, name, wrapped[value])


def _wrapped(function: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return wrapper(function, *args, **kwargs)

    return call


def _is_private(method: Any) -> bool:
    from pymc_dp.methods.registry import METHODS  # when it is needed: it loads all methods

    return isinstance(method, str) and method.lower() in METHODS


def _fit(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    # n=10000 is PyMC's default: only what the caller gave must reach a private method
    given = inspect.signature(original).bind_partial(*args, **kwargs).arguments
    given |= given.pop("kwargs", {})
    method = given.get("method", "advi")
    if _is_private(method):
        return pymc_dp.fit(**given)
    if isinstance(method, PrivateInference):
        return method.fit(**{name: value for name, value in given.items() if name != "method"})
    called = f"method={method!r}" if "method" in given else "pm.fit without method="
    _refuse_private_keywords(f"{called} is not private and takes no", kwargs)
    return original(*args, **kwargs)


def _sample(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if _is_private(kwargs.get("method")):
        raise TypeError(
            f"pm.sample has no method={kwargs['method']!r}: call pm.fit(method=...) in its place."
        )
    _refuse_private_keywords("pm.sample runs MCMC without privacy and takes no", kwargs)
    return original(*args, **kwargs)


def _refuse_private_keywords(what: str, keywords: Mapping[str, Any]) -> None:
    for name in sorted(PRIVATE_KEYWORDS & keywords.keys()):
        raise TypeError(
            f"{what} {name}=: call pm.fit(method='dp_advi', ...), or give another private method, "
            "such as 'vips'. pymc_dp.explain(model) says which of them fit a model."
        )


def _reads_records(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if _INSIDE.get():  # they call each other
        return original(*args, **kwargs)
    token = _INSIDE.set(True)
    try:
        result = original(*args, **kwargs)
    finally:
        _INSIDE.reset(token)
    given = inspect.signature(original).bind(*args, **kwargs).arguments.values()
    if any(map(_is_ours, given)):
        for tree in (result, *(x for x in given if isinstance(x, xr.DataTree))):
            _mark(tree)
        warnings.warn(
            f"pm.{original.__name__} computes from the data in the model: what it adds is not "
            "covered by the guarantee of this result. Publish none of it: pymc_dp.save leaves it "
            "out, to_netcdf and to_zarr do not. For new records use pymc_dp.predict.",
            pymc_dp.PrivacyWarning,
            stacklevel=3,
        )
    return result


def _is_ours(draws: Any) -> bool:
    """Whether draws are those of a private result: the tree, or its posterior."""
    if isinstance(draws, xr.DataTree) and "posterior" in draws.children:
        draws = draws["posterior"]
    return bool(getattr(draws, "attrs", {}).get("inference_library") == "pymc_dp")


def _mark(result: Any) -> None:
    """Say in every group that was added that nothing is guaranteed for it."""
    from pymc_dp.results.report import added_names

    groups: list[Any] = [result] if isinstance(result, xr.Dataset) else []
    if isinstance(result, xr.DataTree):
        added = added_names(result) if "privacy" in result.children else result.children
        groups = [result[name] for name in added if name in result.children]
    for group in groups:
        group.attrs["guarantee"] = "none: computed after the fit, from the data in the model"


def _converted(original: Callable[..., Any], data: Any) -> Any:
    from pymc_dp.tables.given import take_note

    return take_note(original, data)


WRAPPERS: dict[Callable[..., Any], Callable[..., Any]] = {
    pm.fit: _fit,
    pm.sample: _sample,
    pytensorf.convert_data: _converted,
    pm.sample_posterior_predictive: _reads_records,
    pm.compute_deterministics: _reads_records,
    log_density.compute_log_likelihood: _reads_records,
    log_density.compute_log_density: _reads_records,
    log_density.compute_log_prior: _reads_records,
}


class PrivateInference(Inference):  # type: ignore[misc]  # PyMC's has no types
    """A method of `pymc_dp.fit` with its settings, for ``pm.fit(method=...)``."""

    method: str

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def fit(self, n: int = PYMC_STEPS, **settings: Any) -> Any:
        """Run `pymc_dp.fit`; what PyMC hands over where its caller gave nothing counts as none."""
        given = {"n": None if n == PYMC_STEPS else n, **settings}
        given["include_transformed"] = given.get("include_transformed") or None
        given = {name: value for name, value in given.items() if value is not None}
        return pymc_dp.fit(method=self.method, **self.settings, **given)


class DPADVI(PrivateInference):
    """The method ``"dp_advi"`` for ``pm.fit(method=...)``, with settings of `pymc_dp.fit`.

    `DPFullRankADVI`, `VIPS` and `DPSEP` are the same for their methods.

    Notes
    -----
    **Privacy.** As `pymc_dp.fit`, which runs: every fit with the object spends anew. ``pm.fit``
    hands over ``n=10000`` where it was given none, which counts as none: for as many releases give
    ``n=10000`` here.

    Examples
    --------
    >>> import pymc_dp
    >>> pymc_dp.DPADVI(epsilon=1, delta=1e-5).method
    'dp_advi'
    """

    method = "dp_advi"


class DPFullRankADVI(PrivateInference):
    """The method ``"dp_fullrank_advi"`` for ``pm.fit(method=...)``; see `DPADVI`."""

    method = "dp_fullrank_advi"


class VIPS(PrivateInference):
    """The method ``"vips"`` for ``pm.fit(method=...)``; see `DPADVI`."""

    method = "vips"


class DPSEP(PrivateInference):
    """The method ``"dp_sep"`` for ``pm.fit(method=...)``; see `DPADVI`."""

    method = "dp_sep"
