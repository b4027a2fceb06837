"""Stochastic expectation propagation, private (Vinaroz and Park) and not (Li et al. 2015)."""

import math

from pymc_dp.methods.kinds import Kind, build_first
from pymc_dp.methods.method import Method
from pymc_dp.methods.sep import (
    linear_predictors,
    mixture,
    mixture_model,
    network,
    network_model,
)
from pymc_dp.methods.sep.settings import Settings, check
from pymc_dp.methods.settings import aware_of
from pymc_dp.records import Records

KINDS = (
    Kind(
        "linear predictors",
        linear_predictors.recognise,
        linear_predictors.build,
        linear_predictors.roles,
        forms=("damped", "algorithm3"),
        options=("step", "feature_bound"),
    ),
    Kind(
        "mixtures of Gaussians",
        mixture_model.recognise,
        mixture.build,
        mixture_model.roles,
        forms=("damped",),
        options=("step",),
    ),
    Kind(
        "Bayesian networks",
        network_model.recognise,
        network.build,
        network_model.roles,
        forms=("damped",),
        options=("step",),
    ),
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
    noise_aware: bool = True,
    step: float | None = None,
    feature_bound: float = math.inf,
) -> Method:
    """Build private stochastic expectation propagation for one model.

    Parameters
    ----------
    records : Records
    sampling, num_records
        As in `pymc_dp.fit`. Without ``num_records`` the cavity takes out one of as many sites as
        the releases count.
    noise : float
        Relative noise multiplier: 1, or 0 for a fit without noise.
    n : int, optional
        Releases.
    clip_norm : float, optional
        Bound on the norm of a record's site. For linear predictors it follows the first release,
        for mixtures it is the typical norm of a record that knows its component, for networks that
        of made-up records.
    sample_rate : float, optional
    form : {"damped", "algorithm3"}, optional
        The paper's Algorithm 3 is for reproduction, and for linear predictors alone.
    noise_aware : bool
        Whether the posterior's draws are as wide as records and privacy noise together make them.
    step : float, optional
        The damping h in ``lambda <- (1 - h) lambda + h (sum of sites)``; 0.7 for linear
        predictors, 0.5 for mixtures. With Algorithm 3 its gamma; for networks the longest step.
    feature_bound : float
        For linear predictors: a public bound on the norm of a record's features. Longer ones are
        shortened to it.

    Returns
    -------
    Method

    Raises
    ------
    NotSeparableError
        No moments of the tilted distributions are known for the model.
    ValueError
        An option is out of its range.

    Notes
    -----
    **Privacy.** Every release is one clipped sum of the records' sites. Sites of single records
    stay behind the wall.
    """
    settings = Settings(
        sampling=sampling,
        num_records=num_records,
        noise=noise,
        n=n,
        clip_norm=clip_norm,
        sample_rate=sample_rate,
        form=form,
        noise_aware=aware_of(noise_aware, noise),
        step=step,
        feature_bound=feature_bound,
    )
    check(settings)
    return build_first("dp_sep", KINDS, records, settings)


def sep(
    records: Records,
    *,
    sampling: str,
    num_records: int | None,
    noise: float,
    n: int | None = None,
    sample_rate: float | None = None,
    step: float | None = None,
) -> Method:
    """Build stochastic expectation propagation without privacy: no clipping and no noise.

    Parameters
    ----------
    records, sampling, num_records, noise, n, sample_rate, step
        As in `dp_sep`.
    """
    return dp_sep(
        records,
        sampling=sampling,
        num_records=num_records,
        noise=noise,
        n=n,
        sample_rate=sample_rate,
        step=step,
        clip_norm=math.inf,
    )


METHODS = {"dp_sep": dp_sep, "sep": sep}
# methods that take no budget
NOT_PRIVATE = {"sep"}
