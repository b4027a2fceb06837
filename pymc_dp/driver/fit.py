"""`pymc_dp.fit`: one function for all private methods, and everything that it settles beforehand.

Before it spends anything, a fit reads its budget and its keywords, builds the method on a model
that is proved to be one term a record, and settles its plan (`set_up`).
"""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import signature
from os import PathLike
from types import MappingProxyType
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pymc.variational.callbacks import CheckParametersConvergence

from pymc_dp.accounting.plan import Neighbours, check_count
from pymc_dp.calibration.budget import Budget, FitTerms, split_terms
from pymc_dp.contributions.gradients import with_absent_components
from pymc_dp.driver import advice
from pymc_dp.driver.result import MOST_NUMBERS, make_result, rehearse_result
from pymc_dp.driver.run import Callback, Checkpoint, Setup, compile_method, progress, run_releases
from pymc_dp.errors import PosteriorWarning, PrivacyWarning
from pymc_dp.ledger.ledger import Ledger, open_ledger
from pymc_dp.methods.method import Method
from pymc_dp.methods.options import MethodSpec
from pymc_dp.methods.registry import described, method_named
from pymc_dp.model import PrivateData, Records, constrained, separate_unread
from pymc_dp.model.columns import read_tables, read_units
from pymc_dp.tables.formula import (
    check_formula,
    factors_left_out,
    formula_of,
    pymc_model,
    refuse_weights,
)
from pymc_dp.tables.given import read_numbers, refuse_bad_indices
from pymc_dp.tables.weights import SurveyWeights, read_weights, without_factors

DRAWS = 1000
# keywords of pm.fit that would carry data into a fit or out of it, or clip sums of records
REFUSED = {
    "start",
    "start_sigma",
    "inf_kwargs",
    "score",
    "more_updates",
    "more_obj_params",
    "total_grad_norm_constraint",
}


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

    `pymc_dp.explain` says which methods fit a model, and `pymc_dp.plan` what a fit would cost.

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
    neighbours : {"add_remove", "zero_out", "replace_one"}
        Which data sets are indistinguishable. The number of records is public under the last two.
    sampling : {"poisson", "full"}
        Batches of records drawn one by one with probability ``sample_rate``, or of all.
    accountant : {"pld", "rdp", "rdp_dp_accounting"}
        What computes epsilon: the first is the tightest.
    num_records : int, optional
        A public, nominal number of records, or of units with ``unit=``, which count once however
        many records they have. It sizes defaults, and replaces noisy counts.
    unit : str, optional
        Name of a ``pm.Data`` with one whole number a record, equal for records of one person:
        the guarantee is then for all of a person's records, and ``sample_rate`` and ``clip_norm``
        are those of persons. A latent of persons, whose index it is, is integrated out.
    ledger : Ledger or path, optional
        The data set's budget, in which the whole plan is set aside before the first release; a
        path opens a ledger that exists.
    public : iterable of str
        Names of ``pm.Data`` and deterministics that you declare public, of factors of a formula
        whose list of levels is public, and of operations of your own (their class, or the function
        in ``pytensor.wrap_py``) that hold no data.
    data : mapping, optional
        In place of all the model's records: arrays, memory maps, SciPy sparse matrices, tables of
        pandas, polars or Arrow, or arrays and data frames in Dask's chunks.
    public_start : mapping, optional
        Initial values of latents, if they were chosen without looking at the data.
    draws : int, default 1000
        Posterior draws; dp_ops and dp_sgld have no more than their releases.
    progressbar : bool
    callbacks : sequence of callable, optional
        Called as ``(state, None, i)`` with released state alone; StopIteration ends the fit.
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
        parameters; ``fit_stats``, how they moved; ``privacy``, the guarantee with all settings.

    Raises
    ------
    ValueError, TypeError
        Bad input, refused before any budget is spent; a `NotSeparableError` where the likelihood is
        not proved to be one term a record, or the method does not fit it.

    Notes
    -----
    **Privacy.** The returned tree is (epsilon, delta)-differentially private with respect to one
    record, its rows in all observed variables together, or to one ``unit`` with all its records.
    The plan's epsilon is the result's: stopping early does not lower it, although a ledger may
    count less. Every further fit spends again. Warnings, errors and progress are for whoever holds
    the data.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=np.repeat([0, 1], [300, 700]))
    >>> idata = pymc_dp.fit(model=model, epsilon=1, delta=1e-5, progressbar=False)
    >>> idata["privacy"].attrs["epsilon"] <= 1
    True
    """
    public = tuple(public)
    terms = FitTerms(
        epsilon, delta, noise_multiplier, neighbours, sampling, accountant, num_records, unit
    )
    options |= {"public": public, "data": data, "public_start": public_start}
    setup = set_up(model, method, n, **vars(terms), **options)
    draws = number_of_draws(draws, setup)
    called = _check_callbacks(callbacks)
    ledger = open_ledger(ledger)
    random_seed = check_seed(random_seed)
    compiled = compile_method(setup, backend)
    rehearse_result(setup, draws)
    if lacks := advice.withheld_in_words(setup.records.outputs.declarable):
        warnings.warn(lacks, stacklevel=2)
    file = None if checkpoint is None else Checkpoint(checkpoint, setup, random_seed, ledger)
    rng = np.random.default_rng(random_seed) if file is None else file.rng
    left = range(0 if file is None else len(file.kept()), setup.plan.total)
    with progress(left, setup.data.partitions, progressbar) as (steps, done):
        states, outcome = run_releases(setup, compiled, rng, steps, called, ledger, done, file)
    return make_result(setup, states, outcome._replace(public=public), draws, rng)


def set_up(model: pm.Model | None, method: str, n: int | None, **options: Any) -> Setup:
    """Check every input of a fit, and settle its plan."""
    setup, budget = set_up_method(model, method, n, **options)
    return setup._replace(plan=budget.settle(setup.method.releases))


@np.errstate(all="ignore")  # sums over records may overflow
def set_up_method(
    model: pm.Model | None,
    method: str,
    n: int | None,
    *,
    public: Iterable[str] = (),
    data: Mapping[str, Any] | None = None,
    public_start: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[Setup, Budget]:
    """Check every input of a fit; the plan has its terms and no releases yet."""
    spec = method_named(method)
    terms, own = split_terms(options)
    _check_keywords(spec, own)
    budget = _budget(spec, terms)
    formula, public = formula_of(model), [*public]
    doubtful = check_formula(formula, budget.unit, public) if formula and budget.noisy else []
    model = model_in_use(model)
    if n is not None:
        check_count("n", n)
    own |= {"sampling": budget.sampler, "num_records": budget.num_records, "noisy": budget.noisy}
    settings = spec.options(n=n, of_units=budget.unit is not None, **own)
    weights = getattr(settings, "weights", None)
    refuse_weights(formula, weights is not None)
    public = factors_left_out(formula, public)
    model = without_factors(model, weights) if weights else model
    separated = separation(
        model, budget, public=public, data=data, start=public_start, weights=weights
    )
    records, checked = separated(constrained(model) if spec.constrained else model)
    built = spec.build(records, settings)
    while not isinstance(built, Method):
        records, checked = separated(constrained(model) if built.constrained else model)
        built = built.build(records)
    with warnings.catch_warnings():
        if not budget.noisy:  # what privacy alone would break is no reason to warn
            warnings.simplefilter("ignore", PrivacyWarning)
            warnings.filterwarnings("ignore", ".* has a limit of its own", PosteriorWarning)
        for text in doubtful:
            warnings.warn(text, PrivacyWarning, stacklevel=5)
        private = checked()
    return Setup(spec.name, records, private, built, budget.terms), budget


def _check_keywords(spec: MethodSpec, keywords: Iterable[str]) -> None:
    """Refuse what the method does not know, and what would carry data."""
    known = sorted(spec.options.keywords())
    for name in keywords:
        if name in REFUSED:
            raise ValueError(
                f"{name}= is refused in a private fit, which it could carry data into or out of. A "
                "start that is public goes into public_start=, and clip_norm= clips each record."
            )
        if name == "weights" and name not in known:
            raise TypeError(
                f"{spec.name} takes no weights=: method='dp_advi' fits any model by them."
            )
        if name not in known:
            of_all = sorted(signature(fit).parameters.keys() - {"options"})
            raise TypeError(
                f"{name!r} is an unknown keyword of {spec.name}, which takes {known}, and as any "
                f"method does {of_all}."
            )


def _budget(spec: MethodSpec, terms: FitTerms) -> Budget:
    """Read the budget; that of a method without privacy is infinite, and must not be given."""
    if spec.private:
        return Budget(**vars(terms))
    for term in ("epsilon", "delta", "noise_multiplier"):
        if getattr(terms, term) is not None:
            raise ValueError(
                f"method={spec.name!r} is not private and takes no {term}=: use "
                f"method='dp_{spec.name}', or leave {term}= out."
            )
    return Budget(**{**vars(terms), "epsilon": math.inf})


def model_in_use(model: pm.Model | None) -> pm.Model:
    """Return a model, that of a formula, or the one of the context."""
    model = pm.Model.get_context(error_if_none=False) if model is None else model
    if model is None:
        raise TypeError("There is no model: give model=, or call this inside `with model:`.")
    model = pymc_model(model)
    if not isinstance(model, pm.Model):
        raise TypeError(
            f"model= must be a pm.Model, not an object of type {type(model).__name__}: build the "
            "model inside `with pm.Model() as model:`, or give one of bambi."
        )
    return model


def separation(
    model: pm.Model,
    budget: Budget,
    *,
    public: Iterable[str] = (),
    data: Mapping[str, Any] | None = None,
    start: Mapping[str, Any] | None = None,
    weights: SurveyWeights | None = None,
    numbers: Mapping[str, tuple[float, ...]] = MappingProxyType({}),
) -> Callable[[pm.Model], tuple[Records, Callable[[], PrivateData]]]:
    """Read a model's data, units and weights; return what splits the model, on any scale.

    ``numbers`` are more public numbers that records are compared with, by what they are.
    """
    advice.refuse_unfit(model)
    data = read_tables(read_numbers(data))
    refuse_bad_indices(model, data, budget.unit)
    units = None if budget.unit is None else read_units(model, budget.unit, data, public)
    beside: dict[str, Any] = {}
    named = dict(numbers)
    if weights is not None:
        beside[weights.name] = read_weights(model, weights, data, public)
        named[f"upper= of weights=`{weights.name}`"] = (weights.upper,)
    if budget.num_records is not None:
        named["num_records="] = (budget.num_records,)
    if isinstance(data, Mapping):
        data = {key: value for key, value in data.items() if key not in {budget.unit, *beside}}
    is_public = budget.terms.neighbours is not Neighbours.ADD_REMOVE or not budget.noisy
    given: dict[str, Any] = {"data": data, "public": public, "start": start, "units": units}
    given |= {"beside": beside, "number_is_public": is_public}

    def separated(model: pm.Model) -> tuple[Records, Callable[[], PrivateData]]:
        advice.refuse_bad_start(model, start or {})
        records, checked = separate_unread(model, **given)
        advice.refuse_bad_priors(model, records)
        advice.refuse_scores_that_are_nan(model, records)
        own = {f"A number in the {x.kind} `{x.name}`": v for x, v in records.trusted.items()}
        known = {**own, **named} if budget.noisy else None
        return with_absent_components(records), partial(checked, known)

    return separated


def number_of_draws(draws: int | None, setup: Setup) -> int:
    """Return how many posterior draws a result holds."""
    most = setup.method.most_draws or MOST_NUMBERS
    if draws is None:
        return min(DRAWS, most)
    check_count("draws", draws, MOST_NUMBERS)
    if draws > most:
        raise ValueError(
            f"draws={draws}, but {setup.name} releases its posterior draws one by one and plans "
            f"{most}: give a larger n=, the number of releases."
        )
    return draws


def check_seed(seed: int | None) -> int | None:
    """Return a seed that is the same in every fit: fits would share the state of a generator."""
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise TypeError(f"random_seed={seed!r:.40} must be a whole number of at least 0, or None.")
    return int(seed)


def _check_callbacks(callbacks: Sequence[Callback] | None) -> tuple[Callback, ...]:
    functions = () if callable(callbacks) else tuple(callbacks or ())
    if callable(callbacks) or not all(map(callable, functions)):
        raise TypeError("callbacks= must be a sequence of functions.")
    if any(isinstance(callback, CheckParametersConvergence) for callback in functions):
        raise ValueError(
            "callbacks= holds PyMC's CheckParametersConvergence, which reads an approximation, and "
            "a private fit has none: leave it out, and see idata['fit_stats'] for the mean's path."
        )
    return functions


if fit.__doc__:  # python -OO strips it
    fit.__doc__ = described(fit.__doc__)
