"""Graphs for a batch of records: their log likelihood, and draws of their outcomes.

`build_graph` rebuilds the terms with leaves of as many rows as a batch has. `find_outcomes` writes
draws of outcomes by the model's own distributions, given the latents. What is drawn for a record
may read what its log likelihood reads, and nothing of other records: a stand-in for the draw, which
depends on all that it depends on, passes the same proof. Two kinds of draws are written anew: of a
mixture, which PyMC writes by row numbers, and of counts above 0, which it draws by rejection.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.mixture import _BaseMixtureRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace, graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Cast
from pytensor.tensor.random.basic import (
    BernoulliRV,
    CategoricalRV,
    NegBinomialRV,
    PoissonRV,
    UniformRV,
)
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType, random_generator_type
from pytensor.tensor.shape import Reshape, reshape
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.graphs import AnyVariable, Node, Tensor, pt, stored_value
from pymc_dp.model.separation_proof import (
    RecordAxes,
    counted_rows,
    find_record_axes,
    gather_layout,
    refuse_mixing,
)
from pymc_dp.model.split import (
    KEPT_WHOLE,
    Split,
    Terms,
    number_in,
    of_own_trials,
    rewrite,
    simplify,
    unscaled,
)

SMALLEST = 1e-300  # numpy refuses a negative binomial of n = 0, which is what it is nearest to
# below numpy's own limit of a negative binomial's mean and ten standard deviations
LARGEST_MEAN = 9e18


class RecordGraph(NamedTuple):
    """Log-likelihood terms on ``inputs`` whose rows are records; it holds no data."""

    # shape (rows, ...): the elementwise log likelihood of every observed variable and potential
    terms: tuple[AnyVariable, ...]
    inputs: dict[str, AnyVariable]  # leaf name to its batch input; float64 where the leaf is real
    rows: AnyVariable  # the number of rows
    # every variable that carries records, with the axis along which it does
    axis: dict[AnyVariable, int]
    # shape (rows,): whether the record's indices lie inside the arrays that they index (None: no
    # index). Indices outside are clipped, so that no backend reads foreign memory.
    valid: AnyVariable | None

    @property
    def axes(self) -> dict[str, int]:
        """The axis of the records in every input, by name."""
        return {name: self.axis[leaf] for name, leaf in self.inputs.items()}

    def log_likelihood(self) -> Tensor:
        """Sum the terms of each record; shape (rows,)."""
        terms: tuple[Tensor, ...] = self.terms
        return pt.add(*[x.sum(axis=tuple(range(1, x.ndim))) for x in terms])


class Outcomes(NamedTuple):
    """Graphs that draw some variables for a batch of records; they hold no data."""

    # {leaf: draws, shape (number, *that of its batch input), of its dtype}
    drawn: dict[str, AnyVariable]
    variables: dict[str, str]  # the same leaves, each with the name of its random variable
    number: AnyVariable  # of draws of each record
    inputs: dict[str, AnyVariable]  # leaf name to its batch input
    generators: tuple[AnyVariable, ...]  # one for each distribution that is drawn from
    is_binary: bool  # whether each record has one Bernoulli outcome, and nothing else is drawn


def build_graph(
    terms: Mapping[str, AnyVariable],
    axes: RecordAxes,
    leaves: Mapping[str, AnyVariable],
    *,
    rows: int | None,
) -> RecordGraph:
    """Rebuild ``terms`` on batch inputs in place of ``leaves``."""
    inputs: dict[str, AnyVariable] = {
        name: _batch_input(leaf, axes.axis[leaf], rows) for name, leaf in leaves.items()
    }
    first, leaf = next(iter(leaves.items()))
    along: Tensor = inputs[first]
    count = along.shape[axes.axis[leaf]] if rows is None else pt.constant(rows, dtype="int64")
    valid: list[Tensor] = []

    def on_rows(node: Node, operands: list[Tensor]) -> None:
        for i, operand in enumerate(operands):
            if (node, i) in axes.counts:
                position = axes.counts[node, i]
                whole = position is None
                operands[i] = count if whole else pt.set_subtensor(operand[position], count)
        valid.extend(_clip_indices(node, operands, axes))

    on_inputs = {leaves[name]: x for name, x in inputs.items()}
    renewed = rebuilt(list(terms.values()), on_inputs, on_rows)
    axis = {renewed.get(variable, variable): k for variable, k in axes.axis.items()}
    batch_terms = tuple(renewed.get(term, term) for term in terms.values())
    return RecordGraph(
        batch_terms, inputs, count, axis, pt.stack(valid).all(axis=0) if valid else None
    )


def rebuilt(
    graphs: Sequence[AnyVariable],
    renewed: Mapping[AnyVariable, AnyVariable],
    change: Callable[[Node, list[Tensor]], None] = lambda node, operands: None,
) -> dict[AnyVariable, AnyVariable]:
    """Add to ``renewed`` what the graphs compute from it, and from operands that are changed."""
    every = dict(renewed)
    for node in toposort(graphs):
        operands: list[Tensor] = [every.get(x, x) for x in node.inputs]
        change(node, operands)
        same = all(new is old for new, old in zip(operands, node.inputs, strict=True))
        if not same and every.keys().isdisjoint(node.outputs):
            every.update(zip(node.outputs, remake(node, operands), strict=True))
    return every


def _batch_input(leaf: AnyVariable, axis: int, rows: int | None) -> Tensor:
    # a length of 1 is made static: PyTensor turns `X @ b` into `X * b` where it knows it of one
    lengths = stored_value(leaf).shape if isinstance(leaf, SharedVariable) else ()
    shape = [1 if 1 in ends else ends[0] for ends in zip_longest(leaf.type.shape, lengths)]
    shape[axis] = rows
    return pt.TensorType(batch_dtype(leaf.type.dtype), tuple(shape))(leaf.name)


def batch_dtype(stored: str) -> str:
    """Widen a leaf's dtype: an index given by ``data=`` must not wrap into the template's."""
    if stored == "bool":
        return stored
    return "float64" if stored.startswith("float") else "int64"


def _clip_indices(node: Node, operands: list[Tensor], axes: RecordAxes) -> list[Tensor]:
    """Keep indices that come from records inside their array; return which records obeyed."""
    checks, i = [], 0
    arrays = gather_layout(node).arrays if isinstance(node.op, AdvancedSubtensor) else {}
    for axis, index in arrays.items():
        i = node.inputs.index(index, i + 1)  # one array may index several axes
        if index in axes.axis and counted_rows(index) is None:
            size = operands[0].shape[axis]
            # pt.clip would be a loop in Python on the Python linker
            inside = pt.minimum(pt.maximum(operands[i], -size), size - 1)
            others = tuple(a for a in range(index.type.ndim) if a != axes.axis[index])
            checks.append(pt.eq(inside, operands[i]).all(axis=others))
            operands[i] = inside.astype(operands[i].dtype)
    return checks


def remake(node: Node, operands: list[AnyVariable]) -> list[AnyVariable]:
    """Apply the node's operation to new operands, letting static shapes be inferred anew."""
    if type(node.op) in KEPT_WHOLE:  # their inner graphs remember the old static shapes
        return [node.op(*operands)]
    if isinstance(node.op, Reshape):
        return [reshape(operands[0], operands[1], ndim=node.outputs[0].type.ndim)]
    return list(node.op.make_node(*operands).outputs)


class _StandardUniform(UniformRV):
    """Uniform numbers between 0 and 1 that stand for one of few values."""


STANDARD_UNIFORM: Any = _StandardUniform()


class _Drawn(NamedTuple):
    """A variable, and the graph of its draws, where stand-ins replace what is random."""

    name: str
    leaf: Tensor
    graph: Tensor
    # by stand-in: what draws, and its parameters, with stand-ins for what is drawn before
    random: dict[Tensor, tuple[Node, Sequence[Tensor]]]
    batch: int  # how many axes its entries have
    read: set[AnyVariable]  # what its distributions read, beside what they draw and how often


def find_outcomes(split: Split, lengths: frozenset[AnyVariable]) -> tuple[Outcomes, ...] | None:
    """Build graphs that draw outcomes; None where the model does not say how, or not by records."""
    # in stages, each of which reads what those before have drawn: first the latents of records
    model, leaves = split.hardened.model, split.hardened.leaves
    rvs = {rv.name: rv for rv in (*model.observed_RVs, *model.free_RVs)}
    if not rvs.keys() >= split.terms.keys():
        return None
    drawn = [_drawn(split, rvs[name], split.local.get(name)) for name in split.terms]
    left = [one for one in drawn if one is not None]
    # no other arrays than the likelihood reads, and no two of one variable
    waiting, known = {one.leaf for one in left}, set(ancestors(split.terms.values()))
    read = leaves.keys() & set(ancestors([one.graph for one in left]))
    if not read <= known or len(waiting) < len(drawn):
        return None
    stages = []
    while left:
        ready = [one for one in left if waiting.isdisjoint(one.read)]
        stage = _outcomes(split, ready, lengths) if ready else None
        if stage is None:
            return None
        stages.append(stage)
        waiting -= {one.leaf for one in ready}
        left = [one for one in left if one.leaf in waiting]
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
    random = [each for one in drawn for each in one.random.items()]
    parts = [part for stand_in, (_, read) in random for part in (stand_in, *read)]
    every = {str(k): part for k, part in enumerate(dict.fromkeys([*graphs.values(), *parts]))}
    leaves = {str(variable.name): variable for variable in axes.inputs()}
    batch = build_graph(every, axes, leaves, rows=None)
    new = dict(zip(every.values(), batch.terms, strict=True))
    generators: list[AnyVariable] = []
    outcomes, number = {}, pt.lscalar("number")
    for name, one in zip(graphs, drawn, strict=True):
        value: Tensor = batch.inputs[name]
        draws: dict[AnyVariable, AnyVariable] = {}
        for stand_in, (node, read) in one.random.items():
            generators.append(random_generator_type())
            parameters: list[Tensor] = [
                vectorize_graph(new[x], draws) if draws else new[x] for x in read
            ]
            size = [number, *[value.shape[k] for k in range(one.batch)]]
            # one component of a mixture serves for all that are equal
            if stand_in.ndim - node.op.ndim_supp > one.batch:
                pairs = zip(parameters, node.op.ndims_params, strict=True)
                size.append(reduce(pt.maximum, [x.shape[-1 - core] for x, core in pairs]))
            draws[new[stand_in]] = _draw(node, generators[-1], size, parameters)
        outcome: Tensor = vectorize_graph(new[one.graph], draws)
        outcomes[name] = outcome.astype(value.type.dtype)
    variables = {str(one.leaf.name): one.name for one in drawn}
    first, [last, (node, _)] = drawn[0], random[-1]
    is_alone = first.graph is last and len(drawn) == 1 and all(first.leaf.type.broadcastable[1:])
    is_binary = isinstance(node.op, BernoulliRV) and is_alone
    return Outcomes(outcomes, variables, number, batch.inputs, tuple(generators), is_binary)


def _drawn(split: Split, rv: Tensor, value: AnyVariable | None) -> _Drawn | None:
    """Replace what is random in the graph of a variable by stand-ins; ``value`` is a latent's."""
    model = split.hardened.model
    [leaf] = simplify([model.rvs_to_values[rv]]) if value is None else [value]
    leaf = before_casts(leaf)
    if split.axes.axis.get(leaf) != 0 or leaf.owner is not None:
        return None
    name = str(rv.name)
    rv = unscaled(rv, rv)
    counted = of_own_trials(rv, pt.cast(leaf, "int64"))
    graph = _given_values(split, counted)
    random: dict[Tensor, tuple[Node, Sequence[Tensor]]] = {}
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
        own = getattr(node.op, "_random_fn", None)  # PyMC's stand-in raises where `random=` lacks
        undrawn = getattr(own, "__qualname__", "").startswith("default_not_implemented")
        if more not in (0, 1) or undrawn:
            return None
        stand_in = _stand_in(node, parameters, leaf, batch, more)
        random[stand_in] = node, parameters
        # a place of its own, which holds no length of the data
        place = pt.tensor(dtype=first.type.dtype, shape=(None,) * first.type.ndim)
        [graph] = clone_replace([graph], {first: place}, rebuild_strict=False)
        stand_ins[place] = stand_in
    [graph] = graph_replace([graph], stand_ins, strict=False)
    read = {*ancestors([x for _, parameters in random.values() for x in parameters], random)}
    if counted is not rv:  # the leaf says how many trials are drawn
        last = counted.owner.op.dist_params(counted.owner)[-1]
        # unless its probabilities read the counts, too
        read -= {leaf} - {*ancestors([last], blockers=model.free_RVs)}
    return _Drawn(name, leaf, graph, random, batch, read) if random else None


def before_casts(variable: AnyVariable) -> AnyVariable:
    """Return what is cast: PyMC casts the integers of a `pm.Data` to the type of a draw."""
    while (node := variable.owner) and isinstance(getattr(node.op, "scalar_op", None), Cast):
        variable = node.inputs[0]
    return variable


def is_draw(variable: AnyVariable) -> bool:
    """Whether a variable is drawn by a random one."""
    return isinstance(variable.owner_op, RandomVariable) and variable is variable.owner.outputs[1]


def _given_values(split: Split, rv: Tensor) -> Tensor:
    """Return the graph of a draw, with the latents' values in place of the latents."""
    # a draw of a latent is transformed to the real line, where its value is
    node, model = rv.owner, split.hardened.model
    read = [x for x in node.inputs if not isinstance(x.type, RandomType)]
    inputs = dict(zip(read, model.replace_rvs_by_values(read), strict=True))
    transform = model.rvs_to_transforms.get(rv)
    draw = rv if transform is None else transform.forward(rv, *node.inputs)
    [graph] = clone_replace([draw], inputs, rebuild_strict=False)
    graphs = simplify(rewrite([graph], _without_rejection, _by_choice))
    [graph] = split.unit_latents.by_record(graphs)
    return graph


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


def _without_rejection(count: AnyVariable) -> Tensor | None:
    """Draw Poisson and negative binomial counts above 0 from finitely many variables.

    They are events of a Poisson process on [0, 1] of rate r, given that there are some. The first
    falls at s, of which 1 - exp(-r s) is uniform below 1 - exp(-r), and others are Poisson of mean
    r (1 - s). A negative binomial count of n and p adds up a logarithmic number for each event,
    where r = -n log p: those after the first add up to a negative binomial count of n (1 - s) and
    p, and the first is geometric of success p^u for a uniform u (Kemp 1981).
    """
    if not isinstance(count.owner_op, TruncatedRV) or count is not count.owner.outputs[0]:
        return None
    base, (generator, size, *parameters, low, high) = count.owner_op.base_rv_op, count.owner.inputs
    is_count = isinstance(base, PoissonRV | NegBinomialRV)
    if not is_count or (number_in(low), number_in(high)) != (1, np.inf):
        return None
    drawn: dict[str, Any] = {"rng": generator, "size": size, "return_next_rng": True}
    _, uniform = pt.random.uniform(**drawn)
    if isinstance(base, PoissonRV):
        [rate] = parameters
        _, others = pt.random.poisson(rate * (1 - _first(rate, uniform)), **drawn)
        whole = 1 + others
    else:
        n, p = parameters
        left = n * (1 - _first(n * -pt.log(p), uniform))
        # whether numpy refuses a draw must not depend on chance, or a row would be drawn again as
        # often as others of its batch are: it refuses this mean of n, so of less, too
        mean = pt.expm1(-pt.log(p)) * (n + 10 * pt.sqrt(n))
        left = pt.switch(mean < LARGEST_MEAN, left, np.nan)
        _, others = pt.random.negative_binomial(pt.maximum(left, SMALLEST), p, **drawn)
        _, wait = pt.random.exponential(**drawn)  # not a second uniform, which could be merged
        _, one = pt.random.geometric(p ** pt.exp(-wait), **drawn)
        whole = one + others
    return whole.astype(count.type.dtype)


def _first(rate: Tensor, uniform: Tensor) -> Tensor:
    """Return when the first event falls, from 0 to 1."""
    return pt.clip(-pt.log1p(uniform * pt.expm1(-rate)) / rate, 0.0, 1.0)


def _by_choice(draw: Tensor) -> Tensor | None:
    """Draw a mixture by a category, which has a number for each of its draws."""
    if not isinstance(draw.owner_op, _BaseMixtureRV) or draw.type.ndim == 0:
        return None
    generator, weights, *components = draw.owner.inputs
    support = draw.owner.op.ndim_supp
    weights = pt.shape_padleft(weights, draw.ndim - support + 1 - weights.ndim)
    _, category = pt.random.categorical(weights, rng=generator, return_next_rng=True)
    if len(components) == 1:  # stacked along the axis before those of the support
        number = pt.shape_padright(pt.arange(weights.shape[-1]), support)
        chosen = pt.eq(pt.shape_padright(category, support + 1), number)
        return pt.switch(chosen, components[0], 0).sum(axis=-support - 1).astype(draw.dtype)
    # a constant's draw is the constant, whatever its size
    first, *others = (
        x.owner.op.dist_params(x.owner)[0] if isinstance(x.owner.op, DiracDeltaRV) else x
        for x in components
    )
    category = pt.shape_padright(category, support)
    for k, other in enumerate(others, 1):
        first = pt.switch(pt.eq(category, k), other, first)
    return first.astype(draw.dtype)
