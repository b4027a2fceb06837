"""A model split into terms that go by records, and a prior that does not."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pymc_dp.model.axis import RecordAxes, find_record_axes
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.harden import DataLeaf, HardenedModel
from pymc_dp.model.priors import Prior
from pymc_dp.model.terms import Terms
from pymc_dp.model.unit_latents import (
    UnitLatents,
    find_unit_latents,
    refuse_both_kinds,
    refuse_other_uses,
)


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
        found = {name: value for name, value in shared.items() if value in axes.axis}
        if not found:
            left = {name: prior[name] for name in shared}
            refuse_both_kinds(of_units, local)
            refuse_other_uses(of_units, terms | potentials | {n: g[0] for n, g in left.items()})
            return Split(hardened, terms, potentials, left, axes, shared, local, of_units)
        local |= found
        shared = {name: value for name, value in shared.items() if name not in found}
        terms |= {name: prior[name][0] for name in found}
