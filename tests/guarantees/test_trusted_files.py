"""The guarantee rests on a list of files, which the documentation publishes and tests keep."""

import ast
import re
from pathlib import Path

import pytest

import pymc_dp

PACKAGE = Path(pymc_dp.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "architecture.md").read_text()
# what only trusted files may import: it opens private data, makes noise, or states an epsilon
GUARDED = {
    "pymc_dp.privacy.private_data": {"open_private"},
    "pymc_dp.privacy.clipping": {"clipped_sum", "SumsByRecord", "SumsByUnit"},
    "pymc_dp.privacy.wall": {"in_partitions", "InMemory"},
    "pymc_dp.privacy.randomness": {"SecretRandom", "TEST_SEED"},
}
ACCOUNTANTS = ("pymc_dp.accounting.accountants", "dp_accounting", "autodp", "randomgen", "secrets")


def listed(title: str) -> set[Path]:
    """Return the files that a block of the page lists."""
    [block] = re.findall(rf"```text {title}\n(.*?)```", PAGE, flags=re.DOTALL)
    paths = [PACKAGE / line for line in block.split()]
    assert all(path.exists() for path in paths)
    return {file for path in paths for file in (path.glob("*.py") if path.is_dir() else [path])}


FIRST = listed("first reading")
TRUSTED = FIRST | listed("the rest")
EXCEPTIONS = {PACKAGE / name for name in re.findall(r"^\| `([a-z_/]+\.py)` \|", PAGE, flags=re.M)}
OTHERS = set(PACKAGE.rglob("*.py")) - TRUSTED - EXCEPTIONS


def imports(text: str) -> set[tuple[str, str]]:
    """Return what a file imports when it runs, as (module, name); types alone do not count."""
    tree = ast.parse(text)
    checks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    ]
    skipped = {id(node) for check in checks for node in ast.walk(check)}
    found = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom):
            found |= {(node.module or "", alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
    return found


def file_of(module: str, name: str) -> Path | None:
    """Return the file of the package that an import reads."""
    if module.split(".")[0] != "pymc_dp":
        return None
    path = PACKAGE.joinpath(*module.split(".")[1:])
    for candidate in (path / f"{name}.py", path / "__init__.py", path.with_suffix(".py")):
        if candidate.exists():
            return candidate
    return None


def guarded(text: str) -> set[tuple[str, str]]:
    """Return what a file imports of that which only trusted files may."""
    return {
        (module, name)
        for module, name in imports(text)
        if name in GUARDED.get(module, ())
        or (module in GUARDED and not name)
        or any(module == x or module.startswith(f"{x}.") for x in ACCOUNTANTS)
        or f"{module}.{name}" in {*GUARDED, *ACCOUNTANTS}
    }


def lines(files: set[Path]) -> int:
    return sum(file.read_text().count("\n") for file in files)


@pytest.mark.parametrize("file", sorted(TRUSTED), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_trusted_files_import_trusted_files_alone(file):
    for module, name in imports(file.read_text()):
        read = file_of(module, name)
        assert read is None or read in TRUSTED, f"{module}.{name}"


def test_no_other_file_opens_data_makes_noise_or_asks_an_accountant():
    found = {file: guarded(file.read_text()) for file in OTHERS}
    assert not {file: names for file, names in found.items() if names}


def test_every_exception_is_one():
    assert all(guarded(file.read_text()) for file in EXCEPTIONS)


def test_the_page_bounds_the_lines_to_read():
    first, whole = (int(n.replace(",", "")) for n in re.findall(r"at most ([\d,]+) lines", PAGE))
    assert 0.8 * first < lines(FIRST) <= first
    assert 0.8 * whole < lines(TRUSTED) <= whole


@pytest.mark.parametrize(
    "fault",
    [
        "from pymc_dp.privacy.private_data import open_private",
        "from pymc_dp.privacy import private_data",
        "import pymc_dp.privacy.randomness",
        "from pymc_dp.privacy.randomness import SecretRandom as Source",
        "def f():\n    from dp_accounting import pld",
        "from pymc_dp.accounting import accountants",
        "from pymc_dp.accounting.accountants import PLD",
    ],
)
def test_a_file_that_would_is_caught(fault):
    assert guarded(fault)


def test_an_untrusted_import_is_seen():
    [(module, name)] = imports("from pymc_dp.methods import registry")
    assert file_of(module, name) not in TRUSTED
