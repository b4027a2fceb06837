"""Which method to take for a model, which fit which part of it, and why."""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pymc as pm

from pymc_dp.calibration.budget import Budget
from pymc_dp.contributions.local_latents import rule_in_words
from pymc_dp.driver.data_advice import (
    advice_on_counts,
    advice_on_groups,
    advice_on_rows,
    withheld_in_words,
)
from pymc_dp.driver.plan import passes
from pymc_dp.driver.setup import model_in_use, separation
from pymc_dp.errors import NotSeparableError
from pymc_dp.methods.method import Algorithm, Method
from pymc_dp.methods.mixture.histogram import of_numbers
from pymc_dp.methods.options import MethodSpec, match, require_integrable, require_shared_latents
from pymc_dp.methods.registry import METHODS
from pymc_dp.model import Records, constrained
from pymc_dp.sampling.samplers import Poisson
from pymc_dp.tables.formula import check_formula, factors_left_out, formula_of, refuse_weights

# records in chunks are taken to be so many where a method's default releases depend on it
MANY_RECORDS = 1_000_000

BY_NAME = "To predict new records, name each before the fit: pm.Data('x', ...)."
BY_FORMULA = "To predict new records, give predict bambi's model and a data frame."


class Fits(NamedTuple):
    """Whether a method fits a model, and by which algorithm."""

    ok: bool
    reason: str  # why it fits, or why not
    # {variable: role}: what each latent and each term of the likelihood is to the updates; empty
    # where there are none
    roles: Mapping[str, str] = MappingProxyType({})
    # what runs where no option asks for another; None if the method does not fit
    algorithm: Algorithm | None = None
    better: str = ""  # why it is the method to take; empty where another is as good

    def __str__(self) -> str:
        by = [f"    by {self.algorithm}"] if self.algorithm else []
        roles = [f"    {name}: {role}" for name, role in self.roles.items()]
        return "\n".join([self.reason, *by, *roles])


@dataclasses.dataclass(frozen=True, repr=False)
class Explanation:
    """What `explain` found; prints as a text."""

    records: tuple[str, ...]  # the data that go by records
    # {method: Fits}: the class of models that it has updates for, or why the model belongs to
    # none
    methods: Mapping[str, Fits]
    recommended: tuple[str, str]  # the method to take, and why
    advice: tuple[str, ...] = ()  # on the data that the model is meant for, in sentences
    # {method: passes over all records by default}, for records in chunks
    passes: Mapping[str, float] = MappingProxyType({})
    # whether outcomes can be drawn, so that clipping is centred (docs/truth.md)
    centred: bool = False
    # {name: what it is and where it stands}: records in arrays that their author gave no name
    unnamed: Mapping[str, str] = MappingProxyType({})
    withheld: str = ""  # which deterministics the result will lack, and what to do
    new_records: str = ""  # what the author of the model does to predict new records

    @property
    def dp_advi(self) -> str:
        """Why the gradient methods and posterior sampling fit or do not fit."""
        return self.methods["dp_advi"].reason

    @property
    def vips(self) -> Fits:
        """What vips found."""
        return self.methods["vips"]

    @property
    def dp_sep(self) -> Fits:
        """What dp_sep found."""
        return self.methods["dp_sep"]

    def __str__(self) -> str:
        lines = ["Use method={!r}: {}.".format(*self.recommended), *self.advice]
        lines += [f"Records: one row of {', '.join(f'`{name}`' for name in self.records)}."]
        lines += [f"    `{name}` is {what}" for name, what in self.unnamed.items()]
        if self.unnamed:
            lines.append(f"    {self.new_records}")
        alike: dict[str, list[str]] = {}
        for name, fits in self.methods.items():
            alike.setdefault(str(fits), []).append(name)
        lines += [f"{', '.join(names)}: {_of(names, fits)}" for fits, names in alike.items()]
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
    model : pymc.Model, optional
        Inside ``with model:`` it may be left out.
    public, data, unit
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
    **Privacy.** Spends nothing. What fits is decided at made-up rows and points; the data are read
    only to check that the model can be fitted.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     y = pm.Bernoulli("y", p, observed=np.repeat([0, 1], [300, 700]))
    >>> print(pymc_dp.explain(model).vips)
    fits, as a model of conjugate blocks and mixtures.
        by stochastic variational Bayes on noisy expected sufficient statistics (Park et al. 2020)
        p: Beta block
        y: conjugate likelihood
    """
    formula, public = formula_of(model), [*public]
    doubtful = check_formula(formula, unit, public) if formula else []
    refuse_weights(formula, False)
    public = factors_left_out(formula, public)
    model = model_in_use(model)
    # without privacy the number of records is public
    budget = Budget(epsilon=math.inf, unit=unit)
    separated = separation(model, budget, public=tuple(public), data=data)
    records, checked = separated(constrained(model))
    private = checked()
    fits = {name: _fits(spec, records) for name, spec in METHODS.items()}
    over_chunks = _default_passes(records) if private.partitions > 1 else {}
    return Explanation(
        tuple(private.spec),
        fits,
        _recommended(fits, records, unit is not None),
        (
            *advice_on_counts(model, unit),
            *advice_on_rows(unit),
            *advice_on_groups(records, unit),
            *doubtful,
        ),
        over_chunks,
        records.outcomes is not None,
        records.unnamed,
        withheld_in_words(records.outputs.declarable),
        BY_FORMULA if formula else BY_NAME,
    )


def _of(names: Sequence[str], said: str) -> str:
    """Put a sentence on one method into the plural where it is on several."""
    return said if len(names) == 1 else re.sub("^fits", "fit", re.sub("^does", "do", said))


def _default_passes(records: Records) -> dict[str, float]:
    """Return the passes over chunks that each method makes by default, where it fits the model."""
    by_method = {}
    for name, spec in METHODS.items():
        try:
            options = spec.options(sampling=Poisson, num_records=MANY_RECORDS, noise=1.0, n=None)
            built = spec.build(records, options)
        except ValueError:  # the method does not fit, and its reason is given elsewhere
            continue
        # how many releases there are does not depend on the scales of latents
        while not isinstance(built, Method):
            built = built.build(records)
        by_method[name] = passes(built.releases, in_chunks=True)
    return by_method


def _recommended(fits: Mapping[str, Fits], records: Records, of_units: bool) -> tuple[str, str]:
    """Choose a method; docs/choosing.md says what the reasons were measured on."""
    mixed_numbers = of_numbers(records, of_units)
    for name in ("dp_sep", "vips"):
        if fits[name].better and not mixed_numbers:
            return name, fits[name].better
    if not fits["dp_advi"].ok:
        able = [name for name, found in fits.items() if found.ok and METHODS[name].private]
        if not able:
            raise NotSeparableError(f"No method fits. dp_advi {fits['dp_advi'].reason}")
        return able[0], "the other methods refuse the latents of single records"
    if records.local_latents:
        names = ", ".join(f"`{name}`" for name in records.local_latents)
        return "dp_advi", f"it integrates {names} out by {rule_in_words(records)}"
    if mixed_numbers:
        return "dp_advi", (
            "histograms of the outcomes find the components of a mixture, wherever they start"
        )
    if fits["vips"].ok or fits["dp_sep"].ok:
        return "dp_advi", "a few rounds of centred scores serve as well as updates in closed form"
    return "dp_advi", "it needs gradients alone, whatever the distributions"


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
