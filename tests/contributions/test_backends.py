"""Every backend computes the same clipped sums, and clips the most extreme records.

Soundness, rules 2 and 30. Compiled code multiplies by reciprocals and flushes subnormal numbers to
zero, in a process with PyTensor's own defaults. Compiling takes long: one process of each backend
computes everything that the tests compare. Numba takes a quarter of a minute for each kind of
matrix product, and C longer: backends that are no default are left to the slow suite.
"""

import json
import subprocess
import sys
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

IMPORTS = """
import json, sys
import numpy as np, pymc as pm, pymc_dp, pytensor.tensor as pt
from pymc_dp.contributions.gradients import gradient
from pymc_dp.contributions.gradients import padded
from pymc_dp.model import Column, separate
from pymc_dp.model.compilation import function
from pymc_dp.privacy import norms
from pymc_dp.privacy.clipping import SumsByRecord
from pymc_dp.privacy.randomness import Grid, SecretRandom
from pymc_dp.privacy.private_data import Partition, open_private

backend, found = sys.argv[1], {}
"""

NORMS = """
rows = pt.matrix("rows", dtype="float64")
EXTREME = [0.0, 1.0, -3.0, 5e-324, 1e-310, 1e-200, 1e-23, 1e25, 1e150, 1e200, 1e289, 3e290, 1e300]
EXTREME += [4.6e307, 1e308, 1.7e308]
pairs = np.array([(x, y) for x in EXTREME for y in EXTREME])
found["pairs"] = pairs.tolist()
found["norms"] = function([rows], norms.graph_norms(rows), backend)(pairs).tolist()
"""

# the norm of before: scaled by its largest entry
FAULT = """
genuine = norms.graph_norms

def graph_norms(rows):
    axes = tuple(range(1, rows.ndim))
    largest = pt.abs(rows).max(axis=axes, keepdims=True)
    safe = pt.switch(pt.eq(largest, 0), 1.0, largest)
    return safe.squeeze(axes) * pt.sqrt(pt.sqr(rows / safe).sum(axis=axes))

norms.graph_norms = graph_norms
"""

MENDED = """
norms.graph_norms = genuine
"""

SUMS = """
rng = np.random.default_rng(0)
with pm.Model() as model:
    X, group = pm.Data("X", rng.normal(size=(60, 2))), pm.Data("group", rng.integers(0, 4, 60))
    mean = X * pm.Normal("level", pm.Normal("mu"), 1.0, shape=(4, 2))[group]
    if kind == "products":
        mean += X @ pm.Normal("b", shape=(2, 2)) + pm.Normal("s") ** 2
    pm.Normal("y", mean, 1.0, observed=rng.normal(size=(60, 2)))
records, private = separate(model)
columns = open_private(private).columns
contribution = gradient(records, backend)
if backend == "jax":
    contribution = padded(contribution, {name: c.axis for name, c in columns.items()})

z = np.linspace(-1, 1, records.size)[None]
found["sums"] = []
for rows in (np.arange(60), np.array([3]), np.arange(7)):
    at = contribution.prepare({name: c.take(rows) for name, c in columns.items()}, z)
    lengths = contribution.norms(at, z)
    found["sums"] += [*lengths, *contribution.weighted_sum(at, z, np.fmin(1, 0.5 / lengths))]

point = np.full((1, records.size), 0.5)
found["moved"], good = [], {"X": (1.0, 1.0), "y": (1.0, 1.0), "group": 1}
for x in EXTREME:
    for y in EXTREME:
        pair = [{"X": (x, 1e-300), "y": (y, -y), "group": 0}, good]
        values = {k: np.array([record[k] for record in pair]) for k in good}
        pair_columns = {k: Column(v, 0, columns[k].dtype) for k, v in values.items()}
        held, rng = Partition(pair_columns, None), SecretRandom().generator
        sums_by_record = SumsByRecord(held, contribution, point, rng)
        grid = Grid.of(1.0, 0.0, contribution.size, True)
        with np.errstate(all="ignore"):
            both, one = (
                total.whole
                for drawn in (np.array([0, 1]), np.array([1]))
                for _, total in sums_by_record.clipped_sums(drawn, grid)
            )
        moved = float(np.linalg.norm(both - one)) if np.isfinite(both).all() else np.inf
        found["moved"].append(moved)

if backend != "python":  # of which all other tests are
    fit = {"n": 8, "noise_multiplier": 1, "delta": 1e-3, "noise_aware": False, "backend": backend}
    idata = pymc_dp.fit(model=model, progressbar=False, **fit)
    found["draws"] = idata["posterior"].sizes["draw"]
"""

# what JAX does by default on a GPU, and without PyTensor; on a processor it refuses such products
SETTINGS = {"jax_enable_x64": False, "jax_default_matmul_precision": "TF32_TF32_F32"}

SET = """
import jax, pytensor.link.jax.dispatch
from pymc_dp.model import compilation
from pytensor.link.jax.linker import JAXLinker

with pm.Model() as model:
    X = pm.Data("X", np.random.default_rng(0).normal(size=(200, 3)))
    pm.Normal("y", X @ pm.Normal("b", shape=3), 1.0, observed=np.ones(200))
records, private = separate(model)
columns = open_private(private).columns
z, batch = np.ones((1, 3)), {name: c.take(np.arange(200)) for name, c in columns.items()}

def total(backend):
    contribution = gradient(records, backend)
    at = contribution.prepare(batch, z)
    lengths = contribution.norms(at, z)
    return [*lengths, *contribution.weighted_sum(at, z, 0.5 / lengths)]

found["expected"] = total("python")
for name, value in json.loads(sys.argv[2]).items():
    default = getattr(jax.config, name)
    jax.config.update(name, value)
    found[name] = total("jax")
    jax.config.update(name, default)
# PyTensor's own linker leaves precision to JAX's settings
compilation.JaxInDoubles = JAXLinker
jax.config.update("jax_enable_x64", False)
found["own linker"] = total("jax")
"""

SHOW = """
print(json.dumps(found, default=float))
"""

slow = pytest.mark.slow
COMPILED = [
    pytest.param("jax", "products", marks=slow),
    pytest.param("numba", "levels alone", marks=slow),
    pytest.param("numba", "products", marks=slow),
    pytest.param("c", "products", marks=slow),
]


def run(backend, *program, argument=""):
    """Run a program in a process of its own; return what it shows, one dictionary a line."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "".join(program), backend, argument],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    shown = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return [{name: np.array(x) for name, x in json.loads(line).items()} for line in shown]


@cache
def process(backend, models):
    parts = [f"\nkind = {model!r}\n{SUMS}{SHOW}" for model in models]
    found = run(backend, IMPORTS, NORMS, *parts)
    return {model: SimpleNamespace(**of) for model, of in zip(models, found, strict=True)}


def computed(backend, model):
    models = ("products", "levels alone") if backend == "python" else (model,)
    return process(backend, models)[model]


@pytest.mark.parametrize(("backend", "model"), COMPILED)
def test_a_backend_changes_the_speed_and_nothing_else(backend, model):
    found = computed(backend, model)
    np.testing.assert_allclose(found.sums, computed("python", model).sums, rtol=1e-9)
    assert found.draws == 1000


@pytest.mark.parametrize(("backend", "model"), [("python", "products"), *COMPILED])
def test_no_extreme_record_passes_the_clip_norm(backend, model):
    found = computed(backend, model)
    with np.errstate(over="ignore"):
        told = np.hypot(*found.pairs.T)
    beyond = told > 1e290
    assert np.isinf(found.norms[beyond]).all()
    # what is subnormal may be taken for zero
    np.testing.assert_allclose(found.norms[~beyond], told[~beyond], rtol=1e-9, atol=1e-307)
    assert found.moved.max() <= 1
    assert found.moved.max() >= 0.99


@pytest.fixture(scope="module")
def jax():
    """What one process of JAX computes with each setting, and with planted faults."""
    program = (IMPORTS, FAULT, NORMS, MENDED, SET, SHOW)
    [found] = run("jax", *program, argument=json.dumps(SETTINGS))
    return found


@slow
def test_norms_that_divide_by_the_largest_entry_are_caught(jax):
    far = jax["pairs"].max(axis=1) > 4.5e307
    assert (jax["norms"][far] == 0).any()


@slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_jax_adds_up_in_double_precision_whatever_its_settings_are(jax, setting):
    np.testing.assert_allclose(jax[setting], jax["expected"], rtol=1e-13)


@slow
def test_sums_in_single_precision_are_caught(jax):
    assert np.abs(jax["own linker"] / jax["expected"] - 1).max() > 1e-8
