"""JAX beside other backends, on a GPU where there is one: ``python -m benchmarks.gpu``.

Prints milliseconds of a round that reads all records, which runs in Python on any backend, and of a
step on a batch, with the shares of what they are spent on; then how far means of steps on JAX lie
from those of others.

    python -m benchmarks.gpu --rows 100_000 1_000_000 10_000_000 --backends jax numba
    OPENBLAS_NUM_THREADS=1 python -m benchmarks.gpu --chunk 250_000 --backends --batches
"""

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import dask.array as da
import jax
import numpy as np
import pymc as pm
from pytensor.compile.executor import Function
from pytensor.link.jax.linker import JAXLinker

import pymc_dp
from pymc_dp.driver.fit import set_up
from pymc_dp.driver.run import compile_method
from pymc_dp.privacy import clipping
from pymc_dp.privacy.private_data import Partition
from pymc_dp.privacy.randomness import SecretRandom
from pymc_dp.privacy.wall import PrivacyWall

D, BATCH, LARGE_BATCH = 20, 5000, 100_000
ROUNDS, STEPS = 3, 20  # how many are timed
STEP = {"noise_multiplier": 2.0, "delta": 1e-9, "noise_aware": False}


class Clock:
    """Seconds by what they are spent on: what a timed call contains is not counted twice."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._since, self._on = time.perf_counter(), "rest"

    def now(self, name: str) -> str:
        """Count from now on for another name; return what was counted for."""
        before, since = self._on, self._since
        self._on, self._since = name, time.perf_counter()
        self.seconds[before] += self._since - since
        return before

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, whose own time counts for a name."""

        def call(*values: Any, **settings: Any) -> Any:
            before = self.now(name)
            try:
                return function(*values, **settings)
            finally:
                self.now(before)

        return call

    def on_device(self, linker: JAXLinker, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Compile by JAX, and wait for each part of a call."""
        compiled = jax.jit(fn, static_argnums=linker.scalar_shape_inputs)
        send = self.timed("to device", lambda x: jax.block_until_ready(jax.device_put(x)))
        compute = self.timed("device", lambda *x: jax.block_until_ready(compiled(*x)))
        receive = self.timed("back", lambda found: [np.asarray(x) for x in found])
        return lambda *values: receive(compute(*map(send, values)))


Clocking = AbstractContextManager[Clock]


@contextmanager
def clocked() -> Iterator[Clock]:
    """Count the parts of releases."""
    clock = Clock()
    parts = [
        (Partition, "take", "gather"),
        (Function, "__call__", "graphs"),
        (clipping.SumsByRecord, "_of_rows", "clip and sum"),
        (clipping.SumsByRecord, "_summed", "clip and sum"),
        (SecretRandom, "rounded_gaussian", "noise"),
        (clipping, "subset", "draw"),
    ]
    with ExitStack() as stack:
        for kind, name, label in parts:
            part = clock.timed(label, getattr(kind, name))
            stack.enter_context(patch.object(kind, name, part))
        on_device = patch.object(JAXLinker, "jit_compile", lambda *x: clock.on_device(*x))
        stack.enter_context(on_device)
        yield clock


def template():
    """The model, on ten rows."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        X = pm.Data("X", rng.normal(size=(10, D)))
        a, b = pm.Normal("a"), pm.Normal("b", shape=D)
        pm.Bernoulli("y", logit_p=a + X @ b, observed=rng.integers(0, 2, 10))
    return model


def made_up(rows: int) -> dict[str, np.ndarray]:
    """Make up records of a logistic regression on predictors of single precision."""
    rng, coefficients = np.random.default_rng(1), np.linspace(-1, 1, D)
    X = rng.standard_normal((rows, D), dtype="float32") / 4
    return {"X": X, "y": (rng.random(rows) < 1 / (1 + np.exp(-X @ coefficients))).astype("int8")}


def releases(backend: str, n: int | None, data: Any, rows: int, **settings: Any) -> Any:
    """Return a function that makes the next release of a fit."""
    prepared = set_up(template(), "dp_advi", n, data=data, num_records=rows, **settings)
    compiled = compile_method(prepared, backend)
    again, rng = compiled.again, np.random.default_rng(0)
    wall = PrivacyWall(prepared.data, compiled.contributions, prepared.plan, compile_again=again)
    state = prepared.method.init(rng)

    def one() -> None:
        nonlocal state
        query = prepared.method.query(state, rng=rng)
        state = compiled.update(state, query, wall.release(query))

    return one


def measure(
    label: str, untimed: int, repeats: int, made: Callable[[], Any], clocking: Clocking
) -> None:
    """Print the median time of a release, and shares of all of them."""
    with clocking as clock:
        one = made()
        for _ in range(untimed):  # JAX and Numba compile here, and a first release has histograms
            one()
        clock.now("rest")
        clock.seconds.clear()
        taken = []
        for _ in range(repeats):
            start = time.perf_counter()
            one()
            taken.append(time.perf_counter() - start)
        clock.now("rest")
    whole = clock.seconds.total()
    shares = ", ".join(f"{x} {s / whole:.0%}" for x, s in clock.seconds.most_common())
    print(f"{label:42} {np.median(taken) * 1e3:10.2f} ms  {shares}", flush=True)


def times(case: argparse.Namespace) -> None:
    """Print times of rounds and of steps."""
    for rows in case.rows:
        data: Any = made_up(rows)
        if case.chunk:  # records in chunks, which threads read
            data = {k: da.from_array(x, chunks=(case.chunk, *x.shape[1:])) for k, x in data.items()}
        made = partial(releases, "python", None, data, rows, epsilon=1.0, delta=1e-9)
        # threads have no clock in common
        clocking = nullcontext(Clock()) if case.chunk else clocked()
        measure(f"round, {rows:,} rows", 2, ROUNDS, made, clocking)
        for batch in case.batches:
            for backend in case.backends if batch < rows else ():
                steps = {"sample_rate": batch / rows, "clip_norm": 2.0, **STEP}
                made = partial(releases, backend, 10**4, data, rows, **steps)
                measure(f"step on {batch:,} of {rows:,}, {backend}", STEPS, STEPS, made, clocked())


def differences(rows: int, backends: list[str]) -> None:
    """Print how far means of fits without noise lie from those on the Python linker."""
    data, fit = made_up(rows), partial(pymc_dp.fit, model=template(), progressbar=False)
    fit = partial(fit, data=data, random_seed=0, epsilon=np.inf, delta=1e-9, num_records=rows)
    fit = partial(fit, n=100, noise_aware=False, sampling="full")
    means = {x: fit(backend=x)["fit"]["mean_vector"].to_numpy() for x in ["python", *backends]}
    for backend in backends:
        off = np.abs(means[backend] - means["python"]).max()
        print(f"steps, {backend}: means differ by {off:.1e} at most", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    parser.add_argument("--backends", nargs="*", default=["jax", "numba"])
    parser.add_argument("--batches", type=int, nargs="*", default=[BATCH, LARGE_BATCH])
    parser.add_argument("--chunk", type=int, default=0, help="rows of a chunk; 0 for memory")
    parser.add_argument("--compare", type=int, default=20_000, help="rows; 0 to leave it out")
    case = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"JAX on {jax.devices()[0].device_kind}")
    times(case)
    if case.compare:
        differences(case.compare, case.backends)


if __name__ == "__main__":
    main()
