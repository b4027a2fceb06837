"""How the rows of one batch are drawn, and what each way of drawing can claim.

A sampling is a name: ``"poisson"`` takes each row independently, ``"fixed_size"`` takes
a uniform subset of a fixed size, ``"full"`` takes every row. Shuffled epochs are missing
on purpose: they are not amplified by sampling, however often this is claimed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dp_accounting import DpEvent

_EVERY_ACCOUNTANT = ("pld", "rdp", "rdp_dp_accounting")

# sampling -> neighbours -> the accountants that have a proof for the pair
SUPPORTED: dict[str, dict[str, tuple[str, ...]]] = {
    "poisson": {
        "add_remove": _EVERY_ACCOUNTANT,
        "zero_out": _EVERY_ACCOUNTANT,
        "replace_one": ("pld",),
    },
    "fixed_size": {"replace_one": ("rdp", "rdp_dp_accounting")},
    "full": {
        "add_remove": _EVERY_ACCOUNTANT,
        "zero_out": _EVERY_ACCOUNTANT,
        "replace_one": _EVERY_ACCOUNTANT,
    },
}


def batch_size(num_rows: int, sample_rate: float) -> int:
    """Rows in a batch of fixed size: the nearest integer to ``sample_rate * num_rows``, or 1.

    Examples
    --------
    >>> batch_size(3341, 0.02)
    67
    """
    return max(1, round(sample_rate * num_rows))


def effective_rate(sampling: str, sample_rate: float, num_records: int | None) -> float:
    """Rate at which a record is really drawn: a batch of fixed size holds whole rows."""
    if sampling != "fixed_size" or num_records is None:
        return sample_rate
    return batch_size(num_records, sample_rate) / num_records


def sampled(
    sampling: str, sample_rate: float, gaussian: DpEvent, num_records: int | None
) -> DpEvent:
    """Describe a Gaussian release of one batch; a batch of every row is not amplified."""
    import dp_accounting as dp

    if effective_rate(sampling, sample_rate, num_records) == 1:
        return gaussian
    if sampling == "poisson":
        return dp.PoissonSampledDpEvent(sample_rate, gaussian)
    if num_records is None:
        raise ValueError("Batches of fixed size are amplified only over a known num_records.")
    size = batch_size(num_records, sample_rate)
    return dp.SampledWithoutReplacementDpEvent(num_records, size, gaussian)


def draw(sampling: str, rng: np.random.Generator, num_rows: int, sample_rate: float) -> np.ndarray:
    """Draw the rows of one batch.

    Parameters
    ----------
    sampling : {"poisson", "fixed_size", "full"}
        How rows are chosen.
    rng : numpy.random.Generator
        The source of randomness; for a guarantee it must be cryptographic and its
        state must stay secret.
    num_rows : int
        Rows in the data.
    sample_rate : float
        The probability of a row to be in the batch.

    Returns
    -------
    ndarray of int64, shape (batch,)
        Sorted row indices. A Poisson batch may be empty, and may hold every row.

    Raises
    ------
    ValueError
        The sampling is unknown, or a batch of fixed size is asked of no rows.

    Notes
    -----
    **Privacy.** Poisson sampling is exact: a Binomial(num_rows, sample_rate) size, then a
    uniform subset of that size, is the same as one independent coin per row. The batch is
    never cut to a maximum size; a cut would void the amplification. The accountants assume
    that the drawn rows, their number included, stay secret.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> draw("full", rng, 4, 1.0)
    array([0, 1, 2, 3])
    >>> len(draw("fixed_size", rng, 1000, 0.1))
    100
    """
    size = _draw_size(sampling, rng, num_rows, sample_rate)
    if size == num_rows:
        return np.arange(num_rows, dtype=np.int64)
    rows = rng.choice(num_rows, size, replace=False, shuffle=False)
    return np.sort(rows, kind="stable")  # in order, so that memory maps are read forward


def _draw_size(sampling: str, rng: np.random.Generator, num_rows: int, sample_rate: float) -> int:
    if sampling == "full":
        return num_rows
    if sampling == "poisson":
        return int(rng.binomial(num_rows, sample_rate))
    if sampling != "fixed_size":
        raise ValueError(unknown_sampling(sampling))
    if num_rows == 0:
        raise ValueError("sampling='fixed_size' needs at least one row of data, and there is none.")
    return batch_size(num_rows, sample_rate)


def unknown_sampling(sampling: str) -> str:
    """Say that a sampling does not exist, and which ones do."""
    return (
        f"sampling={sampling!r} is unknown: use 'poisson', 'fixed_size' or 'full'. "
        "Shuffled epochs are not offered, because shuffling does not amplify privacy as "
        "sampling does."
    )


def check_supported(sampling: str, neighbours: str, accountant: str) -> None:
    """Refuse a combination that no proof covers, and name those that one does."""
    if accountant in SUPPORTED[sampling].get(neighbours, ()):
        return
    supported = "; ".join(
        f"neighbours={pair!r} with accountant={' or '.join(map(repr, accountants))}"
        for pair, accountants in SUPPORTED[sampling].items()
    )
    raise ValueError(
        f"No proof covers sampling={sampling!r} under neighbours={neighbours!r} with "
        f"accountant={accountant!r}. For sampling={sampling!r} use {supported}."
    )
