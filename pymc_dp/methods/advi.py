"""dp_advi and dp_fullrank_advi: rounds in whitened coordinates, after gradient steps if asked."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pymc_dp.contributions.local_latents import integrated
from pymc_dp.engine.constants import CONSTANTS
from pymc_dp.engine.method import (
    RoundTerms,
    check_length,
    default_length,
    normal_rounds_of,
    stages_of_rounds,
    whitened_method,
)
from pymc_dp.errors import NotSeparableError
from pymc_dp.methods.method import FindStart, Method, OnScale, Stage, chain
from pymc_dp.methods.mixture.histogram import of_numbers
from pymc_dp.methods.mixture.sketch import recognised_start
from pymc_dp.methods.options import (
    CLIP_NORM,
    NOISE_AWARE,
    SAMPLE_RATE,
    Options,
    Schedule,
    option,
    require_integrable,
)
from pymc_dp.model import Records
from pymc_dp.tables.weights import HINT, SurveyWeights


@dataclass(frozen=True, kw_only=True)
class AdviOptions(Options):
    """The options of `dp_advi` and `dp_fullrank_advi`."""

    clip_norm: Schedule | None = option(
        None, f"{CLIP_NORM}; of gradient steps alone: rounds set norms of their own"
    )
    sample_rate: Schedule | None = option(None, SAMPLE_RATE)
    obj_optimizer: Callable[..., Any] | None = option(
        None, "optimizer of PyMC, ``pm.adam(learning_rate=0.05)`` say, in place of a decaying Adam"
    )
    obj_n_mc: int = option(1, "draws of z a step; their gradients are clipped as one vector")
    aligned: bool = option(
        True, "``False`` for the paper's own form, which clips and noises all 2d coordinates"
    )
    noise_aware: bool = option(True, NOISE_AWARE)
    weights: SurveyWeights | None = option(
        None, "survey weights: a private column with a public upper bound"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # another class may count records otherwise
        if type(self.weights) not in (type(None), SurveyWeights):
            raise TypeError(
                f"weights={self.weights!r:.40} says nothing of the largest weight there can be: "
                f"give {HINT}, with a public number."
            )
        if self.weights and self.takes_steps:
            raise ValueError(
                "weights= are those of rounds in whitened coordinates, and gradient steps have "
                "none: leave out noise_aware=False, n= above the default and options of steps."
            )

    @property
    def asks_for_steps(self) -> bool:
        """Whether the caller has set an option of gradient steps, or more releases than rounds."""
        many = self.n is not None and self.n > default_length(self.noisy)
        return many or self.rules_out_rounds

    @property
    def takes_rounds(self) -> bool:
        """Whether rounds in whitened coordinates end the fit: without noise they find the mode."""
        return self.noise_aware and (self.noisy or not self.asks_for_steps)

    @property
    def takes_steps(self) -> bool:
        """Whether gradient steps come first."""
        return self.asks_for_steps or not self.takes_rounds

    @property
    def releases_of_rounds(self) -> int:
        """How many releases belong to rounds: all, or at most half where steps come first."""
        if not self.takes_rounds:
            return 0
        most = default_length(self.noisy)
        most = most if self.n is None else min(self.n, most)
        return check_length(min(most, (self.n or 2 * most) // 2) if self.takes_steps else most)


def build(
    by_steps: Callable[[Records, AdviOptions], Method], records: Records, options: AdviOptions
) -> Method | OnScale:
    """Build rounds, gradient steps, or both; states of steps have the parameters' ``average``."""
    require_integrable(records)
    if not options.takes_steps:
        return _by_rounds(records, options)
    fitted = by_steps(records, options)
    if not options.takes_rounds:
        return fitted
    return chain(
        Stage(fitted),
        *stages_of_rounds(
            normal_rounds_of(records, RoundTerms.of(options, options.releases_of_rounds)),
            share=CONSTANTS.share_after_steps,
            point=lambda state: state.average["mu"],
        ),
    )


def _by_rounds(records: Records, options: AdviOptions) -> Method | OnScale:
    terms = RoundTerms.of(options, options.releases_of_rounds)
    if options.weights is not None and records.of_units:
        raise NotSeparableError(
            f"weights= multiply the log likelihood of single records, and that of units whose "
            f"latents ({', '.join(records.local_latents)}) are integrated out is none of these: "
            "leave the latents out, and unit= still gives intervals of clusters."
        )

    settings: dict[str, Any] = dict(integrated(records))
    if weights := options.weights:
        settings |= {"weights": weights.name, "upper": weights.upper, "power": weights.power}

    def build(find_start: FindStart = lambda: None) -> Method:
        return whitened_method(records, terms, find_start)._replace(settings=settings)

    def rescaled(own: Records) -> OnScale:
        start = partial(recognised_start, own, options.records_in_sums)
        return OnScale(False, lambda _: build(start))

    if not records.mixtures or of_numbers(records, options.of_units):
        return build()
    return OnScale(True, rescaled)
