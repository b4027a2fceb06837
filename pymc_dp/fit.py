"""The driver: one loop for all private methods."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from rich.progress import track

from pymc_dp.prepare import compile_prepared, prepare
from pymc_dp.release import check_count
from pymc_dp.results import Outcome, build_result
from pymc_dp.wall import Noisy, PrivacyWall, Query


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
    public: Iterable[str] = (),
    data: Mapping[str, Any] | None = None,
    public_start: Mapping[str, Any] | None = None,
    draws: int = 1000,
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
    method : {"dp_advi", "dp_fullrank_advi", "vips", "dp_sep", "sep"}
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
    public : iterable of str
        Names of ``pm.Data`` and deterministics that you declare public.
    data : mapping, optional
        Arrays, memory maps or SciPy sparse matrices in place of all the model's records.
    public_start : mapping, optional
        Initial values of latents, if they were chosen without looking at the data.
    draws : int
        Posterior draws.
    progressbar : bool
    callbacks : sequence of callable, optional
        Called as ``(state, None, i)`` with released state alone; StopIteration ends the fit.
    backend : {"numba", "c", "jax", "python"}, optional
        Chosen by the expected work if left out.
    **options
        Of the method. All: ``clip_norm``, ``sample_rate`` (of dp_advi also functions of the
        step). dp_advi: ``obj_optimizer``, ``obj_n_mc``, ``aligned``, ``adaptive_clip``. vips:
        ``form``, ``iterations``, ``feature_bound``, ``tau0``, ``kappa``. dp_sep: ``form``,
        ``step``, ``feature_bound``; sep: ``step``, and no ``clip_norm``.

    Returns
    -------
    xarray.DataTree
        Groups ``posterior``, ``fit``, ``fit_stats`` and ``privacy``, for ArviZ.

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
    record, its rows in all observed variables together. Warnings, errors and progress are for
    whoever holds the data. Stopping early refunds nothing.

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
        **options,
    )
    check_count("draws", draws)
    if callable(callbacks) or not all(callable(callback) for callback in callbacks or ()):
        raise TypeError("callbacks= must be a sequence of functions.")
    rng = np.random.default_rng(random_seed)
    compiled = compile_prepared(prepared, backend)
    wall = PrivacyWall(prepared.columns, compiled.contributions, prepared.plan)
    ask = partial(prepared.method.query, rng=rng)
    steps = track(range(prepared.plan.total), "Private releases", disable=not progressbar)
    states = run(wall, prepared.method.init(rng), ask, compiled.update, steps, callbacks or ())
    outcome = Outcome(
        prepared.name, prepared.plan, wall.made, wall.random.label, wall.random.valid, public
    )
    return build_result(prepared.records, prepared.method, states, outcome, draws, rng)


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
