"""Which event a release of one batch is to an accountant, by how its rows are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pymc_dp.sampling.samplers import FixedSize, Full, Poisson, Sampler

if TYPE_CHECKING:
    from dp_accounting import DpEvent


def event_of_batch(sampler: Sampler, release: DpEvent, num_records: int | None) -> DpEvent:
    """Describe a release of one batch; a batch of every row is not amplified."""
    import dp_accounting as dp

    if isinstance(sampler, Full) or sampler.effective_rate(num_records) == 1:
        return release
    if isinstance(sampler, Poisson):
        return dp.PoissonSampledDpEvent(sampler.rate, release)
    if isinstance(sampler, FixedSize) and num_records is not None:
        size = sampler.batch_size(num_records)
        return dp.SampledWithoutReplacementDpEvent(num_records, size, release)
    if isinstance(sampler, FixedSize):
        raise ValueError("Batches of fixed size are amplified only over a known num_records.")
    raise ValueError(f"No event is known for batches drawn by {type(sampler).__name__}.")
