"""Terms of a log likelihood that are finite mixtures."""

from typing import NamedTuple

import numpy as np
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.special import LogSumExp

from pymc_dp.model.graph_types import AnyVariable, Tensor


class Mixture(NamedTuple):
    """A term that is a log sum over components, in the graph of one record."""

    joint: Tensor  # log joint densities of the components, along ``axis``
    axis: tuple[int, ...]
    weights: Tensor  # stands for the responsibilities


def mixture_of(term: AnyVariable) -> Mixture | None:
    """Find the log sum over components that a term is, if it is one."""
    while term.owner is not None and isinstance(
        term.owner.op, Alloc | DimShuffle | Reshape | SpecifyShape
    ):
        term = term.owner.inputs[0]
    if term.owner is None or not isinstance(term.owner.op, LogSumExp):
        return None
    joint, axis = term.owner.inputs[0], term.owner.op.axis
    axes = range(joint.ndim) if axis is None else np.atleast_1d(axis) % joint.ndim
    weights = joint.type.clone(dtype="float64")("responsibilities")
    return Mixture(joint, tuple(int(a) for a in axes), weights)
