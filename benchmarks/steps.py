"""Print the benchmark tables of the docs: ``python -m benchmarks.steps [--quick] [backend ...]``.

Every case runs in a process of its own. Ratios are medians over alternating rounds of one run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

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


def python(*arguments, **environment):
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, check=True
    )
    return done.stdout


def steps(backend, cases):
    print(f"\n{backend}: milliseconds a step\n")
    print("| case | " + " | ".join(COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 1) + "|", flush=True)
    for kind, rows, d, batch in cases:
        output = python("benchmarks.step", backend, kind, str(rows), str(d), str(batch))
        found = json.loads(output.splitlines()[-1])
        low, high = found["/ pm.ADVI, range"]
        found["/ pm.ADVI"] = f"{found['/ pm.ADVI']} ({low}-{high})"
        cells = " | ".join(str(found[column]) for column in COLUMNS)
        print(f"| {kind}, N={rows}, d={d}, B={batch} | {cells} |", flush=True)


def starts(which):
    print("\nSeconds from process start to result, logistic N=4000, d=8\n")
    print("| fit | empty cache | warm cache |\n|---|---|---|", flush=True)
    for arguments in which:
        with tempfile.TemporaryDirectory() as folder:
            taken = [seconds(arguments, folder) for _ in range(2)]
        print(f"| {' '.join(arguments)} | {taken[0]:.1f} | {taken[1]:.1f} |", flush=True)


def seconds(arguments, folder):
    start = time.perf_counter()
    python("benchmarks.start", *arguments, PYTENSOR_FLAGS=f"base_compiledir={folder}")
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one case and our own start alone")
    parser.add_argument("backends", nargs="*", default=["numba", "c", "python"])
    arguments = parser.parse_args()
    for backend in arguments.backends:
        steps(backend, CASES[3:4] if arguments.quick else CASES + PEER)
    starts(STARTS[:1] if arguments.quick else STARTS)
    if not arguments.quick:
        print("\nTen million records in a memory map\n\n" + python("benchmarks.large"))


if __name__ == "__main__":
    main()
