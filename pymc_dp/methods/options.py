"""What a method is built with: the terms of the fit and the caller's own options.

Every option stands in one place: a field of the method's `Options`, with its type, its default and
a line of documentation. Checks, error messages, the help of `pymc_dp.fit` and tables of the
documentation read it there.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType
from typing import Any, ClassVar, get_args, get_origin

from pymc_dp.accounting.plan import ReleaseSpec, check_count, checked_number
from pymc_dp.sampling.samplers import FixedSize, Sampler

Schedule = float | Callable[[int], float]  # a number, or one for every step

SAMPLE_RATE = "share of records in a batch"
CLIP_NORM = (
    "how much one record may count: a larger one cuts fewer of them short, and adds more noise; "
    "without noise none is cut by default"
)
NOISE_AWARE = "``False`` leaves the privacy noise out of the posterior"


def option(default: Any, doc: str) -> Any:
    """Declare a keyword of the caller: its default, and one line that says what it is."""
    return dataclasses.field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, kw_only=True)
class Options:
    """The terms that every method is given; methods add fields with `option`."""

    sampling: type[Sampler]
    num_records: int | None  # as in `pymc_dp.fit`: of records, or of units
    # noise multiplier of a single release with the whole budget; 0 for a fit without noise
    noise: float
    n: int | None = None
    of_units: bool = False  # whether a unit of several records is clipped as one

    def __post_init__(self) -> None:
        for name, field in self.keywords().items():
            object.__setattr__(self, name, _checked(name, field.type, getattr(self, name)))
        if not self.noisy and getattr(self, "noise_aware", False):
            object.__setattr__(self, "noise_aware", False)  # there is no noise

    @classmethod
    def keywords(cls) -> "dict[str, dataclasses.Field[Any]]":
        """Return the caller's keywords, by name."""
        return {f.name: f for f in dataclasses.fields(cls) if "doc" in f.metadata}

    @property
    def noisy(self) -> bool:
        """Whether releases have noise."""
        return self.noise > 0

    @property
    def records_in_sums(self) -> int | None:
        """The declared number of records that a sum over all of them holds; None if not known.

        Of units it is not: a unit of many records may be clipped to less than they add.
        """
        return None if self.of_units else self.num_records

    @property
    def rules_out_rounds(self) -> bool:
        """Whether the caller has set an option that rounds in whitened coordinates do not have.

        Rounds take all records, so batches of a fixed size are such an option, too.
        """
        set_by_caller = any(
            getattr(self, name) != each.default
            for name, each in self.keywords().items()
            if name not in {"noise_aware", "weights"}
        )
        return set_by_caller or self.sampling is FixedSize

    def default_clip_norm(self, clip_norm: float) -> float:
        """Return a default, or infinity where there is no noise: clipping would only be a bias."""
        return clip_norm if self.noisy else math.inf


@dataclass(frozen=True, kw_only=True)
class BatchOptions(Options):
    """Options of methods whose releases are all alike."""

    released: ClassVar[str]  # the name of the releases

    clip_norm: float | None = option(None, CLIP_NORM)
    sample_rate: float | None = option(None, SAMPLE_RATE)

    def release_spec(self, count: int, clip_norm: float, sample_rate: float = 1.0) -> ReleaseSpec:
        """Describe the releases: as the options say, else by the defaults given here."""
        rate = sample_rate if self.sample_rate is None else float(self.sample_rate)
        clip = self.clip_norm
        clip = self.default_clip_norm(clip_norm) if clip is None else float(clip)
        count = count if self.n is None else self.n
        return ReleaseSpec(self.released, self.sampling(rate), clip, count)


def _checked(name: str, declared: Any, value: Any) -> Any:
    """Refuse a value that is not of the type which an option declares; numbers become floats."""
    kinds = get_args(declared) or (declared,)
    if value is None and NoneType in kinds:
        return None
    if bool in kinds and not isinstance(value, bool):
        raise TypeError(f"{name}={value!r:.40} must be True or False.")
    if int in kinds:
        check_count(name, value)
    if str in kinds and not isinstance(value, str):
        raise TypeError(f"{name}={value!r:.40} must be text.")
    schedule = callable(value) and any(get_origin(kind) is not None for kind in kinds)
    if float in kinds and not schedule:
        if value is None:
            raise TypeError(f"{name}=None is no number: leave it out for the default.")
        return checked_number(name, value)
    return value
