"""Expected outcomes on public rows, averaged: post-processing of a released posterior."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pymc.distributions.moments import mean
from pymc.exceptions import UndefinedMomentException
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BernoulliRV
from pytensor.tensor.random.op import RandomVariable

from pymc_dp.postprocess.predict import predict
from pymc_dp.postprocess.settings import Setting
from pymc_dp.tables.formula import changed_copy, is_bambi, pymc_model


def public_margins(
    idata: xr.DataTree,
    model: Any,
    settings: Sequence[Setting],
    rows: Any,
    weights: Any,
    outcome: str | None,
    public: Sequence[str],
) -> tuple[np.ndarray, bool]:
    """Average expected outcomes on rows, (settings, draws); and whether these are probabilities."""
    rows = rows if is_bambi(model) else {k: np.asarray(rows[k]) for k in _names(rows)}
    share = _share(weights, rows)
    made, name, is_share = _with_expected(model, idata, _names(rows), outcome)
    margins = []
    for one in settings:
        # `predict` refuses numbers that may come from the records, and warns of fitted rows
        found = predict(idata, made, _set(rows, one), var_names=name, public=public)
        values = found["predictions"][name].stack(point=("chain", "draw")).transpose("point", ...)
        array = np.asarray(values.to_numpy(), "float64")
        margins.append(array.reshape(*array.shape[:2], -1).mean(axis=2) @ share)
    return np.stack(margins), is_share


def _names(rows: Any) -> list[str]:
    return [str(name) for name in getattr(rows, "columns", rows)]


def _share(weights: Any, rows: Any) -> np.ndarray:
    lengths = {len(rows[name]) for name in _names(rows)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError("over= must hold arrays of equal length, with at least one row.")
    [length] = lengths
    given = np.ones(length) if weights is None else np.asarray(weights, "float64")
    if given.shape != (length,) or not np.isfinite(given).all() or (given < 0).any():
        raise ValueError(
            f"weights= must be one finite number of at least 0 for each of {length} rows."
        )
    if not given.sum() > 0:
        raise ValueError("weights= are all 0: there is nothing to average over.")
    return np.asarray(given / given.sum())


def _set(rows: Any, setting: Setting) -> Any:
    changed = rows.copy()
    number = len(rows[_names(rows)[0]])
    for place, value in setting.values.items():
        name, column = (place, None) if isinstance(place, str) else place
        if column is None:
            changed[name] = np.full(number, value)
            if hasattr(rows, "columns") and name in rows:  # with the same levels
                changed[name] = changed[name].astype(rows[name].dtype)
            continue
        if name not in rows or np.ndim(rows[name]) != 2 or column >= rows[name].shape[1]:
            raise ValueError(f"settings= names {place!r}, which is no column of over=.")
        array = np.array(rows[name])
        changed[name] = array.astype(np.result_type(array, np.asarray(value)))
        changed[name][:, column] = value
    return changed


def _with_expected(
    model: Any, idata: xr.DataTree, given: Sequence[str], outcome: str | None
) -> tuple[Any, str, bool]:
    """Return the model with its expected outcome as a deterministic, and the name of that."""
    made: pm.Model = pymc_model(model)
    posterior = idata["posterior"].to_dataset()
    for rv in made.free_RVs:
        if rv.name not in posterior:
            raise ValueError(
                f"`{rv.name}` belongs to single records or units, and the posterior does not hold "
                "it: an expected outcome would be that of the latents drawn for these rows. Draw "
                "outcomes of new persons by pymc_dp.predict and average them, or leave "
                f"`{rv.name}` out."
            )
    if is_bambi(model):
        return model, outcome or model.family.likelihood.parent, model.family.name == "bernoulli"
    name = _outcome(made, outcome)
    if name in {str(v.name) for v in made.deterministics}:
        return made, name, False
    made = changed_copy(made, lambda graph: None)
    rv = made[name]
    try:
        expected = mean(_of_any_length(rv))
    except (NotImplementedError, UndefinedMomentException):
        raise NotImplementedError(
            f"PyMC does not know the mean of `{name}`. Give the model a pm.Deterministic that is "
            "its expected value, and name it: outcome='...'."
        ) from None
    for other in made.observed_RVs:
        if other in ancestors([expected]) and other.name not in given:
            raise ValueError(f"over= lacks `{other.name}`, which the expected outcome depends on.")
    with made:
        pm.Deterministic(expected_name(name), expected)
    return made, expected_name(name), isinstance(rv.owner.op, BernoulliRV)


def _of_any_length(rv: Any) -> Any:
    """Draw as many as the parameters say: the size is that of the fitted records."""
    node = rv.owner
    if not isinstance(node.op, RandomVariable):
        return rv
    parameters = node.op.dist_params(node)
    make: Any = node.op.make_node
    return make(node.op.rng_param(node), None, *parameters).outputs[1]


def expected_name(name: str) -> str:
    """Name the expected value of an observed variable."""
    return f"expected {name}"


def _outcome(model: pm.Model, outcome: str | None) -> str:
    observed = [str(rv.name) for rv in model.observed_RVs]
    if outcome is None and len(observed) == 1:
        return observed[0]
    known = [*observed, *(str(v.name) for v in model.deterministics)]
    if outcome not in known:
        raise ValueError(f"outcome={outcome!r} must be one of {known}.")
    return outcome
