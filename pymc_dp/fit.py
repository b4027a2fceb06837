"""The driver: one loop for all private methods."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from rich.progress import track

from pymc_dp.ledger import Ledger, check_ledger
from pymc_dp.methods.method import Compiled
from pymc_dp.prepare import Prepared, compile_prepared, prepare
from pymc_dp.query import Noisy, Query
from pymc_dp.release import check_count
from pymc_dp.results import Outcome, build_result
from pymc_dp.wall import PrivacyWall

DRAWS = 1000


def fit(
    n: int | None = None,
    method: str = "dp_advi",
    model: pm.Model | None = None,
    random_seed: int | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    neighbours: str = "add_remove",
    sampling: str = "poisson",
    accountant: str = "pld",
    num_records: int | None = None,
    unit: str | None = None,
    ledger: Ledger | None = None,
    public: Iterable[str] = (),
    data: Mapping[str, Any] | None = None,
    public_start: Mapping[str, Any] | None = None,
    draws: int | None = None,
    progressbar: bool = True,
    callbacks: Sequence[Callable] | None = None,
    backend: str | None = None,
    **options: Any,
) -> xr.DataTree:
    """Fit a PyMC model with differential privacy.

    Parameters
    ----------
    n : int, optional
        Releases; a good public default.
    method : {"dp_advi", "dp_fullrank_advi", "vips", "dp_sep", "sep", "dp_sgld", "dp_ops"}
        `pymc_dp.explain` says which fits a model. ``"sep"`` is ``"dp_sep"`` without privacy and
        takes no budget.
    model : pymc.Model, optional
        Inside ``with model:`` it may be left out.
    random_seed : int, optional
        Drives public draws alone; sampling and noise are never reproducible.
    epsilon, noise_multiplier : float
        Exactly one: the budget of the whole fit, or the noise's standard deviation over
        ``clip_norm``. ``epsilon=inf`` is a fit without privacy.
    delta : float
        The probability with which epsilon may fail; well below one over the number of records.
    neighbours : {"add_remove", "zero_out", "replace_one"}
        Which data sets must be indistinguishable. The number of records is public under the last
        two.
    sampling : {"poisson", "fixed_size", "full"}
    accountant : {"pld", "rdp", "rdp_dp_accounting"}
    num_records : int, optional
        A public, nominal number of records. It sizes defaults, and replaces the noisy count that
        dp_sep needs; only fixed-size batches need it to be exact.
    unit : str, optional
        Name of a ``pm.Data`` with one whole number a record, equal for records of one person:
        the guarantee is then for all of a person's records, and ``sample_rate`` and ``clip_norm``
        are those of persons. No part of the model may read it.
    ledger : Ledger, optional
        The data set's budget, from which the whole plan is taken before the first release.
    public : iterable of str
        Names of ``pm.Data`` and deterministics that you declare public.
    data : mapping, optional
        Arrays, memory maps or SciPy sparse matrices in place of all the model's records.
    public_start : mapping, optional
        Initial values of latents, if they were chosen without looking at the data.
    draws : int, default 1000
        Posterior draws. dp_ops and dp_sgld release theirs one by one and hold no more than that.
    progressbar : bool
    callbacks : sequence of callable, optional
        Called as ``(state, None, i)`` with released state alone; StopIteration ends the fit.
    backend : {"numba", "c", "jax", "python"}, optional
        Chosen by the expected work if left out.
    **options
        Of the method. All: ``clip_norm``, ``sample_rate`` (of dp_advi also functions of the
        step). dp_advi, vips and dp_sep: ``noise_aware=False`` leaves the privacy noise out of the
        posterior. dp_advi: ``obj_optimizer``, ``obj_n_mc``, ``aligned``, ``adaptive_clip``. vips:
        ``form``, ``iterations``, ``feature_bound``, ``tau0``, ``kappa``. dp_sep: ``form``,
        ``step``, ``feature_bound``; sep: ``step``, and no ``clip_norm``. dp_sgld: ``step``; dp_ops:
        ``loglik_bound`` and ``transitions`` alone.

    Returns
    -------
    xarray.DataTree
        Groups ``posterior``, ``noise_sd``, ``fit``, ``fit_stats`` and ``privacy``, for ArviZ.

    Raises
    ------
    NotSeparableError
        The likelihood is not proved to be one term per record, or the method does not fit the
        model.
    ValueError, TypeError
        Any other bad input. All of it is refused before any budget is spent.

    Notes
    -----
    **Privacy.** The returned tree is (epsilon, delta)-differentially private with respect to one
    record, its rows in all observed variables together, or to one ``unit`` with all its records.
    Warnings, errors and progress are for whoever holds the data. Stopping early refunds nothing.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     y = pm.Bernoulli("y", p, observed=np.repeat([0, 1], [300, 700]))
    >>> idata = pymc_dp.fit(model=model, epsilon=1, delta=1e-5, progressbar=False)
    >>> idata["privacy"].attrs["epsilon"] <= 1
    True
    """
    public = tuple(public)
    prepared = prepare(
        pm.modelcontext(model),
        method,
        n,
        public=public,
        data=data,
        public_start=public_start,
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=noise_multiplier,
        neighbours=neighbours,
        sampling=sampling,
        accountant=accountant,
        num_records=num_records,
        unit=unit,
        **options,
    )
    draws = count_draws(draws, prepared)
    if callable(callbacks) or not all(callable(callback) for callback in callbacks or ()):
        raise TypeError("callbacks= must be a sequence of functions.")
    check_ledger(ledger)
    rng = np.random.default_rng(random_seed)
    compiled = compile_prepared(prepared, backend)
    reserve = None if ledger is None else partial(ledger.reserve, prepared.name, prepared.plan)
    steps = track(range(prepared.plan.total), "Private releases", disable=not progressbar)
    states, outcome = carry_out(prepared, compiled, rng, steps, callbacks or (), reserve)
    outcome = outcome._replace(public=public)
    return build_result(prepared.records, prepared.method, states, outcome, draws, rng)


def carry_out(
    prepared: Prepared,
    compiled: Compiled,
    rng: np.random.Generator,
    steps: Iterable[int],
    callbacks: Sequence[Callable] = (),
    reserve: Callable[[], Callable[[], None]] | None = None,
) -> tuple[list[Any], Outcome]:
    """Put the data behind a wall and make the releases; return the states along the way."""
    name, method, plan = prepared.name, prepared.method, prepared.plan
    wall = put_behind_wall(prepared, compiled, reserve)
    ask = partial(method.query, rng=rng)
    states = run(wall, method.init(rng), ask, compiled.update, steps, callbacks)
    return states, Outcome(name, plan, wall.made, wall.random.label, wall.random.valid)


def put_behind_wall(
    prepared: Prepared,
    compiled: Compiled,
    reserve: Callable[[], Callable[[], None]] | None = None,
) -> PrivacyWall:
    """Put the data behind a wall, which checks that they are those of the plan."""
    _, _, columns, _, plan, units = prepared
    return PrivacyWall(columns, compiled.contributions, plan, units, reserve)


def count_draws(draws: int | None, prepared: Prepared) -> int:
    """Return how many posterior draws a result holds."""
    most = prepared.method.most_draws
    if draws is None:
        return DRAWS if most is None else min(DRAWS, most)
    check_count("draws", draws)
    if most is not None and draws > most:
        raise ValueError(
            f"draws={draws}, but {prepared.name} releases its posterior draws one by one and plans "
            f"{most}: give a larger n=, the number of releases."
        )
    return draws


def run(
    wall: PrivacyWall,
    state: Any,
    ask: Callable[[Any], Query],
    update: Callable[[Any, Query, Noisy], Any],
    steps: Iterable[int],
    callbacks: Sequence[Callable] = (),
) -> list[Any]:
    """Release once a step; return the states along the way, the last one last.

    A callback's StopIteration, or an interrupt, ends the fit with what was released until then.
    """
    states = [state]
    try:
        for i in steps:
            query = ask(states[-1])
            states.append(update(states[-1], query, wall.release(query)))
            for callback in callbacks:
                callback(states[-1], None, i)
    except (StopIteration, KeyboardInterrupt):
        pass
    return states
