"""The elementwise log-likelihood terms of a model, free of wrappers that would hide records."""

from collections.abc import Callable

import pymc as pm
from pymc.data import MinibatchOp
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.random.basic import MultinomialRV
from pytensor.tensor.rewriting.ofg import inline_ofg_node
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.special import LogAddExp, LogSoftmax, LogSumExp, Softmax, XLog1PY, XLogY

from pymc_dp.errors import NotSeparableError

Terms = dict[str, Variable]
# these have gradients of their own, stabler than those of their inner graphs
KEPT_WHOLE = (Softmax, LogSoftmax, LogSumExp, LogAddExp, XLogY, XLog1PY)


def likelihood_terms(model: pm.Model, data: set[Variable]) -> tuple[Terms, Terms]:
    """Split observed variables and potentials into likelihood terms and prior potentials.

    A potential that reaches none of the ``data`` variables belongs to the prior.

    Raises
    ------
    NotSeparableError
        Where the model observes nothing, or a variable that it observes has missing entries.
    """
    observed, potentials = list(model.observed_RVs), list(model.potentials)
    _refuse_missing(model)
    factors = model.logp(vars=observed + potentials, sum=False, jacobian=False)
    factors = [_unscaled(rv, term) for rv, term in zip(observed + potentials, factors, strict=True)]
    factors = [_counted(model, rv, t) for rv, t in zip(observed + potentials, factors, strict=True)]
    factors = simplify(factors)
    named = dict(zip([rv.name for rv in observed + potentials], factors, strict=True))
    public = {rv.name for rv in potentials if not data.intersection(ancestors([named[rv.name]]))}
    prior = {name: term for name, term in named.items() if name in public}
    likelihood = {name: term for name, term in named.items() if name not in public}
    if not likelihood:
        raise NotSeparableError(
            "The model has no observed data: give at least one variable `observed=`."
        )
    return likelihood, prior


def _counted(model: pm.Model, rv: Variable, term: Variable) -> Variable:
    """Let a multinomial count its own trials: it needs no array of totals beside its counts."""
    if rv.owner is None or not isinstance(rv.owner.op, MultinomialRV):
        return term
    [p] = model.replace_rvs_by_values([rv.owner.inputs[-1]])
    value = model.rvs_to_values[rv]
    return pm.logp(pm.Multinomial.dist(n=value.sum(axis=-1), p=p), value)


def _refuse_missing(model: pm.Model) -> None:
    """PyMC splits a variable with missing entries in two, of these names."""
    latents = {rv.name for rv in model.free_RVs}
    for rv in model.observed_RVs:
        name = rv.name.removesuffix("_observed")
        if name != rv.name and f"{name}_unobserved" in latents:
            raise NotSeparableError(
                f"`{name}` has missing entries, which become latents of single records. "
                "Drop the incomplete records, or model the observed part alone."
            )


def simplify(terms: list[Variable]) -> list[Variable]:
    """Replace minibatches by their full data, inline nested graphs and drop runtime checks.

    The checks are dropped because they reduce over all records and raise errors that depend on
    data; a record that they would have refused has a non-finite contribution, which the wall drops.
    """
    terms = _exhaust(without_lengths(terms), _nested_graphs)
    return _exhaust(terms, _checks)


def without_lengths(variables: list[Variable]) -> list[Variable]:
    """Replace minibatches by their full data, and forget how many rows the data had."""
    variables = _exhaust(variables, _minibatch_sources)
    left = None
    while (lengths := _fixed_lengths(variables)) and len(lengths) != left:
        left = len(lengths)  # a reshape asks for the length of its shape anew, each time
        variables = clone_replace(variables, lengths, rebuild_strict=False)
    return variables


def _exhaust(
    terms: list[Variable], find: Callable[[list[Variable]], dict[Variable, Variable]]
) -> list[Variable]:
    while replacements := find(terms):
        terms = clone_replace(terms, replacements, rebuild_strict=False)
    return terms


def _minibatch_sources(terms: list[Variable]) -> dict[Variable, Variable]:
    """Map every output of ``pm.Minibatch`` to the full data behind it."""
    return {
        variable: _without_fixed_length(
            variable.owner.inputs[variable.owner.outputs.index(variable)]
        )
        for variable in ancestors(terms)
        if variable.owner is not None and isinstance(variable.owner.op, MinibatchOp)
    }


def _fixed_lengths(terms: list[Variable]) -> dict[Variable, Variable]:
    """Hardening leaves the length of the data behind each leaf: drop it again."""
    return {
        variable: leaf
        for variable in ancestors(terms)
        if (leaf := _without_fixed_length(variable)) is not variable
    }


def _without_fixed_length(variable: Variable) -> Variable:
    node = variable.owner
    if node is not None and isinstance(node.op, SpecifyShape):
        if isinstance(node.inputs[0], SharedVariable):
            return node.inputs[0]
    return variable


def _nested_graphs(terms: list[Variable]) -> dict[Variable, Variable]:
    for variable in ancestors(terms):
        node = variable.owner
        if node is not None and isinstance(node.op, OpFromGraph):
            if not isinstance(node.op, KEPT_WHOLE):
                return {variable: inline_ofg_node(node)[node.outputs.index(variable)]}
    return {}


def _checks(terms: list[Variable]) -> dict[Variable, Variable]:
    return {
        variable: variable.owner.inputs[0]
        for variable in ancestors(terms)
        if variable.owner is not None and isinstance(variable.owner.op, CheckAndRaise)
    }


def _unscaled(rv: Variable, term: Variable) -> Variable:
    """Undo ``total_size``: PyMC multiplies the term of a minibatch by a scaling."""
    if rv.owner is not None and isinstance(rv.owner.op, MinibatchRandomVariable):
        return term.owner.inputs[0]
    return term
