"""The priors of a model's latents: their densities, and where an inference starts from them."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import Ordered
from pymc.initial_point import make_initial_point_expression
from pymc.logprob.utils import ParameterValueError
from pymc.pytensorf import compile, find_rng_nodes, replace_rng_nodes, reseed_rngs
from pytensor.compile.mode import FAST_COMPILE
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.tensor.sort import sort

from pymc_dp.model.graph_types import AnyVariable, Tensor, stored_value
from pymc_dp.model.modes import as_written, without_c
from pymc_dp.model.terms import simplify

Prior = dict[str, list[AnyVariable]]


def prior_graphs(
    model: pm.Model, initvals: Mapping[str, Any], densities: Mapping[AnyVariable, AnyVariable]
) -> Prior:
    """Map each latent to its log prior density, its distribution, initial value and output.

    The output is what a posterior calls the latent: its value, transformed back. ``densities`` are
    those of the model's variables.

    Numbers that the author wrote as initial values are inputs: they are trusted, and listed.
    """
    latents = model.free_RVs
    terms = simplify([densities[rv] for rv in latents])
    starts = make_initial_point_expression(
        free_rvs=latents,
        rvs_to_transforms=model.rvs_to_transforms,
        initval_strategies={rv: _without_numbers(rv, initvals.get(rv.name)) for rv in latents},
        return_transformed=True,
    )
    outputs = model.replace_rvs_by_values(latents)
    graphs = zip(latents, terms, _on_leaves(starts, model), outputs, strict=True)
    return {rv.name: [term, rv, start, output] for rv, term, start, output in graphs}


def _without_numbers(rv: Tensor, initval: Any) -> Any:
    given = initval is None or isinstance(initval, str | Variable)
    return initval if given else pt.TensorType(rv.dtype, np.shape(initval))(rv.name)


def _on_leaves(graphs: list[AnyVariable], model: pm.Model) -> list[AnyVariable]:
    """Put the model's own arrays back where PyMC has copied their variables."""
    own = {
        id(v.container): v
        for v in ancestors([*model.basic_RVs, *model.data_vars])
        if isinstance(v, SharedVariable)
    }
    copies: dict[AnyVariable, AnyVariable] = {
        v: own[id(v.container)]
        for v in ancestors(graphs)
        if isinstance(v, SharedVariable) and id(v.container) in own
    }
    return list(clone_replace(graphs, copies, rebuild_strict=False))


def log_prior(prior: Prior, potentials: Mapping[str, AnyVariable], model: pm.Model) -> Tensor:
    """Sum the log densities of the shared latents, and the potentials that read no data.

    The lengths of the model's dims are shared variables, and become numbers: graphs with shared
    variables are not kept.
    """
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
    """Return random variables that draw the latents from their prior, on the real line.

    ``latents`` are value variables by name, in the order of what is returned.
    """
    by_name = {model.rvs_to_values[rv].name: rv for rv in model.free_RVs}

    def unconstrained(rv: Any) -> Any:
        transform = model.rvs_to_transforms[rv]
        # PyMC draws values that need an order without it
        drawn = sort(rv, axis=-1) if isinstance(transform, Ordered) else rv
        return rv if transform is None else transform.forward(drawn, *rv.owner.inputs)

    return tuple(unconstrained(by_name[name]) for name in latents)


def initial_point(
    model: pm.Model, prior: Prior, initvals: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Evaluate the initial point; `refuse_data_in_prior` sees to it that it reads no data.

    It is that of the graphs in ``prior``, which are checked: an author's code is not asked again.
    """
    graphs = replace_rng_nodes([prior[rv.name][2] for rv in model.free_RVs])
    reseed_rngs(find_rng_nodes(graphs), 0)
    inputs: list[Any] = list(explicit_graph_inputs(graphs))
    numbers = [np.asarray(initvals[str(x.name)], x.dtype) for x in inputs]
    names = [model.rvs_to_values[rv].name for rv in model.free_RVs]
    with suppress(ParameterValueError):
        found = as_written(inputs, graphs)(*numbers)
        if all(np.isfinite(value).all() for value in found):
            return {n: np.asarray(value, "float64") for n, value in zip(names, found, strict=True)}
    # PyMC rewrites the graphs, and checks no parameters
    with without_c():
        found = compile(inputs, graphs, random_seed=0, mode=FAST_COMPILE)(*numbers)
    return {n: np.asarray(value, "float64") for n, value in zip(names, found, strict=True)}
