"""The accountants that a caller can name.

``"pld"``
    Privacy loss distributions (dp-accounting): the tightest; nothing for fixed-size batches.
``"rdp"``
    Rényi divergences (autodp). Its routes through characteristic functions ("phi", AFA) are
    never taken: with today's SciPy they return a negative epsilon and no error.
``"rdp_dp_accounting"``
    Rényi divergences (dp-accounting), as a second opinion.
"""

from functools import partial

from pymc_dp.accounting import privacy_loss, renyi
from pymc_dp.accounting.accountant import FIXED_SIZE, FULL, POISSON, POISSON_REPLACED, Accountant

PLD = Accountant(
    "pld",
    privacy_loss.by_losses,
    FULL | POISSON | POISSON_REPLACED,
    smallest_delta=privacy_loss.SMALLEST_PLD_DELTA,
    doubles=True,
)
COARSE_PLD = PLD._replace(of_sums=partial(privacy_loss.by_losses, grid=privacy_loss.COARSE_GRID))
CENTRAL_LIMIT = Accountant("central limit", privacy_loss.by_central_limit)
RDP = Accountant("rdp", renyi.by_autodp, FULL | POISSON | FIXED_SIZE, package="autodp")
RDP_DP_ACCOUNTING = Accountant(
    "rdp_dp_accounting", renyi.by_dp_accounting, RDP.proved, warn_if_loose=renyi.warn_of_orders
)
# what a caller's accountant= names, the tightest first
ACCOUNTANTS: dict[str, Accountant] = {each.name: each for each in (PLD, RDP_DP_ACCOUNTING, RDP)}


def accountant_named(name: str) -> Accountant:
    """Return the accountant that a caller's ``accountant=`` names."""
    if name not in ACCOUNTANTS:
        raise ValueError(f"accountant={name!r} is unknown: use one of {sorted(ACCOUNTANTS)}.")
    return ACCOUNTANTS[name]
