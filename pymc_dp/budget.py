"""The privacy side of a call: what may be spent, under which terms."""

import math
from dataclasses import dataclass
from typing import Any

from pymc_dp.accounting import calibrate_plan
from pymc_dp.plans import Plan
from pymc_dp.release import Release, check_count, scale

# delta of a fit without privacy, where its value says nothing
ANY_DELTA = 1e-5


@dataclass(frozen=True)
class Budget:
    """What a fit may spend: exactly one of ``epsilon`` and ``noise_multiplier``.

    Parameters
    ----------
    epsilon, delta, noise_multiplier, neighbours, sampling, accountant, num_records, unit
        As in `pymc_dp.fit`.

    Raises
    ------
    ValueError, TypeError
        A value is missing, out of its range, or no number.

    Examples
    --------
    >>> Budget(noise_multiplier=4.0, delta=1e-5).relative_noise
    1.0
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
            refuse_text(name, getattr(self, name))
        if self.epsilon is not None and not self.epsilon > 0:
            raise ValueError(f"epsilon={self.epsilon!r} must be above 0, or infinite for no noise.")
        if self.noise_multiplier is not None and not 0 <= self.noise_multiplier < math.inf:
            raise ValueError(
                f"noise_multiplier={self.noise_multiplier!r} must be finite and at least 0."
            )
        if self.num_records is not None:
            check_count("num_records", self.num_records)
        if self.delta is None and self.relative_noise:
            raise ValueError(
                "delta= is missing: the probability with which epsilon may fail, such as 1e-5. "
                "Take it well below one over the number of records."
            )

    @property
    def relative_noise(self) -> float:
        """What a release's noise multiplier is before calibration: 1, or 0 without noise."""
        return 0.0 if self.epsilon == math.inf or self.noise_multiplier == 0 else 1.0

    def settle(self, releases: tuple[Release, ...]) -> Plan:
        """Turn a method's releases, with their relative noise, into the plan of a fit.

        Raises
        ------
        ValueError
            No proof covers the terms, or the accountants cannot grip the noise.
        """
        delta = ANY_DELTA if self.delta is None else self.delta
        terms = (self.neighbours, delta, self.accountant, self.num_records, self.unit)
        if self.epsilon is not None:
            # the floor of the noise is for the plan that is found, not for relative multipliers
            least = min((r.noise_multiplier for r in releases if r.noise_multiplier), default=1.0)
            return calibrate_plan(Plan(scale(releases, max(1.0, 1 / least)), *terms), self.epsilon)
        return Plan(scale(releases, self.noise_multiplier or 1.0), *terms)


def refuse_text(name: str, value: Any) -> None:
    """Refuse a string where a number is asked for."""
    if isinstance(value, str):
        raise TypeError(f"{name}={value!r} is text: give a number, without quotes.")
