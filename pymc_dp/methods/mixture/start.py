"""A start for mixtures: one release, a sketch of the records, before those of the method."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from pymc_dp.accounting.release import ReleaseSpec
from pymc_dp.methods.chain import Stage, chain
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.mixture.decode import decode
from pymc_dp.methods.mixture.defaults import DEFAULTS
from pymc_dp.methods.mixture.model import Components, MixtureModel, components, recognise
from pymc_dp.methods.mixture.places import Places, places_of
from pymc_dp.methods.mixture.sketch import CLIP_NORM, contribution, frequencies_for, read
from pymc_dp.methods.normal import number_of
from pymc_dp.methods.private_start import PrivateStart, Values
from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.model import Records
from pymc_dp.privacy.query import Noisy, Query
from pymc_dp.sampling.samplers import Full

SKETCH = "sketch"


class SketchedStart(NamedTuple):
    """The components of a mixture that a sketch can show."""

    compute: Components
    model: MixtureModel
    places: Places

    @classmethod
    def of(cls, records: Records, model: MixtureModel) -> Self | None:
        """Return None where components start apart, or see a record at different places."""
        if model.starts_distinct:
            return None
        # one pass over the records: any backend but Python would take longer to compile
        compute = components(records, model, "python")
        places = places_of(records, model, compute)
        return None if places is None else cls(compute, model, places)

    @classmethod
    def recognised(cls, records: Records) -> Self | None:
        """Return the start of a model with latents on their own scales, where there is one."""
        try:
            return cls.of(records, recognise(records))
        except NotConjugateError:
            return None

    def of_rounds(self, num_records: int | None) -> PrivateStart:
        """Let rounds begin where a sketch shows the components."""

        def before(
            method: Method, begin: Callable[[Values], Any]
        ) -> tuple[Method, Callable[[Any], Any]]:
            at_latents = self.model.prior.point
            sketched = self.sketched(method, lambda v: begin(at_latents(v)), num_records)
            return sketched, lambda state: state

        return PrivateStart(DEFAULTS.share, before)

    def before(
        self, method: Method, begin: Callable[[np.ndarray], Any], num_records: int | None
    ) -> Method:
        """Let a method of its own updates start where a sketch shows the components."""
        return chain(self.sketched(method, begin, num_records), Stage(method))

    def sketched(
        self, method: Method, begin: Callable[[np.ndarray], Any], num_records: int | None
    ) -> Method:
        """Release a sketch, as a method whose states are those of another.

        ``begin`` makes the other method's first state from all Gaussian latents, (d,).

        **Privacy.** One release more, of all records: see `contribution` for its sensitivity. It
        has a share of the budget in the method's own plan. Finding the components in it is
        post-processing.
        """
        frequencies = frequencies_for(self.places)
        sketching = contribution(self.compute, self.model, self.places, frequencies)

        def found(state: Any, query: Query, noisy: Noisy) -> Any:
            sketch = read(frequencies, noisy)
            number = number_of(num_records, sketch.number, sketch.number_variance)
            means, v = decode(self.places, sketch, number).means, self.model.start.copy()
            v[self.model.blocks] = np.linalg.solve(self.places.unit, means.T).T
            return begin(v)

        return method._replace(
            size=sketching.size,
            releases=(ReleaseSpec(SKETCH, Full(), CLIP_NORM, count=1, share=DEFAULTS.share),),
            compile=lambda backend: Compiled({SKETCH: sketching}, found, "python"),
            query=lambda state, rng: Query(SKETCH, None),
            noise_aware=None,
            defaults=(DEFAULTS,),
        )
