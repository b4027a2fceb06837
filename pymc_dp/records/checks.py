"""What a model must satisfy beside the separability of its likelihood.

Every refusal names the variable, says what is wrong and what to do. The sentences go to the
curator who holds the data; they hold names and shapes, never values.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType

from pymc_dp.errors import NotSeparableError
from pymc_dp.records.constants import inner_constants
from pymc_dp.records.harden import DataLeaf, HardenedModel, is_structural


def refuse_unsupported(model: pm.Model) -> None:
    """Refuse models that no private method can take."""
    if pytensor.config.floatX != "float64":
        raise ValueError(
            f"pytensor.config.floatX is {pytensor.config.floatX!r}; sensitivities are only "
            "guarded in double precision: set it to 'float64' before building the model."
        )
    if model.parent is not None:
        raise ValueError("The model is nested inside another one: fit the outermost model.")
    if not model.free_RVs:
        raise ValueError("The model has no latent variables: there is nothing to infer.")


def refuse_discrete(latents: Iterable[Variable]) -> None:
    """Refuse discrete latents that records share; those of single records are a method's affair."""
    for rv in latents:
        if not rv.dtype.startswith("float"):
            raise NotSeparableError(
                f"`{rv.name}` is a discrete latent, which has no gradient. Marginalise it: "
                "pm.Mixture, pm.ZeroInflatedPoisson and their kin do so."
            )


def refuse_unread(
    shared: Mapping[str, Variable],
    likelihood: Iterable[Variable],
    prior: Mapping[str, list[Variable]],
    potentials: Mapping[str, Variable],
) -> None:
    """Refuse latents of which the data say nothing, but whose shape may say something of the data.

    ``shared`` maps the latents to their value variables. Latents are read by the likelihood, by
    the prior of a latent that is read, or by a potential that reads such a latent too.
    """
    read, before = set(ancestors(likelihood)), -1
    while len(read) != before:
        before = len(read)
        priors = [prior[name][0] for name, value in shared.items() if value in read]
        tied = [p for p in potentials.values() if {*shared.values()} & read & {*ancestors([p])}]
        read |= set(ancestors([*priors, *tied]))
    for name, value in shared.items():
        if value not in read:
            raise NotSeparableError(
                f"No term of the likelihood reads `{name}`, so it learns nothing from the data: "
                "remove it. To predict new records, use pymc_dp.predict after the fit."
            )


def refuse_unknown_names(model: pm.Model, public: Iterable[str]) -> None:
    """Refuse names in ``public=`` that are no data and no deterministic of the model."""
    known = {v.name for v in (*model.data_vars, *model.deterministics)}
    for name in public:
        if name not in known:
            raise ValueError(
                f"public= names `{name}`, but the model has no pm.Data or pm.Deterministic of "
                f"that name; it has {sorted(known)}. Give a list of names, such as public=['X']."
            )


def refuse_bad_start(
    model: pm.Model, start: Mapping[str, Any], initvals: Mapping[str, Any]
) -> None:
    """Refuse literal initial values that are not finite values of their latents.

    ``start`` are those of ``public_start=``, ``initvals`` those that the author wrote.
    """
    shapes = model.eval_rv_shapes() if start or initvals else {}
    latents = [rv.name for rv in model.free_RVs]
    for name in start:
        if name not in latents:
            raise ValueError(f"public_start= names `{name}`, but the latents are {latents}.")
    for name, value in {**initvals, **start}.items():
        if isinstance(value, str | Variable):
            continue
        needed = tuple(map(int, shapes[name]))
        if np.shape(value) != needed or not np.isfinite(value).all():
            raise ValueError(
                f"The initial value of `{name}` has the shape {np.shape(value)}, or numbers that "
                f"are not finite; it needs {needed} finite numbers."
            )


def refuse_hidden(
    graphs: Mapping[str, Iterable[Variable]],
    leaves: Mapping[Variable, DataLeaf],
    lengths: Iterable[Variable],
) -> None:
    """Refuse numbers that no leaf stands for: shared variables, and what a function closed over.

    The ``lengths`` of named dimensions are shared variables too; they have checks of their own.
    """
    known = {*leaves, *lengths}
    for name, graph in graphs.items():
        for variable in (*ancestors(graph), *inner_constants(graph)):
            if variable in known or not isinstance(variable.type, TensorType):
                continue
            if isinstance(variable, SharedVariable):
                hidden = True
            else:
                hidden = isinstance(variable, Constant) and not is_structural(variable.data)
            if hidden:
                kind = "array" if variable.ndim else "number"
                what = f"`{variable.name}`" if variable.name else f"an unnamed {kind}"
                raise NotSeparableError(
                    f"`{name}` reads {what}, which is no pm.Data of the model or is used inside "
                    "a function without being its argument. Make it a pm.Data, declare it in "
                    "public=[...] if it is public, and hand it to the distribution as a parameter."
                )


def refuse_undeclared(
    likelihood: Mapping[str, Variable],
    records: set[Variable],
    leaves: Mapping[Variable, DataLeaf],
    public: frozenset[str],
) -> None:
    """Refuse arrays in the likelihood that are neither records nor declared public."""
    for term, graph in likelihood.items():
        for variable in ancestors([graph]):
            leaf = leaves.get(variable)
            if leaf is None or variable in records or leaf.name in public:
                continue
            if np.size(leaf.value) > 1 and (leaf.declared or not is_structural(leaf.value)):
                raise NotSeparableError(
                    f"The likelihood of `{term}` reads {describe(leaf)}, which is not laid out by "
                    "records. If it is public, make it a pm.Data and name it in public=[...]; "
                    "if it is private, the model mixes records and cannot be fitted privately."
                )


def refuse_data_in_prior(
    hardened: HardenedModel,
    prior: Mapping[str, list[Variable]],
    shapes: Mapping[str, tuple[int, ...]],
    records: set[Variable],
    leaves: Mapping[Variable, DataLeaf],
    public: frozenset[str],
) -> None:
    """Refuse priors and initial values that read data.

    ``prior`` maps the name of each latent or potential to the graphs that define it, ``shapes``
    each latent to the shape of its unconstrained value. An unnamed
    array in a prior cannot be told from data. It is trusted where it has the shape of what it
    describes, and refused where it has an axis that the latent does not have.
    """
    _refuse_computed_initvals(hardened.initvals)
    names = {value: rv.name for rv, value in hardened.model.rvs_to_values.items()}
    lengths = {rv.name: set(rv.type.shape) | set(shapes[rv.name]) for rv in hardened.model.free_RVs}
    for name, graphs in prior.items():
        for variable in ancestors(graphs):
            leaf = leaves.get(variable)
            if leaf is None and variable in records:
                raise NotSeparableError(
                    f"`{name}` reads `{names[variable]}`, a latent of single records. Only the "
                    "likelihood and the priors of other such latents may: change its own prior "
                    "instead."
                )
            if leaf is None or (leaf.name in public and variable not in records):
                continue
            foreign = not is_structural(leaf.value) and not (
                set(np.shape(leaf.value)) <= lengths.get(name, set()) | {1}
            )
            named = leaf.declared and np.size(leaf.value) > 1
            if variable in records or named or foreign:
                raise NotSeparableError(
                    f"The prior or the initial value of `{name}` reads {describe(leaf)}, so it "
                    "depends on data before any noise is added. Write public numbers there, or "
                    "name the data in public=[...] if they are public."
                )


def _refuse_computed_initvals(initvals: Mapping[str, object]) -> None:
    for name, value in initvals.items():
        if isinstance(value, Variable) and not isinstance(value, Constant):
            raise NotSeparableError(
                f"The initial value of `{name}` is computed inside the model and may read data: "
                "give it as a number, 'support_point' or 'prior'."
            )


def describe(leaf: DataLeaf) -> str:
    """Name a leaf for an error sentence."""
    if leaf.declared:
        return f"the data `{leaf.name}`"
    return f"an unnamed array of shape {np.shape(leaf.value)}"
