"""The kinds of model that a method has updates for, and which of them a model is."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pymc_dp.errors import NotSeparableError
from pymc_dp.methods.method import Method
from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.records import Records


class Kind(NamedTuple):
    """A kind of model with updates of its own.

    Attributes
    ----------
    title : str
    recognise : records -> structure
        Raises NotConjugateError where the model is of another kind.
    build : (records, structure, settings) -> Method
    roles : (records, structure) -> {variable: str}
        What each latent and each term of the likelihood is to the updates.
    forms : tuple of str
        The values that ``form=`` may have.
    options : tuple of str
        Which of the options that not every kind has it reads.
    """

    title: str
    recognise: Callable[[Records], Any]
    build: Callable[[Records, Any, Any], Method]
    roles: Callable[[Records, Any], dict[str, str]]
    forms: tuple[str, ...]
    options: tuple[str, ...]


class Found(NamedTuple):
    """The first kind that a model is of, or why it is of none.

    Attributes
    ----------
    kind : Kind or None
    structure
        What `Kind.recognise` found.
    reasons : {title: str}
        Why the model is not of the kinds that were tried before.
    """

    kind: Kind | None
    structure: Any
    reasons: dict[str, str]


def find(kinds: Sequence[Kind], records: Records) -> Found:
    """Try kinds in their order."""
    reasons: dict[str, str] = {}
    for kind in kinds:
        try:
            return Found(kind, kind.recognise(records), reasons)
        except NotConjugateError as reason:
            reasons[kind.title] = str(reason)
    return Found(None, None, reasons)


def build_first(method: str, kinds: Sequence[Kind], records: Records, settings: Any) -> Method:
    """Build a method for the first kind that fits.

    Raises
    ------
    NotSeparableError
        With the reason of every kind.
    ValueError
        An option says nothing to the kind that fits.
    """
    kind, structure, reasons = find(kinds, records)
    if kind is not None:
        _refuse_unread(kind, settings)
        built = kind.build(records, structure, settings)
        return built if settings.noise_aware else built._replace(noise_aware=None)
    told = "; ".join(f"{title}: {reason}" for title, reason in reasons.items())
    raise NotSeparableError(
        f"{method} has no closed-form update for this model ({told}). Use method='dp_advi', which "
        "takes any model without latents of single records, or see pymc_dp.explain(model)."
    )


def _refuse_unread(kind: Kind, settings: Any) -> None:
    """Refuse a form of another kind, and options that would be swallowed."""
    if settings.form not in (None, *kind.forms):
        raise ValueError(
            f"form={settings.form!r} is not for {kind.title}: use one of {list(kind.forms)}, or "
            "leave it out."
        )
    # the options that not every kind has are those with a default
    for name, default in type(settings)._field_defaults.items():
        if name not in kind.options and getattr(settings, name) != default:
            raise ValueError(f"{name}= says nothing to {kind.title}: leave it out.")
