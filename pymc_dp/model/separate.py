"""A model as a prior plus one log likelihood per record, or a reason why it is not.

`separate_unread` runs the phases, and returns what checks the values themselves beside the graphs.
Refusals hold names and shapes, never values.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pymc.distributions.mixture import MixtureRV
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.configdefaults import config
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import TensorType

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.batch import Outcomes, RecordGraph, build_graph, find_outcomes
from pymc_dp.model.columns import make_columns, refuse_missing, without_unit
from pymc_dp.model.graphs import (
    CHANGED,
    LISTED,
    AnyVariable,
    all_variables,
    operations,
    tensor_constants,
    unproved_by_variable,
    unproved_in,
)
from pymc_dp.model.harden import HardenedModel, harden, is_structural
from pymc_dp.model.releasable import Outputs, Trusted, releasable, trusted_constants
from pymc_dp.model.separation_proof import CENSORED, is_counted_axis, refuse_mixing
from pymc_dp.model.split import (
    Dims,
    Prior,
    Split,
    Terms,
    declare_public,
    find_dims,
    initial_point,
    log_prior,
    prior_draws,
    read_terms,
    split_by_record,
)
from pymc_dp.model.value_checks import check_values
from pymc_dp.privacy.private_data import (
    Columns,
    Partition,
    PrivateData,
    UnitBlocks,
    Units,
    record_shape,
)


class Records(NamedTuple):
    """The graphs of a model; no data."""

    prior: AnyVariable  # log prior density of the latents in their unconstrained space
    observes_public: bool  # whether it holds public observations, or potentials without data
    # random variables that draw the latents from their prior, on the real line, whatever potentials
    # and public observations say; none where nothing proves that they hold no data
    prior_draws: tuple[AnyVariable, ...]
    batch: RecordGraph  # batch, single: the log likelihood of a batch of records, and of one record
    single: RecordGraph
    # the variables whose log densities are the terms of ``batch`` and ``single``
    term_names: tuple[str, ...]
    # name of every shared latent's value variable to the variable, in the model's order
    latents: dict[str, AnyVariable]
    point: dict[str, np.ndarray]  # their initial values, from the prior alone
    # name of the latents that belong to single records, or to single units, to the axis of the
    # records. Their priors are the last terms, and they among the inputs, of ``batch`` and
    # ``single``; records of one unit must be given the same value.
    local_latents: dict[str, int]
    of_units: bool  # whether they belong to units of several records
    # the same names, and those of local latents, to the class of the operation that draws them
    distributions: dict[str, type[Op]]
    # the shape of every input of ``batch``, with None along the records' axis
    shapes: dict[str, tuple[int | None, ...]]
    outputs: Outputs  # what of the posterior may be released, as graphs of the latents
    mixtures: tuple[str, ...]  # the observed variables that are mixtures
    # draws of local latents and of observed variables for a batch, stage by stage; None where the
    # model does not say how
    outcomes: tuple[Outcomes, ...] | None
    # the constants that no check can see into, with the numbers of some
    trusted: dict[Trusted, tuple[float, ...]]
    unnamed: dict[str, str]  # the records' arrays that their author gave no name, in words

    @property
    def drawn(self) -> dict[str, str]:
        """The observed arrays that `outcomes` draws, each with the variable that observes it."""
        drawn = {k: v for stage in self.outcomes or () for k, v in stage.variables.items()}
        return {leaf: name for leaf, name in drawn.items() if leaf not in self.local_latents}

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


def separate(model: pm.Model, **settings: Any) -> tuple[Records, PrivateData]:
    """Split ``model`` as `separate_unread` does, and check the values, for the wall alone."""
    records, checked = separate_unread(model, **settings)
    return records, checked()


def separate_unread(
    model: pm.Model,
    *,
    data: Mapping[str, Any] | None = None,
    public: Iterable[str] = (),
    start: Mapping[str, Any] | None = None,
    units: Units | UnitBlocks | None = None,
    beside: Columns = MappingProxyType({}),
    number_is_public: bool = False,
) -> tuple[Records, Callable[..., PrivateData]]:
    """Split ``model`` into its records; return them, and what checks and returns the data.

    ``data`` replaces every record leaf by name, ``public`` names data, variables and operations
    that the author declares public, ``start`` holds public initial values, ``beside`` columns that
    no term reads, and ``number_is_public`` says whether that of units may be a length in the prior.
    """
    declared = tuple(public)
    refuse_unsupported(model)
    hardened = declare_public(harden(model), declared)
    hardened.initvals.update(start or {})
    terms, potentials, prior = read_terms(hardened)
    for name in (*beside, *([units.name] if units else [])):
        terms = without_unit(terms, hardened, name)
    factors = terms | potentials
    graphs, allowed, doubtful = proved_graphs(model, hardened, factors, prior, declared)
    split = split_by_record(hardened, terms, potentials, prior, units and units.name)
    refuse_unread(split)
    refuse_without_gradient(split)
    dims = find_dims(split, units and units.name)
    refuse_mixing(split.terms, split.axes, dims.lengths)
    point = initial_point(hardened.model, prior, hardened.initvals)
    shapes = {n: point[str(v.name)].shape for n, v in (split.shared | split.local).items()}
    refuse_undeclared(split)
    refuse_data_in_prior(split, shapes, dims.lengths)
    columns = make_columns(split.record_leaves, split.axes, data, beside, units)
    # in the order of the author's model, which the copy does not keep
    order = [v.name for v in (*model.free_RVs, *model.deterministics)]
    outputs = releasable(split, order, dims, shapes, doubtful)
    latents = split.shared_values(v.name for v in model.value_vars)
    records = _records(split, latents, point, columns, dims, outputs, graphs, allowed)

    def checked(numbers: Mapping[str, Iterable[float]] | None = None) -> PrivateData:
        refuse_missing(columns)
        data, graph = Partition(columns, units), records.batch
        check_values(split, graph, outputs.graphs, point, data, numbers, number_is_public)
        return PrivateData(columns, units)

    return records, checked


def _records(
    split: Split,
    latents: dict[str, AnyVariable],
    point: Mapping[str, np.ndarray],
    columns: Columns,
    dims: Dims,
    outputs: Outputs,
    graphs: Mapping[str, Iterable[AnyVariable]],
    allowed: frozenset[str],
) -> Records:
    """Rebuild the graphs of a model that all checks have passed, without its data."""
    axis = split.axes.axis
    inputs = {str(variable.name): variable for variable in split.axes.inputs()}
    shapes = {name: column.spec.shape for name, column in columns.items()}
    local = {str(value.name): axis[value] for value in split.local.values()}
    shapes |= {name: record_shape(point[name].shape, k) for name, k in local.items()}
    model = split.hardened.model
    released = [v for v in model.deterministics if v.name in outputs.graphs]
    of_records = [v for v in model.basic_RVs if v.name in split.terms]
    # no draws where an author's code that may hold data would make them, nor of what reads records
    drawn_by, draws = unproved_in(of_records).keys(), prior_draws(model, latents)
    is_shared = set(of_records).isdisjoint(ancestors(draws))
    return Records(
        prior=log_prior(split.prior, split.potentials, model),
        observes_public=bool(split.potentials),
        prior_draws=draws if is_shared and unproved_in(draws).keys() <= allowed else (),
        batch=build_graph(split.terms, split.axes, inputs, rows=None),
        single=build_graph(split.terms, split.axes, inputs, rows=1),
        term_names=tuple(split.terms),
        latents=latents,
        point={name: point[name] for name in latents},
        local_latents=local,
        of_units=bool(split.unit_latents.rows),
        distributions={model.rvs_to_values[v].name: listed(v.owner.op) for v in model.free_RVs},
        shapes={name: shapes[name] for name in inputs},
        outputs=outputs,
        mixtures=tuple(v.name for v in model.observed_RVs if isinstance(v.owner.op, MixtureRV)),
        outcomes=find_outcomes(split, dims.lengths) if drawn_by <= allowed else None,
        trusted=trusted_constants(split, graphs, allowed, released),
        unnamed={k: str(x) for k, x in split.record_leaves.items() if not x.declared},
    )


def listed(op: Op) -> type[Op]:
    """Return an operation's class; of an author's, which may hold data, the one that it extends."""
    return next((base for base in type(op).__mro__ if base in LISTED), Op)


def proved_graphs(
    model: pm.Model, hardened: HardenedModel, factors: Terms, prior: Prior, public: Iterable[str]
) -> tuple[dict[str, list[AnyVariable]], frozenset[str], set[str]]:
    """Refuse operations that no proof covers and no author declares, and hidden numbers."""
    # returns the graphs in which numbers may hide, declared operations, deterministics with others
    unproved = unproved_by_variable(hardened.model, factors, prior)
    every = (*unproved.values(), unproved_in(hardened.model.basic_RVs))
    allowed = refuse_unknown_names(model, public, every)
    withheld = {v.name for v in model.deterministics} - hardened.public
    for variable in [name for name in unproved if name not in withheld]:
        for name in sorted(unproved[variable].keys() - allowed):
            raise NotSeparableError(
                f"`{variable}` is computed by the operation `{name}`, which is not known to "
                "compute from its inputs alone: it may hold data that no check can see. Write it "
                f"with PyTensor's own operations, as they are{unproved[variable][name]}."
            )
    for name, graph in factors.items():  # their seed would be a number from outside the graph
        if any(isinstance(op, RandomVariable) for op in operations(all_variables([graph]))):
            raise NotSeparableError(
                f"The density of `{name}` draws random numbers: write it as a formula of the "
                "latents and the data, by pm.logp for example."
            )
    distributions = {rv.name: [rv] for rv in hardened.model.observed_RVs}
    graphs = prior | {name: [g, *distributions.get(name, [])] for name, g in factors.items()}
    refuse_hidden(graphs, hardened)
    doubtful = {name for name, own in unproved.items() if not own.keys() <= allowed}
    return graphs, allowed, doubtful


def refuse_unsupported(model: pm.Model) -> None:
    """Refuse models that no private method can take."""
    if config.floatX != "float64":
        raise ValueError(
            f"pytensor.config.floatX is {config.floatX!r}, and sensitivities hold in double "
            "precision: set it to 'float64' before building the model."
        )
    if model.parent is not None:
        raise ValueError("The model is nested inside another one: fit the outermost model.")
    if not model.free_RVs:
        raise ValueError("The model has no latent variables: there is nothing to infer.")


def refuse_unread(split: Split) -> None:
    """Refuse latents of which data say nothing, but whose shape may say something of the data."""
    read, before = set(ancestors(split.terms.values())), -1
    while len(read) != before:
        before = len(read)
        known = read.intersection(split.shared.values())
        priors = [split.prior[name][0] for name, value in split.shared.items() if value in known]
        tied = [p for p in split.potentials.values() if known.intersection(ancestors([p]))]
        read |= set(ancestors([*priors, *tied]))
    for name, value in split.shared.items():
        if value not in read:
            raise NotSeparableError(
                f"No term of the likelihood reads `{name}`, so it learns nothing from the data: "
                "remove it. To predict new records, use pymc_dp.predict after the fit."
            )


def refuse_without_gradient(split: Split) -> None:
    """Refuse latents that are discrete, or of which the likelihood reads comparisons alone."""
    in_steps = _read_in_steps(list(split.terms.values()))
    for name, value in split.shared.items():
        if not value.type.dtype.startswith("float"):  # methods decide on those of single records
            raise NotSeparableError(
                f"`{name}` is a discrete latent, without gradient. Sum it out, as pm.Mixture does, "
                f"or use a continuous one: pm.math.sigmoid((t - {name}) / width), say."
            )
        if value in in_steps:
            raise NotSeparableError(
                f"The likelihood reads `{name}` in comparisons or as a whole number alone, so it "
                f"has no gradient. Let the change be a smooth one: in place of t > {name}, say, "
                f"pm.math.sigmoid((t - {name}) / width) with a public width."
            )
    for name, potential in split.potentials.items():
        latents = set(split.shared.values()).intersection(ancestors([potential]))
        if latents and latents <= _read_in_steps([potential]):
            raise NotSeparableError(
                f"The potential `{name}` reads latents in comparisons alone, so it has no "
                "gradient. To order latents, give their prior an initval in order and "
                "transform=pm.distributions.transforms.ordered; to bound one, use pm.Truncated; "
                "else take a smooth penalty with a public width, such as "
                "pm.math.log(pm.math.sigmoid((b - a) / width))."
            )


def _read_in_steps(graphs: list[AnyVariable]) -> set[AnyVariable]:
    """Return what is read in comparisons, or as a whole number, and nowhere else."""
    read = set(ancestors(graphs))
    steps = [v for v in read if not getattr(v, "dtype", "").startswith("float")]
    return read.difference(ancestors(graphs, blockers=steps))


def refuse_unknown_names(
    model: pm.Model, public: Iterable[str], unproved: Iterable[Iterable[str]]
) -> frozenset[str]:
    """Refuse names in ``public=`` that nothing in the model has; return those of operations."""
    variables = {v.name for v in (*model.data_vars, *model.observed_RVs, *model.deterministics)}
    known = {x for x in variables.union(*unproved) if not x.startswith(CHANGED)}
    for name in public:
        if name not in known:
            raise ValueError(
                f"public= names `{name}`, but the model has no pm.Data, observed variable or "
                f"pm.Deterministic, and no operation of your own, of that name; it has "
                f"{sorted(known)}. Give a list of names, such as public=['X']."
            )
    return frozenset(public) - variables


def refuse_hidden(graphs: Mapping[str, Iterable[AnyVariable]], hardened: HardenedModel) -> None:
    """Refuse numbers that no leaf stands for: shared variables, and what a function closed over."""
    known = {*hardened.leaves, *hardened.model.dim_lengths.values()}
    for name, graph in graphs.items():
        # what PyMC itself adds to a mixture are shapes
        read = [v for v in all_variables(graph, (MixtureRV,)) if v not in known]
        shapes = {v.owner.inputs[1] for v in read if is_counted_axis(v)}
        hidden: list[AnyVariable] = [
            v for v in tensor_constants(read) if v not in shapes and not is_structural(v.data)
        ]
        hidden += [
            v for v in read if isinstance(v, SharedVariable) and isinstance(v.type, TensorType)
        ]
        for variable in hidden:
            kind = "array" if variable.type.ndim else "number"
            what = f"`{variable.name}`" if variable.name else f"an unnamed {kind}"
            raise NotSeparableError(
                f"`{name}` reads {what}, which is no pm.Data of the model or is used inside "
                "a function without being its argument. Make it a pm.Data, declare it in "
                "public=[...] if it is public, and hand it to the distribution as a parameter."
            )


def refuse_undeclared(split: Split) -> None:
    """Refuse arrays in the likelihood that are neither records nor declared public."""
    for term, graph in split.terms.items():
        for variable in ancestors([graph]):
            leaf = split.hardened.leaves.get(variable)
            if leaf is None or variable in split.axes.axis or leaf.name in split.hardened.public:
                continue
            if leaf.declared or not is_structural(leaf.value):
                own = f"name it in public=[{leaf.name!r}]"
                declare = own if leaf.declared else "make it a pm.Data and name it in public=[...]"
                raise NotSeparableError(
                    f"The likelihood of `{term}` reads {leaf}, which is not laid out by records. "
                    f"If it is public, {declare}; if it is private, the model mixes records and "
                    f"cannot be fitted privately ({CENSORED})."
                )


def refuse_data_in_prior(
    split: Split, shapes: Mapping[str, tuple[int, ...]], private: Container[AnyVariable]
) -> None:
    """Refuse priors and initial values that read data, or the ``private`` lengths of dimensions."""
    # unnamed arrays of a latent's shape are trusted
    hardened, records = split.hardened, split.axes.axis
    for name, value in hardened.initvals.items():
        if isinstance(value, Variable) and not isinstance(value, Constant):
            raise NotSeparableError(
                f"The initial value of `{name}` is computed inside the model and may read data: "
                "give it as a number, 'support_point' or 'prior'."
            )
    names = {value: name for name, value in split.local.items()}
    lengths = {name: {1, *hardened.model[name].type.shape, *shapes[name]} for name in split.shared}
    for name, graphs in split.before_data.items():
        for variable in ancestors(graphs):
            leaf = hardened.leaves.get(variable)
            if variable in private:
                raise NotSeparableError(
                    f"The prior or the initial value of `{name}` reads the length of the dimension "
                    f"`{variable.name}`, which is private: write a public number there."
                )
            if leaf is None and variable in records and variable.owner is None:
                raise NotSeparableError(
                    f"`{name}` reads `{names[variable]}`, a latent of single records. Only the "
                    "likelihood and the priors of other such latents may."
                )
            if leaf is None or (leaf.name in hardened.public and variable not in records):
                continue
            own_shape = lengths.get(name, {1}).issuperset(leaf.value.shape)
            foreign = not own_shape and not is_structural(leaf.value)
            if variable in records or leaf.declared or foreign:
                raise NotSeparableError(
                    f"The prior or the initial value of `{name}` reads {leaf}, so it "
                    "depends on data before any noise is added. Write public numbers there, or "
                    "name the data in public=[...] if they are public."
                )
