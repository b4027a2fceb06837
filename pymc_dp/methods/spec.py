"""What is known of a method before there is a model: the value that the registry holds."""

from collections.abc import Callable
from typing import Any, NamedTuple

from pymc_dp.methods.method import Method, OnRealLine
from pymc_dp.methods.model_class import ModelClass
from pymc_dp.methods.options import Options
from pymc_dp.model import Records


class MethodSpec(NamedTuple):
    """A method of `pymc_dp.fit`."""

    name: str  # the value of ``method=``
    # (records, options) -> Method, or one that needs latents on the whole real line
    build: Callable[[Records, Any], Method | OnRealLine]
    options: type[Options]  # the dataclass of its `Options`
    fits: str  # which models it fits, for tables of methods
    by: str  # how, for tables of methods
    source: str  # the paper that it is from
    page: str  # its page in docs/methods
    private: bool = True  # whether it takes a budget
    # whether it takes every latent on its own scale, instead of the whole real line
    constrained: bool = False
    # whether it integrates latents of single records or units out
    integrates: bool = False
    # those it has updates for, in the order in which they are tried. Empty for a method that fits
    # any model.
    model_classes: tuple[ModelClass, ...] = ()
