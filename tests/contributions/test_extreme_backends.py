"""Every backend clips the most extreme records: rounding and flushing let none of them past.

Soundness, rules 2 and 30. Compiled code multiplies by reciprocals and flushes subnormal numbers to
zero, in a process with PyTensor's own defaults.
"""

import json
import subprocess
import sys

import numpy as np
import pytest

PROGRAM = """
import json, sys
import numpy as np, pymc as pm, pytensor.tensor as pt
from pymc_dp.contributions import gradient
from pymc_dp.contributions.padding import padded
from pymc_dp.model import Column, PrivateData, separate
from pymc_dp.model.compile import function
from pymc_dp.privacy import norms
from pymc_dp.privacy.clipping import opened
from pymc_dp.privacy.randomness import SecretRandom

backend, fault = sys.argv[1:]
if fault == "divide":  # the norm of before: scaled by its largest entry
    def graph_norms(rows):
        axes = tuple(range(1, rows.ndim))
        largest = pt.abs(rows).max(axis=axes, keepdims=True)
        safe = pt.switch(pt.eq(largest, 0), 1.0, largest)
        return safe.squeeze(axes) * pt.sqrt(pt.sqr(rows / safe).sum(axis=axes))

    norms.graph_norms = graph_norms
rows = pt.matrix("rows", dtype="float64")
EXTREME = [0.0, 1.0, -3.0, 5e-324, 1e-310, 1e-200, 1e-23, 1e25, 1e150, 1e200, 1e289, 3e290, 1e300]
EXTREME += [4.6e307, 1e308, 1.7e308]
pairs = np.array([(x, y) for x in EXTREME for y in EXTREME])
found = [float(x) for x in function([rows], norms.graph_norms(rows), backend)(pairs)]

with pm.Model() as model:
    b, s = pm.Normal("b", shape=(2, 2)), pm.Normal("s")
    X = pm.Data("X", np.ones((4, 2)))
    pm.Normal("y", X @ b + s * s, 1.0, observed=np.zeros((4, 2)))
records, private = separate(model)
contribution = gradient(records, backend)
if backend == "jax":
    contribution = padded(contribution, {name: x.axis for name, x in private.spec.items()})
point = np.full((1, records.size), 0.5)
moved, good = [], {"X": (1.0, 1.0), "y": (1.0, 1.0)}
for x in EXTREME:
    for y in EXTREME:
        pair = [{"X": (x, 1e-300), "y": (y, -y)}, good]
        values = {k: np.array([record[k] for record in pair]) for k in good}
        data = PrivateData({k: Column(v, 0, "float64") for k, v in values.items()})
        sums_by_record = opened(data, SecretRandom())
        with np.errstate(all="ignore"):
            totals = [
                part.total
                for drawn in (np.array([0, 1]), np.array([1]))
                for part in sums_by_record.clipped_sums(contribution, drawn, point, 1.0)
            ]
            both, one = totals
        moved.append(float(np.linalg.norm(both - one)) if np.isfinite(both).all() else np.inf)
print(json.dumps([pairs.tolist(), found, moved]))
"""


def run(backend, fault="none"):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, backend, fault],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [np.array(part) for part in json.loads(done.stdout.splitlines()[-1])]


@pytest.mark.parametrize(
    "backend", ["python", "numba", "jax", pytest.param("c", marks=pytest.mark.slow)]
)
def test_no_extreme_record_passes_the_clip_norm(backend):
    pairs, found, moved = run(backend)
    with np.errstate(over="ignore"):
        told = np.hypot(*pairs.T)
    beyond = told > 1e290
    assert np.isinf(found[beyond]).all()
    # what is subnormal may be taken for zero
    np.testing.assert_allclose(found[~beyond], told[~beyond], rtol=1e-9, atol=1e-307)
    assert moved.max() <= 1
    assert moved.max() >= 0.99


def test_norms_that_divide_by_the_largest_entry_are_caught():
    pairs, found, _ = run("jax", "divide")
    far = pairs.max(axis=1) > 4.5e307
    assert (found[far] == 0).any()
