"""Constants of the engine of rounds: all of them, and their other values."""

import ast
import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import pymc_dp
from pymc_dp.engine.constants import Constants

ROOT = Path(pymc_dp.__file__).parent
FOLDERS = ("engine", "contributions")
FILES = ("methods/method.py",)
TABLE = "engine/constants.py"
# what is not tuned: names, layouts of a vector or a histogram, norms and grids that follow from
# them, limits of floating point numbers, and steps of finite differences
NUMERICS = {
    *("conditional.ROUNDING", "made_up.ROUNDING", "method.FEWEST_RELEASES", "outcomes.STEP"),
    *("outcomes.UNCHANGED", "rounds.LEAST_NOISE"),
    *("estimating.FARTHEST", "estimating.GRID", "estimating.LARGEST_LOG", "estimating.LEAST"),
    *(
        "estimating.LEAST_TILTED",
        "estimating.NEAREST",
        "local_latents.FLATTEST",
        "local_latents.ROUNDING",
    ),
    *("checks.HISTOGRAM_NORM", "scores.BOTH", "gradients.SMALLEST_BATCH"),
    *("checks.REPLICATES_NORM", "scores.BITS", "channels.ROUNDING", "channels.SHORTEST"),
    *("whitened.BINS", "whitened.COUNTS_NORM", "whitened.LEAST"),
}
# shares of which the complement is multiplied: they are near 1, and no more than it
NEAR_ONE = {"accepted", "share_after_steps"}


class Constant(NamedTuple):
    """A number, or several of one meaning."""

    file: str  # in the package
    name: str
    value: Any

    @property
    def is_field(self) -> bool:
        """Whether it is a field of the table of constants."""
        return self.file == TABLE

    @property
    def label(self) -> str:
        """A name that no other constant has."""
        return self.name if self.is_field else f"{Path(self.file).stem}.{self.name}"

    def times(self, factor: float) -> Any:
        """Return the value, or all of them, times a factor; whole numbers stay whole."""
        return _times(self.value, factor, self.name in NEAR_ONE)


def _times(value: Any, factor: float, near_one: bool) -> Any:
    if isinstance(value, tuple):
        return tuple(_times(each, factor, near_one) for each in value)
    if isinstance(value, dict):
        return {key: _times(each, factor, near_one) for key, each in value.items()}
    if isinstance(value, int):
        return max(1, round(value * factor)) if value > 0 else round(value * factor)
    return 1 - (1 - value) / factor if near_one else value * factor


def constants() -> list[Constant]:
    """Find all constants of the engine."""
    found = [Constant(TABLE, *field) for field in Constants._field_defaults.items()]
    for file in _files():
        module = _module(file)
        for name, expression in _assigned(file).items():
            is_literal = not any(other.isupper() for other in _names(expression))
            constant = Constant(file, name, getattr(module, name))
            if is_literal and constant.label not in NUMERICS and _is_number(constant.value):
                found.append(constant)
    return found


def _is_number(value: Any) -> bool:
    if type(value) in {tuple, dict}:  # and no table of constants
        each = list(value.values()) if isinstance(value, dict) else value
        return bool(each) and all(map(_is_number, each))
    return isinstance(value, int | float) and not isinstance(value, bool)


@cache
def _files() -> tuple[str, ...]:
    inside = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.py"))]
    return (*(str(path.relative_to(ROOT)) for path in inside), *FILES)


def _module(file: str) -> ModuleType:
    return importlib.import_module("pymc_dp." + file.removesuffix(".py").replace("/", "."))


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text())


@cache
def _assigned(file: str) -> dict[str, ast.expr]:
    """Return what a module assigns to names in capitals."""
    found = {}
    for node in _tree(file).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            one = len(names) == 1
            for name, value in zip(names, [node.value] if one else values, strict=True):
                if isinstance(name, ast.Name) and name.id.isupper():
                    found[name.id] = value
    return found


def _names(expression: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


@cache
def _imported(file: str) -> dict[str, str]:
    """Return the file that each imported name in capitals is from."""
    return {
        alias.name: node.module.removeprefix("pymc_dp.").replace(".", "/") + ".py"
        for node in _tree(file).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pymc_dp.")
        for alias in node.names
        if alias.name.isupper()
    }


@contextmanager
def changed(constant: Constant, value: Any) -> Iterator[None]:
    """Give a constant another value, and compute anew what modules have derived from it."""
    with ExitStack() as stack:
        if constant.is_field:
            stack.enter_context(patch.object(Constants, constant.name, value))
        else:
            _assign(stack, constant.file, constant.name, value)
        yield


def _assign(stack: ExitStack, file: str, name: str, value: Any) -> None:
    readers = [other for other in _files() if other == file or _imported(other).get(name) == file]
    for other in readers:
        stack.enter_context(patch.object(_module(other), name, value))
    for other in readers:
        for derived, expression in _assigned(other).items():
            if name in _names(expression):
                code = compile(ast.Expression(expression), other, "eval")
                _assign(stack, other, derived, eval(code, vars(_module(other))))
