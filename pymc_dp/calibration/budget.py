"""The privacy side of a call: what may be spent, under which terms."""

import dataclasses
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from pymc_dp.accounting.accountants import accountant_named
from pymc_dp.accounting.plan import (
    ANY_DELTA,
    GAUSSIAN,
    Neighbours,
    Plan,
    ReleaseSpec,
    check_count,
    checked_number,
)
from pymc_dp.calibration.noise_search import calibrate_plan
from pymc_dp.errors import PrivacyWarning
from pymc_dp.sampling.samplers import Full, Sampler, sampler_named

LOW_NOISE = 0.5  # noise over sensitivity that is warned about


@dataclass(frozen=True)
class Budget:
    """What a fit may spend: terms that were checked, whose text becomes values here.

    >>> Budget(noise_multiplier=4.0, delta=1e-5).terms.neighbours
    <Neighbours.ADD_REMOVE: 'add_remove'>
    """

    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | None = None
    neighbours: str = "add_remove"
    sampling: str = "poisson"
    accountant: str = "pld"
    num_records: int | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError(
                "Give exactly one of epsilon= (the budget; the noise is found for it) and "
                "noise_multiplier= (the noise; the budget follows)."
            )
        for name in ("epsilon", "delta", "noise_multiplier"):
            object.__setattr__(self, name, checked_number(name, getattr(self, name)))
        if self.epsilon is not None and not self.epsilon > 0:
            raise ValueError(f"epsilon={self.epsilon!r} must be above 0, or infinite for no noise.")
        if self.noise_multiplier is not None and not 0 <= self.noise_multiplier < math.inf:
            raise ValueError(
                f"noise_multiplier={self.noise_multiplier!r} must be finite and at least 0."
            )
        if self.num_records is not None:
            check_count("num_records", self.num_records, most=10**15)
        if self.delta is None and self.noisy:
            raise ValueError(
                "delta= is missing: the probability with which epsilon may fail, such as 1e-5. "
                "Take it well below one over the number of records."
            )

    @property
    def noisy(self) -> bool:
        """Whether there is any noise: without it a fit is not private."""
        return self.epsilon != math.inf and self.noise_multiplier != 0

    @property
    def noise_of_one(self) -> float:
        """The noise multiplier of one release with the whole budget, or the given one."""
        if self.epsilon is None:
            return self.noise_multiplier or 0.0
        terms, whole = dataclasses.replace(self, unit=None).terms, ReleaseSpec("", Full(), 1.0, 1)
        try:
            return calibrate_plan(terms, [whole], self.epsilon).releases[0].noise_multiplier
        except ValueError:  # no proof covers such a release; that of other releases may
            return math.inf

    @property
    def sampler(self) -> type[Sampler]:
        """The kind of sampler, whose rate is the method's to choose."""
        return sampler_named(self.sampling)

    @property
    def terms(self) -> Plan:
        """A plan without releases yet."""
        return Plan(
            (),
            Neighbours(self.neighbours),
            ANY_DELTA if self.delta is None else self.delta,
            accountant_named(self.accountant),
            self.num_records,
            self.unit,
        )

    def settle(self, specs: Sequence[ReleaseSpec]) -> Plan:
        """Turn what a method asks for into the plan of a fit, if a proof covers it."""
        if self.epsilon is not None:
            plan = calibrate_plan(self.terms, specs, self.epsilon)
        else:
            plan = self.terms.granting(specs, self.noise_multiplier or 0.0)
        warn_if_weak(plan)
        return plan


def warn_if_weak(plan: Plan) -> None:
    """Warn where the noise is so low, or delta so large, that the guarantee is weak."""
    if plan.num_records is not None and plan.delta * plan.num_records >= 1:
        _warn(
            f"delta={plan.delta:g} is not below 1/num_records: a method that publishes one whole "
            "record at random would be allowed it. Give a smaller delta."
        )
    for release in plan.releases:
        noise = plan.noise(release)
        if release.mechanism == GAUSSIAN and 0 < noise < LOW_NOISE:
            _warn(
                f"Release {release.name!r} has noise_multiplier={release.noise_multiplier:.4g}, "
                f"which is {noise:.4g} of its sensitivity under "
                f"neighbours={plan.neighbours.value!r}: below {LOW_NOISE} one release says much "
                "about whether a record is in its batch. Give more noise (a smaller epsilon, or "
                "fewer releases)."
            )


def _warn(text: str) -> None:
    warnings.warn(text, PrivacyWarning, stacklevel=5)
