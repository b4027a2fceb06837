"""Stochastic expectation propagation, private (Vinaroz and Park) and not (Li et al. 2015).

A record adds its site, the Gaussian factor that matches the moments of cavity times likelihood.
Mixtures of Gaussians and Bayesian networks are files beside this one; regressions are fitted by
rounds, or as the papers do (`pymc_dp.papers.regression`).
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from pymc_dp.contributions.estimating import SITES
from pymc_dp.methods.linear import (
    GAUSSIAN,
    PROBIT,
    RoundOptions,
    Structure,
    is_near_regression,
    linear_predictor,
    recognise,
    roles_of,
)
from pymc_dp.methods.method import (
    BACKPROPAGATION,
    NEWTON,
    NOT_PRIVATE_EP,
    SITES_NEWTON,
    Method,
    OnScale,
    of_rounds,
)
from pymc_dp.methods.mixture import model as mixture_model
from pymc_dp.methods.mixture.sketch import SketchedStart
from pymc_dp.methods.normal import gaussian_prior
from pymc_dp.methods.options import (
    SAMPLE_RATE,
    MethodSpec,
    ModelClass,
    NotConjugateError,
    Options,
    build_matching,
    option,
)
from pymc_dp.methods.sep import mixture, network, network_fit
from pymc_dp.model import Records

STEP = 0.7  # h in lambda <- (1 - h) lambda + h (sum of sites)
STEP_DOC = "damping h in ``lambda <- (1 - h) lambda + h (sum of sites)``"


@dataclass(frozen=True, kw_only=True)
class Settings(RoundOptions):
    """The options of `dp_sep`; None stands for the default of the model's class."""

    released = "sites"

    form: str | None = option(None, "``damped``, or the paper's ``algorithm3`` for reproduction")
    step: float | None = option(None, STEP_DOC)

    def __post_init__(self) -> None:
        super().__post_init__()
        # gamma of Algorithm 3 is divided by the number of records
        literal = self.form == "algorithm3"
        longest = (self.num_records or math.inf) if literal else 1
        if self.step is not None and not 0 < self.step <= longest:
            raise ValueError(f"step={self.step!r} must lie above 0, and be at most {longest}.")
        if self.clip_norm is not None and math.isnan(self.clip_norm):
            raise ValueError("clip_norm=nan is no bound.")

    def rate(self, t: int) -> float:
        """Weight of the sites of release t = 0, 1, ... in lambda; the first replaces the start."""
        return 1.0 if t == 0 else (STEP if self.step is None else self.step)


@dataclass(frozen=True, kw_only=True)
class PlainSettings(Options):
    """The options of `sep`, which neither clips nor adds noise."""

    sample_rate: float | None = option(None, SAMPLE_RATE)
    step: float | None = option(None, STEP_DOC)


def recognise_regression(records: Records) -> Structure:
    """Prove, at probe points, that every likelihood has one linear predictor."""
    predictors = recognise(records, linear_predictor)
    for name, each in zip(records.term_names, predictors, strict=True):
        if each.form != GAUSSIAN and np.prod(each.shape) != 1:
            raise NotConjugateError(
                f"the likelihood of `{name}` has several predictors, and is not Gaussian"
            )
    return Structure(predictors, gaussian_prior(records))


def regression_roles(records: Records, structure: Structure) -> dict[str, str]:
    """Describe the role of each latent and each term in the updates."""
    how = {GAUSSIAN: "exact sites", PROBIT: "tilted moments in closed form"}
    return roles_of(
        records, structure, lambda each: how.get(each.form, "tilted moments by quadrature")
    )


def build_regression(records: Records, structure: Structure, settings: Settings) -> OnScale | None:
    """Build rounds for linear predictors; None where an option asks for the papers' updates."""
    return settings.rounds_from(estimating=SITES)


MODEL_CLASSES = (
    ModelClass(
        "linear predictors",
        recognise_regression,
        build_regression,
        regression_roles,
        lambda records, structure: of_rounds(records, SITES),
        forms=(),
        options=("step",),
        near=is_near_regression,
    ),
    ModelClass(
        "mixtures of Gaussians",
        mixture_model.recognise,
        mixture.build,
        mixture_model.roles,
        lambda records, model: NEWTON,
        forms=("damped",),
        options=("step",),
        near=mixture_model.is_near,
        better=lambda records, model: (
            "a sketch of the records finds components that start alike, as it does in dp_advi"
            if SketchedStart.of(records, model)
            else ""
        ),
    ),
    ModelClass(
        "Bayesian networks",
        network.recognise,
        network_fit.build,
        network.roles,
        lambda records, structure: BACKPROPAGATION,
        forms=("damped",),
        options=("step",),
        near=network.is_near,
        better=lambda records, structure: (
            "on all data sets that were tried its test errors were lower than those of dp_advi"
        ),
    ),
)


def dp_sep(classes: tuple[ModelClass, ...] = MODEL_CLASSES) -> MethodSpec:
    """Return private stochastic expectation propagation, for models of these classes.

    Without ``num_records`` the cavity takes out one of as many sites as the releases count.

    **Privacy.** Every release is one clipped sum of the records' sites. Sites of single records
    stay behind the wall.
    """
    return MethodSpec(
        name="dp_sep",
        build=partial(build_matching, "dp_sep", classes),
        options=Settings,
        fits="regressions, Gaussian mixtures, Bayesian neural networks",
        by=f"regressions with one predictor: {SITES_NEWTON}; others and mixtures: as dp_advi; "
        f"networks: {BACKPROPAGATION}",
        page="dp_sep",
        constrained=True,
        model_classes=classes,
    )


def sep(classes: tuple[ModelClass, ...] = MODEL_CLASSES) -> MethodSpec:
    """Return the same without privacy."""
    return dp_sep(classes)._replace(
        name="sep",
        build=partial(_build_plain, classes),
        options=PlainSettings,
        fits="the same without privacy, to compare with; takes no budget",
        by=f"without privacy: {NOT_PRIVATE_EP}",
        private=False,
        model_classes=tuple(
            each._replace(algorithm=lambda records, structure: NOT_PRIVATE_EP) for each in classes
        ),
    )


def _build_plain(
    classes: tuple[ModelClass, ...], records: Records, options: PlainSettings
) -> Method | OnScale:
    settings = Settings(**vars(options), clip_norm=math.inf)
    built = build_matching("dp_sep", classes, records, settings)
    return built if isinstance(built, OnScale) else built._replace(algorithms=(NOT_PRIVATE_EP,))
