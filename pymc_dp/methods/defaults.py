"""Settings of gradient methods that follow from public numbers alone."""

from typing import NamedTuple

from pymc_dp.sampling.samplers import Full, Sampler


class Defaults(NamedTuple):
    """Tuned constants of gradient methods; public numbers."""

    # clip norm: over the square root of the number of latents, and its range
    clip_norm: float = 0.6
    clip_norm_range: tuple[float, float] = (1.0, 10.0)
    # large batches and few steps win at small epsilon; huge data need no tenth of them
    sample_rate: float = 0.1
    least_sample_rate: float = 1e-4
    batch: int = 20_000


DEFAULTS = Defaults()


def default_clip_norm(size: int, draws: int = 1) -> float:
    """Return about the norm of ``draws`` scores whose features have unit scale.

    A clip norm below it biases; one above it only adds noise.
    """
    least, most = DEFAULTS.clip_norm_range
    return min(max(least, DEFAULTS.clip_norm * float(size**0.5)), most) * float(draws**0.5)


def default_sample_rate(sampling: type[Sampler], num_records: int | None) -> float:
    """Return the share of records in a batch."""
    if sampling is Full:
        return 1.0
    if num_records is None:
        return DEFAULTS.sample_rate
    return min(DEFAULTS.sample_rate, max(DEFAULTS.batch / num_records, DEFAULTS.least_sample_rate))
