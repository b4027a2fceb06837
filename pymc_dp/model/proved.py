"""What the graphs of a model may compute with: inputs, and operations that hold no data."""

from collections.abc import Iterable
from typing import NamedTuple

import pymc as pm

from pymc_dp.model import checks
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.harden import HardenedModel
from pymc_dp.model.operations import unproved_by_variable, unproved_in
from pymc_dp.model.priors import Prior
from pymc_dp.model.terms import Terms


class Proved(NamedTuple):
    """What the graphs of a model may compute with, beside their inputs."""

    graphs: dict[str, list[AnyVariable]]  # by variable, all in which numbers may hide
    allowed: frozenset[str]  # the author's own operations, which are declared to hold no data
    doubtful: set[str]  # the deterministics with others


def proved_graphs(
    model: pm.Model, hardened: HardenedModel, factors: Terms, prior: Prior, public: Iterable[str]
) -> Proved:
    """Refuse operations that no proof covers and the author does not declare.

    A deterministic that has one is withheld instead.
    """
    unproved = unproved_by_variable(hardened.model, factors, prior)
    every = (*unproved.values(), unproved_in(hardened.model.basic_RVs))
    allowed = checks.refuse_unknown_names(model, public, every)
    withheld = {v.name for v in model.deterministics} - hardened.public
    checks.refuse_unproved({k: v for k, v in unproved.items() if k not in withheld}, allowed)
    checks.refuse_draws(factors)
    graphs = _graphs_read(hardened.model, factors, prior)
    checks.refuse_hidden(graphs, hardened)
    doubtful = {name for name, own in unproved.items() if not own.keys() <= allowed}
    return Proved(graphs, allowed, doubtful)


def _graphs_read(model: pm.Model, factors: Terms, prior: Prior) -> dict[str, list[AnyVariable]]:
    """Collect by variable all graphs in which numbers may hide."""
    # they are a latent's log density, its distribution, its initial value and what is released of
    # it, an observed variable's log density and distribution, and potentials
    distributions = {rv.name: [rv] for rv in model.observed_RVs}
    densities = {name: [graph, *distributions.get(name, [])] for name, graph in factors.items()}
    return {name: list(graphs) for name, graphs in prior.items()} | densities
