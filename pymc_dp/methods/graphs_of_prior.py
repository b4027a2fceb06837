"""Graphs that are made of a model's prior, made once for all models with an equal prior."""

from collections.abc import Callable, Hashable

from pymc_dp.compiling import same_graph
from pymc_dp.model import Records

_kept = same_graph.Kept()


def made_once[Made](records: Records, what: Hashable, make: Callable[[], Made]) -> Made:
    """Return what ``make`` makes of the log prior and the latents: graphs, and no function.

    ``what`` tells it from all else that is made of a prior. The graphs may be those of another
    model, whose log prior is the same, operation by operation: the latents are theirs, too.
    """
    key = same_graph.graph_key(list(records.latents.values()), [records.prior])
    if key is None:  # an operation may keep what changes between two fits
        return make()
    found: Made | None = _kept.get((what, key))
    if found is None:
        found = make()
        _kept.put((what, key), found)
    return found
