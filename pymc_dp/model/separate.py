"""A model as a prior plus one log likelihood per record, or a reason why it is not."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pymc.distributions.mixture import MixtureRV
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors

from pymc_dp.model import checks
from pymc_dp.model.axis import refuse_mixing
from pymc_dp.model.batch import RecordGraph, build_graph
from pymc_dp.model.columns import make_columns, refuse_few_rows, refuse_missing, refuse_unequal
from pymc_dp.model.constants import Trusted, trusted_constants
from pymc_dp.model.copied import refuse_centres, refuse_copies
from pymc_dp.model.dims import Dims, find_dims, refuse_private_lengths, refuse_record_dims
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.harden import harden
from pymc_dp.model.operations import LISTED, unproved_in
from pymc_dp.model.outcomes import Outcomes, find_outcomes
from pymc_dp.model.prepared_arrays import check_outcomes_read, warn_of_lags, warn_of_own_means
from pymc_dp.model.priors import initial_point, log_prior, prior_draws, prior_graphs
from pymc_dp.model.proved import Proved, proved_graphs
from pymc_dp.model.released import Outputs, releasable
from pymc_dp.model.split import Split, split_by_record
from pymc_dp.model.terms import declare_public, likelihood_terms, log_densities
from pymc_dp.model.unit_column import without_unit
from pymc_dp.model.value_checks import check_groups, refuse_as_many
from pymc_dp.privacy.private_data import Columns, Partition, PrivateData, record_shape
from pymc_dp.privacy.units import UnitBlocks, Units


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
    # the same names, and those of local latents, to the class of the random variable's operation
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
        found = {k: v for stage in self.outcomes or () for k, v in stage.variables.items()}
        return {leaf: name for leaf, name in found.items() if leaf not in self.local_latents}

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
) -> tuple[Records, Callable[[], PrivateData]]:
    """Split ``model`` into its records; return them, and what checks and returns the data.

    ``data`` replaces every record leaf of a model built on a small template, by the name of the
    ``pm.Data`` or of the observed variable. ``public`` names the ``pm.Data``, observed variables
    and deterministics that the author declares public, and operations of their own that hold no
    data; an observed variable that is public belongs to the prior, with its density as written.
    ``start`` holds public initial values of latents, in place of the model's. ``units`` says which
    records belong to one unit, if it is not the record, ``beside`` holds columns that no term
    reads, and ``number_is_public`` says whether their number may be the length of a latent, or of
    an array in a prior.
    """
    declared = tuple(public)
    checks.refuse_unsupported(model)
    hardened = declare_public(harden(model), declared)
    hardened.initvals.update(start or {})
    densities = log_densities(hardened.model)
    terms, potentials = likelihood_terms(hardened, densities)
    refuse_few_rows(hardened, terms)
    for name in (*beside, *([units.name] if units else [])):
        terms = without_unit(terms, hardened, name)
    prior = prior_graphs(hardened.model, hardened.initvals, densities)
    proved = proved_graphs(model, hardened, terms | potentials, prior, declared)
    split = split_by_record(hardened, terms, potentials, prior, units and units.name)
    checks.refuse_unread(split)
    checks.refuse_discrete(split)
    checks.refuse_flat(split)
    dims = find_dims(split, units and units.name)
    refuse_record_dims(split, dims)
    refuse_mixing(split.terms, split.axes, dims.lengths)
    point = initial_point(hardened.model, prior, hardened.initvals)
    shapes = {n: point[str(v.name)].shape for n, v in (split.shared | split.local).items()}
    checks.refuse_undeclared(split)
    checks.refuse_data_in_prior(split, shapes)
    refuse_private_lengths(split, dims)
    columns = make_columns(split.record_leaves, split.axes, data) | dict(beside)
    refuse_unequal(columns, units)
    # in the order of the author's model, which the copy does not keep
    order = [v.name for v in (*model.free_RVs, *model.deterministics)]
    outputs = releasable(split, order, dims, shapes, proved.doubtful)
    latents = split.shared_values(v.name for v in model.value_vars)
    records = _records(split, latents, point, columns, dims, outputs, proved)
    found = Partition(columns, units)
    return records, partial(_checked, split, outputs.graphs, found, shapes, number_is_public)


def _drawn(
    split: Split, latents: dict[str, AnyVariable], allowed: frozenset[str]
) -> tuple[AnyVariable, ...]:
    """Return draws of the prior, unless they read draws of records, or code that may hold data."""
    drawn = prior_draws(split.hardened.model, latents)
    of_records = {rv for rv in split.hardened.model.basic_RVs if rv.name in split.terms}
    is_shared = of_records.isdisjoint(ancestors(drawn))
    return drawn if is_shared and unproved_in(drawn).keys() <= allowed else ()


def _outcomes(
    split: Split, lengths: frozenset[AnyVariable], allowed: frozenset[str]
) -> tuple[Outcomes, ...] | None:
    """Return draws of outcomes, unless an author's code that may hold data would make them."""
    drawn = [rv for rv in split.hardened.model.basic_RVs if rv.name in split.terms]
    return find_outcomes(split, lengths) if unproved_in(drawn).keys() <= allowed else None


def _checked(
    split: Split,
    released: Mapping[str, AnyVariable],
    data: Partition,
    shapes: Mapping[str, tuple[int, ...]],
    number_is_public: bool,
) -> PrivateData:
    """Check the values, which reads all records in blocks; ``shapes`` are those of latents."""
    refuse_missing(data.columns)
    check_groups(split, data)
    refuse_centres(split.hardened.model, data.columns)
    refuse_copies(split, released, data.columns)
    if data.units is None:
        warn_of_lags(data.columns)
    warn_of_own_means(data.columns)
    check_outcomes_read(split, data.columns)
    refuse_as_many(split, shapes, data, number_is_public)
    return PrivateData(*data)


def _records(
    split: Split,
    latents: dict[str, AnyVariable],
    point: Mapping[str, np.ndarray],
    columns: Columns,
    dims: Dims,
    outputs: Outputs,
    proved: Proved,
) -> Records:
    """Rebuild the graphs of a model that all checks have passed, without its data."""
    axis = split.axes.axis
    inputs = {str(variable.name): variable for variable in split.axes.inputs()}
    shapes = {name: column.spec.shape for name, column in columns.items()}
    local = {str(value.name): axis[value] for value in split.local.values()}
    shapes |= {name: record_shape(point[name].shape, k) for name, k in local.items()}
    model = split.hardened.model
    released = [v for v in model.deterministics if v.name in outputs.graphs]
    return Records(
        prior=log_prior(split.prior, split.potentials, model),
        observes_public=bool(split.potentials),
        prior_draws=_drawn(split, latents, proved.allowed),
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
        outcomes=_outcomes(split, dims.lengths, proved.allowed),
        trusted=trusted_constants(split, proved.graphs, proved.allowed, released),
        unnamed={k: str(x) for k, x in split.record_leaves.items() if not x.declared},
    )


def listed(op: Op) -> type[Op]:
    """Return an operation's class; of an author's, which may hold data, the one that it extends."""
    return next((base for base in type(op).__mro__ if base in LISTED), Op)
