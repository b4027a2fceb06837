"""The ledger that a caller names: an object, or the path of its file."""

import os
from pathlib import Path

from pymc_dp.ledger.ledger import Ledger


def open_ledger(ledger: Ledger | str | os.PathLike[str] | None) -> Ledger | None:
    """Return a ledger, or open the one at a path; it must exist, since a new one needs terms."""
    if ledger is None or isinstance(ledger, Ledger):
        return ledger
    if not isinstance(ledger, str | os.PathLike):
        raise TypeError(f"ledger={ledger!r} must be a pymc_dp.Ledger, or the path of one.")
    if not Path(ledger).exists():
        raise ValueError(
            f"ledger={os.fspath(ledger)!r} does not exist: create it with its terms, "
            "pymc_dp.Ledger(path, epsilon=..., delta=..., dataset=...)."
        )
    return Ledger(ledger)
