"""The graphs of a model's outcomes and deterministics, for any number of new records."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pymc.distributions.shape_utils import change_dist_size
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.random.basic import MultinomialRV
from pytensor.tensor.shape import SpecifyShape

from pymc_dp.model.axis import RecordAxes
from pymc_dp.model.batch import remake
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.graphs import unproved_in
from pymc_dp.model.harden import HardenedModel
from pymc_dp.model.released import Known, is_formula
from pymc_dp.model.split import (
    likelihood_terms,
    log_densities,
    prior_graphs,
    simplify,
    split_by_record,
    unscaled,
    without_lengths,
)


class NewRecords(NamedTuple):
    """What can be computed for new records, as graphs of the latents that all records share."""

    rows: AnyVariable  # the number of new records
    latents: dict[str, AnyVariable]
    observed: dict[str, AnyVariable]
    deterministics: dict[str, AnyVariable]  # those that go by records
    # those of them that hold a number, or an operation, that may come from the fitted records
    withheld: frozenset[str]
    axes: RecordAxes


def for_new_records(hardened: HardenedModel, unit: str | None) -> NewRecords:
    """Make the graphs anew, so that nothing remains of the fitted records' number.

    ``unit`` names the array that said which unit a record belonged to: there are as many entries
    for new units as new records, which is enough.
    """
    model, count = hardened.model, pt.lscalar("count")
    observed = [rv for rv in model.observed_RVs if rv.name not in hardened.public]
    axes, own = _record_axes(hardened, unit)
    shared = [rv for rv in model.free_RVs if rv not in own]
    by_record = {unscaled(rv, rv): 0 for rv in observed} | own
    computed = [v for v in model.deterministics if (axes.axis.keys() | own) & set(ancestors([v]))]
    # all at once: cloning one variable clones those that it depends on
    every = [*by_record, *computed, *shared]
    new = dict(zip(every, without_lengths(every), strict=True))
    along = {new[variable]: axis for variable, axis in by_record.items()}
    latents = {str(rv.name): new[rv] for rv in shared}
    known = _known(hardened, axes, [*latents.values()], [new[variable] for variable in own])
    withheld = frozenset(
        str(variable.name)
        for variable in computed
        if unproved_in([new[variable]]).keys() - hardened.public
        or not is_formula(new[variable], known)
    )
    read = [new[unscaled(rv, rv)] for rv in observed] + [new[variable] for variable in computed]
    outputs = _resized(read, [*latents.values()], along, count)
    graphs = dict(zip([str(v.name) for v in (*observed, *computed)], outputs, strict=True))
    return NewRecords(
        rows=count,
        latents=latents,
        observed={str(rv.name): graphs[rv.name] for rv in observed},
        deterministics={str(v.name): graphs[v.name] for v in computed},
        withheld=withheld,
        axes=axes,
    )


def with_declared(new: NewRecords, hardened: HardenedModel, names: Collection[str]) -> NewRecords:
    """Withhold no deterministic among ``names``, whose numbers are declared public.

    As in a fit, a declaration covers numbers, never arrays of data.
    """
    for name in names:
        if name not in new.deterministics:
            raise ValueError(
                f"public= names `{name}`, but the deterministics that go by records are "
                f"{sorted(new.deterministics)}."
            )
        read = {*ancestors([new.deterministics[name]])}
        for leaf in hardened.leaves.values():
            inside = leaf.variable in read and leaf.variable not in new.axes.axis
            if inside and leaf.declared and leaf.variable.ndim and leaf.name not in hardened.public:
                raise ValueError(
                    f"public= names the deterministic `{name}`, which reads {leaf}: a declaration "
                    "covers numbers, not data. Compute it from the posterior."
                )
    return new._replace(withheld=new.withheld.difference(names))


def with_given(new: NewRecords, hardened: HardenedModel, names: Collection[str]) -> NewRecords:
    """Let what reads an observed variable read its new values, where these are among ``names``.

    Entries that are nan are drawn, and so is the variable itself.
    """
    graphs: dict[str, Any] = new.observed | new.deterministics
    leaf: Any
    for rv in hardened.model.observed_RVs:
        [leaf] = simplify([hardened.model.rvs_to_values[rv]])
        if rv.name in new.observed and leaf in hardened.leaves and leaf.name in names:
            drawn = graphs.pop(rv.name)
            place, given = drawn.type(), leaf.astype(drawn.dtype)
            if drawn.dtype.startswith("float"):
                given = pt.switch(pt.isnan(given), drawn, given)
            given = drawn.type.filter_variable(given)
            readers = graph_replace([*graphs.values()], {drawn: place}, strict=False)
            readers = graph_replace(readers, {place: given}, strict=False)
            graphs = dict(zip(graphs, readers, strict=True)) | {rv.name: drawn}
    return new._replace(
        observed={name: graphs[name] for name in new.observed},
        deterministics={name: graphs[name] for name in new.deterministics},
    )


def _known(
    hardened: HardenedModel, axes: RecordAxes, shared: list[AnyVariable], local: list[AnyVariable]
) -> Known:
    """Gather what a deterministic may be made of: latents, new records and public data."""
    leaves, public = hardened.leaves.items(), hardened.public
    data = [v for v, leaf in leaves if v in axes.axis or leaf.name in public]
    lengths = {n for latent in shared for n in latent.type.shape if n is not None}
    arrays = {v: leaf.value for v, leaf in leaves if not leaf.declared}
    return Known(frozenset({*shared, *local, *data}), frozenset(lengths), arrays)


def _record_axes(
    hardened: HardenedModel, unit: str | None
) -> tuple[RecordAxes, dict[AnyVariable, int]]:
    """Find the axes of the records, also those of latents of single records or units."""
    model = hardened.model
    densities = log_densities(model)
    terms = likelihood_terms(hardened, densities)[0]
    for rv in model.observed_RVs:
        if isinstance(rv.owner.op, MultinomialRV):  # it draws as many trials as its input says
            trials = rv.owner.inputs[-2]
            if trials.ndim and not trials.type.broadcastable[0]:
                terms[f"trials of {rv.name}"] = trials
    split = split_by_record(hardened, terms, {}, prior_graphs(model, {}, densities), unit)
    return split.axes, {model[name]: split.axes.axis[value] for name, value in split.local.items()}


def _resized(
    variables: list[AnyVariable],
    latents: list[AnyVariable],
    along: Mapping[AnyVariable, int],
    count: AnyVariable,
) -> list[AnyVariable]:
    """Make every node anew, for ``count`` records, so that nothing remains of the old lengths."""
    # `along` maps the random variables that go by records to the axis along which they do
    renewed: dict[AnyVariable, AnyVariable] = {}
    for node in toposort(variables, blockers=latents):
        operands = [renewed.get(x, x) for x in node.inputs]
        if isinstance(node.op, SpecifyShape):
            renewed[node.outputs[0]] = operands[0]
        else:
            renewed.update(zip(node.outputs, remake(node, operands), strict=True))
        for rv in along.keys() & set(node.outputs):
            built: Any = renewed[rv]
            size = [built.shape[k] for k in range(built.ndim - built.owner.op.ndim_supp)]
            size[along[rv]] = count
            renewed[rv] = change_dist_size(built, size)
    return [renewed.get(variable, variable) for variable in variables]
