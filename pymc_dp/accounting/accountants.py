"""The accountants that a caller can name.

``"pld"``
    Privacy loss distributions (dp-accounting): the tightest; nothing for fixed-size batches.
``"rdp"``
    Rényi divergences (autodp). Its routes through characteristic functions ("phi", AFA) are
    never taken: with today's SciPy they return a negative epsilon and no error.
``"rdp_dp_accounting"``
    Rényi divergences (dp-accounting), as a second opinion.
"""

from pymc_dp.accounting.accountant import Accountant
from pymc_dp.accounting.privacy_loss import COARSE_GRID, CentralLimit, Pld
from pymc_dp.accounting.renyi import Rdp, RdpDpAccounting

PLD, RDP, RDP_DP_ACCOUNTING = Pld(), Rdp(), RdpDpAccounting()
COARSE_PLD, CENTRAL_LIMIT = Pld(COARSE_GRID), CentralLimit()
# what a caller's accountant= names, the tightest first
ACCOUNTANTS: dict[str, Accountant] = {each.name: each for each in (PLD, RDP_DP_ACCOUNTING, RDP)}


def accountant_named(name: str) -> Accountant:
    """Return the accountant that a caller's ``accountant=`` names."""
    if name not in ACCOUNTANTS:
        raise ValueError(f"accountant={name!r} is unknown: use one of {sorted(ACCOUNTANTS)}.")
    return ACCOUNTANTS[name]
