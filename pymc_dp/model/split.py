"""A model split into terms that go by records, and a prior that does not.

In the order of their use: the elementwise log-likelihood terms, free of wrappers that would hide
records; the priors of the latents; latents of privacy units, ``a[person]`` with ``unit="person"``,
as latents of the unit's records; the split; and the dimensions.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pymc.data import MinibatchOp
from pymc.distributions.multivariate import DirichletMultinomialRV
from pymc.distributions.transforms import Ordered
from pymc.initial_point import make_initial_point_expression
from pymc.pytensorf import find_rng_nodes, replace_rng_nodes, reseed_rngs
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Second
from pytensor.scalar.math import BetaInc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import MultinomialRV
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.sort import sort
from pytensor.tensor.special import LogAddExp, LogSoftmax, LogSumExp, Softmax, XLog1PY, XLogY
from pytensor.tensor.subtensor import AdvancedSubtensor, indices_from_subtensor

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.compilation import as_written, function
from pymc_dp.model.graphs import AnyVariable, Tensor, pt, stored_value
from pymc_dp.model.harden import DataLeaf, HardenedModel, is_structural
from pymc_dp.model.separation_proof import RecordAxes, find_record_axes, gather_layout

Terms = dict[str, AnyVariable]
Prior = dict[str, list[AnyVariable]]
Rule = Callable[[AnyVariable], Tensor | None]  # what to put in a variable's place, if anything
# these have gradients of their own, stabler than those of their inner graphs
KEPT_WHOLE = (Softmax, LogSoftmax, LogSumExp, LogAddExp, XLogY, XLog1PY)


class UnitLatents(NamedTuple):
    """The latents of units, and what stands in their place in a graph of records."""

    column: AnyVariable | None  # says which unit a record belongs to
    rows: dict[AnyVariable, AnyVariable]  # a latent's value to that of every record's unit

    def by_record(self, graphs: list[AnyVariable]) -> list[AnyVariable]:
        """Give every record the entry of its own unit, in place of the entries of all."""
        entries = [v for v in ancestors(graphs) if is_entry_of_unit(v, self.column)]
        bases = rewrite([v.owner.inputs[0] for v in entries], self.rows.get)
        picked: dict[AnyVariable, AnyVariable] = {}
        for entry, base in zip(entries, bases, strict=True):
            # from the record's own row what the entry picks from its unit's
            indices = indices_from_subtensor(entry.owner.inputs[1:], entry.owner.op.idx_list)
            own: Tensor = base
            picked[entry] = own[(slice(None), *indices[1:])] if len(indices) > 1 else own
        return rewrite(graphs, picked.get, self.rows.get)


class Split(NamedTuple):
    """A hardened model, and what of it goes by records."""

    hardened: HardenedModel
    terms: Terms  # log densities by record: the likelihood's, and the priors of local latents
    potentials: Terms  # those that read no data
    prior: Prior  # the graphs of every latent that records share
    axes: RecordAxes
    # names of latents to their value variables: those that records share, and those of single ones
    shared: dict[str, AnyVariable]
    local: dict[str, AnyVariable]
    unit_latents: UnitLatents

    @property
    def record_leaves(self) -> dict[str, DataLeaf]:
        """The arrays of data that go by records, by name."""
        leaves = self.hardened.leaves.items()
        return {leaf.name: leaf for variable, leaf in leaves if variable in self.axes.axis}

    def shared_values(self, names: Iterable[str]) -> dict[str, AnyVariable]:
        """Map names of shared latents' value variables, in the order given, to the variables."""
        shared = {str(value.name): value for value in self.shared.values()}
        return {name: shared[name] for name in names if name in shared}

    @property
    def before_data(self) -> Prior:
        """By name, all graphs that must not read data."""
        return {**{name: [graph] for name, graph in self.potentials.items()}, **self.prior}


class Dims(NamedTuple):
    """The dimensions of a model."""

    records: frozenset[str]  # those along which the records go
    # those of shared latents, of data declared public, and of the other axes of the records
    public: frozenset[str]
    lengths: frozenset[AnyVariable]  # the lengths of all that are not public, as PyMC keeps them


def read_terms(hardened: HardenedModel) -> tuple[Terms, Terms, Prior]:
    """Return terms of the likelihood, terms of the prior that are observed, and the latents'."""
    model = hardened.model
    variables = [*model.basic_RVs, *model.potentials]
    densities = dict(zip(variables, model.logp(vars=variables, sum=False), strict=True))
    terms, potentials = _likelihood_terms(hardened, densities)
    return terms, potentials, _prior_graphs(model, hardened.initvals, densities)


def _likelihood_terms(
    hardened: HardenedModel, densities: Mapping[AnyVariable, AnyVariable]
) -> tuple[Terms, Terms]:
    """Split observed variables and potentials into likelihood terms and terms of the prior.

    Potentials, and what is observed and public, belong to the prior where they reach no private
    array. One without a name may hold records; but a public observation may read a regular one.
    """
    model, public, leaves = hardened.model, hardened.public, hardened.leaves
    variables = [*model.observed_RVs, *model.potentials]
    masks, factors = hardened.masks, []
    for rv in variables:
        term = densities[rv]
        if rv.name not in public:
            term, value = unscaled(rv, term), model.rvs_to_values.get(rv)
            if value is not None and (counted := of_own_trials(rv, value)) is not rv:
                term = pm.logp(*model.replace_rvs_by_values([counted]), value)
        # entries that are missing add nothing
        factors.append(pt.switch(masks[rv.name].variable, 0.0, term) if rv.name in masks else term)
    likelihood = dict(zip([rv.name for rv in variables], simplify(factors), strict=True))
    arrays = {v for v, leaf in leaves.items() if leaf.variable.ndim and leaf.name not in public}
    regular = {v for v in arrays if not leaves[v].declared and is_structural(leaves[v].value)}
    prior = {}
    for rv in variables:
        private = arrays - regular if rv.name in public else arrays
        # what a potential of a single row reads may be an outcome
        of_latents = rv in model.potentials and not any(rv.type.broadcastable[:1])
        if (rv.name in public or of_latents) and private.isdisjoint(
            ancestors([likelihood[rv.name]])
        ):
            prior[rv.name] = likelihood.pop(rv.name)
    if not likelihood:
        raise NotSeparableError(
            "The model has no observed data that are private: give observed= that is not public."
        )
    return likelihood, prior


def declare_public(hardened: HardenedModel, names: Iterable[str]) -> HardenedModel:
    """Declare names public, and complete them."""
    public, model, leaves = set(names), hardened.model, hardened.leaves
    values = without_lengths([model.rvs_to_values[rv] for rv in model.observed_RVs])
    for rv, value in zip(model.observed_RVs, values, strict=True):
        if rv.name in public and value in leaves:
            public.add(leaves[value].name)
        read = {leaves[v].name for v in ancestors([value]) if v in leaves}
        if read and read <= public:
            public.add(rv.name)
        elif read:  # the name says nothing of arrays that the observed value is computed from
            public.discard(rv.name)
    return hardened._replace(public=frozenset(public))


def of_own_trials(rv: AnyVariable, counts: Tensor) -> Tensor:
    """Return a multinomial of as many trials as its counts add up to; other variables as is."""
    if not isinstance(rv.owner_op, MultinomialRV | DirichletMultinomialRV):
        return rv
    kind = pm.Multinomial if isinstance(rv.owner.op, MultinomialRV) else pm.DirichletMultinomial
    return kind.dist(counts.sum(axis=-1), rv.owner.op.dist_params(rv.owner)[-1])


def simplify(terms: list[AnyVariable]) -> list[AnyVariable]:
    """Replace minibatches by their full data, inline nested graphs and drop runtime checks."""
    # checks reduce over all records, and their errors depend on data; a record that they would have
    # refused has a contribution that is not finite, which the wall drops
    return rewrite(without_lengths(terms), _inlined, _unchecked, _power)


def without_lengths(variables: list[AnyVariable]) -> list[AnyVariable]:
    """Replace minibatches by their full data, and forget how many rows the data had."""
    variables = rewrite(variables, _full_data)
    left = None
    while (lengths := _replacements(variables, _any_length)) and len(lengths) != left:
        left = len(lengths)  # a reshape asks for the length of its shape anew, each time
        variables = clone_replace(variables, lengths, rebuild_strict=False)
    return variables


def rewrite(graphs: list[AnyVariable], *rules: Rule) -> list[AnyVariable]:
    """Apply one rule after another, each until it has nothing to put in a variable's place."""
    for rule in rules:
        while replacements := _replacements(graphs, rule):
            graphs = clone_replace(graphs, replacements, rebuild_strict=False)
    return graphs


def _replacements(graphs: list[AnyVariable], rule: Rule) -> dict[AnyVariable, AnyVariable]:
    return {v: new for v in ancestors(graphs) if (new := rule(v)) is not None}


def _full_data(variable: AnyVariable) -> AnyVariable | None:
    """Return the full data behind an output of ``pm.Minibatch``."""
    if not isinstance(variable.owner_op, MinibatchOp):
        return None
    data = variable.owner.inputs[variable.owner.outputs.index(variable)]
    leaf = _any_length(data)
    return data if leaf is None else leaf


def _any_length(variable: AnyVariable) -> AnyVariable | None:
    """Return a leaf without the length that its data had: hardening leaves it behind each leaf."""
    if not isinstance(variable.owner_op, SpecifyShape):
        return None
    leaf = variable.owner.inputs[0]
    return leaf if isinstance(leaf, SharedVariable) else None


def _inlined(variable: AnyVariable) -> Tensor | None:
    op, node = variable.owner_op, variable.owner
    if not isinstance(op, OpFromGraph) or type(op) in KEPT_WHOLE:
        return None
    return inline_ofg_node(node)[node.outputs.index(variable)]


def _unchecked(variable: AnyVariable) -> AnyVariable | None:
    return variable.owner.inputs[0] if isinstance(variable.owner_op, CheckAndRaise) else None


def _power(variable: AnyVariable) -> Tensor | None:
    """Write I_x(a, 1) as x^a: the gradient of I is a loop, number by number."""
    # it is the chance of no event under a negative binomial, which a hurdle reads
    if not isinstance(getattr(variable.owner_op, "scalar_op", None), BetaInc):
        return None
    a, b, x = variable.owner.inputs
    if number_in(b) != 1:
        return None
    power = pt.switch(pt.and_(pt.ge(x, 0), pt.le(x, 1)), x**a, np.nan)
    return pt.second(b, power).astype(variable.type.dtype)


def number_in(x: AnyVariable) -> float | None:
    """Return the number that a graph repeats, in whatever shape; None where it is none."""
    if isinstance(x, Constant):
        values = np.unique(x.data)
        return float(values[0]) if values.size == 1 else None
    if not isinstance(x.owner_op, DimShuffle | Elemwise):
        return None
    operation = getattr(x.owner_op, "scalar_op", None)
    # the first operand of `Second` says a shape
    numbers = [number_in(y) for y in x.owner.inputs[isinstance(operation, Second) :]]
    if operation is None or isinstance(operation, Second):
        return numbers[0]
    return None if None in numbers else float(operation.impl(*numbers))


def unscaled(rv: AnyVariable, term: Tensor) -> Tensor:
    """Undo ``total_size`` of a variable in itself, or in its term, which PyMC scales by it."""
    return term.owner.inputs[0] if isinstance(rv.owner_op, MinibatchRandomVariable) else term


def _prior_graphs(
    model: pm.Model, initvals: Mapping[str, Any], densities: Mapping[AnyVariable, AnyVariable]
) -> Prior:
    """Map each latent to its log prior density, its distribution, initial value and output."""
    latents = model.free_RVs
    terms = simplify([densities[rv] for rv in latents])
    strategies = {rv: initvals.get(rv.name) for rv in latents}
    for rv, given in strategies.items():
        if not (given is None or isinstance(given, str | Variable)):  # numbers stay outside
            strategies[rv] = pt.TensorType(rv.dtype, np.shape(given))(rv.name)
    starts = make_initial_point_expression(
        free_rvs=latents,
        rvs_to_transforms=model.rvs_to_transforms,
        initval_strategies=strategies,
        return_transformed=True,
    )
    outputs = model.replace_rvs_by_values(latents)
    # the model's own arrays go back where PyMC has copied their variables
    own = [*ancestors([*model.basic_RVs, *model.data_vars])]
    containers = {id(v.container): v for v in own if isinstance(v, SharedVariable)}
    copies = _replacements(starts, lambda v: containers.get(id(getattr(v, "container", None))))
    starts = clone_replace(starts, copies, rebuild_strict=False)
    graphs = zip(latents, terms, starts, outputs, strict=True)
    return {rv.name: [term, rv, start, output] for rv, term, start, output in graphs}


def log_prior(prior: Prior, potentials: Mapping[str, AnyVariable], model: pm.Model) -> Tensor:
    """Sum the log densities of the shared latents, and the potentials that read no data."""
    terms: list[Any] = [*(graphs[0] for graphs in prior.values()), *potentials.values()]
    nothing = pt.constant(0.0)  # where all latents belong to single records
    density = pt.add(nothing, *[term.sum() for term in terms])
    lengths: dict[AnyVariable, AnyVariable] = {
        length: pt.constant(stored_value(length))
        for length in model.dim_lengths.values()
        if isinstance(length, SharedVariable)
    }
    [density] = clone_replace([density], lengths, rebuild_strict=False)
    return density


def prior_draws(model: pm.Model, latents: Mapping[str, AnyVariable]) -> tuple[AnyVariable, ...]:
    """Return random variables that draw the latents from their prior, on the real line."""
    by_name = {model.rvs_to_values[rv].name: rv for rv in model.free_RVs}
    draws = []
    for rv in (by_name[name] for name in latents):
        transform = model.rvs_to_transforms[rv]
        # PyMC draws values that need an order without it
        drawn = sort(rv, axis=-1) if isinstance(transform, Ordered) else rv
        draws.append(rv if transform is None else transform.forward(drawn, *rv.owner.inputs))
    return tuple(draws)


def initial_point(
    model: pm.Model, prior: Prior, initvals: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Evaluate the initial point; `refuse_data_in_prior` sees to it that it reads no data."""
    starts = [prior[rv.name][2] for rv in model.free_RVs]
    graphs = replace_rng_nodes(rewrite(starts, _unchecked))
    reseed_rngs(find_rng_nodes(graphs), 0)
    inputs: list[Any] = list(explicit_graph_inputs(graphs))
    numbers = [np.asarray(initvals[str(x.name)], x.dtype) for x in inputs]
    names = [model.rvs_to_values[rv].name for rv in model.free_RVs]
    values = as_written(inputs, graphs)(*numbers)
    if not all(np.isfinite(value).all() for value in values):
        values = function(inputs, graphs, "python")(*numbers)
    return {n: np.asarray(value, "float64") for n, value in zip(names, values, strict=True)}


def is_entry_of_unit(variable: AnyVariable, column: AnyVariable | None) -> bool:
    """Whether a variable is ``x[column]``, where the column says which unit a record belongs to."""
    node = variable.owner
    if not isinstance(variable.owner_op, AdvancedSubtensor) or column not in node.inputs:
        return False
    arrays = gather_layout(node).arrays
    others: list[Tensor] = [index for axis, index in arrays.items() if axis]
    return arrays.get(0) is column and all(index.type.ndim == 0 for index in others)


def find_unit_latents(
    hardened: HardenedModel, terms: Terms, prior: Prior, unit: str | None
) -> UnitLatents:
    """Find the latents that have an entry for every unit, and those that their priors read so."""
    column = next((v for v, leaf in hardened.leaves.items() if leaf.name == unit), None)
    names = {value: str(rv.name) for rv, value in hardened.model.rvs_to_values.items()}
    rows: dict[AnyVariable, AnyVariable] = {}
    graphs = [*terms.values(), *(graphs[0] for graphs in prior.values())]
    entries = [v for v in ancestors(graphs) if is_entry_of_unit(v, column)]
    bases = {f"{v.owner.inputs[0].name or 'a latent'}[{unit}]": v.owner.inputs[0] for v in entries}
    while bases:
        new = {}
        for name, base in bases.items():  # a graph must treat each entry alone
            for variable, axis in find_record_axes({name: base}).inputs().items():
                if variable not in names or axis != 0:
                    raise NotSeparableError(
                        f"`{name}` has an entry for every unit of unit={unit!r} and reads "
                        f"`{variable.name}` with as many: give such an array one row a record, and "
                        f"add it where the likelihood reads the entry of `{unit}`."
                    )
                if variable not in rows:
                    shape = (None, *variable.type.shape[1:])  # with one entry a record
                    rows[variable] = pt.TensorType(variable.type.dtype, shape)(variable.name)
                    new[names[variable]] = prior[names[variable]][0]
        bases = new
    return UnitLatents(column, rows)


def refuse_other_uses(
    latents: UnitLatents, local: Mapping[str, AnyVariable], graphs: Mapping[str, AnyVariable]
) -> None:
    """Refuse latents of records beside those of units, and graphs that read other units'."""
    own = [name for name, value in local.items() if value not in set(latents.rows.values())]
    if latents.rows and own:
        raise NotSeparableError(
            f"`{own[0]}` belongs to single records, and other latents to units of several: only "
            "one kind can be integrated out. Leave one out; a Normal error may add to a variance."
        )
    for name, graph in graphs.items():
        for value in latents.rows.keys() & set(ancestors([graph])):
            raise NotSeparableError(
                f"`{name}` reads `{value.name}`, a latent of single units, other than by the "
                "entry of a record's own unit: index it by the array that unit= names alone."
            )


def split_by_record(
    hardened: HardenedModel,
    terms: Terms,
    potentials: Terms,
    prior: Mapping[str, list[AnyVariable]],
    unit: str | None = None,
) -> Split:
    """Find the record axes, and move the priors of latents that go by records to the terms."""
    model = hardened.model
    of_units = find_unit_latents(hardened, terms, dict(prior), unit)
    terms = dict(zip(terms, of_units.by_record(list(terms.values())), strict=True))
    prior = {name: [*of_units.by_record([g]), *more] for name, (g, *more) in prior.items()}
    values = {str(rv.name): model.rvs_to_values[rv] for rv in model.free_RVs}
    shared: dict[str, AnyVariable] = {n: of_units.rows.get(v, v) for n, v in values.items()}
    local: dict[str, AnyVariable] = {}
    while True:
        axes = find_record_axes(terms)
        of_records = {name: value for name, value in shared.items() if value in axes.axis}
        if not of_records:
            left = {name: prior[name] for name in shared}
            graphs = terms | potentials | {name: g[0] for name, g in left.items()}
            refuse_other_uses(of_units, local, graphs)
            return Split(hardened, terms, potentials, left, axes, shared, local, of_units)
        local |= of_records
        shared = {name: value for name, value in shared.items() if name not in of_records}
        terms |= {name: prior[name][0] for name in of_records}


def find_dims(split: Split, unit: str | None) -> Dims:
    """Sort the dimensions, of which latents that records share must not have the records' own."""
    axis, model = split.axes.axis, split.hardened.model
    # the axis of the records in every variable that has one
    along = {name: axis[leaf.variable] for name, leaf in split.record_leaves.items()}
    along |= dict.fromkeys(split.terms, 0) | {name: axis[v] for name, v in split.local.items()}
    along |= {} if unit is None else {unit: 0}
    dims = model.named_vars_to_dims
    records = {d for name, k in along.items() for d in dims.get(name, ())[k : k + 1]} - {None}
    for name in split.shared:
        for dim in records.intersection(dims.get(name, ())):
            raise NotSeparableError(
                f"`{name}` has the records' own dimension `{dim}`, so a fit would release their "
                "number and their labels. Read a latent of single records without an index: "
                "method='dp_advi' then integrates it out. Predict by pymc_dp.predict after the fit."
            )
    known = {
        d for name in (*along, *split.shared, *split.hardened.public) for d in dims.get(name, ())
    }
    lengths = {
        length
        for dim, length in model.dim_lengths.items()
        if isinstance(length, SharedVariable) and dim not in known - records
    }
    # an axis without a name has no labels
    return Dims(frozenset(records), frozenset(known - records - {None}), frozenset(lengths))


def named_dims(own: Sequence[str | None] | None, name: str, ndim: int) -> tuple[str, ...]:
    """Name the dims of a variable: as its model does, and the others as ArviZ does."""
    return tuple(dim or f"{name}_dim_{k}" for k, dim in enumerate(own or (None,) * ndim))
