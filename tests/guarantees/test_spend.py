"""What is spent is what the plan says: rebuilt from the noise that was really drawn.

Guard 4 of the tests of a guarantee, with a spy on the one primitive that makes noise. Soundness,
rule 16: epsilon is always the plan's, also of a fit that stops early; rule 13: schedules are
functions of the step alone, composed exactly. One door out: no other code draws or reads rows.
"""

import ast
from pathlib import Path

import numpy as np
import pytest

import pymc_dp
import pymc_dp.privacy.clipping
import pymc_dp.privacy.wall
from pymc_dp import ReleaseError
from pymc_dp.accounting.plan import Full, Poisson, Release
from pymc_dp.privacy.contribution import FactoredContribution, Query
from pymc_dp.privacy.randomness import SecretRandom
from pymc_dp.privacy.wall import PrivacyWall
from tests import zoo
from tests.guarantees.toys import vectors, wall_of
from tests.plans import plan_from

DELTA = 1e-5
PACKAGE = Path(pymc_dp.__file__).parent


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    return zoo.odds(rng.normal(size=(80, 2)), rng.integers(0, 2, 80), person=np.arange(80) // 4)


class Spy:
    """Record how batches were drawn, at what norm records were clipped, and what noise came."""

    def __init__(self, patch):
        self.drawn, self.bounds, self.noise = [], [], []
        sizes = {kind: kind.sizes for kind in (Full, Poisson)}
        weigh, gaussian = pymc_dp.privacy.clipping.clip_factors, SecretRandom.rounded_gaussian

        def spy_sizes(sampler, rng, numbers):
            self.drawn.append(sampler)
            return sizes[type(sampler)](sampler, rng, numbers)

        def spy_weigh(norms, bound):
            self.bounds.append(bound)
            return weigh(norms, bound)

        def spy_gaussian(source, sd, step, size):
            self.noise.append(sd)
            return gaussian(source, sd, step, size)

        for kind in sizes:
            patch.setattr(kind, "sizes", spy_sizes)
        patch.setattr(pymc_dp.privacy.clipping, "clip_factors", spy_weigh)
        patch.setattr(SecretRandom, "rounded_gaussian", spy_gaussian)

    def spent(self, **terms):
        """Epsilon of what was done, each release by itself."""
        done = zip(self.drawn, self.bounds, self.noise, strict=True)
        releases = tuple(
            Release("seen", sampler, 1.0, sd / bound, 1) for sampler, bound, sd in done
        )
        return plan_from(releases, **{"neighbours": "add_remove", **terms}, delta=DELTA).epsilon()


@pytest.fixture
def spy(monkeypatch):
    return Spy(monkeypatch)


def fit(model, **settings):
    terms = {"n": 6, "sample_rate": 0.5, "accountant": "rdp", "delta": DELTA, "draws": 4}
    return pymc_dp.fit(model=model, progressbar=False, backend="python", **{**terms, **settings})


CASES = {
    "a budget": {"epsilon": 2.0},
    "replaced records": {"epsilon": 3.0, "accountant": "pld", "neighbours": "replace_one"},
    "full batches": {"epsilon": 2.0, "sampling": "full", "sample_rate": 1.0},
    "falling clip norm": {"epsilon": 2.0, "clip_norm": lambda t: 2.0 / (1 + t)},
    "rising sample rate": {"epsilon": 2.0, "sample_rate": lambda t: 0.4 + 0.1 * (t // 2)},
    "the paper's form": {"epsilon": 2.0, "aligned": False},
    "persons": {"epsilon": 2.0, "unit": "person"},
}


@pytest.mark.parametrize("case", CASES)
def test_a_complete_fit_spends_its_plan_exactly(model, spy, case):
    settings = CASES[case]
    privacy = fit(model, **settings)["privacy"].attrs
    terms = {"accountant": settings.get("accountant", "rdp")}
    terms["neighbours"] = settings.get("neighbours", "add_remove")
    assert len(spy.noise) == privacy["releases"] == privacy["releases_made"] == 6
    # the noise is that of the clip norm, and records are clipped to a little less
    assert 0.995 * privacy["epsilon"] < spy.spent(**terms) <= privacy["epsilon"]
    if "epsilon" in settings:
        assert privacy["epsilon"] <= settings["epsilon"]


def test_noise_that_is_short_is_caught(model, spy, monkeypatch):
    spied = SecretRandom.rounded_gaussian
    monkeypatch.setattr(
        SecretRandom, "rounded_gaussian", lambda s, sd, *of: spied(s, 0.98 * sd, *of)
    )
    privacy = fit(model, epsilon=2.0)["privacy"].attrs
    assert spy.spent(accountant="rdp") > 1.01 * privacy["epsilon"]


def test_a_release_that_is_not_booked_is_caught(model, spy, monkeypatch):
    release = PrivacyWall.release

    def twice(self, query):
        with monkeypatch.context() as patch:
            patch.setattr(PrivacyWall, "_book", lambda wall, name: wall._remaining[0])
            release(self, query)
        return release(self, query)

    monkeypatch.setattr(PrivacyWall, "release", twice)
    privacy = fit(model, epsilon=2.0)["privacy"].attrs
    assert privacy["releases_made"] == 6
    assert spy.spent(accountant="rdp") > 1.2 * privacy["epsilon"]


@pytest.mark.parametrize("error", [StopIteration, KeyboardInterrupt])
def test_stopping_early_does_not_lower_epsilon(model, spy, error):
    def callback(state, _, i):
        if i == 2:
            raise error

    complete = fit(model, noise_multiplier=1.7)["privacy"].attrs["epsilon"]
    for seen in (spy.drawn, spy.bounds, spy.noise):
        seen.clear()
    privacy = fit(model, noise_multiplier=1.7, callbacks=[callback])["privacy"]
    assert privacy.attrs["epsilon"] == complete
    assert privacy["epsilon_spent"].values[-1] == complete
    assert (privacy.attrs["releases_made"], privacy.attrs["releases"]) == (3, 6)
    assert len(spy.noise) == 3
    assert spy.spent(accountant="rdp") < complete


def test_an_interrupted_release_has_been_paid_for(model, monkeypatch):
    calls = []

    def interrupted(self, sd, step, size):
        calls.append(sd)
        raise KeyboardInterrupt

    monkeypatch.setattr(SecretRandom, "rounded_gaussian", interrupted)
    idata = fit(model, noise_multiplier=1.7)
    assert idata["privacy"].attrs["releases_made"] == len(calls) == 1
    assert idata["privacy"].attrs["epsilon"] > 0
    assert idata["fit_stats"].sizes["release"] == 0


def test_a_release_is_booked_before_any_record_is_read():
    booked = []

    def norms(batch, context):
        booked.append(len(wall.made))
        raise ValueError

    wall = wall_of(
        np.ones((3, 2)), FactoredContribution(2, 2, norms, vectors(2).weighted_sum), count=2
    )
    for _ in range(2):
        with pytest.raises(ReleaseError, match="graph failed"):
            wall.release(Query("score", None))
    assert booked == [1, 2]
    for name in ("score", "curvature"):
        with pytest.raises(ReleaseError, match=f"no further release '{name}'"):
            wall.release(Query(name, None))
    assert len(wall.made) == 2


# what only some modules may call
DOORS = {
    "rounded_gaussian": "privacy/wall",
    "SecretRandom": "privacy/wall tuning/tune",  # tune draws its number of runs and their settings
    "PrivacyWall": "driver/run",
    # the wall asks a mechanism of its own for what is no noisy sum
    "release": "driver/run privacy/wall",
    "open_private": "privacy/private_data privacy/wall",  # data of several models are joined
    # reconstruct reads new rows, which its caller hands over
    "take": "papers/sampling postprocess/vips privacy/clipping privacy/private_data",
    "_clipped_sum": "privacy/wall",
    "_book": "privacy/wall",
    # what holds the data is asked by the wall, and before a fit by what checks values
    "in_partitions": "model/columns model/value_checks privacy/wall",
    "clipped_sum": "privacy/chunks privacy/wall",  # in a task of a chunk, and in memory
    "clipped_sums": "privacy/clipping privacy/wall",
    "SumsByRecord SumsByUnit cut": "privacy/clipping",
    "urandom ChaCha": "privacy/randomness",
    "deterministic_noise": "",
}


def test_there_is_one_door():
    calls = [
        (path.relative_to(PACKAGE).as_posix().removesuffix(".py"), node.func)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]
    for names, modules in DOORS.items():
        found = {
            module
            for module, function in calls
            if getattr(function, "attr", getattr(function, "id", None)) in names.split()
            and getattr(getattr(function, "value", None), "id", "") != "np"
        }
        assert (names, " ".join(sorted(found))) == (names, modules)


def test_no_other_module_reaches_into_what_holds_data():
    holders = {"_partition", "_partitions", "_by_record", "_columns", "_units", "__units"}
    holders |= {"_generator", "_generators", "__columns"}
    reads = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and (node.attr in holders or "_PrivateData" in node.attr)
    }
    homes = ("wall.py", "clipping.py", "randomness.py", "private_data.py", "chunks.py")
    assert reads == {f"privacy/{home}" for home in homes}
