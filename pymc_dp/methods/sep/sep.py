"""Stochastic expectation propagation, private (Vinaroz and Park) and not (Li et al. 2015)."""

import math
from functools import partial

from pymc_dp.contributions.estimating import SITES
from pymc_dp.methods.algorithm import (
    BACKPROPAGATION,
    EXPECTATION_PROPAGATION,
    NOT_PRIVATE_EP,
    SITES_NEWTON,
    of_rounds,
)
from pymc_dp.methods.linear.predictor import is_near_regression
from pymc_dp.methods.method import Method, OnRealLine
from pymc_dp.methods.mixture import model as mixture_model
from pymc_dp.methods.mixture.sketch import SketchedStart
from pymc_dp.methods.model_class import MethodSpec, ModelClass, build_matching
from pymc_dp.methods.sep.mixture import mixture
from pymc_dp.methods.sep.network import model as network_model
from pymc_dp.methods.sep.network import network
from pymc_dp.methods.sep.regression import regression
from pymc_dp.methods.sep.settings import PlainSettings, Settings
from pymc_dp.model import Records

MODEL_CLASSES = (
    ModelClass(
        "linear predictors",
        regression.recognise,
        regression.build,
        regression.roles,
        lambda records, structure: of_rounds(records, SITES),
        forms=("damped",),
        options=("step", "feature_bound"),
        near=is_near_regression,
    ),
    ModelClass(
        "mixtures of Gaussians",
        mixture_model.recognise,
        mixture.build,
        mixture_model.roles,
        mixture.algorithm,
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
        network_model.recognise,
        network.build,
        network_model.roles,
        lambda records, structure: BACKPROPAGATION,
        forms=("damped",),
        options=("step",),
        near=network_model.is_near,
        better=lambda records, structure: (
            "on all data sets that were tried its test errors were lower than those of dp_advi"
        ),
    ),
)


def build_plain(records: Records, options: PlainSettings) -> Method | OnRealLine:
    """Build what `dp_sep` builds, without clipping and noise."""
    settings = Settings(**vars(options), clip_norm=math.inf)
    built = build_matching("dp_sep", MODEL_CLASSES, records, settings)
    return built if isinstance(built, OnRealLine) else built._replace(algorithms=(NOT_PRIVATE_EP,))


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
        by=f"regressions with one predictor: {SITES_NEWTON}; others and most mixtures: as dp_advi; "
        f"other mixtures: {EXPECTATION_PROPAGATION}; networks: {BACKPROPAGATION}",
        page="dp_sep",
        constrained=True,
        model_classes=classes,
    )


SEP = dp_sep()._replace(
    name="sep",
    build=build_plain,
    options=PlainSettings,
    fits="the same without privacy, to compare with; takes no budget",
    by=f"without privacy: {NOT_PRIVATE_EP}",
    private=False,
    model_classes=tuple(
        each._replace(algorithm=lambda records, structure: NOT_PRIVATE_EP) for each in MODEL_CLASSES
    ),
)
