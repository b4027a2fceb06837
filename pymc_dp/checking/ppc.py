"""Private posterior predictive checks: observed outcomes beside those that a posterior predicts."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from scipy import stats

from pymc_dp.accounting.plan import check_count
from pymc_dp.checking.release import Fitted, ask, drawn_leaves, later_budget, open_fitted
from pymc_dp.contributions.replicates import (
    CLIP_NORM,
    beside_replicates,
    outcomes_in,
    sort_by_edges,
    sort_by_rank,
)
from pymc_dp.driver.setup import model_in_use
from pymc_dp.ledger.ledger import Ledger
from pymc_dp.privacy.query import Noisy
from pymc_dp.results.build import with_guarantee

NAME = "outcomes and replicates"
# replicates of a data set, and draws that outcomes are ranked among
REPLICATES, RANKED_AMONG = 8, 40
FEWEST_DRAWS = 4
RANKS = "ranks"
MOST_BINS = 1000


def ppc(
    idata: xr.DataTree,
    model: pm.Model,
    *,
    statistic: str = "ranks",
    bins: int | Sequence[float] | None = None,
    var_name: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    data: Mapping[str, Any] | None = None,
    neighbours: str | None = None,
    accountant: str = "pld",
    unit: str | None = None,
    ledger: Ledger | str | PathLike[str] | None = None,
    backend: str = "python",
) -> xr.DataTree:
    """Release a private posterior predictive check: a histogram of outcomes beside predicted ones.

    Parameters
    ----------
    idata : DataTree
        A result of `pymc_dp.fit`.
    model : pymc.Model
        The model that was fitted.
    statistic : {"ranks", "histogram"}
        Ranks of outcomes among those that the posterior predicts for the same record, which are
        uniform where the model is right; or the outcomes themselves.
    bins : int or sequence of float, optional
        For ranks their number, 10 by default. For a histogram the edges, which must be public: no
        quantiles of the data. What lies outside has bins of its own.
    var_name : str, optional
        Which observed variable, where there are several.
    epsilon, delta, noise_multiplier, data, accountant, ledger, backend
        As in `pymc_dp.fit`, for this release alone.
    neighbours, unit : str, optional
        Those of the fit. With a unit a person counts once, by the shares of its records.

    Returns
    -------
    DataTree
        ``ppc`` by bin, from ``lower`` to ``upper``: ``observed`` and ``expected`` numbers of
        records, their ``difference``, ``replicated`` numbers for some posterior draws, the noise's
        standard deviation on each (``..._noise_sd``), and ``tail_probability``, that of so large a
        difference under the model, the noise counted. The attribute ``tail_probability`` is that of
        all bins together, by Bonferroni. And ``privacy``, as from `pymc_dp.fit`.

    Raises
    ------
    NotSeparableError
        Records have latents of their own, or the likelihood is not one term a record.
    ValueError, TypeError
        The model does not say how outcomes are drawn (potentials), or any other bad
        input. All of it is refused before any budget is spent.

    Notes
    -----
    **Privacy.** One Gaussian release of all records, of sensitivity sqrt(3) under add-remove and
    zero-out neighbours, and twice that under replace-one. A record adds three parts: the indicator
    t of its outcome's bin less the mean m of those of J outcomes that the model draws for it; m;
    and each drawn indicator less m, over sqrt(J). All indicators have entries of at least 0 that
    sum to 1, so the squared norms are at most 1 + M, M and 1 - M, where M <= 1 is that of m. Draws
    for private predictors are made behind the wall. The result counts as public, and costs what its
    own fit did.

    **Tails** count what the posterior leaves open, its privacy noise included, from eight
    replicates: those below one in a thousand say no more than that. On the records that were fitted
    they are rather too large.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     y = pm.Bernoulli("y", p, observed=np.repeat([0, 1], [300, 700]))
    >>> terms = {"epsilon": 1, "delta": 1e-5}
    >>> idata = pymc_dp.fit(model=model, progressbar=False, **terms)
    >>> found = pymc_dp.ppc(idata, model, statistic="histogram", bins=[0.5], **terms)
    >>> found["ppc"]["observed"].values.round(-2)
    array([300., 700.])
    """
    budget = later_budget(
        idata,
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=noise_multiplier,
        neighbours=neighbours,
        accountant=accountant,
        unit=unit,
    )
    edges = _edges(statistic, bins)
    number = len(edges) - 1
    fitted = open_fitted(idata, model_in_use(model), data, budget, REPLICATES + RANKED_AMONG)
    records, (variable, leaf) = fitted.records, _variable(fitted, var_name)
    replicates = min(REPLICATES, len(fitted.points) // 2)
    points = _replicates_first(fitted.points, replicates)
    points = points if statistic == RANKS else points[:replicates]
    sort = sort_by_rank(number, replicates)
    if statistic != RANKS:
        sort = sort_by_edges(edges[1:-1].tolist())
    draws = len(points)
    noisy, outcome = ask(
        NAME,
        fitted,
        budget,
        ledger,
        backend,
        compile_one=lambda _: beside_replicates(records, leaf, sort, number, replicates, draws),
        context=points,
        size=number * (2 + replicates),
        clip_norm=CLIP_NORM,
    )
    found = _describe(noisy, edges, replicates, outcomes_in(records, leaf))
    settings = {"statistic": statistic, "bins": number, "replicates": replicates}
    found.attrs |= {"statistic": statistic, "variable": variable}
    return with_guarantee({"ppc": found}, records, outcome, {"settings": settings})


def _edges(statistic: str, bins: int | Sequence[float] | None) -> np.ndarray:
    """Return the public edges of bins, (bins + 1,)."""
    if statistic == RANKS:
        bins = 10 if bins is None else bins
        if not isinstance(bins, int | np.integer):
            raise ValueError("statistic='ranks' takes a number of bins, of equal width.")
        check_count("bins", bins)
        edges = np.linspace(0, 1, int(bins) + 1)
    elif statistic == "histogram":
        inner = np.asarray([] if bins is None else bins, "float64")
        if inner.ndim != 1 or not inner.size or not np.isfinite(inner).all():
            raise ValueError(
                "statistic='histogram' needs bins=, the finite edges between bins, as public "
                "numbers: such as bins=[-1, 0, 1]. None of them may come from the data."
            )
        if not (np.diff(inner) > 0).all():
            raise ValueError(f"bins={inner.tolist()} must increase.")
        edges = np.concatenate([[-np.inf], inner, [np.inf]])
    else:
        raise ValueError(f"statistic={statistic!r} is unknown: use 'ranks' or 'histogram'.")
    if not 2 <= len(edges) - 1 <= MOST_BINS:
        raise ValueError(f"bins= makes {len(edges) - 1} bins: it must be 2 to {MOST_BINS}.")
    return edges


def _variable(fitted: Fitted, var_name: str | None) -> tuple[str, str]:
    """Return the observed variable that is checked, and the name of its data."""
    if len(fitted.points) < FEWEST_DRAWS:
        raise ValueError(f"The result has fewer than {FEWEST_DRAWS} draws: fit with more draws=.")
    leaves = drawn_leaves(fitted.records, "pymc_dp.score compares such models.")
    if var_name is None and len(leaves) == 1:
        [var_name] = leaves
    if var_name not in leaves:
        raise ValueError(f"var_name={var_name!r} must be one of {sorted(leaves)}.")
    return var_name, leaves[var_name]


def _replicates_first(points: np.ndarray, replicates: int) -> np.ndarray:
    """Spread the draws of replicates over all draws, and put them first."""
    first = np.unique(np.linspace(0, len(points) - 1, replicates).astype(int))
    return np.concatenate([points[first], np.delete(points, first, axis=0)])


def _describe(noisy: Noisy, edges: np.ndarray, replicates: int, width: int) -> xr.Dataset:
    bins = len(edges) - 1
    parts = noisy.value.reshape(2 + replicates, bins)
    difference, expected, spread = parts[0], parts[1], parts[2:] * replicates**0.5
    spread = spread - spread.mean(axis=0)  # but for the noise it is 0
    tail = _tails(difference, expected, spread, noisy.sd, width)
    return xr.Dataset(
        {
            "lower": ("bin", edges[:-1]),
            "upper": ("bin", edges[1:]),
            "observed": ("bin", expected + difference),
            "observed_noise_sd": 2**0.5 * noisy.sd,
            "expected": ("bin", expected),
            "expected_noise_sd": noisy.sd,
            "difference": ("bin", difference),
            "difference_noise_sd": noisy.sd,
            "replicated": (("replicate", "bin"), expected + spread),
            "replicated_noise_sd": replicates**0.5 * noisy.sd,
            "tail_probability": ("bin", tail),
        },
        {"bin": np.arange(bins), "replicate": np.arange(replicates)},
        {"tail_probability": min(1.0, bins * float(tail.min()))},
    )


def _tails(
    difference: np.ndarray, expected: np.ndarray, spread: np.ndarray, sd: float, width: int
) -> np.ndarray:
    """Two-sided tail of each difference, (bins,), among replicates with as much noise.

    The variance of a replicated number is that of independent outcomes, times how much larger
    variances between replicates are over all bins, less their noise. A bin whose own variance is
    larger by two standard errors, or by less where that ratio is large, has its own. What exceeds
    independent outcomes is known from few replicates: Welch and Satterthwaite's degrees of freedom
    allow for it.
    """
    replicates = len(spread)
    number = max(float(expected.sum()), 1.0)
    share = np.clip(expected / number, 0.5 / number, 1 - 0.5 / number)
    independent = number * share * (1 - share) / width
    noise = replicates * sd**2
    between = (spread**2).sum(axis=0) / (replicates - 1) - noise
    pooled = independent * max(1.0, float(between.sum() / independent.sum()))
    error = (2 / (replicates - 1)) ** 0.5 * (pooled + noise)
    excess = np.maximum(pooled, between - 2 * error * independent / pooled) - independent
    variance = (independent + excess) * (1 + 1 / replicates) + sd**2
    freedom = (replicates - 1) * (variance / np.maximum(excess, 1e-3 * variance)) ** 2
    return np.asarray(2 * stats.t(freedom).sf(np.abs(difference) / variance**0.5))
