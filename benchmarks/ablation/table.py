"""Tables of what halved and doubled constants, and stages switched off, change."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.ablation.constants import Constant

# what is no change: of the width, and of the mean or of its error in the fit's own sds
LEAST_WIDTH, LEAST_SDS = 0.01, 0.05
HEADER = (
    "| constant | value | cells | half: width | error | moved | double: width | error | moved |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


class Changes(NamedTuple):
    """How one fit differs from that of the defaults."""

    width: float  # median over coefficients of the logarithm of the ratio of sds
    error: float  # change of the root mean square of |mean - reference| / own sd
    moved: float  # largest distance of the means, in sds of the defaults' fit
    doubts: int
    failed: bool = False

    @property
    def is_nothing(self) -> bool:
        """Whether it is too little to see."""
        small = abs(self.width) < LEAST_WIDTH and self.moved < LEAST_SDS and not self.failed
        return small and self.doubts == 0


def changes(own: dict[str, Any], label: str) -> Changes:
    """Compare a fit with that of the defaults."""
    base, other = own["base"], own[label]
    if "error" in other or "error" in base:
        return Changes(np.nan, np.nan, np.nan, 0, "error" not in base)
    (m, s), (n, t) = (tuple(np.array(fit[k]) for k in ("mean", "sd")) for fit in (base, other))
    width = float(np.median(np.log(t / s)))
    moved = float(np.max(abs(n - m) / s))
    truth = np.array(own["reference"]["mean"] or own["reference"]["truth"])
    error = float(_rms((n - truth) / t) - _rms((m - truth) / s))
    return Changes(width, error, moved, other["doubts"] - base["doubts"])


def _rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(x**2)))


def table(found: dict[str, Any], every: Sequence[Constant], switches: Sequence[str]) -> str:
    """Write a line for each constant, and for each switch."""
    lines = [HEADER, *(_line(found, c.name, f"{c.value:g}") for c in every)]
    lines += ["", "| without | cell | width | error | moved |", "|---|---|---|---|---|"]
    for name in switches:
        for cell, own in found.items():
            if name in own and not (c := changes(own, name)).is_nothing:
                text = "fails" if c.failed else f"{c.width:+.0%} | {c.error:+.2f} | {c.moved:.2f}"
                lines.append(f"| {name} | {cell} | {text} |")
    return "\n".join(lines)


def _line(found: dict[str, Any], label: str, value: str) -> str:
    tried = {f"{label} {name}" for name in ("half", "double")}
    cells = sum(bool(tried & own.keys()) for own in found.values())
    halves = [_summary(found, f"{label} {name}") for name in ("half", "double")]
    return f"| {label} | {value} | {cells} | {halves[0]} | {halves[1]} |"


def _summary(found: dict[str, Any], label: str) -> str:
    every = [changes(own, label) for own in found.values() if label in own]
    failed = sum(c.failed for c in every)
    good = [c for c in every if np.isfinite(c.width)]
    if not good:
        return f"fails ({failed}) | | " if failed else "| | "
    width, error = (np.array([getattr(c, part) for c in good]) for part in ("width", "error"))
    moved = max(c.moved for c in good)
    more = f", fails in {failed}" if failed else ""
    doubts = sum(c.doubts != 0 for c in good)
    more += f", doubts in {doubts}" if doubts else ""
    if all(c == Changes(0, 0, 0, 0) for c in every):
        return "0 | 0 | 0"
    return (
        f"{width.min():+.0%} to {width.max():+.0%}{more} | "
        f"{error.min():+.2f} to {error.max():+.2f} | {moved:.2f}"
    )
