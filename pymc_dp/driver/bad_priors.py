"""Refuse priors that no fit in double precision can take, before anything is spent."""

import math
from typing import Any

import numpy as np
import pymc as pm
import pytensor.scalar.basic as ps
from pymc.distributions.continuous import Interpolated
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle

from pymc_dp.errors import NotSeparableError
from pymc_dp.model import Records
from pymc_dp.model.graph_types import AnyVariable, Node, stored_value
from pymc_dp.model.modes import as_written
from pymc_dp.model.terms import simplify
from pymc_dp.model.walk import tensor_constants

MOST_ENTRIES = 10**7
LARGEST = 1e100


def refuse_unfit(model: pm.Model) -> None:
    """Refuse latents that would take gigabytes, and those whose density is in no graph."""
    for rv in model.free_RVs:
        if math.prod(length or 1 for length in rv.type.shape) > MOST_ENTRIES:
            raise ValueError(
                f"`{rv.name}` has more than {MOST_ENTRIES} entries, and a fit computes with "
                "vectors of as many: give it a smaller shape."
            )
        if isinstance(rv.owner_op, Interpolated.rv_type):
            raise NotSeparableError(
                f"`{rv.name}` is a pm.Interpolated, whose density PyMC computes from points "
                "outside of the graph. Take a distribution of a few public parameters in its "
                "place, or a pm.Mixture of some."
            )


def refuse_bad_priors(model: pm.Model, records: Records) -> None:
    """Refuse priors without a density at the start, and numbers whose squares are not finite.

    Their draws would not be finite either, and be released in place of a result. ``records`` are
    those of ``model``, whose priors therefore read no data.
    """
    latents = [rv for rv in model.free_RVs if model.rvs_to_values[rv].name in records.latents]
    for rv in latents:
        if any(map(_has_extremes, _numbers(rv))):
            raise ValueError(
                f"The prior of `{rv.name}` reads a number whose square is beyond double precision: "
                f"use numbers between {1 / LARGEST:g} and {LARGEST:g}."
            )
    # the graph of the whole prior is there already, and few are not finite
    if records.observes_public or not _is_finite_at_start(records):
        _refuse_infinite(model, records, latents)


def _is_finite_at_start(records: Records) -> bool:
    point = [records.point[name].astype(x.type.dtype) for name, x in records.latents.items()]
    [density] = as_written([*records.latents.values()], [records.prior])(*point)
    return bool(np.isfinite(density))


def _refuse_infinite(model: pm.Model, records: Records, latents: list[Any]) -> None:
    """Refuse the first of the latents without a finite density of its own at the start."""
    values = [model.rvs_to_values[rv] for rv in latents]
    # PyMC raises where a parameter is none of its distribution's, and does not say of which
    terms: list[Any] = simplify(model.logp(vars=latents, sum=False))
    densities = as_written(values, [term.sum() for term in terms])
    point = [records.point[value.name].astype(value.dtype) for value in values]
    with np.errstate(all="ignore"):
        found = densities(*point)
    for rv, density in zip(latents, found, strict=True):
        if not np.isfinite(density):
            raise ValueError(
                f"The prior of `{rv.name}` has no finite density at its initial value: give its "
                "parameters values that its distribution has, such as a positive sd, and an "
                "initial value within its support."
            )


def _numbers(rv: Any) -> list[np.ndarray]:
    read = list(ancestors([rv]))
    shared = [stored_value(v) for v in read if isinstance(v, SharedVariable)]
    guards = {x for v in read if v.owner for x in _guards(v.owner)}
    constants = [v.data for v in tensor_constants(read) if not (v in guards and abs(v.data) < 1)]
    return [np.asarray(x) for x in (*constants, *shared)]


def _guards(node: Node) -> list[AnyVariable]:
    """Return single numbers that keep others off zero, by addition or as the least: any may do."""
    if not isinstance(getattr(node.op, "scalar_op", None), ps.Add | ps.ScalarMaximum | ps.Clip):
        return []
    operands = [x.owner.inputs[0] if isinstance(x.owner_op, DimShuffle) else x for x in node.inputs]
    return [x for x in operands if isinstance(x, Constant) and np.size(x.data) == 1]


def _has_extremes(numbers: np.ndarray) -> bool:
    if numbers.dtype.kind not in "iuf":
        return False
    sizes = np.abs(numbers.astype("float64"))
    found = (sizes > LARGEST) & (sizes < np.inf) | (sizes < 1 / LARGEST) & (sizes > 0)
    return bool(found.any())
