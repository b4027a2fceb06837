"""Outcomes that a model's own distributions draw for its records, given the latents.

What is drawn for a record may read what its log likelihood reads, and nothing of other records: a
stand-in for the draw, which depends on all that it depends on, passes the proof that the likelihood
has passed.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.replace import clone_replace, graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Cast
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV, UniformRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType, random_generator_type

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.axis import find_record_axes, refuse_mixing
from pymc_dp.model.batch import build_graph
from pymc_dp.model.draws import counts_without_rejection, mixtures_by_choice
from pymc_dp.model.graph_types import AnyVariable, Node, Tensor, pt
from pymc_dp.model.split import Split
from pymc_dp.model.terms import Terms, of_own_trials, simplify, unscaled


class _StandardUniform(UniformRV):
    """Uniform numbers between 0 and 1, as `UniformRV` draws them; no arrays of bounds: faster."""

    @classmethod
    def rng_fn(cls, rng: np.random.Generator, *bounds_and_size: Any) -> np.ndarray:
        return np.asarray(rng.random(bounds_and_size[-1]))


STANDARD_UNIFORM: Any = _StandardUniform()


class Outcomes(NamedTuple):
    """Graphs that draw some variables for a batch of records; they hold no data."""

    # {leaf: draws, shape (number, *that of its batch input), of its dtype}
    drawn: dict[str, AnyVariable]
    variables: dict[str, str]  # the same leaves, each with the name of its random variable
    number: AnyVariable  # of draws of each record
    inputs: dict[str, AnyVariable]  # leaf name to its batch input
    generators: tuple[AnyVariable, ...]  # one for each distribution that is drawn from
    is_binary: bool  # whether each record has one Bernoulli outcome, and nothing else is drawn


class _Random(NamedTuple):
    """A random variable inside the graph of an outcome, and a stand-in for it."""

    node: Node
    parameters: tuple[Tensor, ...]  # with stand-ins for what is drawn before
    stand_in: Tensor
    batch: int  # how many axes it shares with the outcome
    stacked: bool  # whether it has one more, of a mixture's components


class _Drawn(NamedTuple):
    """A variable, and the graph of its draws, where stand-ins replace what is random."""

    name: str
    leaf: Tensor
    graph: Tensor
    random: tuple[_Random, ...]
    trials: frozenset[AnyVariable]  # the leaf where it says how many trials are drawn, else empty

    @property
    def is_binary(self) -> bool:
        """Whether it is a Bernoulli outcome as it is drawn, one of each record."""
        last = self.random[-1]
        one_each = all(self.leaf.type.broadcastable[1:])
        return self.graph is last.stand_in and isinstance(last.node.op, BernoulliRV) and one_each

    @property
    def read(self) -> set[AnyVariable]:
        """What its distributions read, beside what they draw and how often."""
        drawn = [one.stand_in for one in self.random]
        read = ancestors([x for one in self.random for x in one.parameters], blockers=drawn)
        return set(read) - self.trials


def find_outcomes(split: Split, lengths: frozenset[AnyVariable]) -> tuple[Outcomes, ...] | None:
    """Build graphs that draw outcomes; None where the model does not say how, or not by records.

    They come in stages, each of which reads what the stages before have drawn: first the latents of
    single records or units, as values on the real line of which records of one unit must share one.
    Potentials have no distribution. ``lengths`` are those of dimensions that are not public.
    """
    model = split.hardened.model
    rvs = {rv.name: rv for rv in (*model.observed_RVs, *model.free_RVs)}
    if not rvs.keys() >= split.terms.keys():
        return None
    found = [_drawn(split, rvs[name], split.local.get(name)) for name in split.terms]
    left = [one for one in found if one is not None]
    if len(left) < len(found) or not _read_what_terms_read(split, left):
        return None
    stages = []
    while left:
        waiting = {one.leaf for one in left}
        ready = [one for one in left if waiting.isdisjoint(one.read)]
        stage = _outcomes(split, ready, lengths) if ready else None
        if stage is None:
            return None
        stages.append(stage)
        left = [one for one in left if one not in ready]
    return tuple(stages)


def _outcomes(
    split: Split, drawn: list["_Drawn"], lengths: frozenset[AnyVariable]
) -> Outcomes | None:
    """Rebuild graphs of draws for a batch; None where a draw would mix records."""
    graphs: Terms = {str(one.leaf.name): one.graph for one in drawn}
    try:
        axes = find_record_axes(split.terms | {f"draws of {k}": x for k, x in graphs.items()})
        refuse_mixing(graphs, axes, lengths)
    except NotSeparableError:
        return None
    random = [each for one in drawn for each in one.random]
    parts = [part for each in random for part in (each.stand_in, *each.parameters)]
    every = {str(k): part for k, part in enumerate(dict.fromkeys([*graphs.values(), *parts]))}
    leaves = {str(variable.name): variable for variable in axes.inputs()}
    batch = build_graph(every, axes, leaves, rows=None)
    new = dict(zip(every.values(), batch.terms, strict=True))
    generators: list[AnyVariable] = []
    outcomes, number = {}, pt.lscalar("number")
    for name, one in zip(graphs, drawn, strict=True):
        value: Tensor = batch.inputs[name]
        draws: dict[AnyVariable, AnyVariable] = {}
        for each in one.random:
            generators.append(random_generator_type())
            parameters = [new[x] for x in each.parameters]
            parameters = [vectorize_graph(x, draws) if draws else x for x in parameters]
            size = [number, *[value.shape[k] for k in range(each.batch)]]
            size += _components(each, parameters)
            draws[new[each.stand_in]] = _draw(each.node, generators[-1], size, parameters)
        outcome: Tensor = vectorize_graph(new[one.graph], draws)
        outcomes[name] = outcome.astype(value.type.dtype)
    variables = {str(one.leaf.name): one.name for one in drawn}
    is_binary = len(drawn) == 1 and drawn[0].is_binary
    return Outcomes(outcomes, variables, number, batch.inputs, tuple(generators), is_binary)


def _drawn(split: Split, rv: Tensor, value: AnyVariable | None) -> _Drawn | None:
    """Replace what is random in the graph of a variable by stand-ins."""
    # `value` is that of a latent, or None for what an observed variable observes
    model = split.hardened.model
    [leaf] = simplify([model.rvs_to_values[rv]]) if value is None else [value]
    leaf = before_casts(leaf)
    if split.axes.axis.get(leaf) != 0 or leaf.owner is not None:
        return None
    name = str(rv.name)
    rv = unscaled(rv, rv)
    counted = of_own_trials(rv, pt.cast(leaf, "int64"))
    graph = _given_values(split, counted)
    random: list[_Random] = []
    stand_ins: dict[AnyVariable, AnyVariable] = {}
    batch = leaf.type.ndim - rv.owner.op.ndim_supp
    while drawn := [v for v in ancestors([graph]) if is_draw(v)]:
        # the first that is drawn: no other is before it
        first = next(
            v for v in drawn if not any(map(is_draw, ancestors(v.owner.op.dist_params(v.owner))))
        )
        node = first.owner
        parameters = graph_replace(node.op.dist_params(node), stand_ins, strict=False)
        more = first.type.ndim - node.op.ndim_supp - batch
        if more not in (0, 1) or not _has_draws(node.op):
            return None
        stand_in = _stand_in(node, parameters, leaf, batch, more)
        random.append(_Random(node, tuple(parameters), stand_in, batch, bool(more)))
        # a place of its own, which holds no length of the data
        place = pt.tensor(dtype=first.type.dtype, shape=(None,) * first.type.ndim)
        [graph] = clone_replace([graph], {first: place}, rebuild_strict=False)
        stand_ins[place] = stand_in
    [graph] = graph_replace([graph], stand_ins, strict=False)
    trials = frozenset() if counted is rv else _trials(counted, leaf, model.free_RVs)
    return _Drawn(name, leaf, graph, tuple(random), trials) if random else None


def _trials(rv: Tensor, leaf: Tensor, latents: Sequence[AnyVariable]) -> frozenset[AnyVariable]:
    """Return the leaf of a multinomial's counts, unless its probabilities read it, too."""
    read = ancestors([rv.owner.op.dist_params(rv.owner)[-1]], blockers=latents)
    return frozenset([leaf]) - frozenset(read)


def before_casts(variable: AnyVariable) -> AnyVariable:
    """Return what is cast: PyMC casts the integers of a `pm.Data` to the type of a draw."""
    while (node := variable.owner) and isinstance(getattr(node.op, "scalar_op", None), Cast):
        variable = node.inputs[0]
    return variable


def is_draw(variable: AnyVariable) -> bool:
    """Whether a variable is drawn by a random one."""
    node = variable.owner
    return bool(node) and isinstance(node.op, RandomVariable) and variable is node.outputs[1]


def _has_draws(op: RandomVariable) -> bool:
    """Whether a distribution says how to draw: PyMC's stand-in raises where ``random=`` lacks."""
    random = getattr(op, "_random_fn", None)
    return not getattr(random, "__qualname__", "").startswith("default_not_implemented")


def _given_values(split: Split, rv: Tensor) -> Tensor:
    """Return the graph of a draw, with the latents' values in place of the latents."""
    # a draw of a latent is transformed to the real line, where its value is
    node, model = rv.owner, split.hardened.model
    places = [i for i, x in enumerate(node.inputs) if not isinstance(x.type, RandomType)]
    values = model.replace_rvs_by_values([node.inputs[i] for i in places])
    inputs = dict(zip((node.inputs[i] for i in places), values, strict=True))
    transform = model.rvs_to_transforms.get(rv)
    draw = rv if transform is None else transform.forward(rv, *node.inputs)
    [graph] = clone_replace([draw], inputs, rebuild_strict=False)
    [graph] = simplify([mixtures_by_choice(counts_without_rejection(graph))])
    [graph] = split.unit_latents.by_record([graph])
    return graph


def _components(random: _Random, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return how many components of a mixture a draw has; one serves for all that are alike."""
    if not random.stacked:
        return []
    pairs = zip(parameters, random.node.op.ndims_params, strict=True)
    return [reduce(pt.maximum, [x.shape[-1 - core] for x, core in pairs])]


def _stand_in(
    node: Node, parameters: Sequence[Tensor], leaf: Tensor, batch: int, more: int
) -> Tensor:
    """Return a graph of the draw's shape that reads its parameters and carries the records."""
    support = node.op.ndim_supp
    if leaf.ndim - batch != support:
        leaf = pt.shape_padright(leaf.sum(axis=tuple(range(batch, leaf.ndim))), support)
    if more:
        leaf = pt.expand_dims(leaf, batch)
    parts = [
        pt.shape_padright(x.sum(axis=tuple(range(x.ndim - core, x.ndim))) if core else x, support)
        for x, core in zip(parameters, node.op.ndims_params, strict=True)
    ]
    whole: Tensor = pt.add(leaf, *parts) if parts else leaf
    return whole.astype(node.outputs[1].type.dtype)


def _draw(
    node: Node, generator: AnyVariable, size: list[AnyVariable], parameters: list[AnyVariable]
) -> Tensor:
    """Draw from the operation, or from uniform numbers, which is faster for one of few values."""
    if not isinstance(node.op, CategoricalRV | BernoulliRV):
        return node.op.make_node(generator, size, *parameters).outputs[1]
    uniform: Tensor = STANDARD_UNIFORM.make_node(generator, size, 0.0, 1.0).outputs[1]
    p = parameters[0]
    if isinstance(node.op, CategoricalRV):  # NumPy would draw them in a loop over records
        below = uniform[..., None] > pt.cumsum(p, axis=-1)[..., :-1]
        return below.sum(axis=-1)
    within = pt.and_(pt.ge(p, 0), pt.le(p, 1)).all()
    check = CheckAndRaise(ValueError, "not a probability")  # type: ignore[no-untyped-call]
    return pt.lt(uniform, check(p, within))


def _read_what_terms_read(split: Split, drawn: list[_Drawn]) -> bool:
    """Whether draws read no other arrays than the likelihood, and no two are one variable."""
    known, leaves = set(ancestors(split.terms.values())), split.hardened.leaves
    graphs = ancestors([one.graph for one in drawn])
    own = {one.leaf for one in drawn}
    return len(own) == len(drawn) and all(v in known for v in graphs if v in leaves)
