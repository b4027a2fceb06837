"""Stochastic expectation propagation, private (Vinaroz and Park) and not (Li et al. 2015)."""

import math

from pymc_dp.methods.kinds import Kind, build_first
from pymc_dp.methods.method import Method
from pymc_dp.methods.sep import linear_predictors, mixture, mixture_model
from pymc_dp.methods.sep.settings import Settings, check
from pymc_dp.records import Records

KINDS = (
    Kind(
        "linear predictors",
        linear_predictors.recognise,
        linear_predictors.build,
        linear_predictors.roles,
    ),
    Kind("mixtures of Gaussians", mixture_model.recognise, mixture.build, mixture_model.roles),
)


def dp_sep(
    records: Records,
    *,
    sampling: str,
    num_records: int | None,
    noise: float,
    n: int | None = None,
    clip_norm: float | None = None,
    sample_rate: float | None = None,
    form: str | None = None,
    step: float | None = None,
    feature_bound: float = math.inf,
) -> Method:
    settings = Settings(
        sampling, num_records, noise, n, clip_norm, sample_rate, form, step, feature_bound
    )
    check(settings)
    return build_first("dp_sep", KINDS, records, settings)


METHODS = {"dp_sep": dp_sep}
