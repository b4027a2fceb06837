"""What is known of a method before there is a model, and the classes that models belong to."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from pytensor.graph.utils import MethodNotDefined

from pymc_dp.errors import NotSeparableError
from pymc_dp.methods.algorithm import Algorithm
from pymc_dp.methods.method import Method, OnOwnScale, OnRealLine
from pymc_dp.methods.options import Options
from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.model import Records

# (records, structure, options) -> Method, or one that needs latents on the whole real line
Build = Callable[[Records, Any, Any], Method | OnRealLine]


class ModelClass(NamedTuple):
    """A class of models with updates of its own."""

    title: str
    # records -> structure: raises NotConjugateError where the model is of another class
    recognise: Callable[[Records], Any]
    build: Build
    # (records, structure) -> {variable: str}: what each latent and each term of the likelihood is
    # to the updates
    roles: Callable[[Records, Any], dict[str, str]]
    # (records, structure) -> what fits the model where no option asks for another algorithm
    algorithm: Callable[[Records, Any], Algorithm]
    forms: tuple[str, ...]  # the values that ``form=`` may have, but for those of papers
    options: tuple[str, ...]  # which of the options that not every class has it reads
    # records -> whether the kinds of their latents and outcomes could be those of the class: only
    # then is it of interest why the model does not belong to it
    near: Callable[[Records], bool]
    # (records, structure) -> why the method is the one to take for the model; empty where another
    # is as good
    better: Callable[[Records, Any], str] = lambda records, structure: ""
    # {value of ``form=``: what builds it}, in the place of ``build``: forms of a paper
    of_papers: Mapping[str, Build] = MappingProxyType({})


def match(
    classes: Sequence[ModelClass], records: Records
) -> tuple[ModelClass | None, Any, dict[str, str]]:
    """Find the first class that a model belongs to, and the structure that it recognises.

    Return also why the model does not belong to those that were tried before, by title.
    """
    reasons: dict[str, str] = {}
    for model_class in classes:
        try:
            return model_class, model_class.recognise(records), reasons
        except NotConjugateError as reason:
            reasons[model_class.title] = str(reason)
        except MethodNotDefined as missing:  # the second derivative of a Bessel function, for one
            reasons[model_class.title] = f"PyTensor has no derivative of {missing.args[-1]}"
    return None, None, reasons


def with_forms(
    classes: Sequence[ModelClass], of_papers: Mapping[str, Mapping[str, Build]]
) -> tuple[ModelClass, ...]:
    """Add the forms of papers to classes, by their titles."""
    return tuple(each._replace(of_papers=of_papers.get(each.title, {})) for each in classes)


def build_matching(
    method: str, classes: Sequence[ModelClass], records: Records, options: Options
) -> Method | OnRealLine:
    """Build a method for the first class that the model belongs to."""
    model_class, structure, reasons = match(classes, records)
    if model_class is not None:
        _refuse_unread(model_class, classes, options)
        form = getattr(options, "form", None) or ""
        build = model_class.of_papers.get(form, model_class.build)
        built = build(records, structure, options)
        if isinstance(built, OnRealLine) or getattr(options, "noise_aware", True):
            return built
        return built._replace(noise_aware=None)
    listed = "; ".join(f"{title}: {reason}" for title, reason in reasons.items())
    raise NotSeparableError(
        f"{method} has no closed-form update for this model ({listed}). Use method='dp_advi', "
        "which takes any model, or see pymc_dp.explain(model)."
    )


def _refuse_unread(
    model_class: ModelClass, classes: Sequence[ModelClass], options: Options
) -> None:
    """Refuse a form of another class, and options that nothing would read."""
    form = getattr(options, "form", None)
    forms = [*model_class.forms, *model_class.of_papers]
    if form not in (None, *forms):
        raise ValueError(
            f"form={form!r} is not for {model_class.title}: use one of {forms}, or leave it out."
        )
    fields = options.keywords()
    for name in {name for other in classes for name in other.options} - {*model_class.options}:
        if getattr(options, name) != fields[name].default:
            raise ValueError(f"{name}= has no meaning for {model_class.title}: leave it out.")


class MethodSpec(NamedTuple):
    """A method of `pymc_dp.fit`."""

    name: str  # the value of ``method=``
    # (records, options) -> Method, or one that needs latents on another scale
    build: Callable[[Records, Any], Method | OnRealLine | OnOwnScale]
    options: type[Options]  # the dataclass of its `Options`
    fits: str  # which models it fits, for tables of methods
    by: str  # how, with the sources of each algorithm, for tables of methods
    page: str  # its page in docs/methods
    private: bool = True  # whether it takes a budget
    # whether it takes every latent on its own scale, instead of the whole real line
    constrained: bool = False
    integrates: bool = False  # whether it integrates latents of single records or units out
    # those it has updates for, in the order in which they are tried. Empty for a method that fits
    # any model.
    model_classes: tuple[ModelClass, ...] = ()
    # what fits any model where no option asks for another algorithm; None if its class decides
    algorithm: Algorithm | None = None
