"""Ten million records in a memory map: ``python -m benchmarks.large [rows]``.

Prints milliseconds a step and the memory added, for growing data and one batch size.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pymc as pm

from benchmarks.step import milliseconds, private_step
from pymc_dp.driver.fit import set_up

D, BATCH = 20, 5000


def template():
    """The model, on ten rows."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        X = pm.Data("X", rng.normal(size=(10, D)))
        a, b = pm.Normal("a"), pm.Normal("b", shape=D)
        pm.Bernoulli("y", logit_p=a + X @ b, observed=rng.integers(0, 2, 10))
    return model


def memory_map(folder, rows):
    """Write rows of float32 in parts; return the maps."""
    X = np.memmap(Path(folder) / f"X{rows}", "float32", "w+", shape=(rows, D))
    y = np.memmap(Path(folder) / f"y{rows}", "int8", "w+", shape=(rows,))
    rng = np.random.default_rng(1)
    for start in range(0, rows, 10**6):
        part = slice(start, min(start + 10**6, rows))
        X[part] = rng.standard_normal((part.stop - part.start, D), dtype="float32")
        y[part] = rng.integers(0, 2, part.stop - part.start)
    X.flush()
    y.flush()
    return np.memmap(X.filename, "float32", "r", shape=X.shape), np.memmap(y.filename, "int8", "r")


def anonymous():
    """Resident memory that is not a page of a file, in MB."""
    status = Path(f"/proc/{os.getpid()}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def main():
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else 10**7
    budget = {"noise_multiplier": 2.0, "delta": 1e-9, "noise_aware": False}
    with tempfile.TemporaryDirectory() as folder:
        for rows in (largest // 100, largest // 10, largest):
            X, y = memory_map(folder, rows)
            settings = {**budget, "sample_rate": BATCH / rows, "clip_norm": 2.0}
            before = anonymous()
            data = {"X": X, "y": y}
            prepared = set_up(template(), "dp_advi", 10**5, data=data, **settings)
            step = private_step(prepared, "numba")
            milliseconds(step, 20)
            taken = np.median([milliseconds(step, 20) for _ in range(9)])
            print(
                f"{rows:>11,} rows: {taken:.2f} ms a step, {anonymous() - before:.0f} MB of "
                "memory added (pages of the file left out)"
            )


if __name__ == "__main__":
    main()
