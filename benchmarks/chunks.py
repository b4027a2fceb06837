"""Fits of more rows than memory should hold, beside as many passes of a plain Dask product.

Generated rows are written as Parquet and as zarr, fitted, and deleted. What is compared with is
``X.T @ (w * X)``, for weights that follow from X: the least that a pass of a logistic regression
has to do.

    python -m benchmarks.chunks --rows 10_000_000
    python -m benchmarks.chunks --rows 10_000_000 --workers 2
"""

import argparse
import contextlib
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pymc as pm
import zarr

import pymc_dp

COLUMNS = 20
NAMES = [f"x{k}" for k in range(COLUMNS)]
# memory that Dask's workers keep: they would give every array back, and fault its pages in anew
MALLOC = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
# vips by its own updates; rounds are those of dp_advi
METHODS: dict[str, dict[str, Any]] = {"vips": {"noise_aware": False}, "dp_advi": {}}


def write(folder: Path, rows: int, chunk: int) -> None:
    """Write the same rows as Parquet, and as zarr."""
    coefficients = np.linspace(-1, 1, COLUMNS)
    arrays = {
        "X": zarr.create_array(
            folder / "X.zarr", shape=(rows, COLUMNS), chunks=(chunk, COLUMNS), dtype="float32"
        ),
        "y": zarr.create_array(folder / "y.zarr", shape=(rows,), chunks=(chunk,), dtype="int8"),
    }
    (folder / "parquet").mkdir()
    for k, start in enumerate(range(0, rows, chunk)):
        rng = np.random.default_rng(k)
        n = min(chunk, rows - start)
        X = rng.normal(size=(n, COLUMNS)).astype("float32") / 4
        y = (rng.random(n) < 1 / (1 + np.exp(-X @ coefficients))).astype("int8")
        arrays["X"][start : start + n], arrays["y"][start : start + n] = X, y
        frame = pd.DataFrame(X, columns=NAMES).assign(y=y)
        frame.to_parquet(folder / "parquet" / f"part.{k:05}.parquet", index=False)


def containers(folder: Path) -> dict[str, dict[str, Any]]:
    """Open what was written."""
    frame = dd.read_parquet(folder / "parquet")
    stored = {name: da.from_zarr(str(folder / f"{name}.zarr")) for name in ("X", "y")}
    return {"Parquet": {"X": frame[NAMES], "y": frame["y"]}, "zarr": stored}


def plain_pass(data: Mapping[str, Any]) -> None:
    """Compute ``X.T @ (w * X)`` partition by partition."""

    def product(x: Any) -> np.ndarray:
        x = np.asarray(x, "float64")
        weights = 0.5 / (1 + np.abs(x[:, :1]))
        return x.T @ (weights * x)

    X = data["X"]
    parts = X.to_delayed() if isinstance(X, da.Array) else X.to_delayed(optimize_graph=False)
    tasks = [dask.delayed(product)(part) for part in np.ravel(parts)]
    dask.compute(dask.delayed(sum)(tasks))


@contextlib.contextmanager
def peak_memory() -> Iterator[list[float]]:
    """Watch the resident memory of this process, in GB."""
    found, stop = [0.0], threading.Event()
    page = resource.getpagesize()

    def watch() -> None:
        while not stop.wait(0.02):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            found[0] = max(found[0], pages * page / 1e9)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def now() -> np.ndarray:
    """Read two clocks: the wall's, and that of this process on all its processors."""
    return np.array([time.perf_counter(), time.process_time()])


def seconds(function: Callable[[], Any]) -> np.ndarray:
    """Time a call by both clocks."""
    start = now()
    function()
    return now() - start


def model() -> pm.Model:
    """Build the regression on a template of two rows."""
    with pm.Model() as built:
        X = pm.Data("X", np.ones((2, COLUMNS)))
        b = pm.Normal("b", 0, 1, shape=COLUMNS)
        pm.Bernoulli("y", logit_p=X @ b, observed=np.array([0, 1]))
    return built


def measure(kind: str, method: str, data: Mapping[str, Any]) -> None:
    """Print how long a fit takes, and as many plain passes."""
    begun = time.perf_counter()
    with peak_memory() as memory:
        made = timed_fit(method, data, epsilon=1.0, delta=1e-9, num_records=len(data["y"]))
    whole = time.perf_counter() - begun
    passes = len(made)
    # the first release includes compiling in threads and workers, and is left out of a pass
    each = np.median(np.diff(made, axis=0), axis=0)
    plain = np.median([seconds(lambda: plain_pass(data)) for _ in range(5)], axis=0)
    # on workers, processor time is that of the curator alone
    ratio, by_processor = each / plain
    print(
        f"{kind:8} {method:8} {passes:3} passes: whole fit {whole:7.1f} s, a pass {each[0]:6.2f}, "
        f"plain pass {plain[0]:6.2f} s, ratio {ratio:5.2f}, by processor time {each[1]:6.2f}, "
        f"{plain[1]:6.2f} and {by_processor:5.2f}, resident {memory[0]:.2f} GB",
        flush=True,
    )


def overhead(partitions: int = 16, releases: int = 20) -> None:
    """Print what a release of few rows costs in chunks, beside one in memory."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1600, COLUMNS)), rng.integers(0, 2, 1600)
    rows = da.from_array(X, chunks=(1600 // partitions, COLUMNS))
    for kind, data in {"memory": {"X": X, "y": y}, "chunks": {"X": rows, "y": y}}.items():
        made = timed_fit("vips", data, n=releases, epsilon=1.0, delta=1e-5)
        each, busy = np.median(np.diff(made[releases // 2 :], axis=0), axis=0) * 1e3
        print(f"a release of 1600 rows in {kind}: {each:.1f} ms, {busy:.1f} busy", flush=True)


def timed_fit(method: str, data: Mapping[str, Any], **settings: Any) -> list[np.ndarray]:
    """Fit; return when each release was made."""
    made: list[np.ndarray] = []

    def watched(state: Any, _: None, i: int) -> None:
        made.append(now())

    settings |= {"callbacks": [watched], "progressbar": False}
    pymc_dp.fit(model=model(), method=method, data=data, **METHODS[method], **settings)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--chunk", type=int, default=500_000)
    parser.add_argument("--workers", type=int, default=0, help="0 for threads")
    parser.add_argument("--kinds", nargs="+", default=["Parquet", "zarr"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--folder", type=Path, help="where rows are written; deleted after")
    arguments = parser.parse_args()
    overhead()
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(dir=arguments.folder))
        write(Path(name), arguments.rows, arguments.chunk)
        if arguments.workers:
            from distributed import Client, LocalCluster

            before = "distributed.nanny.pre-spawn-environ"
            dask.config.set({f"{before}.{name}": 2**28 for name in MALLOC})
            cluster = LocalCluster(
                n_workers=arguments.workers, threads_per_worker=1, dashboard_address=None
            )
            stack.enter_context(cluster)
            stack.enter_context(Client(cluster))
        for kind in arguments.kinds:
            for method in arguments.methods:
                measure(kind, method, containers(Path(name))[kind])


if __name__ == "__main__":
    main()
