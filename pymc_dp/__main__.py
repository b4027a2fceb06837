"""The command line: ``python -m pymc_dp --version`` and ``--explain MODULE:NAME``."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pkgutil import resolve_name
from typing import Any

from pymc_dp.driver.explain import explain
from pymc_dp.methods.registry import METHODS

PACKAGES = ("pymc-dp", "pymc", "pytensor", "arviz", "dp-accounting", "autodp")


def main(argv: Sequence[str] | None = None) -> int:
    """Print versions, the methods, or which method fits a model; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pymc_dp", description="Differentially private inference for PyMC models."
    )
    parser.add_argument("--version", action="store_true", help="print versions for a bug report")
    what = "say which methods fit a model, or what a function returns; alone, list the methods"
    parser.add_argument("--explain", nargs="?", const="", metavar="MODULE:NAME", help=what)
    given = parser.parse_args(argv)
    text = parser.format_help().rstrip()
    if given.version:
        text = "\n".join(f"{name} {version(name)}" for name in PACKAGES)
    elif given.explain:
        try:
            text = str(explain(_named(given.explain)))
        except (ValueError, TypeError, NotImplementedError) as reason:
            sys.stderr.write(f"{reason}\n")
            return 1
    elif given.explain is not None:
        width = max(map(len, METHODS))
        rows = [f"{name:{width}}  {spec.fits}" for name, spec in METHODS.items()]
        more = "--explain MODULE:NAME says which of them fit a model, and why."
        text = "\n".join([f"{'method':{width}}  fits", *rows, "", more])
    sys.stdout.write(f"{text}\n")
    return 0


def _named(address: str) -> Any:
    """Return what an address names, or what it returns if it is a function."""
    try:
        named = resolve_name(address)
        return named() if callable(named) else named
    except Exception as error:
        raise ValueError(
            f"`{address}` gives no model ({type(error).__name__}: {error}). Run this in the folder "
            "that holds the module, name it without .py, and of it a model, or a function that "
            "makes one when it is called without arguments."
        ) from error


if __name__ == "__main__":
    sys.exit(main())
