"""The driver: one loop for all private methods."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pymc.variational.callbacks import CheckParametersConvergence

from pymc_dp.accounting.plan import check_count
from pymc_dp.driver.checkpoint import Checkpoint
from pymc_dp.driver.compile_method import compile_method
from pymc_dp.driver.data_advice import withheld_in_words
from pymc_dp.driver.result import MOST_NUMBERS, make_result, rehearse_result
from pymc_dp.driver.run import Callback, progress, run_releases
from pymc_dp.driver.setup import Setup, set_up
from pymc_dp.ledger.ledger import Ledger, open_ledger
from pymc_dp.methods.registry import described

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
    ledger: Ledger | str | PathLike[str] | None = None,
    public: Iterable[str] = (),
    data: Mapping[str, Any] | None = None,
    public_start: Mapping[str, Any] | None = None,
    draws: int | None = None,
    progressbar: bool = True,
    callbacks: Sequence[Callback] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    backend: str = "python",
    **options: Any,
) -> xr.DataTree:
    """Fit a PyMC model with differential privacy.

    ``epsilon`` and ``delta``, the budget, and ``method`` matter first; the other settings have
    public defaults. `pymc_dp.explain` says which methods fit a model, and `pymc_dp.plan` what a fit
    would cost; neither spends anything.

    {methods}

    Parameters
    ----------
    n : int, optional
        Releases; a good public default. Under ``epsilon=`` more of them share one budget.
    method : str, default "dp_advi"
        See the table.
    model : pymc.Model, optional
        Inside ``with model:`` it may be left out.
    random_seed : int, optional
        Drives public draws alone; sampling and noise are never reproducible.
    epsilon, noise_multiplier : float
        Exactly one: the budget of the whole fit, or the noise's standard deviation over
        ``clip_norm``. One record changes the odds of any conclusion by a factor of at most
        exp(epsilon): 2.7 for 1, 20 for 3. ``epsilon=inf`` is a fit without privacy.
    delta : float
        The probability with which epsilon may fail; well below one over the number of records.
        The documentation's page on the guarantee says more about both.
    neighbours : {"add_remove", "zero_out", "replace_one"}
        Which data sets must be indistinguishable. The number of records is public under the last
        two.
    sampling : {"poisson", "fixed_size", "full"}
        Batches of records drawn one by one with probability ``sample_rate``, of exactly that
        share of them, or of all.
    accountant : {"pld", "rdp", "rdp_dp_accounting"}
        What computes epsilon: the first is the tightest; fixed-size batches need another one.
    num_records : int, optional
        A public, nominal number of records, or of units with ``unit=``, which count once however
        many records they have. It sizes defaults, and replaces noisy counts; only fixed-size
        batches need it to be exact.
    unit : str, optional
        Name of a ``pm.Data`` with one whole number a record, equal for records of one person:
        the guarantee is then for all of a person's records, and ``sample_rate`` and ``clip_norm``
        are those of persons. The model may read it as the index of a latent of persons alone,
        which is then integrated out.
    ledger : Ledger or path, optional
        The data set's budget, in which the whole plan is set aside before the first release; a
        path opens a ledger that exists.
    public : iterable of str
        Names of ``pm.Data`` and deterministics that you declare public, of factors of a formula
        whose list of levels is public, and of operations of your own (their class, or the function
        in ``pytensor.wrap_py``) that hold no data.
    data : mapping, optional
        In place of all the model's records: arrays, memory maps, SciPy sparse matrices, tables of
        pandas, polars or Arrow, or arrays and data frames in Dask's chunks, which run on the
        workers of the active ``distributed.Client``.
    public_start : mapping, optional
        Initial values of latents, if they were chosen without looking at the data.
    draws : int, default 1000
        Posterior draws. dp_ops and dp_sgld release theirs one by one and hold no more than that.
    progressbar : bool
    callbacks : sequence of callable, optional
        Called as ``(state, None, i)`` with released state alone; StopIteration ends the fit. One
        that fails is reported by a warning, and not called again.
    checkpoint : path, optional
        A file for what is released: after a crash the same call goes on where the fit was, without
        spending again. Delete it with care: a fit without it starts, and spends, anew. Without a
        ledger, do not copy it or restore it from a backup: its releases would be made twice.
    backend : {"python", "numba", "c", "jax"}, default "python"
        Numba compiles for up to a minute and pays where thousands of gradient steps follow. Rounds,
        the default of ``dp_advi``, run in Python on any of them.
    **options
        Of the method; its page in the documentation explains each.

        {options}

    Returns
    -------
    xarray.DataTree
        For ArviZ: ``posterior``, draws of what the model calls its variables; ``noise_sd``, how
        much of their width is privacy noise, where the method knows it; ``fit``, the released
        parameters; ``fit_stats``, how they moved; ``privacy``, the guarantee with all settings
        (`pymc_dp.privacy_report` says it in words).

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
    The plan is settled before the data are used, and its epsilon is the result's: stopping early
    does not lower it, although a ledger may count less. Every further fit spends again. Warnings,
    errors and progress are for whoever holds the data.

    **Wide intervals.** `pymc_dp.summary` says which share of them is privacy noise. Where it is
    large, more records, a larger epsilon or fewer latents help, and another method or ``clip_norm``
    may; choosing by results spends, and `pymc_dp.tune` accounts for it.

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
    setup = set_up(
        model,
        method,
        n,
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=noise_multiplier,
        neighbours=neighbours,
        sampling=sampling,
        accountant=accountant,
        num_records=num_records,
        unit=unit,
        public=public,
        data=data,
        public_start=public_start,
        **options,
    )
    draws = number_of_draws(draws, setup)
    called = _check_callbacks(callbacks)
    ledger = open_ledger(ledger)
    rng = _public_generator(random_seed)
    compiled = compile_method(setup, backend)
    rehearse_result(setup, draws)
    if lacks := withheld_in_words(setup.records.outputs.declarable):
        warnings.warn(lacks, stacklevel=2)
    file = None if checkpoint is None else Checkpoint(checkpoint, setup, random_seed, ledger)
    if file is not None:
        rng = file.public_generator(random_seed)
    left = range(0 if file is None else len(file.kept()), setup.plan.total)
    with progress(left, setup.data.partitions, progressbar) as (steps, done):
        states, outcome = run_releases(setup, compiled, rng, steps, called, ledger, done, file)
    return make_result(setup, states, outcome._replace(public=public), draws, rng)


def _check_callbacks(callbacks: Sequence[Callback] | None) -> tuple[Callback, ...]:
    found = () if callable(callbacks) else tuple(callbacks or ())
    if callable(callbacks) or not all(map(callable, found)):
        raise TypeError("callbacks= must be a sequence of functions.")
    if any(isinstance(callback, CheckParametersConvergence) for callback in found):
        raise ValueError(
            "callbacks= holds PyMC's CheckParametersConvergence, which reads an approximation and "
            "ends a fit early. A private fit has none, and stopping early does not lower a "
            "result's epsilon: leave it out, and see how the mean moved in idata['fit_stats']."
        )
    return found


def _public_generator(seed: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise TypeError(f"random_seed={seed!r:.40} must be a whole number, or None.") from None


def number_of_draws(draws: int | None, setup: Setup) -> int:
    """Return how many posterior draws a result holds."""
    most = setup.method.most_draws
    if draws is None:
        return DRAWS if most is None else min(DRAWS, most)
    check_count("draws", draws, MOST_NUMBERS)
    if most is not None and draws > most:
        raise ValueError(
            f"draws={draws}, but {setup.name} releases its posterior draws one by one and plans "
            f"{most}: give a larger n=, the number of releases."
        )
    return draws


if fit.__doc__:  # python -OO strips it
    fit.__doc__ = described(fit.__doc__)
