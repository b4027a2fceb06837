"""dp_advi and dp_fullrank_advi: rounds in whitened coordinates, for any model.

Options of gradient steps put the steps of private ADVI (`pymc_dp.methods.papers`) before them.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from pymc_dp.contributions.local_latents import integrated
from pymc_dp.engine.constants import CONSTANTS
from pymc_dp.engine.method import RoundTerms, rounds_of, stages_of_rounds, whitened_method
from pymc_dp.errors import NotSeparableError
from pymc_dp.methods.advi.options import AdviOptions
from pymc_dp.methods.algorithm import ADVI, NEWTON
from pymc_dp.methods.chain import chain
from pymc_dp.methods.method import Method, OnOwnScale, OnRealLine
from pymc_dp.methods.mixture.histogram import of_numbers
from pymc_dp.methods.mixture.start import SketchedStart
from pymc_dp.methods.model_class import MethodSpec
from pymc_dp.methods.prior import prior_gradient
from pymc_dp.methods.private_start import FindStart, PrivateStart
from pymc_dp.methods.refusal import require_integrable
from pymc_dp.model import Records

Prior = Callable[[str], Callable[[np.ndarray], np.ndarray]]  # backend -> gradient of the log prior
# makes the method of gradient steps, whose states have the ``average`` of the parameters
BySteps = Callable[[Records, Prior, AdviOptions], Method]


def build(by_steps: BySteps, records: Records, options: AdviOptions) -> Method | OnOwnScale:
    """Build rounds for any model.

    By default `whitened_method` makes all releases. Options of gradient steps put steps before it,
    and ``noise_aware=False`` leaves the steps alone, as in the paper.
    """
    require_integrable(records)
    prior = cache(partial(prior_gradient, records))  # rounds take the same function as steps
    if not options.takes_steps:
        return _by_rounds(records, prior, options)
    fitted = by_steps(records, prior, options)
    if not options.takes_rounds:
        return fitted
    return chain(
        fitted,
        *stages_of_rounds(
            rounds_of(records, prior, RoundTerms.of(options, options.releases_of_rounds)),
            share=CONSTANTS.share_after_steps,
            point=lambda state: state.average["mu"],
        ),
    )


def _by_rounds(records: Records, prior: Prior, options: AdviOptions) -> Method | OnOwnScale:
    terms = RoundTerms.of(options, options.releases_of_rounds)
    if options.weights is not None and records.of_units:
        raise NotSeparableError(
            f"weights= multiply the log likelihood of single records, and that of units whose "
            f"latents ({', '.join(records.local_latents)}) are integrated out is none of these: "
            "leave the latents out, and unit= still gives intervals of clusters."
        )

    def build(find_start: FindStart = lambda: None) -> Method:
        rounds = whitened_method(records, prior, terms, find_start)
        return rounds._replace(settings=integrated(records) | _survey(options))

    def sketched(own: Records) -> PrivateStart | None:
        found = SketchedStart.recognised(own)
        return found and found.of_rounds(options.records_in_sums)

    if not records.mixtures or of_numbers(records, options.of_units):
        return build()
    return OnOwnScale(lambda own: OnRealLine(lambda _: build(partial(sketched, own))))


def _survey(options: AdviOptions) -> dict[str, Any]:
    weights = options.weights
    if weights is None:
        return {}
    return {"weights": weights.name, "upper": weights.upper, "power": weights.power}


def dp_advi(by_steps: BySteps) -> MethodSpec:
    """Return the method whose gradient steps are those of a variational family."""
    return MethodSpec(
        name="dp_advi",
        build=partial(build, by_steps),
        options=AdviOptions,
        fits="any model; integrates latents of single records out",
        integrates=True,
        by=f"{NEWTON}; with options of gradient steps also {ADVI}",
        algorithm=NEWTON,
        page="dp_advi",
    )


def dp_fullrank_advi(by_steps: BySteps) -> MethodSpec:
    """Return the method whose gradient steps have a full covariance."""
    return dp_advi(by_steps)._replace(
        name="dp_fullrank_advi", fits="the same, with all correlations from the first step on"
    )
