"""A model as a prior plus one log likelihood per record, or a reason why it is not."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.initial_point import make_initial_point_expression, make_initial_point_fn
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_dp.compile import without_c
from pymc_dp.records.axis import RecordAxes, find_record_axes
from pymc_dp.records.batch import RecordGraph, build_graph
from pymc_dp.records.checks import (
    refuse_bad_start,
    refuse_data_in_prior,
    refuse_discrete,
    refuse_hidden,
    refuse_undeclared,
    refuse_unknown_names,
    refuse_unsupported,
    trusted_constants,
)
from pymc_dp.records.columns import Column, check_groups, make_columns, refuse_centres
from pymc_dp.records.harden import harden
from pymc_dp.records.released import Outputs, releasable
from pymc_dp.records.terms import likelihood_terms, simplify


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
    refuse_bad_start(model, start or {})
    hardened.initvals.update(start or {})
    leaves = {leaf.variable: leaf for leaf in hardened.leaves}
    arrays = {v for v, leaf in leaves.items() if v.ndim > 0 and leaf.name not in public}
    terms, potentials = likelihood_terms(hardened.model, arrays)
    prior = _prior_graphs(hardened.model, hardened.initvals)
    densities = {name: [graph] for name, graph in {**terms, **potentials}.items()}
    for rv in hardened.model.observed_RVs:
        densities[rv.name].append(rv)
    refuse_hidden({**prior, **densities}, leaves)
    of_latent = dict(zip(hardened.model.free_RVs, hardened.model.value_vars, strict=True))
    axes, local = _with_local_priors(terms, prior, of_latent)
    carriers = axes.inputs()
    refuse_discrete([rv for rv, value in of_latent.items() if value not in local])
    order = [v.name for v in (*model.free_RVs, *model.deterministics)]
    record_leaves = {leaf.name: leaf for v, leaf in leaves.items() if v in carriers}
    values = {v.name: v for v in of_latent.values() if v not in local}
    # the copy reorders them
    latents = {v.name: values[v.name] for v in model.value_vars if v.name in values}
    point = _initial_point(hardened.model, hardened.initvals)
    shapes = {rv.name: point[value.name].shape for rv, value in of_latent.items()}
    refuse_undeclared(terms, set(carriers), leaves, public)
    refuse_data_in_prior(
        hardened,
        {**{name: [g] for name, g in potentials.items()}, **prior},
        shapes,
        set(carriers),
        leaves,
        public,
    )
    columns = make_columns(record_leaves, axes, data)
    check_groups(terms, axes, columns, record_leaves)
    refuse_centres(hardened.model, columns)
    inputs = {v.name: v for v in carriers}
    lengths = {name: np.shape(column.values) for name, column in columns.items()}
    lengths |= {value.name: point[value.name].shape for value in local}
    records = Records(
        prior=_log_prior(prior, potentials),
        batch=build_graph(terms, axes, inputs, rows=None),
        single=build_graph(terms, axes, inputs, rows=1),
        term_names=tuple(terms),
        latents=latents,
        point={name: point[name] for name in latents},
        local_latents={v.name: axes.axis[v] for v in local},
        distributions={value.name: rv.owner.op for rv, value in of_latent.items()},
        shapes={name: _by_row(lengths[name], axes.axis[v]) for name, v in inputs.items()},
        outputs=releasable(hardened.model, leaves, set(carriers), public, order),
        trusted=trusted_constants(hardened),
    )
    return records, columns


def _with_local_priors(
    terms: dict[str, Variable],
    prior: dict[str, list[Variable]],
    of_latent: Mapping[Variable, Variable],
) -> tuple[RecordAxes, list[Variable]]:
    """Find the record axes, and move the priors of latents that go by records to the terms."""
    local: list[Variable] = []
    while True:
        axes = find_record_axes(terms)
        found = [rv for rv, v in of_latent.items() if v in axes.axis and v not in local]
        if not found:
            return axes, local
        for rv in found:
            local.append(of_latent[rv])
            terms[rv.name] = prior.pop(rv.name)[0]


def _prior_graphs(model: pm.Model, initvals: Mapping[str, Any]) -> dict[str, list[Variable]]:
    """Map each latent to its log prior density, its own graph and that of its initial value."""
    latents = model.free_RVs
    terms = simplify(model.logp(vars=latents, sum=False))
    starts = make_initial_point_expression(
        free_rvs=latents,
        rvs_to_transforms=model.rvs_to_transforms,
        initval_strategies={rv: initvals.get(rv.name) for rv in latents},
        return_transformed=True,
    )
    graphs = zip(latents, terms, _on_leaves(starts, model), strict=True)
    return {rv.name: [term, rv, start] for rv, term, start in graphs}


def _on_leaves(graphs: list[Variable], model: pm.Model) -> list[Variable]:
    """Put the model's own arrays back where PyMC has copied their variables."""
    own = {
        id(v.container): v
        for v in ancestors([*model.basic_RVs, *model.data_vars])
        if isinstance(v, SharedVariable)
    }
    copies = {
        v: own[id(v.container)]
        for v in ancestors(graphs)
        if isinstance(v, SharedVariable) and id(v.container) in own
    }
    return clone_replace(graphs, copies, rebuild_strict=False)


def _by_row(shape: tuple[int, ...], axis: int) -> tuple[int | None, ...]:
    return (*shape[:axis], None, *shape[axis + 1 :])


def _log_prior(prior: Mapping[str, list[Variable]], potentials: Mapping[str, Variable]) -> Variable:
    terms = [graphs[0] for graphs in prior.values()] + list(potentials.values())
    nothing = pt.constant(0.0)  # where all latents belong to single records
    return pt.add(nothing, *[term.sum() for term in terms])


def _initial_point(model: pm.Model, initvals: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Evaluate the initial point; `refuse_data_in_prior` sees to it that it reads no data."""
    with without_c():
        fn = make_initial_point_fn(model=model, overrides=dict(initvals))
        point = fn(0)
    return {name: np.asarray(value, "float64") for name, value in point.items()}
