"""What a method is built with and for: options, classes of models, reasons to refuse a model.

Every option is a field of the method's `Options`: checks, errors, the help of `pymc_dp.fit` and the
documentation read it there. Of a method's classes the first that recognises a model builds it.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, NoneType
from typing import Any, ClassVar, NamedTuple, get_args, get_origin

from pytensor.graph.utils import MethodNotDefined

from pymc_dp.accounting.plan import Full, ReleaseSpec, Sampler, check_count, checked_number
from pymc_dp.contributions.local_latents import MOST_LATENTS, size_of_locals
from pymc_dp.errors import NotSeparableError
from pymc_dp.methods.method import Method, OnScale, draw_nothing, quoted
from pymc_dp.model import Records

Schedule = float | Callable[[int], float]  # a number, or one for every step
SAMPLE_RATE = "share of records in a batch"

CLIP_NORM = (
    "how much one record may count: a larger one cuts fewer of them short, and adds more noise; "
    "without noise none is cut by default"
)

NOISE_AWARE = "``False`` leaves the privacy noise out of the posterior"


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


def option(default: Any, doc: str, limits: tuple[float, float] | None = None) -> Any:
    """Declare a keyword of the caller: default, one line that says what it is, closed range."""
    return dataclasses.field(default=default, metadata={"doc": doc, "limits": limits})


@dataclass(frozen=True, kw_only=True)
class Options:
    """The terms that every method is given; methods add fields with `option`."""

    sampling: type[Sampler]
    num_records: int | None  # as in `pymc_dp.fit`: of records, or of units
    noisy: bool  # whether releases have noise
    n: int | None = None
    of_units: bool = False  # whether a unit of several records is clipped as one

    def __post_init__(self) -> None:
        for name, field in self.keywords().items():
            value = _checked(name, field.type, getattr(self, name))
            limits = field.metadata["limits"]
            if limits and value is not None and not limits[0] <= value <= limits[1]:
                raise ValueError(f"{name}={value!r} must lie between {limits[0]} and {limits[1]}.")
            object.__setattr__(self, name, value)

    @classmethod
    def keywords(cls) -> "dict[str, dataclasses.Field[Any]]":
        """Return the caller's keywords, by name."""
        return {f.name: f for f in dataclasses.fields(cls) if "doc" in f.metadata}

    @property
    def records_in_sums(self) -> int | None:
        """The declared number of records that a sum over all of them holds; None if not known."""
        # a unit of many records may be clipped to less than they add
        return None if self.of_units else self.num_records

    @property
    def rules_out_rounds(self) -> bool:
        """Whether the caller has set an option that rounds in whitened coordinates do not have."""
        return any(
            getattr(self, name) != each.default
            for name, each in self.keywords().items()
            if name not in {"noise_aware", "weights"}
        )

    def batch_share(self, batch: int, limits: tuple[float, float], unknown: float) -> float:
        """Return the share of so many records, within limits, or of an ``unknown`` number."""
        if self.sampling is Full:
            return 1.0
        if self.num_records is None:
            return unknown
        least, most = limits
        return min(most, max(batch / self.num_records, least))

    def default_clip_norm(self, clip_norm: float) -> float:
        """Return a default, or infinity where there is no noise: clipping would only be a bias."""
        return clip_norm if self.noisy else math.inf


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


@dataclass(frozen=True, kw_only=True)
class BatchOptions(Options):
    """Options of methods whose releases are all of one kind."""

    released: ClassVar[str]  # the name of the releases

    clip_norm: float | None = option(None, CLIP_NORM)
    sample_rate: float | None = option(None, SAMPLE_RATE)

    def release_spec(self, count: int, clip_norm: float, sample_rate: float = 1.0) -> ReleaseSpec:
        """Describe the releases: as the options say, else by the defaults given here."""
        rate = sample_rate if self.sample_rate is None else self.sample_rate
        clip = self.default_clip_norm(clip_norm) if self.clip_norm is None else self.clip_norm
        return ReleaseSpec(self.released, self.sampling(rate), clip, self.n or count)


# --- classes of models, and methods ------------------------------------------------------------


class NotConjugateError(Exception):
    """A kind of update does not fit; the text is a clause that says why, without a full stop."""


class ModelClass(NamedTuple):
    """A class of models with updates of its own."""

    title: str
    # records -> structure: raises NotConjugateError where the model is of another class
    recognise: Callable[[Records], Any]
    # (records, structure, options) -> method; None where options ask for the updates of a paper
    build: Callable[[Records, Any, Any], Method | OnScale | None]
    # (records, structure) -> {variable: what it is to the updates}, of latents and terms
    roles: Callable[[Records, Any], dict[str, str]]
    # (records, structure) -> what fits the model where no option asks for another algorithm
    algorithm: Callable[[Records, Any], str]
    options: tuple[str, ...]  # which of the options that not every class has it reads
    # records -> whether they could be of the class, so that it is of interest why they are not
    near: Callable[[Records], bool]
    forms: tuple[str, ...] = ()  # the values that ``form=`` may have, but for those of papers
    # (records, structure) -> why the method is the one to take; empty where another is as good
    better: Callable[[Records, Any], str] = lambda records, structure: ""
    # {``form=`` of a paper: what builds it}; the first one has the options that ``build`` has not
    of_papers: Mapping[str, Callable[[Records, Any, Any], Method]] = MappingProxyType({})


class MethodSpec(NamedTuple):
    """A method of `pymc_dp.fit`."""

    name: str  # the value of ``method=``
    build: Callable[[Records, Any], Method | OnScale]  # (records, options) -> method
    options: type[Options]  # the dataclass of its `Options`
    fits: str  # which models it fits, for tables of methods
    by: str  # how, with the sources of each algorithm, for tables of methods
    page: str  # its page in docs/methods
    private: bool = True  # whether it takes a budget
    # whether it takes every latent on its own scale, instead of the whole real line
    constrained: bool = False
    integrates: bool = False  # whether it integrates latents of single records or units out
    # those it has updates for, in the order in which they are tried; empty if it fits any model
    model_classes: tuple[ModelClass, ...] = ()
    # what fits any model where no option asks for another algorithm; None if its class decides
    algorithm: str | None = None


def match(
    classes: Sequence[ModelClass], records: Records
) -> tuple[ModelClass | None, Any, dict[str, str]]:
    """Find a model's first class, its structure there, and why the classes before do not fit."""
    reasons: dict[str, str] = {}
    for model_class in classes:
        try:
            return model_class, model_class.recognise(records), reasons
        except NotConjugateError as reason:
            reasons[model_class.title] = str(reason)
        except MethodNotDefined as missing:  # the second derivative of a Bessel function, for one
            reasons[model_class.title] = f"PyTensor has no derivative of {missing.args[-1]}"
    return None, None, reasons


def build_matching(
    method: str, classes: Sequence[ModelClass], records: Records, options: Options
) -> Method | OnScale:
    """Build a method for the first class that the model belongs to."""
    model_class, structure, reasons = match(classes, records)
    if model_class is None:
        listed = "; ".join(f"{title}: {reason}" for title, reason in reasons.items())
        raise NotSeparableError(
            f"{method} has no closed-form update for this model ({listed}). Use method='dp_advi', "
            "which takes any model, or see pymc_dp.explain(model)."
        )
    _refuse_unread(model_class, classes, options)
    papers, form = model_class.of_papers, getattr(options, "form", None) or ""
    built = None if form in papers else model_class.build(records, structure, options)
    if built is None:
        form = form if form in papers else next(iter(papers))
        built = papers[form](records, structure, options)
    if isinstance(built, OnScale) or (options.noisy and getattr(options, "noise_aware", True)):
        return built
    return built._replace(noise_aware=draw_nothing)


def _refuse_unread(
    model_class: ModelClass, classes: Sequence[ModelClass], options: Options
) -> None:
    """Refuse a form of another class, and options that nothing would read."""
    form = getattr(options, "form", None)
    forms = [*model_class.forms, *model_class.of_papers]
    if form not in (None, *forms):
        raise ValueError(
            f"form={form!r} is not for {model_class.title}: "
            f"{f'use one of {forms}, or ' if forms else ''}leave it out."
        )
    fields = options.keywords()
    for name in {name for other in classes for name in other.options} - {*model_class.options}:
        if getattr(options, name) != fields[name].default:
            raise ValueError(f"{name}= has no meaning for {model_class.title}: leave it out.")


# --- why a model does not fit a method, or a kind of update ------------------------------------


def refuse_local_latents(records: Records) -> None:
    """Refuse latents of single records, where a kind of update has none."""
    for name in records.local_latents:
        raise NotConjugateError(f"{quoted([name])} belongs to single records")


RELEASED_ONE_BY_ONE = (
    ": it is a local latent, which would have to be released record by record. method='dp_advi' "
    "integrates it out; or marginalise it (pm.NegativeBinomial, pm.BetaBinomial, pm.Mixture)."
)


def require_shared_latents(records: Records, consequence: str = RELEASED_ONE_BY_ONE) -> None:
    """Refuse latents of single records for a whole method, with what they would mean to it."""
    for name in records.local_latents:
        raise NotSeparableError(f"{quoted([name])} has an entry for every record{consequence}")


def require_integrable(records: Records) -> None:
    """Refuse latents of single records or units that cannot be integrated out."""
    if not records.latents:
        raise NotSeparableError(
            f"Each record or unit has its own {quoted(records.local_latents)}, and records share "
            "no latent: there is nothing that a fit may release. Where a row is the total of a "
            "group, give each member of the group a row, and index the latent by group; else give "
            "its prior a latent mean or scale."
        )
    for name in records.local_latents:
        if not records.batch.inputs[name].type.dtype.startswith("float"):
            raise NotSeparableError(
                f"`{name}` is a discrete latent of single records. Marginalise it: pm.Mixture and "
                "pm.ZeroInflatedPoisson do so, for example."
            )
    size = size_of_locals(records)
    if size > MOST_LATENTS:
        raise NotSeparableError(
            f"Every single record or unit has {size} latents of its own, "
            f"{quoted(records.local_latents)}, and dp_advi integrates out at most {MOST_LATENTS}: "
            "use fewer, or method='vips' for topics and binary latents."
        )
