"""What the settings of methods have in common."""

from collections.abc import Iterable
from numbers import Real
from typing import Any

from pymc_dp.release import Release


def check_numbers(settings: Any, needed: Iterable[str], optional: Iterable[str]) -> None:
    """Refuse options that are not numbers, and a bound on features that is not positive."""
    values = {name: getattr(settings, name) for name in (*needed, *optional)}
    for name, value in values.items():
        if not isinstance(value, Real) and not (name in optional and value is None):
            raise ValueError(f"{name}={value!r} must be a number.")
    if not settings.feature_bound > 0:
        raise ValueError(f"feature_bound={settings.feature_bound!r} must be above 0.")


def aware_of(noise_aware: Any, noise: float) -> bool:
    """Whether a posterior is to include the noise: there must be some.

    Raises
    ------
    TypeError
        ``noise_aware`` is neither True nor False.
    """
    if not isinstance(noise_aware, bool):
        raise TypeError(f"noise_aware={noise_aware!r} must be True or False.")
    return noise_aware and noise > 0


def one_release(
    name: str, settings: Any, count: int, clip_norm: float, sample_rate: float
) -> Release:
    """Describe equal releases: what the settings say, else the defaults given here."""
    rate = sample_rate if settings.sample_rate is None else float(settings.sample_rate)
    clip = clip_norm if settings.clip_norm is None else float(settings.clip_norm)
    count = count if settings.n is None else settings.n
    return Release(name, settings.sampling, rate, clip, settings.noise, count)
