"""The command line: ``python -m pymc_dp --version`` and ``--explain MODULE:NAME``."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pkgutil import resolve_name
from typing import Any

import pymc as pm

from pymc_dp.driver.explain import explain
from pymc_dp.methods.registry import METHODS

PACKAGES = ("pymc-dp", "pymc", "pytensor", "arviz", "dp-accounting", "autodp")


def main(argv: Sequence[str] | None = None) -> int:
    """Print versions, the methods, or which method fits a model; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pymc_dp", description="Differentially private inference for PyMC models."
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--version", action="store_true", help="print the versions that a bug report needs"
    )
    either.add_argument(
        "--explain",
        nargs="?",
        const="",
        metavar="MODULE:NAME",
        help="say which methods fit a model, or a function that returns one; without a name, "
        "which methods there are",
    )
    given = parser.parse_args(argv)
    text = parser.format_help().rstrip()
    if given.version:
        text = "\n".join(f"{name} {version(name)}" for name in PACKAGES)
    elif given.explain:
        try:
            text = str(explain(_find(given.explain)))
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


def _find(address: str) -> pm.Model:
    module, colon, name = address.partition(":")
    if not (module and colon and name):
        raise ValueError(f"{address!r} names no model: write MODULE:NAME, as in study:model.")
    try:
        found: Any = resolve_name(address)
        model = found() if callable(found) and not isinstance(found, pm.Model) else found
    except Exception as error:
        raise ValueError(
            f"`{address}` gives no model ({type(error).__name__}: {error}). Run this in the folder "
            "that holds the module, name it without .py, and of it a model, or a function that "
            "makes one when it is called without arguments."
        ) from error
    if not isinstance(model, pm.Model):
        raise ValueError(
            f"`{address}` gives no model but an object of type {type(model).__name__}: name a "
            "pm.Model, or a function that returns one."
        )
    return model


if __name__ == "__main__":
    sys.exit(main())
