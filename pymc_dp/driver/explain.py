"""What can be asked before a fit: which method to take, what it would cost, how noisy it would be.

Nothing here spends anything.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

import pymc as pm

from pymc_dp.accounting.plan import Plan, Poisson, ReleaseSpec, unit_label
from pymc_dp.calibration.budget import Budget
from pymc_dp.contributions.local_latents import rule_in_words
from pymc_dp.driver.advice import advice_on_counts, advice_on_units, withheld_in_words
from pymc_dp.driver.fit import model_in_use, separation, set_up
from pymc_dp.driver.result import rehearse_result
from pymc_dp.driver.run import compile_method
from pymc_dp.errors import NotSeparableError
from pymc_dp.methods.method import Method
from pymc_dp.methods.mixture.histogram import of_numbers
from pymc_dp.methods.options import MethodSpec, match, require_integrable, require_shared_latents
from pymc_dp.methods.registry import METHODS
from pymc_dp.model import Records, constrained
from pymc_dp.tables.formula import check_formula, factors_left_out, formula_of, refuse_weights
from pymc_dp.tables.public_table import PublicTable

# taken for the number of records in chunks where a method's default releases depend on it
MANY_RECORDS = 1_000_000
# keywords of fit that do not change the plan
WHILE_RUNNING = {"random_seed", "draws", "progressbar", "callbacks", "ledger", "checkpoint"}


class Fits(NamedTuple):
    """Whether a method fits a model, and by which algorithm."""

    ok: bool
    reason: str  # why it fits, or why not
    # {variable: role}: what each latent and each term of the likelihood is to the updates
    roles: Mapping[str, str] = MappingProxyType({})
    # what runs where no option asks for another; None if the method does not fit
    algorithm: str | None = None
    better: str = ""  # why it is the method to take; empty where another is as good

    def __str__(self) -> str:
        by = [f"    by {self.algorithm}"] if self.algorithm else []
        roles = [f"    {name}: {role}" for name, role in self.roles.items()]
        return "\n".join([self.reason, *by, *roles])


@dataclasses.dataclass(frozen=True, repr=False)
class Explanation:
    """What `explain` returns; prints as a text."""

    records: tuple[str, ...]  # the data that go by records
    # the class of models that each method has updates for, or why the model belongs to none
    methods: Mapping[str, Fits]
    recommended: tuple[str, str]  # the method to take, and why
    advice: tuple[str, ...]  # on the data that the model is meant for, in sentences
    passes: Mapping[str, int]  # over all records by default, by method, of records in chunks
    # {name: what it is and where it stands}: records in arrays that their author gave no name
    unnamed: Mapping[str, str]
    withheld: str  # which deterministics the result will lack, and what to do
    new_records: str  # what the author of the model does to predict new records

    def __str__(self) -> str:
        lines = ["Use method={!r}: {}.".format(*self.recommended), *self.advice]
        lines += [f"Records: one row of {', '.join(f'`{name}`' for name in self.records)}."]
        lines += [f"    `{name}` is {what}" for name, what in self.unnamed.items()]
        if self.unnamed:
            lines.append(f"    {self.new_records}")
        with_text: dict[str, list[str]] = {}
        for name, fits in self.methods.items():
            with_text.setdefault(str(fits), []).append(name)
        for text, names in with_text.items():
            if len(names) > 1:
                text = re.sub("^fits", "fit", re.sub("^does", "do", text))
            lines += [f"{', '.join(names)}: {text}"]
        lines += [f"{name}: {n:g} passes over all chunks." for name, n in self.passes.items()]
        lines += [self.withheld] if self.withheld else []
        return "\n".join(lines)

    __repr__ = __str__


def explain(
    model: pm.Model | None = None,
    *,
    public: Iterable[str] = (),
    data: Mapping[str, Any] | None = None,
    unit: str | None = None,
) -> Explanation:
    """Say which method to take for a model, which fit which part of it, and why.

    Parameters
    ----------
    model, public, data, unit
        As in `pymc_dp.fit`.

    Returns
    -------
    Explanation
        Print it, or one of its parts.

    Raises
    ------
    NotSeparableError
        No method fits: the likelihood is not proved to be one term per record, or records have
        latents that no method takes.

    Notes
    -----
    **Privacy.** Spends nothing; the data are read only to check that the model can be fitted.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=np.repeat([0, 1], [300, 700]))
    >>> print(pymc_dp.explain(model).methods["vips"])
    fits, as a model of conjugate blocks and mixtures.
        by stochastic variational Bayes on noisy expected sufficient statistics (Park et al. 2020)
        p: Beta block
        y: conjugate likelihood
    """
    formula, public = formula_of(model), [*public]
    doubtful = check_formula(formula, unit, public) if formula else []
    refuse_weights(formula, False)
    model = model_in_use(model)
    budget = Budget(epsilon=math.inf, unit=unit)  # without privacy the number of records is public
    separated = separation(model, budget, public=factors_left_out(formula, public), data=data)
    records, checked = separated(constrained(model))
    private = checked()
    fits = {name: _fits(spec, records) for name, spec in METHODS.items()}
    over_chunks = _default_passes(records) if private.partitions > 1 else {}
    return Explanation(
        tuple(private.spec),
        fits,
        _recommended(fits, records, unit is not None),
        (*advice_on_counts(model, unit), *advice_on_units(records, unit), *doubtful),
        over_chunks,
        records.unnamed,
        withheld_in_words(records.outputs.declarable),
        "To predict new records, give predict bambi's model and a data frame."
        if formula
        else "To predict new records, name each before the fit: pm.Data('x', ...).",
    )


def _default_passes(records: Records) -> dict[str, int]:
    """Return the passes over chunks, one a release, of each method by default, where it fits."""
    by_method = {}
    for name, spec in METHODS.items():
        options = spec.options(sampling=Poisson, num_records=MANY_RECORDS, noisy=True)
        with suppress(ValueError):  # the method does not fit, and its reason is given elsewhere
            built = spec.build(records, options)
            # how many releases there are does not depend on the scales of latents
            while not isinstance(built, Method):
                built = built.build(records)
            by_method[name] = sum(release.count for release in built.releases)
    return by_method


def _recommended(fits: Mapping[str, Fits], records: Records, of_units: bool) -> tuple[str, str]:
    """Choose a method; docs/choosing.md says what the reasons were measured on."""
    mixed_numbers = of_numbers(records, of_units)
    for name in ("dp_sep", "vips"):
        if fits[name].better and not mixed_numbers:
            return name, fits[name].better
    if not fits["dp_advi"].ok:
        able = [name for name, each in fits.items() if each.ok and METHODS[name].private]
        if not able:
            raise NotSeparableError(f"No method fits. dp_advi {fits['dp_advi'].reason}")
        return able[0], "the other methods refuse the latents of single records"
    if records.local_latents:
        names = ", ".join(f"`{name}`" for name in records.local_latents)
        because = f"it integrates {names} out by {rule_in_words(records)}"
    elif mixed_numbers:
        because = "histograms of the outcomes find the components of a mixture"
    elif fits["vips"].ok or fits["dp_sep"].ok:
        because = "a few rounds of centred scores serve as well as updates in closed form"
    else:
        because = "it needs gradients alone, whatever the distributions"
    return "dp_advi", because


def _fits(spec: MethodSpec, records: Records) -> Fits:
    if not spec.model_classes:
        return _any_model(spec, records)
    model_class, structure, reasons = match(spec.model_classes, records)
    if model_class is not None:
        return Fits(
            True,
            f"fits, as a model of {model_class.title}.",
            model_class.roles(records, structure),
            model_class.algorithm(records, structure),
            model_class.better(records, structure),
        )
    near = {c.title: reasons[c.title] for c in spec.model_classes if c.near(records)}
    others = {", ".join(reasons): "its latents and outcomes are of other kinds"}
    listed = ";".join(f"\n    not of {x}: {reason}" for x, reason in (near or others).items())
    return Fits(False, f"does not fit:{listed}.")


def _any_model(spec: MethodSpec, records: Records) -> Fits:
    if not records.local_latents:
        return Fits(True, "fits, as any model does.", algorithm=spec.algorithm)
    try:
        if not spec.integrates:
            require_shared_latents(records)
        require_integrable(records)
    except NotSeparableError as reason:
        return Fits(False, f"does not fit: {reason}")
    how = dict.fromkeys(records.local_latents, f"integrated out by {rule_in_words(records)}")
    said = "fits; latents of single records are integrated out, and never released."
    return Fits(True, said, how, spec.algorithm)


@dataclasses.dataclass(frozen=True)
class PlannedFit:
    """What a fit would cost, and how noisy it would be."""

    plan: Plan
    epsilon: float  # epsilon, delta: what the whole fit would cost
    delta: float
    # standard deviation of the noise on the estimated sum of contributions, in the first release
    noise_sd: float
    # the noise's norm over the largest that the sum of ``num_records`` clipped contributions can
    # have; nan if their number was not given
    noise_to_signal: float
    passes: float  # how many times all records are read; of chunks, every release reads all
    numerics: str  # "exact" if the proof holds for the machine's arithmetic, else "idealized"
    taken: tuple[str, ...]  # what the model takes on trust, where `metadata=` was given

    def __str__(self) -> str:
        first, whom = self.plan.releases[0], unit_label(self.plan.unit)
        return (
            f"{self.plan.total} releases, {self.passes:.4g} passes over all records, "
            f"cost epsilon={self.epsilon:.4g} at delta={self.delta:g} "
            f"({self.plan.neighbours.value}, {self.plan.accountant.name}); noise multiplier "
            f"{first.noise_multiplier:.4g}, noise on the sum {self.noise_sd:.4g} "
            f"({self.noise_sd / first.clip_norm:.4g} times the most that one {whom} adds), "
            f"noise to largest signal {self.noise_to_signal:.2g}; {self.numerics} arithmetic."
        ) + "".join(f"\n    {line}" for line in self.taken)


def plan(
    model: pm.Model | None = None,
    n: int | None = None,
    method: str = "dp_advi",
    *,
    public: Iterable[str] = (),
    data: Mapping[str, Any] | None = None,
    public_start: Mapping[str, Any] | None = None,
    backend: str = "python",
    metadata: PublicTable | None = None,
    **settings: Any,
) -> PlannedFit:
    """Do a dry run: check a fit's inputs and say what it would cost, spending nothing.

    Parameters
    ----------
    model, n, method, public, data, public_start, backend, **settings
        As in `pymc_dp.fit`, but with the model first; also those that change no plan. With
        ``num_records`` the text says how the noise compares with the signal.
    metadata : PublicTable, optional
        Of `read_csvw`: the text then says which numbers of the model the file declares.

    Returns
    -------
    PlannedFit
        Prints as sentences: releases, passes, epsilon, how noisy they are.

    Raises
    ------
    ValueError, TypeError
        Whatever the fit would raise before its first release.

    Notes
    -----
    **Privacy.** Spends nothing; the data are read only to check that the model can be fitted.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=np.repeat([0, 1], [300, 700]))
    >>> dry = pymc_dp.plan(model, epsilon=1, delta=1e-5, num_records=1000)
    >>> dry.plan.total, round(dry.epsilon, 2)
    (14, 1.0)
    """
    settings = {key: value for key, value in settings.items() if key not in WHILE_RUNNING}
    settings |= {"public": public, "data": data, "public_start": public_start}
    setup = set_up(model, method, n, **settings)
    compiled = compile_method(setup, backend)
    rehearse_result(setup, draws=2)
    first = setup.plan.releases[0]
    noise, in_chunks = first.noise_multiplier / first.sampler.rate, setup.data.partitions > 1
    largest = (setup.plan.num_records or float("nan")) / setup.method.size**0.5
    taken: tuple[str, ...] = ()
    if metadata is not None:
        declared = metadata.declared(setup.records.trusted)
        how = {True: f"declared in {metadata.source}", False: "trusted"}
        taken = tuple(f"{line}: {how[str(line) in declared]}" for line in setup.records.trusted)
    return PlannedFit(
        plan=setup.plan,
        epsilon=setup.plan.epsilon(),
        delta=setup.plan.delta,
        noise_sd=noise and noise * first.clip_norm,  # the clip norm may be infinite without noise
        noise_to_signal=noise / largest,
        passes=sum(x.count * (1 if in_chunks else x.sampler.rate) for x in setup.plan.releases),
        numerics="exact" if compiled.is_exact else "idealized",
        taken=taken,
    )


def epsilon(
    *,
    noise_multiplier: float,
    sample_rate: float,
    n: int,
    delta: float,
    sampling: str = "poisson",
    neighbours: str = "add_remove",
    accountant: str = "pld",
    num_records: int | None = None,
) -> float:
    """Epsilon of ``n`` equal releases.

    Parameters
    ----------
    noise_multiplier, sample_rate : float
        The noise's standard deviation over ``clip_norm``, and the probability of a record to be in
        a batch; 1 for ``sampling="full"``.
    n : int
        The number of releases.
    delta, sampling, neighbours, accountant, num_records
        As in `pymc_dp.fit`.

    Returns
    -------
    float
        Infinite without noise.

    Raises
    ------
    ValueError
        No proof covers the combination, or a value is out of its range.

    Notes
    -----
    **Privacy.** Each release is a Gaussian one of sensitivity ``clip_norm`` (twice that under
    replace-one neighbours) on a fresh batch; sampling amplifies it and the releases compose.

    Examples
    --------
    >>> round(epsilon(noise_multiplier=4.0, sample_rate=0.01, n=10_000, delta=1e-5), 3)
    0.947
    """
    budget = Budget(None, delta, noise_multiplier, neighbours, sampling, accountant, num_records)
    release = ReleaseSpec("release", budget.sampler(sample_rate), 1.0, n)
    return budget.settle([release]).epsilon()


def calibrate(
    *,
    epsilon: float,
    delta: float,
    sample_rate: float,
    n: int,
    sampling: str = "poisson",
    neighbours: str = "add_remove",
    accountant: str = "pld",
    num_records: int | None = None,
) -> float:
    """Noise multiplier with which ``n`` equal releases cost at most ``epsilon``.

    Parameters
    ----------
    epsilon : float
        The target, above 0; infinite for no noise.
    delta, sample_rate, n, sampling, neighbours, accountant, num_records
        As in :func:`epsilon`.

    Returns
    -------
    float
        The noise's standard deviation over ``clip_norm``, rounded up to four digits, and at least
        what the accountants are reliable at: 0.3 of the sensitivity where batches are sampled, else
        0.0001.

    Raises
    ------
    ValueError
        The accountant cannot certify so small an epsilon, or as in :func:`epsilon`.

    Notes
    -----
    **Privacy.** The accountant is asked again at the returned noise: it never exceeds the target.

    Examples
    --------
    >>> round(calibrate(epsilon=1.0, delta=1e-5, sample_rate=0.1, n=200), 2)
    5.43
    """
    budget = Budget(epsilon, delta, None, neighbours, sampling, accountant, num_records)
    release = ReleaseSpec("release", budget.sampler(sample_rate), 1.0, n)
    return budget.settle([release]).releases[0].noise_multiplier
