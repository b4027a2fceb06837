"""What a model must satisfy beside the separability of its likelihood.

Every refusal names the variable, says what is wrong and what to do. The sentences go to the
curator who holds the data; they hold names and shapes, never values.
"""

from collections.abc import Iterable, Mapping

import pymc as pm
from pymc.distributions.mixture import MixtureRV
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.configdefaults import config
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.type import TensorType

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.harden import HardenedModel, is_structural
from pymc_dp.model.indexing import CENSORED, is_counted_axis
from pymc_dp.model.operations import CHANGED
from pymc_dp.model.split import Split
from pymc_dp.model.walk import all_variables, operations, tensor_constants


def refuse_unsupported(model: pm.Model) -> None:
    """Refuse models that no private method can take."""
    if config.floatX != "float64":
        raise ValueError(
            f"pytensor.config.floatX is {config.floatX!r}; sensitivities are only "
            "guarded in double precision: set it to 'float64' before building the model."
        )
    if model.parent is not None:
        raise ValueError("The model is nested inside another one: fit the outermost model.")
    if not model.free_RVs:
        raise ValueError("The model has no latent variables: there is nothing to infer.")


def refuse_discrete(split: Split) -> None:
    """Refuse discrete latents that records share; methods decide on those of single records."""
    for rv in split.hardened.model.free_RVs:
        if rv.name in split.shared and not rv.dtype.startswith("float"):
            raise NotSeparableError(
                f"`{rv.name}` is a discrete latent, without gradient. Sum it out, as pm.Mixture "
                f"does, or use a continuous one: pm.math.sigmoid((t - {rv.name}) / width), say."
            )


def refuse_unread(split: Split) -> None:
    """Refuse latents of which the data say nothing, but whose shape may say something of the data.

    Latents are read by the likelihood, by the prior of a latent that is read, or by a potential
    that reads such a latent too.
    """
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


def refuse_flat(split: Split) -> None:
    """Refuse latents of which the likelihood reads comparisons alone: they have no gradient."""
    without_gradient = _read_in_steps(split.terms.values())
    for name, value in split.shared.items():
        if value in without_gradient:
            raise NotSeparableError(
                f"The likelihood reads `{name}` in comparisons or as a whole number alone, so it "
                "has no gradient there and nothing would be learnt of it. Let the change be a "
                f"smooth one: pm.math.sigmoid((t - {name}) / width) with a public width, say, in "
                f"place of t > {name}."
            )
    for name, potential in split.potentials.items():
        latents = set(split.shared.values()).intersection(ancestors([potential]))
        if latents and latents <= _read_in_steps([potential]):
            raise NotSeparableError(
                f"The potential `{name}` reads latents in comparisons alone, so it has no gradient "
                "and the fit would go on as if it were not there. To order latents, give their "
                "prior transform=pm.distributions.transforms.ordered and an initval in order; to "
                "bound one, use pm.Truncated; else take a smooth penalty with a public width, such "
                "as pm.math.log(pm.math.sigmoid((b - a) / width))."
            )


def _read_in_steps(graphs: Iterable[AnyVariable]) -> set[AnyVariable]:
    """Return what is read in comparisons, or as a whole number, and nowhere else."""
    graphs = list(graphs)
    read = set(ancestors(graphs))
    steps = [v for v in read if not getattr(v, "dtype", "").startswith("float")]
    return read.difference(ancestors(graphs, blockers=steps))


def refuse_unknown_names(
    model: pm.Model, public: Iterable[str], unproved: Iterable[Iterable[str]] = ()
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


def refuse_unproved(unproved: Mapping[str, Mapping[str, str]], allowed: Iterable[str]) -> None:
    """Refuse operations that may hold data outside the graph."""
    for variable, own in unproved.items():
        for name in sorted(own.keys() - set(allowed)):
            raise NotSeparableError(
                f"`{variable}` is computed by the operation `{name}`, which is not known to "
                "compute from its inputs alone: it may hold data that no check can see. Write "
                f"`{variable}` with PyTensor's own operations, as they are{own[name]}."
            )


def refuse_draws(densities: Mapping[str, AnyVariable]) -> None:
    """Refuse densities that draw random numbers: their seed is a number from outside the graph."""
    for name, graph in densities.items():
        if any(isinstance(op, RandomVariable) for op in operations([graph])):
            raise NotSeparableError(
                f"The density of `{name}` draws random numbers: write it as a formula of the "
                "latents and the data, by pm.logp for example."
            )


def refuse_hidden(graphs: Mapping[str, Iterable[AnyVariable]], hardened: HardenedModel) -> None:
    """Refuse numbers that no leaf stands for: shared variables, and what a function closed over.

    The lengths of named dimensions are shared variables too; they have checks of their own.
    """
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
                declare = f"public=[{leaf.name!r}]" if leaf.declared else "public=[...]"
                named = "" if leaf.declared else "make it a pm.Data and "
                raise NotSeparableError(
                    f"The likelihood of `{term}` reads {leaf}, which is not laid out by "
                    f"records. If it is public, {named}name it in {declare}; "
                    "if it is private, the model mixes records and cannot be fitted privately"
                    + (f" ({CENSORED})." if _picks_rows(graph, variable) else ".")
                )


def _picks_rows(graph: AnyVariable, leaf: AnyVariable) -> bool:
    """Whether an array of numbers picks entries of what is computed from a leaf."""
    return any(
        isinstance(v.owner_op, AdvancedSubtensor) and leaf in ancestors(v.owner.inputs[:1])
        for v in ancestors([graph])
    )


def refuse_data_in_prior(split: Split, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse priors and initial values that read data.

    An unnamed array in a prior cannot be distinguished from data. It is trusted where it has the
    shape of what it describes, and refused where it has an axis that the latent does not have.
    ``shapes`` maps each latent to the shape of its unconstrained value.
    """
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
            if leaf is None and variable in records and variable.owner is None:
                raise NotSeparableError(
                    f"`{name}` reads `{names[variable]}`, a latent of single records. Only the "
                    "likelihood and the priors of other such latents may: change its own prior "
                    "instead."
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
