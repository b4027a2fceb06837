"""Everything that is settled before any budget is spent; also as a dry run."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import pymc as pm

from pymc_dp.budget import Budget
from pymc_dp.methods import advi
from pymc_dp.methods.method import Method
from pymc_dp.plans import Plan
from pymc_dp.records import Column, Records, separate
from pymc_dp.release import check_count

METHODS: dict[str, Callable[..., Method]] = {**advi.METHODS}

# keywords of pm.fit that would carry data into a fit, or out of it
REFUSED = {
    "start": "a start can be computed from data: give public_start= if it is public",
    "start_sigma": "a start can be computed from data",
    "inf_kwargs": "they can carry a start that was computed from data",
    "score": "the loss is a sum over private records",
    "more_updates": "they would be computed from private gradients",
    "more_obj_params": "they would be fitted to private gradients",
    "total_grad_norm_constraint": "clipping is per record here: give clip_norm=",
}
# what a method's builder gets from the driver; the rest of its keywords are the user's
FROM_DRIVER = {"records", "family", "sampling", "num_records", "noise", "n"}
# keywords of fit that do not change the plan
WHILE_RUNNING = {"random_seed", "draws", "progressbar", "callbacks", "backend"}


class Prepared(NamedTuple):
    """A model split into records, the method built for it and the plan that it must obey."""

    records: Records
    columns: dict[str, Column]
    method: Method
    plan: Plan


def prepare(
    model: pm.Model,
    method: str,
    n: int | None,
    budget: Budget,
    options: Mapping[str, Any],
    *,
    public: Iterable[str] = (),
    data: Mapping[str, Any] | None = None,
    public_start: Mapping[str, Any] | None = None,
) -> Prepared:
    """Check every input of a fit and settle its plan."""
    build = _builder(method, options)
    if n is not None:
        check_count("n", n)
    records, columns = separate(model, data=data, public=public, start=public_start)
    chosen = build(
        records,
        sampling=budget.sampling,
        num_records=budget.num_records,
        noise=budget.relative_noise,
        n=n,
        **options,
    )
    return Prepared(records, columns, chosen, budget.settle(chosen.releases))


def _builder(method: str, options: Mapping[str, Any]) -> Callable[..., Method]:
    name = method.lower() if isinstance(method, str) else method
    if name not in METHODS:
        raise ValueError(f"method={method!r} is unknown: use one of {sorted(METHODS)}.")
    known = sorted(set(inspect.signature(METHODS[name]).parameters) - FROM_DRIVER)
    for option in options:
        if option in REFUSED:
            raise ValueError(f"{option}= is refused in a private fit: {REFUSED[option]}.")
        if option not in known:
            raise TypeError(f"{option!r} is an unknown keyword; {name} takes {known}.")
    return METHODS[name]


@dataclasses.dataclass(frozen=True)
class DryRun:
    """What a fit would cost, and how noisy it would be.

    Attributes
    ----------
    plan : Plan
    epsilon, delta : float
        What the whole fit would cost.
    noise_sd : float
        Standard deviation of the noise on the estimated sum of all records' contributions
        (clip_norm * noise_multiplier / sample_rate), in the first release.
    noise_to_signal : float
        The noise's norm over the largest norm that the sum of ``num_records`` clipped
        contributions can have; nan if ``num_records`` was not given. Near 1 and above, one
        release says little.
    """

    plan: Plan
    epsilon: float
    delta: float
    noise_sd: float
    noise_to_signal: float

    def __str__(self) -> str:
        first = self.plan.releases[0]
        return (
            f"{self.plan.total} releases cost epsilon={self.epsilon:.4g} at delta={self.delta:g} "
            f"({self.plan.neighbours}, {self.plan.accountant}); noise multiplier "
            f"{first.noise_multiplier:.4g}, noise on the sum {self.noise_sd:.4g}, "
            f"noise to largest signal {self.noise_to_signal:.2g}."
        )


def plan(
    model: pm.Model | None = None,
    n: int | None = None,
    method: str = "dp_advi",
    *,
    public: Iterable[str] = (),
    data: Mapping[str, Any] | None = None,
    public_start: Mapping[str, Any] | None = None,
    **settings: Any,
) -> DryRun:
    """Do a dry run: check a fit's inputs and say what it would cost, spending nothing.

    Parameters
    ----------
    model, n, method, public, data, public_start, **settings
        As in `pymc_dp.fit`; keywords that do not change the plan may be given too.

    Returns
    -------
    DryRun

    Raises
    ------
    ValueError, TypeError
        Whatever the fit would raise before its first release.

    Notes
    -----
    **Privacy.** Reads no data beyond checking that the model can be fitted.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     y = pm.Bernoulli("y", p, observed=np.repeat([0, 1], [300, 700]))
    >>> dry = pymc_dp.plan(model, epsilon=1, delta=1e-5, num_records=1000)
    >>> dry.plan.total, round(dry.epsilon, 2)
    (200, 1.0)
    """
    settings = {key: value for key, value in settings.items() if key not in WHILE_RUNNING}
    fields = {field.name for field in dataclasses.fields(Budget)}
    budget = Budget(**{key: value for key, value in settings.items() if key in fields})
    options = {key: value for key, value in settings.items() if key not in fields}
    prepared = prepare(
        pm.modelcontext(model),
        method,
        n,
        budget,
        options,
        public=public,
        data=data,
        public_start=public_start,
    )
    first = prepared.plan.releases[0]
    # 0 without noise, also where the clip norm is infinite
    noise = first.noise_multiplier and first.noise_multiplier / first.sample_rate
    largest = (budget.num_records or float("nan")) / prepared.method.size**0.5
    return DryRun(
        plan=prepared.plan,
        epsilon=prepared.plan.epsilon(),
        delta=prepared.plan.delta,
        noise_sd=noise and noise * first.clip_norm,
        noise_to_signal=noise / largest,
    )
