"""A model as a prior plus one log likelihood per record, or a reason why it is not."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op

from pymc_dp.records.axis import refuse_mixing
from pymc_dp.records.batch import RecordGraph, build_graph
from pymc_dp.records.checks import (
    refuse_bad_start,
    refuse_data_in_prior,
    refuse_discrete,
    refuse_hidden,
    refuse_undeclared,
    refuse_unknown_names,
    refuse_unread,
    refuse_unsupported,
)
from pymc_dp.records.columns import Column, make_columns, refuse_centres
from pymc_dp.records.constants import trusted_constants
from pymc_dp.records.dims import find_dims, refuse_private_lengths, refuse_record_dims
from pymc_dp.records.groups import check_groups
from pymc_dp.records.harden import DataLeaf, HardenedModel, harden
from pymc_dp.records.priors import (
    Prior,
    initial_point,
    log_prior,
    prior_graphs,
    with_local_priors,
)
from pymc_dp.records.released import Outputs, releasable
from pymc_dp.records.terms import likelihood_terms
from pymc_dp.records.unit_column import check_lengths, without_unit
from pymc_dp.units import Units


class Records(NamedTuple):
    """The graphs of a model; no data.

    Attributes
    ----------
    prior : scalar
        Log prior density of the latents in their unconstrained space.
    batch, single : RecordGraph
        The log likelihood of a batch of records, and of one record.
    term_names : tuple of str
        The variables whose log densities are the terms of ``batch`` and ``single``.
    latents : dict
        Name of every shared latent's value variable to the variable, in the model's order.
    point : dict
        Their initial values, from the prior alone.
    local_latents : dict
        Name of the latents that belong to single records, to the axis of the records. Their
        priors are among the terms, and they among the inputs, of ``batch`` and ``single``.
    distributions : dict
        The same names, and those of local latents, to the random variable's Op.
    shapes : dict
        The shape of every input of ``batch``, with None along the records' axis.
    outputs : Outputs
        What of the posterior may be released, as graphs of the latents.
    trusted : tuple of str
        The constants that no check can see into, in words.
    """

    prior: Variable
    batch: RecordGraph
    single: RecordGraph
    term_names: tuple[str, ...]
    latents: dict[str, Variable]
    point: dict[str, np.ndarray]
    local_latents: dict[str, int]
    distributions: dict[str, Op]
    shapes: dict[str, tuple[int | None, ...]]
    outputs: Outputs
    trusted: tuple[str, ...]

    @property
    def size(self) -> int:
        """The number of unconstrained coordinates of the latents."""
        return sum(value.size for value in self.point.values())

    @property
    def labels(self) -> list[str]:
        """Names of the coordinates: ``a``, ``b[0]``, ``b[1]``, ``sigma_log__``."""
        return [
            name + (f"[{', '.join(map(str, index))}]" if index else "")
            for name, value in self.point.items()
            for index in np.ndindex(value.shape)
        ]

    @property
    def start(self) -> np.ndarray:
        """The latents' initial point, shape (size,), in double precision."""
        return np.concatenate([x.ravel() for x in self.point.values()]).astype("float64")

    def split(self, z: np.ndarray) -> list[np.ndarray]:
        """Cut points, shape (..., size), into the latents' values, in their order."""
        parts, start = [], 0
        for value in self.point.values():
            part = z[..., start : start + value.size]
            parts.append(part.reshape((*z.shape[:-1], *value.shape)))
            start += value.size
        return parts


def separate(
    model: pm.Model,
    *,
    data: Mapping[str, Any] | None = None,
    public: Iterable[str] = (),
    start: Mapping[str, Any] | None = None,
    units: Units | None = None,
) -> tuple[Records, dict[str, Column]]:
    """Split ``model`` into its records.

    Parameters
    ----------
    model : pymc.Model
    data : mapping, optional
        Arrays (also memory maps and SciPy sparse matrices) that replace every record leaf of a
        model built on a small template, by the name of the ``pm.Data`` or observed variable.
    public : iterable of str
        Names of ``pm.Data`` and of deterministics that the author declares public.
    start : mapping, optional
        Public initial values of latents, by name, in place of the model's.
    units : Units, optional
        Which records belong to one unit, if it is not the record.

    Returns
    -------
    records : Records
    columns : dict
        The private data, for the wall alone.

    Raises
    ------
    NotSeparableError
        Where the log likelihood is not proved to be a sum over records, or where data are
        neither records nor declared public. The sentence names the variable.
    """
    public = frozenset(public)
    refuse_unsupported(model)
    refuse_unknown_names(model, public)
    hardened = harden(model)
    refuse_bad_start(model, start or {}, hardened.initvals)
    hardened.initvals.update(start or {})
    leaves = {leaf.variable: leaf for leaf in hardened.leaves}
    arrays = {v for v, leaf in leaves.items() if v.ndim > 0 and leaf.name not in public}
    terms, potentials = likelihood_terms(hardened.model, arrays)
    if units is not None:
        terms = without_unit(terms, hardened, units.name)
    prior = prior_graphs(hardened.model, hardened.initvals)
    _refuse_hidden(hardened, terms | potentials, prior, leaves)
    of_latent = dict(zip(hardened.model.free_RVs, hardened.model.value_vars, strict=True))
    axes, local = with_local_priors(terms, prior, of_latent)
    carriers = axes.inputs()
    shared = {rv.name: value for rv, value in of_latent.items() if rv not in local}
    refuse_unread(shared, terms.values(), prior, potentials)
    refuse_discrete([rv for rv in of_latent if rv not in local])
    record_leaves = {leaf.name: leaf for v, leaf in leaves.items() if v in carriers}
    along = {name: axes.axis[leaf.variable] for name, leaf in record_leaves.items()}
    along |= dict.fromkeys(terms, 0) | {rv.name: axes.axis[value] for rv, value in local.items()}
    along |= {} if units is None else {units.name: 0}
    dims = find_dims(hardened.model, along, shared, public)
    refuse_record_dims(hardened.model, shared, dims)
    refuse_mixing(terms, axes, dims.lengths)
    point = initial_point(hardened.model, hardened.initvals)
    shapes = {rv.name: point[value.name].shape for rv, value in of_latent.items()}
    refuse_undeclared(terms, set(carriers), leaves, public)
    before_data = {**{name: [g] for name, g in potentials.items()}, **prior}
    refuse_data_in_prior(hardened, before_data, shapes, set(carriers), leaves, public)
    refuse_private_lengths(before_data, dims)
    columns = make_columns(record_leaves, axes, data)
    if units is not None:
        check_lengths(units, columns)
    check_groups(terms, axes, columns, record_leaves, units)
    refuse_centres(hardened.model, columns)
    inputs = {v.name: v for v in carriers}
    lengths = {name: np.shape(column.values) for name, column in columns.items()}
    lengths |= {value.name: point[value.name].shape for value in local.values()}
    own = {value.name: value for value in shared.values()}
    # the copy reorders them
    latents = {v.name: own[v.name] for v in model.value_vars if v.name in own}
    order = [v.name for v in (*model.free_RVs, *model.deterministics)]
    records = Records(
        prior=log_prior(prior, potentials),
        batch=build_graph(terms, axes, inputs, rows=None),
        single=build_graph(terms, axes, inputs, rows=1),
        term_names=tuple(terms),
        latents=latents,
        point={name: point[name] for name in latents},
        local_latents={value.name: axes.axis[value] for value in local.values()},
        distributions={value.name: rv.owner.op for rv, value in of_latent.items()},
        shapes={name: _by_row(lengths[name], axes.axis[v]) for name, v in inputs.items()},
        outputs=releasable(hardened.model, leaves, set(carriers), public, order, dims),
        trusted=trusted_constants(hardened, set(carriers)),
    )
    return records, columns


def _refuse_hidden(
    hardened: HardenedModel,
    factors: Mapping[str, Variable],
    prior: Prior,
    leaves: Mapping[Variable, DataLeaf],
) -> None:
    densities = {name: [graph] for name, graph in factors.items()}
    for rv in hardened.model.observed_RVs:
        densities[rv.name].append(rv)
    refuse_hidden({**prior, **densities}, leaves, hardened.model.dim_lengths.values())


def _by_row(shape: tuple[int, ...], axis: int) -> tuple[int | None, ...]:
    return (*shape[:axis], None, *shape[axis + 1 :])
