"""Print the benchmark tables of the docs: ``python -m benchmarks.steps [--quick] [backend ...]``.

Medians in milliseconds over alternating rounds, the ratios, and the most memory that Python and
NumPy held during a private step, over the size of its batch of doubles (1 is the batch alone; a
matrix of per-record gradients would add another 1).
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from functools import partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.pytensorf import resolve_backend_compile_kwargs
from pytensor.gradient import grad

import pymc_dp
from pymc_dp.contributions.gradients import on_batch
from pymc_dp.driver.fit import set_up
from pymc_dp.driver.run import compile_method
from pymc_dp.model.compilation import compile_mode
from pymc_dp.privacy.contribution import Noisy
from pymc_dp.privacy.private_data import open_private
from pymc_dp.privacy.wall import PrivacyWall

# --- the models that the benchmarks time, on generated data --------------------------------------

HIDDEN = 50


def generate(kind, rows, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, d))
    eta = X @ rng.normal(size=d) / np.sqrt(d)
    if kind == "logistic":
        return X, (rng.random(rows) < 1 / (1 + np.exp(-eta))).astype("int32")
    return X, np.tanh(eta) + rng.normal(size=rows)


def build(kind, X, y, d, **observed):
    """Build the model on arrays, pm.Data or pm.Minibatch."""
    with pm.Model() as model:
        if kind == "logistic":
            a, b = pm.Normal("a"), pm.Normal("b", shape=d)
            pm.Bernoulli("y", logit_p=a + pm.math.dot(X, b), observed=y, **observed)
        else:
            W1, b1 = pm.Normal("W1", shape=(d, HIDDEN)), pm.Normal("b1", shape=HIDDEN)
            W2, b2 = pm.Normal("W2", shape=HIDDEN), pm.Normal("b2")
            hidden = pm.math.tanh(pm.math.dot(X, W1) + b1)
            pm.Normal("y", pm.math.dot(hidden, W2) + b2, 1.0, observed=y, **observed)
    return model


# --- time one step of one case, beside PyMC's own ------------------------------------------------

CASES = [("logistic", 50_000, d, batch) for d in (10, 100, 1000) for batch in (256, 4096)]
CASES += [("network", 50_000, 100, 256), ("network", 50_000, 100, 4096)]
# the cases of the closest peer's table
PEER = [
    ("logistic", 4177, 8, 83),
    ("logistic", 100_000, 100, 2000),
    ("network", 8192, 8, 82),
    ("network", 8192, 8, 512),
]
COLUMNS = ("dp_advi", "no clip, no noise", "pm.ADVI", "/ no clip, no noise", "/ pm.ADVI", "peak")
STARTS = [("private",), ("private", "numba"), ("stock", "numba"), ("stock", "c")]
ROUNDS = 9
SECONDS = 0.15


def prepare(model, sample_rate):
    """Set up a fit of gradients alone: it has no last steps, whose releases have other costs."""
    budget = {"noise_multiplier": 2.0, "delta": 1e-6}
    options = {"sample_rate": sample_rate, "clip_norm": 2.0, "noise_aware": False}
    return set_up(model, "dp_advi", 10**6, **budget, **options)


def private_step(prepared, backend):
    """A step of dp_advi: sampling, gather, norms, clipped sum, noise, update."""
    compiled = compile_method(prepared, backend)
    wall = PrivacyWall(prepared.data, compiled.contributions, prepared.plan)
    rng, states = np.random.default_rng(0), [prepared.method.init(np.random.default_rng(0))]

    def step():
        query = prepared.method.query(states[0], rng=rng)
        noisy = wall.release(query)
        states[0] = compiled.update(states[0], query, noisy)

    return step


def plain_step(prepared, backend):
    """The same step without clipping and noise: one gradient of the batch's sum."""
    _, records, private, method, plan = prepared
    columns = open_private(private).columns
    compiled = method.compile(backend)
    latents = list(records.latents.values())
    parts = grad(records.batch.log_likelihood().sum(), latents)
    total = pt.concatenate([part.ravel() for part in parts])
    whole = on_batch(records, [], total, backend)
    rng, states = np.random.default_rng(0), [method.init(np.random.default_rng(0))]
    rows, rate = next(iter(columns.values())).rows, plan.releases[0].sampler.rate

    def step():
        query = method.query(states[0], rng=rng)
        chosen = np.flatnonzero(rng.random(rows) < rate)
        batch = {name: column.take(chosen) for name, column in columns.items()}
        value = whole(batch, query.context[0])
        states[0] = compiled.update(states[0], query, Noisy(value, 0.0, rate))

    return step


def stock_step(kind, X, y, d, batch, backend):
    """A step of pm.ADVI with pm.Minibatch and Adam, as pm.fit makes it (with the loss)."""
    Xm, ym = pm.Minibatch(X, y, batch_size=batch)
    kwargs = resolve_backend_compile_kwargs(None if backend == "python" else backend, None)
    if backend == "python":
        kwargs = {"mode": compile_mode("python")}
    with build(kind, Xm, ym, d, total_size=len(y)):
        inference = pm.ADVI()
        optimizer = pm.adam(learning_rate=0.01)
        return inference.objective.step_function(
            score=True, obj_optimizer=optimizer, compile_kwargs=kwargs
        )


def milliseconds(step, repeats):
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - start) / repeats * 1e3


def row(backend, kind, rows, d, batch):
    """Return the cells of one case."""
    X, y = generate(kind, rows, d)
    prepared = prepare(build(kind, X, y, d), batch / rows)
    steps = {"dp_advi": private_step(prepared, backend)}
    milliseconds(steps["dp_advi"], 2)
    tracemalloc.start()
    milliseconds(steps["dp_advi"], 5)
    peak = tracemalloc.get_traced_memory()[1] / (batch * d * 8)
    tracemalloc.stop()
    steps["no clip, no noise"] = plain_step(prepared, backend)
    steps["pm.ADVI"] = stock_step(kind, X, y, d, batch, backend)
    found = summary(measure(steps)) | {"peak": round(peak, 2)}
    low, high = found["/ pm.ADVI, range"]
    found["/ pm.ADVI"] = f"{found['/ pm.ADVI']} ({low}-{high})"
    return [f"{kind}, N={rows}, d={d}, B={batch}", *(found[column] for column in COLUMNS)]


def measure(steps):
    repeats = {}
    for name, step in steps.items():
        milliseconds(step, 3)
        repeats[name] = max(5, int(1e3 * SECONDS / milliseconds(step, 5)))
    rounds = partial(zip, steps)
    return [
        dict(rounds([milliseconds(step, repeats[name]) for name, step in steps.items()]))
        for _ in range(ROUNDS)
    ]


def summary(times):
    result = {name: round(float(np.median([t[name] for t in times])), 3) for name in times[0]}
    for other in ("no clip, no noise", "pm.ADVI"):
        ratios = [t["dp_advi"] / t[other] for t in times]
        result[f"/ {other}"] = round(float(np.median(ratios)), 2)
        result[f"/ {other}, range"] = [round(min(ratios), 2), round(max(ratios), 2)]
    return result


def table(columns, rows):
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|", flush=True)
    for cells in rows:
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def start_fit(what, backend="python"):
    """Fit once, with privacy or as PyMC does."""
    with build("logistic", *generate("logistic", 4000, 8), 8):
        if what == "private":
            pymc_dp.fit(epsilon=1, delta=1e-5, progressbar=False, backend=backend)
        else:
            pm.fit(1000, method="advi", progressbar=False, backend=backend).sample(1000)


def start_seconds(arguments):
    """Start a process of its own twice: with an empty cache, and with what the first left there."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTENSOR_FLAGS": f"base_compiledir={folder}"}
        for _ in range(2):
            start = time.perf_counter()
            command = [sys.executable, "-m", "benchmarks.steps", "--start", *arguments]
            subprocess.run(command, env=environment, check=True, capture_output=True)
            yield f"{time.perf_counter() - start:.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one case and our own start alone")
    parser.add_argument("backends", nargs="*", default=["numba", "c", "python"])
    parser.add_argument("--start", nargs="+", help="fit once: private or stock, and a backend")
    arguments = parser.parse_args()
    if arguments.start:
        start_fit(*arguments.start)
        return
    cases, starts = (CASES[3:4], STARTS[:1]) if arguments.quick else (CASES + PEER, STARTS)
    for backend in arguments.backends:
        print(f"\n{backend}: milliseconds a step\n")
        table(["case", *COLUMNS], (row(backend, *case) for case in cases))
    print("\nSeconds from process start to result, logistic N=4000, d=8\n")
    fits = ([" ".join(which), *start_seconds(which)] for which in starts)
    table(["fit", "empty cache", "warm cache"], fits)


if __name__ == "__main__":
    main()
