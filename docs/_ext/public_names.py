"""Fail the build where a public name is in no page of the API, or has no docstring."""

import inspect
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import pymc_dp.testing  # documented, and not imported with the package


def faults(package: ModuleType, documented: Iterable[str]) -> list[str]:
    """Say in a sentence each what is wrong with the documentation of a package."""
    documented = set(documented)
    missing = [name for name in package.__all__ if name not in documented]
    found = [f"{name} is public, but docs/api.md does not list it." for name in missing]
    for name in sorted({*package.__all__, *documented}):
        silent = [part for part, value in parts(package, name) if not described(value)]
        found += [f"{part} has no docstring." for part in silent]
    return found


def parts(package: ModuleType, name: str) -> Iterator[tuple[str, Any]]:
    """Yield what a name stands for and, of a class, its own public methods and properties."""
    value: Any = package
    for step in name.split("."):
        value = getattr(value, step)
    yield name, value
    if inspect.isclass(value):
        for key, member in vars(value).items():
            member = getattr(member, "__func__", member)  # a class method's own function
            if not key.startswith("_") and (callable(member) or isinstance(member, property)):
                yield f"{name}.{key}", member


def described(value: Any) -> bool:
    """Whether a value has a docstring of its own."""
    return bool((getattr(value, "__doc__", None) or "").strip())


def check(app: Any, environment: Any) -> None:
    """Compare the package with what Sphinx has read."""
    from sphinx.errors import ExtensionError

    prefix = "pymc_dp."
    read = environment.get_domain("py").objects
    listed = {name.removeprefix(prefix) for name in read if name.startswith(prefix)}
    found = faults(pymc_dp, listed)
    if found:
        raise ExtensionError(" ".join(found))


def setup(app: Any) -> dict[str, bool]:
    """Add the check to a build."""
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True}
