"""Survey weights: a private column outside the model's graph, with a public upper bound."""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pymc as pm
from pymc.model.fgraph import ModelPotential
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Mul
from pytensor.tensor.elemwise import Elemwise
from scipy.sparse import issparse

from pymc_dp.accounting.plan import checked_number
from pymc_dp.model.columns import as_array, is_length_of, private_column, readers
from pymc_dp.model.graphs import AnyVariable
from pymc_dp.privacy.private_data import Blocks, Column
from pymc_dp.tables.formula import changed_copy

HINT = "weights=pymc_dp.SurveyWeights('w', upper=...)"


@dataclass(frozen=True)
class SurveyWeights:
    """Say which column holds survey weights, and what is public about them.

    A record of weight w adds w / upper times what it adds without weights, and the posterior has
    the width of the design: that of an estimate from weighted scores (Binder 1983).

    Parameters
    ----------
    name : str
        Of a ``pm.Data`` with one number a record, from 0 to ``upper``. The model does not read it,
        or multiplies the log density of a potential by it, ``pm.Potential("y", w * density)``.
    upper : float
        The largest weight that a record can have: a public number, from how the sample was drawn,
        never from the weights at hand. Noise grows with its ratio to the usual weight.
    power : float, default 1
        Weights are raised to this public power, from 0 to 1. Below 1 they differ less, which
        leaves less noise and some of the sample's bias.

    Notes
    -----
    **Privacy.** The column is private, and is read by the wall alone; its name, the bound and the
    power are public. A record's part of a release is as long as without weights, or shorter.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     weight = pm.Data("weight", np.repeat([1.0, 4.0], [600, 400]))
    ...     mean = pm.Normal("mean", 0, 10)
    ...     y = pm.Normal("y", mean, 1, observed=np.repeat([0.0, 1.0], [600, 400]))
    >>> by_design = pymc_dp.SurveyWeights("weight", upper=5)
    >>> idata = pymc_dp.fit(
    ...     model=model, weights=by_design, epsilon=5, delta=1e-5, progressbar=False
    ... )
    >>> bool(0.6 < idata["posterior"]["mean"].mean() < 0.85)
    True
    """

    name: str
    upper: float
    power: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"name={self.name!r:.40} must be the name of a pm.Data.")
        if not 0 < (checked_number("upper", self.upper) or 0) < np.inf:
            raise ValueError(f"upper={self.upper!r} must be a number above 0, and not infinite.")
        if not 0 < (checked_number("power", self.power) or 0) <= 1:
            raise ValueError(f"power={self.power!r} must lie above 0, and be at most 1.")

    def shares(self, weights: np.ndarray) -> np.ndarray:
        """Return what of a record counts, from 0 to 1; nan for a weight that is not finite.

        >>> SurveyWeights("w", upper=4.0).shares(np.array([0.0, 1.0, 8.0, -2.0, np.inf]))
        array([0.  , 0.25, 1.  , 0.  , nan])
        """
        finite = np.where(np.isfinite(weights), weights, np.nan)
        return np.asarray(np.clip(finite / self.upper, 0.0, 1.0) ** self.power)


def without_factors(model: pm.Model, weights: SurveyWeights) -> pm.Model:
    """Return a copy whose potentials ``w * density`` are the densities; else the model itself."""
    every = {*model.basic_RVs, *model.deterministics, *model.potentials}
    weighted = {
        p.name
        for p in model.potentials
        if _without_factor(p, weights.name) is not None and p not in ancestors(every - {p})
    }

    def change(fgraph: FunctionGraph) -> None:
        for node in fgraph.toposort():
            if isinstance(node.op, ModelPotential) and node.op.name in weighted:
                density: Any = _without_factor(node.inputs[0], weights.name)
                fgraph.change_node_input(node, 0, density, import_missing=True)

    return changed_copy(model, change) if weighted else model


def _without_factor(product: AnyVariable, name: str) -> AnyVariable | None:
    """Return what a column is multiplied by, with a row a record; None if it is nothing such."""
    if not (isinstance(op := product.owner_op, Elemwise) and isinstance(op.scalar_op, Mul)):
        return None
    factors = product.owner.inputs
    others = [x for x in factors if not (isinstance(x, SharedVariable) and x.name == name)]
    if len(others) != len(factors) - 1:
        return None
    density = reduce(operator.mul, others)
    return density if density.type.broadcastable == product.type.broadcastable else None


def read_weights(
    model: pm.Model, weights: SurveyWeights, data: Mapping[str, Any] | None, public: Iterable[str]
) -> Column:
    """Check the weights of all records, or those that ``data`` gives, and return their column."""
    how_to_add = f"pm.Data({weights.name!r}, weights) to the model, with one number a record"
    column, values = private_column(model, "weights", weights.name, data, public, how_to_add)
    for name in readers(model, column, is_length_of):  # how many there are may be read
        raise ValueError(
            f"`{name}` reads `{column.name}`, which weights= names, so that records would be "
            "weighted twice: leave it out of the model, or give predictors another name."
        )
    return Column(_checked(weights, values), 0, "float64")


def _checked(weights: SurveyWeights, values: Any) -> np.ndarray:
    what = f"weights=`{weights.name}`"
    if isinstance(values, Blocks) or issparse(values):
        raise ValueError(f"{what} is sparse or in chunks: give one array of numbers for all rows.")
    numbers = as_array(what, values)
    if numbers.ndim != 1:
        raise ValueError(f"{what} has {numbers.ndim} axes and needs one: one number a record.")
    if not ((numbers >= 0) & (numbers <= weights.upper)).all():
        raise ValueError(
            f"{what} has weights below 0, above upper={weights.upper:g} or not finite: "
            "give each record one, and as upper= the public largest that the survey's design "
            "allows, or cut longer weights to it."
        )
    return np.asarray(numbers, "float64")
