"""Every backend gives the same clipped sums, in a process with PyTensor's own defaults."""

import json
import subprocess
import sys

import numpy as np
import pytest

PROGRAM = """
import json, sys
import numpy as np, pymc as pm, pymc_dp
from pymc_dp.contributions import gradient
from pymc_dp.contributions.padding import padded
from pymc_dp.model import separate
from pymc_dp.privacy.private_data import open_private

rng = np.random.default_rng(0)
X, group = rng.normal(size=(60, 3)), rng.integers(0, 4, 60)
with pm.Model() as model:
    b, level = pm.Normal("b", shape=3), pm.Normal("level", pm.Normal("mu"), 1.0, shape=4)
    pm.Bernoulli("y", logit_p=X @ b + level[group], observed=rng.integers(0, 2, 60))
records, private = separate(model)
columns = open_private(private).columns
contribution = gradient(records, sys.argv[1])
if sys.argv[1] == "jax":
    contribution = padded(contribution, {name: c.axis for name, c in columns.items()})
z = np.linspace(-1, 1, records.size)[None]
found = []
for rows in (np.arange(60), np.array([3]), np.arange(7)):
    at = contribution.prepare({name: c.take(rows) for name, c in columns.items()}, z)
    norms = contribution.norms(at, z)
    found += [*norms, *contribution.weighted_sum(at, z, np.fmin(1, 0.5 / norms))]
idata = pymc_dp.fit(
    model=model, n=8, noise_multiplier=1, delta=1e-3, backend=sys.argv[1], progressbar=False
)
assert idata["posterior"].sizes["draw"] == 1000
print(json.dumps(list(map(float, found))))
"""


def run(backend):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, backend],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def reference():
    return run("python")


@pytest.mark.parametrize("backend", [pytest.param("c", marks=pytest.mark.slow), "numba", "jax"])
def test_a_backend_changes_the_speed_and_nothing_else(backend, reference):
    np.testing.assert_allclose(run(backend), reference, rtol=1e-9)
