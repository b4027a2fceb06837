"""VIPS (Park, Foulds, Chaudhuri and Welling): private variational Bayes in closed form."""

import math

from pymc_dp.methods.kinds import Kind, build_first
from pymc_dp.methods.method import Method
from pymc_dp.methods.settings import aware_of
from pymc_dp.methods.vips import (
    conjugate,
    conjugate_model,
    factor_model,
    factors,
    linear_predictors,
    topic_model,
    topics,
)
from pymc_dp.methods.vips.settings import Settings, check
from pymc_dp.records import Records

# in the order in which they are tried
KINDS = (
    Kind(
        "linear predictors",
        linear_predictors.recognise,
        linear_predictors.build,
        linear_predictors.roles,
        forms=tuple(linear_predictors.FORMS),
        options=("feature_bound", "tau0", "kappa"),
    ),
    Kind(
        "conjugate blocks and mixtures",
        conjugate_model.recognise,
        conjugate.build,
        conjugate_model.roles,
        forms=("absolute",),
        options=("tau0", "kappa"),
    ),
    Kind(
        "topic models",
        topic_model.recognise,
        topics.build,
        topic_model.roles,
        forms=tuple(topics.FORMS),
        options=("iterations", "tau0", "kappa"),
    ),
    Kind(
        "factor models",
        factor_model.recognise,
        factors.build,
        factor_model.roles,
        forms=("residual",),
        options=("iterations",),
    ),
)


def vips(
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
    iterations: int | None = None,
    feature_bound: float = math.inf,
    tau0: float = 1.0,
    kappa: float | None = None,
) -> Method:
    """Build VIPS for one model.

    Parameters
    ----------
    records : Records
    sampling, num_records
        As in `pymc_dp.fit`.
    noise : float
        Relative noise multiplier: 1, or 0 for a fit without noise.
    n : int, optional
        Releases; 1 where the statistics depend on nothing but the record.
    clip_norm : float, optional
        Bound on the norm of a record's statistics. For topic models 7: take half the typical norm
        of a document's counts, public knowledge; a smaller one costs little.
    sample_rate : float, optional
        1; 0.1 for topic models of at least 20000 records by ``num_records``.
    form : {"residual", "absolute", "paper", "shrunk"}, optional
        For linear predictors: scores at the current mean (the default), the paper's statistics,
        or these with the paper's ratio of noise, for reproduction. For topic models: topics that
        shrink towards words' overall frequencies (``"shrunk"``, the default), or the paper's.
    noise_aware : bool
        Whether the posterior's draws are as wide as records and privacy noise together make them.
        Logistic regressions then also take the likelihood's own curvature: that of Pólya-Gamma
        variables is a bound, and posteriors come out too narrow with it.
    iterations : int, optional
        Rounds of updates of latents of single records, behind the wall.
    feature_bound : float
        For linear predictors: a public bound on the norm of a record's features, all Gaussian
        latents and the intercept together. Longer ones are shortened to it.
    tau0, kappa : float
        Released sums are averaged with steps (tau0 + t)^-kappa; kappa is 0.7, and 0.85 for topic
        models whose releases take all records.

    Returns
    -------
    Method

    Raises
    ------
    NotSeparableError
        The model is not conjugate, not even after augmentation.
    ValueError
        An option is out of its range.

    Notes
    -----
    **Privacy.** Every release is one clipped sum of the records' vectors. Latents of single
    records are optimised behind the wall and never released.
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
        iterations=iterations,
        feature_bound=feature_bound,
        tau0=tau0,
        kappa=kappa,
    )
    check(settings)
    return build_first("vips", KINDS, records, settings)


METHODS = {"vips": vips}
