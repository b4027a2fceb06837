"""Graphs that are made of a model's prior, made once for all models with an equal prior."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from pymc_dp.compiling import same_graph
from pymc_dp.model import Records


class Kept(threading.local):
    """What a thread has made."""

    def __init__(self) -> None:
        self.made: OrderedDict[Hashable, Any] = OrderedDict()


_kept = Kept()


def made_once[Made](records: Records, what: Hashable, make: Callable[[], Made]) -> Made:
    """Return what ``make`` makes of the log prior and the latents: graphs, and no function.

    ``what`` tells it from all else that is made of a prior. The graphs may be those of another
    model, whose log prior is the same, operation by operation: the latents are theirs, too.
    """
    key = same_graph.graph_key(list(records.latents.values()), [records.prior])
    if key is None:  # an operation may keep what changes between two fits
        return make()
    made = _kept.made
    if (what, key) not in made:
        made[what, key] = make()
        if len(made) > same_graph.MOST_KEPT:
            made.popitem(last=False)
    made.move_to_end((what, key))
    found: Made = made[what, key]
    return found
