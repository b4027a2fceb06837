"""The classical private estimators of diffprivlib, fitted in an environment of their own.

diffprivlib 0.6.6 does not import beside today's scikit-learn. So its fits run in another process,
by another Python, and arrays travel in files.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path("benchmarks/results/peers-venv")
PACKAGES = ("diffprivlib==0.6.6", "scikit-learn==1.6.1", "scipy==1.15.3")
# both of the older packages have wheels for these
VERSIONS = ((3, 13), (3, 12), (3, 11), (3, 10))
SCRIPT = Path(__file__).with_name("peers_script.py")
# what an estimator would otherwise read from the data
PUBLIC = {
    "LogisticRegression": ("data_norm",),
    "LinearRegression": ("bounds_X", "bounds_y"),
    "GaussianNB": ("bounds",),
}
# public: about the norm of ten features of unit size; longer rows are shortened
NORM = 3.5


def fit_peers(
    X: np.ndarray, y: np.ndarray, X_held_out: np.ndarray, settings: Sequence[dict[str, Any]]
) -> np.ndarray:
    """Fit once for each setting: ``estimator``, ``epsilon`` and what else the estimator takes."""
    for setting in settings:
        require_public(setting)
    python = environment()
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder, "given.npz"), Path(folder, "found.npz")
        np.savez(given, X=X, y=y, X_held_out=X_held_out, settings=json.dumps(list(settings)))
        _run([python, SCRIPT, given, found], "diffprivlib did not fit")
        with np.load(found) as arrays:
            return arrays["predictions"]


def objective_perturbation(C: float, epsilon: float, norm: float = NORM) -> dict:
    """Return the peer's setting for rows that were divided by their public ``norm``."""
    # diffprivlib bounds a record's curvature by a quarter of data_norm, where the proof needs the
    # square of the norm: the two agree at 1. C is in units of the rows as they were. An intercept
    # is a column of X, so that it is shrunk and counted in the norm as the proof wants it.
    fixed = {"estimator": "LogisticRegression", "data_norm": 1.0, "fit_intercept": False}
    return fixed | {"C": C * norm**2, "epsilon": epsilon}


def require_public(setting: dict[str, Any]) -> None:
    """Refuse a setting by which the estimator would read its bounds from the data."""
    estimator = setting["estimator"]
    for name in PUBLIC[estimator]:
        if setting.get(name) is None:
            raise ValueError(
                f"{estimator} would read {name} from the data, which no epsilon covers: give a "
                f"public {name}."
            )


def environment(folder: Path = FOLDER) -> Path:
    """Return the Python of the peers' environment, which is made if it is not there."""
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        print(f"Building {folder} for {', '.join(PACKAGES)} ...", flush=True)
        _run([interpreter(), "-m", "venv", "--clear", folder], f"{folder} cannot be made")
        install = [python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *PACKAGES]
        _run(install, f"{' '.join(PACKAGES)} cannot be installed in {folder}")
        complete.touch()
    return python


def interpreter() -> str:
    """Return a Python for which the older packages have wheels: this one, or one on the path."""
    if sys.version_info[:2] in VERSIONS:
        return sys.executable
    found = next(_others(), None)
    if found is None:
        raise SystemExit(
            f"{' and '.join(PACKAGES)} need Python 3.10 to 3.13, and none is on the path: install "
            "one, python3.13 say, and run this again."
        )
    return found


def _others() -> Iterator[str]:
    for major, minor in VERSIONS:
        path = shutil.which(f"python{major}.{minor}")
        if path:
            yield path


def _run(command: Sequence[Any], failure: str) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        said = last_line(done.stderr or done.stdout)
        raise SystemExit(f"{failure}. The last line of the attempt: {said}")


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "none"
