"""Groups that a model writes as ``mu + tau * z``, as latents in place of z.

Records tell of the groups; given these they tell nothing of z, mu and tau. The prior density
changes by the determinant of the Jacobian, and nothing else does.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import toposort
from pytensor.tensor.shape import Shape

from pymc_dp.compiling.compile import function
from pymc_dp.methods.gaussian.groups import Groups, after
from pymc_dp.methods.prior import at_draws
from pymc_dp.model.batch import rebuilt
from pymc_dp.model.graphs import AnyVariable, Node, Tensor
from pymc_dp.model.separate import Records


class Centred(NamedTuple):
    """A model with groups as latents."""

    records: Records
    written: tuple[AnyVariable, ...]  # the latents as the model has them, as graphs of these

    def as_written(self, draws: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Turn draws of these latents, by name and of shape (n, ...), into those of the model."""
        return at_draws(self.written, self.records.latents, draws)


def centred(records: Records) -> Centred:
    """Put groups in place of all latents that other latents scale before records read them.

    >>> import numpy as np, pymc as pm
    >>> from pymc_dp.model import separate
    >>> with pm.Model() as model:
    ...     a = pm.Normal("mu") + pm.HalfNormal("tau") * pm.Normal("z", shape=3)
    ...     group = pm.Data("group", np.arange(300) % 3)
    ...     y = pm.Normal("y", a[group], 1, observed=np.zeros(300))
    >>> list(centred(separate(model)[0]).records.latents)
    ['mu', 'tau_log__', 'groups of z']
    """
    found = Centred(records, tuple(records.latents.values()))
    for name in records.latents:
        found = _with_groups(found, name)
    return found


def _with_groups(found: Centred, name: str) -> Centred:
    """Put the groups that a latent makes in its place; without any, change nothing."""
    records, z = found.records, found.records.latents[name]
    latents, shape = records.latents.values(), records.point[name].shape
    paths = _paths(Groups(z, shape), records)
    if not all(path[-1].scaled_by(latents) for path in paths):
        return found
    groups, start = _in_all(paths, z, records)
    if not groups or not groups[0].scaled_by(latents):
        return found
    own: Any = z.type(f"groups of {name}")
    written = groups[0].inverse(own)
    scale = sum(step.log_scale(shape) for step in groups[0].steps)
    prior, *as_written = clone_replace([records.prior, *found.written], {z: written})
    renewed = rebuilt([x for y in groups for x in y.indices], {z: own})
    renewed |= {x.variable: x.read(own, renewed) for x in groups}
    return Centred(
        _on_groups(records, renewed)._replace(
            prior=prior - scale,
            prior_draws=_drawn(records, groups[0].of(z), z),
            latents=_renamed(records.latents, name, str(own.name), own),
            point=_renamed(records.point, name, str(own.name), start),
        ),
        tuple(as_written),
    )


def _paths(z: Groups, records: Records) -> list[list[Groups]]:
    """Follow a latent through all graphs, as far as every operation on it can be inverted."""
    graphs = _graphs(records)
    readers: dict[AnyVariable, list[tuple[Node, int]]] = {}
    for node in toposort(graphs):
        for place, x in enumerate(node.inputs):
            if not isinstance(node.op, Shape):
                readers.setdefault(x, []).append((node, place))
    read = [records.batch.inputs, records.single.inputs]
    read += [stage.inputs for stage in records.outcomes or ()]
    varying = {z.variable, *(leaf for inputs in read for leaf in inputs.values())}

    def onward(groups: Groups) -> list[list[Groups]]:
        nodes = readers.get(groups.variable, ())
        found = [x for x in (after(groups, *at, varying) for at in nodes) if x]
        if groups.variable in graphs or len(found) < len(nodes) or not nodes:
            return [[groups]]
        return [[groups, *path] for x in found for path in onward(x)]

    return onward(z)


def _graphs(records: Records) -> list[AnyVariable]:
    drawn = [x for stage in records.outcomes or () for x in stage.drawn.values()]
    return [*records.batch.terms, *records.single.terms, *drawn]


def _in_all(
    paths: Sequence[Sequence[Groups]], z: AnyVariable, records: Records
) -> tuple[list[Groups], np.ndarray]:
    """Return the last groups on all paths, and their start; none if it is not finite.

    Graphs may take steps together, or end at another one. Groups are the same if they are so at
    a point that is none in particular.
    """
    graphs = [x.of(z) for path in paths for x in path]
    compiled = function(list(records.latents.values()), graphs, "python")
    rng = np.random.default_rng(0)
    found = iter(compiled(*[x + rng.normal(size=x.shape) for x in records.point.values()]))
    values = [[next(found) for _ in path] for path in paths]
    starts = compiled(*records.point.values())
    for k in reversed(range(len(paths[0]))):
        places = [_place(values[0][k], own) for own in values]
        if np.isfinite(starts[k]).all() and None not in places:
            groups = [path[at] for path, at in zip(paths, places, strict=True) if at is not None]
            return groups, np.asarray(starts[k], "float64")
    return [], np.empty(0)


def _place(value: np.ndarray, values: Sequence[np.ndarray]) -> int | None:
    """Return the last place of a value."""
    places = [k for k, x in enumerate(values) if x.shape == value.shape and np.allclose(x, value)]
    return places[-1] if places else None


def _on_groups(records: Records, groups: dict[AnyVariable, AnyVariable]) -> Records:
    """Compute anew what is downstream of z, with the groups as they are."""
    graphs = records.batch, records.single
    valid = [x.valid for x in graphs if x.valid is not None]
    renewed = rebuilt([*_graphs(records), *valid], groups)
    batch, single = (
        x._replace(
            terms=tuple(renewed.get(y, y) for y in x.terms),
            axis={renewed.get(y, y): k for y, k in x.axis.items()},
            valid=None if x.valid is None else renewed.get(x.valid, x.valid),
        )
        for x in graphs
    )
    outcomes = records.outcomes and tuple(
        stage._replace(drawn={name: renewed.get(x, x) for name, x in stage.drawn.items()})
        for stage in records.outcomes
    )
    return records._replace(batch=batch, single=single, outcomes=outcomes)


def _drawn(records: Records, groups: Tensor, z: AnyVariable) -> tuple[AnyVariable, ...]:
    """Draw the groups from their prior, in place of z."""
    if not records.prior_draws:
        return ()
    draws = dict(zip(records.latents.values(), records.prior_draws, strict=True))
    [drawn] = clone_replace([groups], draws, rebuild_strict=False)
    return tuple((draws | {z: drawn}).values())


def _renamed[T](values: dict[str, T], old: str, new: str, value: T) -> dict[str, T]:
    """Put another value, under another name, in the place of one."""
    return dict((new, value) if name == old else (name, x) for name, x in values.items())
