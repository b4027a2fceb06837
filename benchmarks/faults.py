"""Fits on two workers, every release of which meets a fault.

No release may differ from that of an undisturbed fit, and the ledger must hold each once. Here the
coins of a release follow from its position, so that releases can be compared. The records lie in
files. The process of the fit dies as well, and is started again with the same call.

    python -m benchmarks.faults --faults 200
"""

import argparse
import os
import sqlite3
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
import pymc as pm
from distributed import Client, LocalCluster, default_client

import pymc_dp
from pymc_dp.ledger import file as ledger_file
from pymc_dp.privacy import chunks as chunked
from pymc_dp.privacy.contribution import Noisy, Query
from pymc_dp.privacy.wall import PrivacyWall

PARTITIONS, ROWS = 6, 8  # rows of each
RELEASES = 20  # of a fit
DIED = 3  # how a process of a fit ends that is to be started again

Compute = Callable[..., list[Any]]


class Found(NamedTuple):
    """What a run of faults found."""

    faults: Counter[str]  # by their kind
    different: int  # releases
    wrongly_booked: int  # fits


# --- faults: each computes the tasks of a release, after something went wrong ---------------------


def worker_killed(folder: Path, compute: Compute, tasks: Any, done: Any) -> list[Any]:
    """Let the first worker that reads a partition die while it does, or soon after."""
    (folder / "kill").touch()
    return compute(tasks, done)


def held_back(folder: Path, compute: Compute, tasks: Any, done: Any) -> list[Any]:
    """Let the first worker that reads a partition wait."""
    (folder / "wait").touch()
    return compute(tasks, done)


def doubled(folder: Path, compute: Compute, tasks: Any, done: Any) -> list[Any]:
    """Run every task once more before, in another order."""
    dask.compute(*tasks[::-1])
    return compute(tasks, done)


def partition_lost(folder: Path, compute: Compute, tasks: Any, done: Any) -> list[Any]:
    """Take a file away; it is back when the fit is started again."""
    (folder / "0.npy").rename(folder / "lost.npy")
    return compute(tasks, done)


def curator_killed_early(folder: Path, compute: Compute, tasks: Any, done: Any) -> list[Any]:
    """End the process of the fit while workers compute."""
    futures = default_client().compute(list(tasks))
    futures[0].result()
    os._exit(DIED)


def curator_killed_late(folder: Path, compute: Compute, tasks: Any, done: Any) -> list[Any]:
    """End the process of the fit when it has all answers, before anything is written."""
    compute(tasks, done)
    os._exit(DIED)


KINDS = (worker_killed, held_back, doubled, partition_lost)
KINDS += (curator_killed_early, curator_killed_late)
FAULTS = {function.__name__: function for function in KINDS}


def taken(file: Path) -> bool:
    """Take a file away, which one process alone can do."""
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    return True


def read(folder: Path, k: int) -> np.ndarray:
    """Read a partition on a worker."""
    if taken(folder / "wait"):
        time.sleep(0.2)
    if taken(folder / "kill"):
        threading.Timer(np.random.default_rng().uniform(0, 0.01), os._exit, [1]).start()
    return np.load(folder / f"{k}.npy")


# --- the fit, in a process of its own ------------------------------------------------------------


def write_records(folder: Path) -> None:
    """Write the partitions."""
    rng = np.random.default_rng(0)
    for k in range(PARTITIONS):
        np.save(folder / f"{k}.npy", rng.normal(size=(ROWS, 3)))


def fit(folder: Path, name: str, releases: int) -> None:
    """Fit, with a checkpoint of this name, and book in the folder's ledger."""
    parts = [
        da.from_delayed(dask.delayed(read, pure=False)(folder, k), (ROWS, 3), "float64")
        for k in range(PARTITIONS)
    ]
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mean", shape=3), 1.0, observed=np.zeros((2, 3)))
    pymc_dp.fit(
        n=releases,
        model=model,
        method="dp_advi",
        data={"y": da.concatenate(parts)},
        noise_aware=False,
        sample_rate=0.5,
        epsilon=1.0,
        delta=1e-5,
        num_records=PARTITIONS * ROWS,
        random_seed=1,
        draws=1,
        backend="python",
        ledger=folder / "ledger",
        checkpoint=folder / name,
        progressbar=False,
    )


def disturbed(
    folder: Path, genuine: Callable[[PrivacyWall, Query], Noisy], wall: PrivacyWall, query: Query
) -> Noisy:
    """Make a release with coins of its position, after the fault that is noted for it."""
    position = len(wall.made)
    wall.random._generators = tuple(np.random.default_rng([position, k]) for k in range(2))
    compute, note = chunked._computed, folder / f"fault-{position}"
    if note.exists():
        chunked._computed = partial(FAULTS[note.read_text()], folder, compute)
        note.unlink()
    try:
        return genuine(wall, query)
    finally:
        chunked._computed = compute


def curator(folder: Path, name: str, releases: int, address: str | None = None) -> None:
    """Fit on the workers of a scheduler, or on threads."""
    genuine = PrivacyWall.release
    PrivacyWall.release = lambda wall, query: disturbed(folder, genuine, wall, query)
    if address is None:
        fit(folder, name, releases)
        return
    with Client(address, set_as_default=True):
        try:
            fit(folder, name, releases)
        except pymc_dp.ReleaseError:  # the lost partition
            os._exit(DIED)


# --- the run -------------------------------------------------------------------------------------


def fitted(context: Any, folder: Path, name: str, *settings: Any) -> list[bytes]:
    """Start the process of a fit until it ends well; return what was released."""
    process = None
    while process is None or process.exitcode == DIED:
        process = context.Process(target=curator, args=(folder, name, *settings))
        process.start()
        process.join()
        if (folder / "lost.npy").exists():
            (folder / "lost.npy").rename(folder / "0.npy")
    if process.exitcode:
        raise RuntimeError("The fit failed, and by none of the faults.")
    with closing(sqlite3.connect(folder / name)) as db:
        return [value for [value] in db.execute("SELECT value FROM releases ORDER BY position")]


def run(number: int, folder: Path) -> Found:
    """Inject so many faults, of all kinds in turn, into fits one after another."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["pymc_dp.driver.fit", "distributed", "dask.array"])
    write_records(folder)
    terms = {"epsilon": 30.0, "delta": 1e-5}  # room for hundreds of fits
    pymc_dp.Ledger(folder / "ledger", dataset="generated", **terms)
    releases = min(number, RELEASES)
    expected = fitted(context, folder, "undisturbed", releases)
    names = [list(FAULTS)[i % len(FAULTS)] for i in range(number)]
    # a LocalCluster gives up a worker that is down this long after it was lost, if only anew
    settings = {
        "distributed.deploy.lost-worker-timeout": "1 day",
        "distributed.scheduler.allowed-failures": 100,
    }
    different = 0
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            silence_logs="CRITICAL",
        ) as cluster,
    ):
        address = cluster.scheduler_address
        for start in range(0, number, RELEASES):
            for position, name in enumerate(names[start : start + RELEASES]):
                (folder / f"fault-{position}").write_text(name)
            found = fitted(context, folder, f"fit-{start}", releases, address)
            different += sum(a != b for a, b in zip(found, expected, strict=True))
    entries = ledger_file.fits_of(folder / "ledger")
    paid = (releases, True, entries[0].of_plan)
    exact = [(entry.booked, entry.ended, entry.owed) == paid for entry in entries]
    fits = 1 + len(range(0, number, RELEASES))
    return Found(Counter(names), different, exact.count(False) + abs(len(exact) - fits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    arguments = parser.parse_args()
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = run(arguments.faults, Path(folder))
    seconds = time.perf_counter() - begun
    for name, count in found.faults.items():
        print(f"{name.replace('_', ' '):22} {count:4}")
    print(
        f"{found.different} releases differ, {found.wrongly_booked} fits are wrongly booked, "
        f"{seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
