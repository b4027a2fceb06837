"""Predicted margins, contrasts and average treatment effects, by g-computation."""

import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import pymc as pm
import xarray as xr

from pymc_dp.checking.release import later_budget
from pymc_dp.contributions.set_predictors import Place
from pymc_dp.driver.setup import model_in_use
from pymc_dp.errors import PosteriorWarning
from pymc_dp.ledger.ledger import Ledger
from pymc_dp.postprocess.public_margins import public_margins
from pymc_dp.postprocess.record_margins import record_margins
from pymc_dp.postprocess.settings import describe, read_settings
from pymc_dp.results.build import privacy_of
from pymc_dp.results.report import leaves_noise_out


def effect(
    idata: xr.DataTree,
    model: pm.Model,
    settings: Mapping[Place, Sequence[Any]],
    *,
    over: Any = None,
    weights: Any = None,
    outcome: str | None = None,
    bounds: tuple[float, float] | None = None,
    prob: float = 0.9,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    data: Mapping[str, Any] | None = None,
    neighbours: str | None = None,
    accountant: str = "pld",
    num_records: int | None = None,
    unit: str | None = None,
    ledger: Ledger | str | PathLike[str] | None = None,
    backend: str = "python",
    public: str | Sequence[str] = (),
) -> xr.DataTree:
    """Average a model's expected outcome with predictors set to given values, and compare.

    Parameters
    ----------
    idata : DataTree
        A result of `pymc_dp.fit`.
    model : pymc.Model or bambi.Model
        The model that was fitted.
    settings : mapping
        The values that predictors are set to, for every row: ``{"treated": [0, 1]}``. The key
        ``("X", 2)`` is a column of a matrix. With several predictors the first values of all belong
        together, then the second. Contrasts compare with the first. What the data computed from a
        predictor beforehand, such as an interaction, does not follow it: let the model compute it.
    over : mapping or DataFrame, optional
        Public rows, as `pymc_dp.predict` takes them; predictors that are set may be left out. The
        average over them costs nothing. Without it the average is over the fitted records, which is
        one more release.
    weights : array_like, optional
        Public weights of the rows of ``over``.
    outcome : str, optional
        Which observed variable. With ``over`` also a deterministic that is an expected outcome.
    bounds : tuple of two floats, optional
        Where outcomes are clipped to, for an average over the fitted records: public numbers. Not
        read for outcomes of yes or no.
    prob : float, optional
        The probability of the intervals, which are equal-tailed.
    epsilon, delta, noise_multiplier, data, accountant, num_records, ledger, backend
        As in `pymc_dp.fit`, for the release alone.
    neighbours, unit : str, optional
        Of the release; those of the fit by default. With a unit the average is over persons, each
        the mean of its records.
    public : str or sequence of str, optional
        As in `pymc_dp.predict`, for averages over public rows.

    Returns
    -------
    DataTree
        ``effect``: ``margin`` of each ``setting``, and for each other setting against the first
        ``difference``, ``ratio`` where outcomes are positive, and ``odds_ratio`` where they are yes
        or no; each with ``mean``, ``sd``, ``lower`` and ``upper`` along ``statistic``.
        ``margin_draws`` are draws of the margins, from which any other contrast follows. The
        attribute ``epsilon_spent`` is what this call cost: 0 over public rows. Over the fitted
        records there is ``privacy`` as well, as from `pymc_dp.fit`.

    Raises
    ------
    NotSeparableError
        Records have latents of their own.
    ValueError, TypeError, NotImplementedError
        Any other bad input. All of it is refused before any budget is spent.

    Warns
    -----
    PrivacyWarning
        The public rows may be the fitted ones, ``bounds`` may be records' own numbers, or the
        release protects something else than the fit.
    PosteriorWarning
        The posterior leaves the noise of its fit out.

    Notes
    -----
    **Privacy.** Over public rows: post-processing. Over the fitted records: one Gaussian release of
    all of them. Outcomes are drawn for a record under each setting at points of the public
    posterior, clipped, and projected on linear functions of the latents. The squared norm of what a
    record adds is at most 1 for each setting, by Bessel's inequality, and 1/2 for the count where
    the number of records is not declared.

    **Intervals** hold the width of the posterior, and the noise of this release. The average over
    the fitted records is that of these records: what chance there was in choosing them is left out.
    It is taken as linear in the latents within the posterior. Whether it is an effect of the
    treatment, the model and its predictors must say: every confounder has to be in it.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> rng = np.random.default_rng(1)
    >>> treated = rng.integers(0, 2, 2000)
    >>> answered = (rng.random(2000) < 0.3 + 0.2 * treated).astype(int)
    >>> with pm.Model() as model:
    ...     a, b = pm.Normal("a", 0, 2), pm.Normal("b", 0, 2)
    ...     logit = a + b * pm.Data("treated", treated)
    ...     y = pm.Bernoulli("y", logit_p=logit, observed=answered)
    >>> terms = {"epsilon": 1, "delta": 1e-5}
    >>> idata = pymc_dp.fit(model=model, progressbar=False, **terms)
    >>> found = pymc_dp.effect(idata, model, {"treated": [0, 1]}, **terms)["effect"]
    >>> 0.1 < found["difference"].sel(statistic="mean").item() < 0.3
    True
    """
    chosen = read_settings(settings)
    if not 0 < prob < 1:
        raise ValueError(f"prob={prob!r} must be between 0 and 1.")
    privacy_of(idata)
    if leaves_noise_out(idata):
        warnings.warn(
            "The posterior leaves the privacy noise of its fit out, and so do the intervals of its "
            "effects: they are too narrow. method='dp_advi' has the noise in its posterior.",
            PosteriorWarning,
            stacklevel=2,
        )
    if over is None:
        if weights is not None or public:
            raise ValueError("weights= and public= are for public rows: give these as over=.")
        budget = later_budget(
            idata,
            epsilon=epsilon,
            delta=delta,
            noise_multiplier=noise_multiplier,
            neighbours=neighbours,
            accountant=accountant,
            num_records=num_records,
            unit=unit,
        )
        model = model_in_use(model)
        return record_margins(
            idata, model, chosen, outcome, bounds, prob, data, budget, ledger, backend
        )
    terms = (epsilon, delta, noise_multiplier, bounds, data, neighbours, num_records, unit, ledger)
    if any(value is not None for value in terms):
        raise ValueError(
            "Over public rows nothing is released: leave out epsilon=, delta=, noise_multiplier=, "
            "bounds=, data=, neighbours=, num_records=, unit= and ledger=."
        )
    own = (public,) if isinstance(public, str) else tuple(public)
    margins, shares = public_margins(idata, model, chosen, over, weights, outcome, own)
    found = describe(chosen, margins, prob, shares=shares)
    found.attrs |= {"over": "public rows", "epsilon_spent": 0.0}
    return xr.DataTree.from_dict({"effect": found})
