"""Synthetic data sets that a private posterior draws, and estimates pooled from several of them.

Both are post-processing.
"""

import warnings
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from pytensor.graph.traversal import ancestors
from scipy import stats

from pymc_dp.accounting.plan import check_count
from pymc_dp.driver.fit import model_in_use
from pymc_dp.errors import PosteriorWarning
from pymc_dp.model.batch import rebuilt
from pymc_dp.model.graphs import AnyVariable, pt
from pymc_dp.model.harden import harden, is_structural
from pymc_dp.model.split import declare_public, named_dims
from pymc_dp.postprocess import predict
from pymc_dp.results.report import warn_if_too_narrow

FEWEST_FREEDOM = 3.0
# whole and sign in the variance of the mean estimate: (whole + 1/m) b + sign v
RULES = {"synthetic": (1, -1), "partially synthetic": (0, 1), "imputed": (1, 1)}


def synthesize(
    idata: xr.DataTree | Sequence[xr.DataTree],
    model: pm.Model,
    *,
    n: int,
    m: int = 20,
    random_seed: int | None = None,
) -> xr.DataTree:
    """Draw synthetic data sets from the posterior of a model that observes all of its columns.

    Parameters
    ----------
    idata : DataTree or sequence of DataTree
        A result of `pymc_dp.fit`; or several, each of a part of the model that shares no latents
        with the others, as `pymc_dp.Columns` fits them.
    model : pymc.Model
        The model that was fitted, with an observed variable for each column. Where the distribution
        of one reads another, as the variable itself or as the ``pm.Data`` that it observes, it
        reads the synthetic values. The model's own data are not used.
    n : int
        The number of records of each data set. It need not be that of the fitted records.
    m : int, optional
        The number of data sets, each from another draw of the posterior.
    random_seed : int, optional

    Returns
    -------
    DataTree
        One group, ``synthetic``: every column with the dimensions ``data_set``, ``record`` and
        those that the model gives a record's part of it. `pymc_dp.pool` puts the estimates from
        the data sets together.

    Raises
    ------
    ValueError
        An array of the records is not modelled, columns read each other in a circle, a potential
        reads records, ``m`` is more than the draws of the posterior, or draws are made by a Python
        function that was not declared public.

    Warns
    -----
    PosteriorWarning
        The posterior leaves the privacy noise of its fit out, and so do intervals from these data.

    Notes
    -----
    **Privacy.** Post-processing of the posterior, for any ``n`` and ``m``, at no cost. Nothing that
    goes by the fitted records is read: latents of single records or units are drawn from their
    priors, and each record is of another unit.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> rng = np.random.default_rng(1)
    >>> age = rng.uniform(-1, 1, 2000)
    >>> voted = (rng.random(2000) < 0.5 + 0.3 * age).astype(int)
    >>> with pm.Model() as model:
    ...     x = pm.Normal("age", pm.Normal("mean"), pm.HalfNormal("sd"), observed=age)
    ...     logit_p = pm.Normal("a") + pm.Normal("b") * x
    ...     y = pm.Bernoulli("voted", logit_p=logit_p, observed=voted)
    >>> idata = pymc_dp.fit(model=model, epsilon=1, delta=1e-5, progressbar=False)
    >>> tables = pymc_dp.synthesize(idata, model, n=500, m=3)["synthetic"]
    >>> dict(tables.sizes)
    {'data_set': 3, 'record': 500}
    """
    check_count("n", n)
    check_count("m", m)
    results = [idata] if isinstance(idata, xr.DataTree) else [*idata]
    fits = [each for each in results if "privacy" in each.children]
    warn_if_too_narrow("intervals from synthetic data sets", *fits)
    each = [predict.declared_in(result) for result in results]
    if len({unit for _, unit in each}) != 1:
        raise ValueError("idata= holds results of different units, or none: give fits of one unit.")
    declared, unit = set.intersection(*(names for names, _ in each)), each[0][1]
    hardened = declare_public(harden(model_in_use(model)), declared)
    new = predict.for_new_records(hardened, unit)
    graphs = _chained(new)
    predict.refuse_own_functions([*graphs.values()], declared)
    _refuse_what_is_left(new, graphs)
    predict.put_units_and_masks(new, None, n)
    rng = np.random.default_rng(random_seed)
    draws = _draws(results, new, m, rng)
    variables = {}
    for name, array in predict.drawn(new, graphs, n, draws, int(rng.integers(2**31))).items():
        own = hardened.model.named_vars_to_dims.get(name)
        dims = [*named_dims(own, name, array.ndim - 1)]
        dims[new.axes.axis[new.observes[name]]] = "record"
        variables[name] = (("data_set", *dims), array)
    return xr.DataTree.from_dict({"synthetic": xr.Dataset(variables)})


def _chained(new: predict.NewRecords) -> dict[str, AnyVariable]:
    """Put the draws of every column in the place of the array that it observes."""
    graphs, columns = new.observed, new.observes
    for name, variable in columns.items():
        if variable not in new.axes.axis:
            raise ValueError(
                f"`{name}` observes an expression, or what does not go by records: observe an "
                "array of the records by itself, and compute with the observed variable."
            )
    renewed: dict[AnyVariable, AnyVariable] = {}
    for name in _in_order(graphs, columns):
        renewed = rebuilt([graphs[name]], renewed)
        drawn_column: Any = renewed.get(graphs[name], graphs[name])
        renewed[columns[name]] = pt.cast(drawn_column, columns[name].type.dtype)
    return {name: renewed.get(graph, graph) for name, graph in graphs.items()}


def _in_order(graphs: dict[str, AnyVariable], columns: dict[str, AnyVariable]) -> list[str]:
    """Sort columns so that each comes after those that its distribution reads."""
    reads = {}
    for name, graph in graphs.items():
        read = {*ancestors([graph])}
        reads[name] = {
            other
            for other in graphs
            if columns[other] in read or (other != name and graphs[other] in read)
        }
    try:
        return list(TopologicalSorter(reads).static_order())
    except CycleError as error:
        names = ", ".join(f"`{name}`" for name in sorted({*error.args[1]}))
        raise ValueError(
            f"The distributions of {names} read each other, or their own values, in a circle: each "
            "column may read those before it, in one order of all columns."
        ) from None


def _refuse_what_is_left(new: predict.NewRecords, graphs: dict[str, AnyVariable]) -> None:
    """Refuse graphs that still read an array of the records, or another that is not public."""
    hardened, read = new.hardened, {*ancestors([*graphs.values()])}
    public = {new.unit, *(mask.name for mask in hardened.masks.values()), *hardened.public}
    private = {v: leaf for v, leaf in hardened.leaves.items() if leaf.name not in public}
    left = {leaf.variable: leaf for leaf in new.columns.values()}
    left |= {v: x for v, x in private.items() if x.declared or not is_structural(x.value)}
    for variable in left.keys() & read:
        raise ValueError(
            f"The columns read {left[variable]}, which is no column and was not declared public in "
            "the fit: a synthetic record needs a distribution of every column, given those before "
            "it. Give the model an observed variable for it, as pymc_dp.Columns does, or predict "
            "outcomes of public rows by pymc_dp.predict."
        )
    for potential in hardened.model.potentials:
        if private.keys() & {*ancestors([potential])}:
            raise ValueError(
                f"The potential `{potential.name}` reads records, and has a density alone: nothing "
                "can be drawn from it. Write it as an observed variable."
            )


def _draws(
    results: Sequence[xr.DataTree], new: predict.NewRecords, m: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Choose different draws of the posterior, of each result by itself."""
    draws: dict[str, np.ndarray] = {}
    for idata in results:
        posterior = idata["posterior"]
        number = posterior.sizes["chain"] * posterior.sizes["draw"]
        if m > number:
            raise ValueError(
                f"m={m} data sets need as many draws of the posterior, which has {number}: fit "
                "with more draws=."
            )
        chosen = rng.choice(number, m, replace=False)
        draws |= {name: x[chosen] for name, x in predict.draws_of(posterior, new.latents).items()}
    predict.refuse_another_model(new.latents, draws)
    return draws


def pool(
    estimates: Any,
    variances: Any,
    kind: str = "synthetic",
    *,
    prob: float = 0.9,
    ratio: float = 1.0,
) -> pd.DataFrame:
    r"""Combine estimates from several data sets into one, with an interval.

    Parameters
    ----------
    estimates : array_like, shape (m,) or (m, k)
        Estimates of k numbers, such as coefficients, from each of m data sets. The columns of a
        data frame name them.
    variances : array_like, of the same shape
        Their squared standard errors in each data set, as if it were real.
    kind : {"synthetic", "partially synthetic", "imputed"}
        All values are synthetic, as those of `pymc_dp.synthesize`; some replace real ones; or some
        replace missing ones.
    prob : float, optional
        The probability of the intervals.
    ratio : float, optional
        The number of records of a synthetic data set over that of the fitted one. It is read where
        a variance would be negative.

    Returns
    -------
    DataFrame
        For each number ``estimate``, ``sd``, ``lower``, ``upper``, ``freedom`` (degrees of
        freedom of Student's t), and the variances ``between`` and ``within`` data sets.

    Raises
    ------
    ValueError
        The arrays differ in shape, hold fewer than two data sets or what is not a number, or an
        argument is out of range.

    Warns
    -----
    PosteriorWarning
        The variance of synthetic data is negative or hardly known.

    Notes
    -----
    With the mean :math:`\bar q` and the variance :math:`b` of the m estimates, the mean
    :math:`\bar v` of their variances, and :math:`e = (1 + 1/m)\, b`, that of :math:`\bar q` is

    - synthetic: :math:`e - \bar v`, with :math:`(m - 1)(1 - \bar v / e)^2` degrees of freedom
      (Raghunathan, Reiter and Rubin 2003). Where it is not positive: :math:`\bar v` times
      ``ratio``, and m - 1 (Reiter 2002);
    - imputed: :math:`e + \bar v`, with :math:`(m - 1)(1 + \bar v / e)^2` (Rubin 1987);
    - partially synthetic: the same with :math:`e = b / m` (Reiter 2003).

    The first rule is right for data sets of `pymc_dp.synthesize` of any number of records.

    Examples
    --------
    >>> import pymc_dp
    >>> pymc_dp.pool([1.0, 1.4, 1.2], [0.01, 0.01, 0.01])[["estimate", "sd"]].round(3)
       estimate     sd
    0       1.2  0.208
    """
    if kind not in RULES:
        raise ValueError(f"kind={kind!r} must be one of {sorted(RULES)}.")
    if not 0 < prob < 1 or not 0 < ratio < np.inf:
        raise ValueError(f"prob={prob!r} must be between 0 and 1, and ratio={ratio!r} above 0.")
    q, v = _checked(estimates, variances)
    estimate, between, within = q.mean(axis=0), q.var(axis=0, ddof=1), v.mean(axis=0)
    variance, freedom = _variance(*RULES[kind], between, within, len(q), ratio)
    half = stats.t(freedom).ppf((1 + prob) / 2) * variance**0.5
    table = {"estimate": estimate, "sd": variance**0.5}
    table |= {"lower": estimate - half, "upper": estimate + half}
    table |= {"freedom": freedom, "between": between, "within": within}
    names = list(estimates.columns) if isinstance(estimates, pd.DataFrame) else None
    return pd.DataFrame(table, index=names)


def _checked(estimates: Any, variances: Any) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(estimates, pd.DataFrame) and isinstance(variances, pd.DataFrame):
        if list(estimates.columns) != list(variances.columns):
            raise ValueError("estimates= and variances= must have the same columns in one order.")
    q, v = (np.asarray(x, "float64") for x in (estimates, variances))
    if q.shape != v.shape or q.ndim not in (1, 2) or len(q) < 2:
        raise ValueError(
            f"estimates= and variances= have the shapes {q.shape} and {v.shape}: both must be "
            "(m,) or (m, k) for m data sets, two or more."
        )
    if not (np.isfinite(q).all() and np.isfinite(v).all() and (v >= 0).all()):
        raise ValueError(
            "estimates= and variances= must be finite, and variances= at least 0: leave out what "
            "could not be estimated in all data sets."
        )
    return q.reshape(len(q), -1), v.reshape(len(q), -1)


def _variance(
    whole: int, sign: int, between: np.ndarray, within: np.ndarray, m: int, ratio: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the variance and its degrees of freedom, which match its first two moments."""
    estimated = (whole + 1 / m) * between
    share = np.divide(within, estimated, out=np.full_like(within, np.inf), where=estimated > 0)
    variance = estimated + sign * within
    freedom = (m - 1) * (1 + sign * share) ** 2
    negative = (variance <= 0) & (sign < 0)
    if (negative | (freedom < FEWEST_FREEDOM)).any():
        warnings.warn(
            "Estimates hardly differ by more than those of records drawn from one posterior draw, "
            "so that the variance of some is hardly known. Draw data sets with more records, or "
            "more data sets: pymc_dp.synthesize does so at no cost.",
            PosteriorWarning,
            stacklevel=3,
        )
    return np.where(negative, ratio * within, variance), np.where(negative, m - 1.0, freedom)
