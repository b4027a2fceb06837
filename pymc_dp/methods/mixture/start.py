"""A start for mixtures: one release, a sketch of the records, before those of the method."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_dp.accounting.release import ReleaseSpec
from pymc_dp.accounting.samplers import Full
from pymc_dp.methods.chain import Stage, chain
from pymc_dp.methods.gaussian.averaging import number_of
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.mixture.decode import decode
from pymc_dp.methods.mixture.defaults import DEFAULTS
from pymc_dp.methods.mixture.model import Components, MixtureModel
from pymc_dp.methods.mixture.places import Places
from pymc_dp.methods.mixture.sketch import CLIP_NORM, contribution, frequencies_for, read, size_of
from pymc_dp.privacy.query import Noisy, Query

SKETCH = "sketch"


def after_a_sketch(
    compute: Components,
    model: MixtureModel,
    places: Places,
    method: Method,
    begin: Callable[[np.ndarray], Any],
    num_records: int | None,
) -> Method:
    """Let a method start where a sketch shows the components.

    ``begin`` makes the method's first state from the means of the components, (K, d). ``compute``
    makes one pass over the records: any backend but Python would take longer to compile.

    **Privacy.** One release more, of all records: see `contribution` for its sensitivity. It has a
    share of the budget in the method's own plan. Finding the components in it is post-processing.
    """
    frequencies = frequencies_for(places)

    def compile_parts(backend: str) -> Compiled:
        return Compiled({SKETCH: contribution(compute, model, places, frequencies)}, found)

    def found(state: Any, query: Query, noisy: Noisy) -> Any:
        sketch = read(frequencies, noisy)
        number = number_of(num_records, sketch.number, sketch.number_variance)
        means = decode(places, sketch, number).means
        return begin(np.linalg.solve(places.unit, means.T).T)

    release = ReleaseSpec(SKETCH, Full(), CLIP_NORM, count=1, share=DEFAULTS.share)
    sketching = method._replace(
        size=size_of(frequencies),
        releases=(release,),
        compile=compile_parts,
        query=lambda state, rng: Query(SKETCH, None),
        noise_aware=None,
        defaults=(DEFAULTS,),
    )
    return chain(sketching, Stage(method))
