"""The elementwise log-likelihood terms of a model, free of wrappers that would hide records."""

from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np
import pymc as pm
from pymc.data import MinibatchOp
from pymc.distributions.multivariate import DirichletMultinomialRV
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Second
from pytensor.scalar.math import BetaInc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import MultinomialRV
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.special import LogAddExp, LogSoftmax, LogSumExp, Softmax, XLog1PY, XLogY

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.graph_types import AnyVariable, Tensor, pt
from pymc_dp.model.harden import HardenedModel, is_structural

Terms = dict[str, AnyVariable]
Rule = Callable[[AnyVariable], Tensor | None]  # what to put in a variable's place, if anything
# these have gradients of their own, stabler than those of their inner graphs
KEPT_WHOLE = (Softmax, LogSoftmax, LogSumExp, LogAddExp, XLogY, XLog1PY)


def log_densities(model: pm.Model) -> dict[AnyVariable, AnyVariable]:
    """Map every random variable and potential to its elementwise log density.

    One call for all: PyMC searches the whole model, whichever variables it is asked for.
    """
    variables = [*model.basic_RVs, *model.potentials]
    return dict(zip(variables, model.logp(vars=variables, sum=False), strict=True))


def likelihood_terms(
    hardened: HardenedModel, densities: Mapping[AnyVariable, AnyVariable]
) -> tuple[Terms, Terms]:
    """Split observed variables and potentials into likelihood terms and terms of the prior.

    Potentials, and observed variables that are declared public, belong to the prior where they
    reach no private array. An array without a name may hold records; but what a public observation
    reads may be regular, such as ones.
    """
    model, public, leaves = hardened.model, hardened.public, hardened.leaves
    variables = [*model.observed_RVs, *model.potentials]
    masks, factors = {mask.name: mask.variable for mask in hardened.masks}, []
    for rv in variables:
        term = densities[rv]
        if rv.name not in public:
            term = _counted(model, rv, unscaled(rv, term))
        # entries that are missing add nothing
        factors.append(pt.switch(masks[rv.name], 0.0, term) if rv.name in masks else term)
    likelihood = dict(zip([rv.name for rv in variables], simplify(factors), strict=True))
    arrays = {v for v, leaf in leaves.items() if leaf.variable.ndim and leaf.name not in public}
    regular = {v for v in arrays if not leaves[v].declared and is_structural(leaves[v].value)}
    prior = {}
    for rv in variables:
        private = arrays - regular if rv.name in public else arrays
        if private.isdisjoint(ancestors([likelihood[rv.name]])) and (
            rv.name in public
            or (rv in model.potentials and not _is_single_row(rv, model.basic_RVs))
        ):
            prior[rv.name] = likelihood.pop(rv.name)
    if not likelihood:
        raise NotSeparableError(
            "The model has no observed data that are private: give at least one variable "
            "`observed=` that public= does not name."
        )
    return likelihood, prior


def _is_single_row(potential: AnyVariable, latents: Collection[AnyVariable]) -> bool:
    """Whether a potential has one row, and reads an array of one number that may be an outcome."""
    return (
        potential.type.ndim > 0
        and potential.type.broadcastable[0]
        and any(
            isinstance(v, Constant) and getattr(v, "ndim", 0)
            for v in ancestors([potential], blockers=latents)
        )
    )


def declare_public(hardened: HardenedModel, names: Iterable[str]) -> HardenedModel:
    """Declare names public, and complete them.

    An observed variable and the array that it observes, which may have a name of its own, are
    public together.
    """
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


def _counted(model: pm.Model, rv: AnyVariable, term: AnyVariable) -> Tensor:
    """Let a multinomial count its own trials: it needs no array of totals beside its counts."""
    value = model.rvs_to_values.get(rv)
    if value is None or (counted := of_own_trials(rv, value)) is rv:
        return term
    [counted] = model.replace_rvs_by_values([counted])
    return pm.logp(counted, value)


def of_own_trials(rv: AnyVariable, counts: Tensor) -> Tensor:
    """Return a multinomial of as many trials as its counts add up to; other variables as they are.

    A draw of it, too, then needs no array of totals.
    """
    if not isinstance(rv.owner_op, MultinomialRV | DirichletMultinomialRV):
        return rv
    last, trials = rv.owner.op.dist_params(rv.owner)[-1], counts.sum(axis=-1)
    if isinstance(rv.owner.op, MultinomialRV):
        return pm.Multinomial.dist(n=trials, p=last)
    return pm.DirichletMultinomial.dist(n=trials, a=last)


def simplify(terms: list[AnyVariable]) -> list[AnyVariable]:
    """Replace minibatches by their full data, inline nested graphs and drop runtime checks.

    The checks are dropped because they reduce over all records and raise errors that depend on
    data; a record that they would have refused has a non-finite contribution, which the wall drops.
    """
    terms = without_lengths(terms)
    for rule in (_inlined, _unchecked, _power):
        terms = _rewritten(terms, rule)
    return terms


def without_lengths(variables: list[AnyVariable]) -> list[AnyVariable]:
    """Replace minibatches by their full data, and forget how many rows the data had."""
    variables = _rewritten(variables, _full_data)
    left = None
    while (lengths := _replacements(variables, _any_length)) and len(lengths) != left:
        left = len(lengths)  # a reshape asks for the length of its shape anew, each time
        variables = clone_replace(variables, lengths, rebuild_strict=False)
    return variables


def _rewritten(terms: list[AnyVariable], rule: Rule) -> list[AnyVariable]:
    """Replace what a rule has something for, until it has nothing left."""
    while replacements := _replacements(terms, rule):
        terms = clone_replace(terms, replacements, rebuild_strict=False)
    return terms


def _replacements(terms: list[AnyVariable], rule: Rule) -> dict[AnyVariable, AnyVariable]:
    each = ((variable, rule(variable)) for variable in ancestors(terms))
    return {variable: new for variable, new in each if new is not None}


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
    """Return the number that a graph repeats, whatever shape it takes; None where it is none."""
    if isinstance(x, Constant):
        values = np.unique(x.data)
        return float(values[0]) if values.size == 1 else None
    node = x.owner
    if node is None or not isinstance(node.op, DimShuffle | Elemwise):
        return None
    if isinstance(node.op, DimShuffle):
        return number_in(node.inputs[0])
    if isinstance(node.op.scalar_op, Second):
        return number_in(node.inputs[1])
    numbers = [number_in(operand) for operand in node.inputs]
    return None if None in numbers else float(node.op.scalar_op.impl(*numbers))


def unscaled(rv: AnyVariable, term: Tensor) -> Tensor:
    """Undo ``total_size`` of a variable in itself, or in its term, which PyMC scales by it."""
    return term.owner.inputs[0] if isinstance(rv.owner_op, MinibatchRandomVariable) else term
