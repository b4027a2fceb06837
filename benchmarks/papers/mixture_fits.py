"""What fits the mixture: every method of the experiment, by its label and epsilon."""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import xarray as xr

from benchmarks.papers import full_ep, private_em
from benchmarks.papers.default_clip import default_clip_norm
from benchmarks.papers.mixture_data import COMPONENTS, RECORDS, D, Posterior, model
from benchmarks.papers.quiet import quiet
from pymc_dp.driver.fit import set_up
from pymc_dp.driver.run import compile_method, run_releases
from pymc_dp.model import Column, PrivateData

DELTA = 1e-5
# Clip norms stand to the natural size of a site here as the paper's 20, 10 and 1 stand to its own:
# in units of a record that size is sqrt(5); natural parameters (4x, 4I) have a norm of about 13.
CLIPPED = {f"sep, clipped at {c:g}": c for c in (3.4, 1.7, 0.17)}
# what all of the package's fits have
TERMS: dict[str, Any] = {"sampling": "full", "public": ("shares", "noise")}
# the package's settings; the number of records is public under replace-one neighbours alone
SETTINGS: dict[str, dict[str, Any]] = {
    "sep": {"method": "sep"},
    **{label: {"method": "dp_sep", "clip_norm": c} for label, c in CLIPPED.items()},
    "dp_sep": {"method": "dp_sep", "form": "damped"},
    "dp_sep, replace-one": {
        "method": "dp_sep",
        "form": "damped",
        "neighbours": "replace_one",
        "num_records": RECORDS,
    },
    "vips": {"method": "vips", "form": "absolute"},
}
WITHOUT_NOISE = ("ep", "sep", *CLIPPED, "dp_sep")
WITH_NOISE = ("dp_sep", "dp_sep, replace-one", "vips", "dp_em")

Fitter = Callable[[np.ndarray, int], Posterior]


@cache
def fitter(label: str, epsilon: float) -> Fitter:
    """Compile one kind of fit; return what fits any data from the start of a seed."""
    if label == "ep":
        return full_ep.fit
    if label == "dp_em":
        return quiet()(partial(private_em.fit, epsilon=epsilon, delta=DELTA))
    budget = {"epsilon": epsilon} if math.isinf(epsilon) else {"epsilon": epsilon, "delta": DELTA}
    settings = SETTINGS[label] | ({} if label == "sep" else budget)
    if label == "dp_sep" and math.isinf(epsilon):
        settings["clip_norm"] = default_clip_norm(
            model(np.zeros((RECORDS, D))), **TERMS, **SETTINGS[label]
        )
    return compiled(**settings)


@quiet()
def compiled(**settings) -> Fitter:
    """Prepare and compile for made-up records, and put those of each fit behind a wall of its own.

    Compiling takes as long as a fit or two, and depends on nothing but the number of records.
    """
    template = model(np.zeros((RECORDS, D)))
    prepared = set_up(template, n=None, **TERMS, **settings)
    parts = compile_method(prepared, "python")
    [(name, spec)] = prepared.data.spec.items()

    def fit(X: np.ndarray, seed: int) -> Posterior:
        held = prepared._replace(data=PrivateData({name: Column(X, spec.axis, spec.dtype)}))
        steps, rng = range(prepared.plan.total), np.random.default_rng(seed)
        states, _ = run_releases(held, parts, rng, steps)
        return posterior_of(prepared.method.describe(states[-1]))

    return fit


def posterior_of(fit: xr.Dataset) -> Posterior:
    """Read the centres' moments off a result; mean-field fits have variances alone."""
    means = fit["mean_vector"].to_numpy().reshape(COMPONENTS, D)
    if "covariance_matrix" in fit:
        whole = fit["covariance_matrix"].to_numpy().reshape(COMPONENTS, D, COMPONENTS, D)
        return Posterior(means, np.stack([whole[k, :, k] for k in range(COMPONENTS)]))
    sds = fit["standard_deviation"].to_numpy().reshape(COMPONENTS, D)
    return Posterior(means, np.stack([np.diag(sd**2) for sd in sds]))
