"""The label of a release on one page: what a reader must know, in a few lines."""

import json
import textwrap

import xarray as xr

from pymc_dp.filing.attack import attack_bounds
from pymc_dp.filing.balance import LedgerState
from pymc_dp.filing.proofs import pages_of
from pymc_dp.results.report import neighbours_in_words

WIDTH = 48
INDENT = "   "


def label_of(privacy: xr.Dataset, ledger: LedgerState | None) -> str:
    """Return the lines of the label, from a ``privacy`` group of a finite epsilon."""
    rows = _rows(privacy, ledger).items()
    lines = [
        textwrap.fill(f"{name}: {text}", WIDTH, subsequent_indent=INDENT) for name, text in rows
    ]
    return "\n".join(lines)


def _rows(privacy: xr.Dataset, ledger: LedgerState | None) -> dict[str, str]:
    attrs, bounds = privacy.attrs, attack_bounds(privacy)
    made = f"{attrs['method']}, {attrs['releases']} releases, {attrs['mechanism']}"
    attack = bounds and (
        f"of guesses between two equally likely data sets at most {bounds.correct:.1%} are right; "
        f"at 1% false positives at most {bounds.true_positives[0.01]:.1%} of positives are found"
    )
    released = [name for name in json.loads(attrs["released"]) if name != "privacy"]
    left = "no ledger was given"
    if ledger is not None:
        left = (
            f"at least {ledger.left:.3g} of {ledger.epsilon:g} at delta {ledger.delta:g} "
            f"({ledger.dataset}, {ledger.fits} fits)"
        )
    return {
        "Epsilon": f"{attrs['epsilon']:.3g}   Delta: {attrs['delta']:.3g}",
        "Protects": f"one {attrs['privacy_unit']}; {neighbours_in_words(attrs)}",
        "Released": ", ".join(released),
        "By": made,
        "Attack success": attack or "no bound",
        "Left in the ledger": left,
        "Numerics": f"{attrs['numerics']}; {attrs['rng']}",
        "Proofs": f"{', '.join(pages_of(attrs))} of pymc_dp {attrs['pymc_dp_version']}",
    }
