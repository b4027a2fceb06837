"""How long a fit takes, told beforehand from made-up rows, and the backend that follows."""

import time

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.compiling import compile
from pymc_dp.driver import compile_method as driver
from pymc_dp.driver import run_time as timing
from pymc_dp.driver.run_time import (
    NOMINAL_RECORDS,
    SHARE_OF_BATCH,
    ReleaseTime,
    RunTime,
    in_words,
    run_time,
    seconds_of,
    timed,
)
from pymc_dp.driver.setup import Setup, set_up
from pymc_dp.methods.method import Compiled
from pymc_dp.privacy.contribution import RowContribution
from pymc_dp.privacy.private_data import Column, PrivateData
from tests.plans import plan_from, release_from

SHORT = RunTime(1, {"few": 1.0})
BUDGET = {"epsilon": 1, "delta": 1e-5}


@pytest.fixture(autouse=True)
def true_times(monkeypatch):
    """Time releases: other tests do not (see tests/conftest.py)."""
    monkeypatch.setattr(timing, "SHARE_OF_BATCH", SHARE_OF_BATCH)
    for module in (timing, driver):
        monkeypatch.setattr(module, "seconds_of", seconds_of)


def coin(rows):
    with pm.Model() as model:
        pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=np.resize([0, 1, 1], rows))
    return model


def busy(seconds):
    """Work for so long on a processor."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def working(once, each):
    """Take ``once`` seconds for a batch, and ``each`` for a record."""

    def prepare(batch, context):
        busy(once + each * len(batch["x"]))
        return batch

    return RowContribution(1, 1, lambda at, context: np.ones((len(at["x"]), 1)), prepare)


def plan_of(number=None):
    releases = [
        release_from("few", "full", 1.0, 1.0, 1.0, 2),
        release_from("many", "poisson", 0.1, 1.0, 1.0, 30),
    ]
    return plan_from(releases, "add_remove", 1e-5, "rdp", number)


@pytest.mark.parametrize(("once", "each"), [(0.0, 1e-4), (0.01, 1e-5), (0.02, 0.0)])
def test_a_release_is_timed_by_its_fixed_part_and_by_its_records(once, each):
    data = PrivateData({"x": Column(np.zeros(3), 0, "float64")})
    cost = timed(working(once, each), data, None, batch=20_000)
    assert abs(cost.once - once) <= 0.5 * once + 1e-3
    assert abs(cost.each - each) <= 0.3 * each + 2e-6


def test_the_time_of_a_plan_is_that_of_its_releases_and_of_the_records_that_they_draw():
    times = {"few": ReleaseTime(0.9, 1e-3, update=0.1), "many": ReleaseTime(0.5, 1e-3)}
    found = run_time(plan_of(5000), times)
    assert found.seconds_of == pytest.approx({"few": 2 * (1 + 5), "many": 30 * (0.5 + 0.5)})
    assert found.seconds == pytest.approx(42)
    assert str(found) == ("about 42 s of one processor for 5,000 records, 30 s of it for 'many'")
    assert str(run_time(plan_of(), {})) == "a time that cannot be foretold"
    assert in_words(0.3) == "less than a second"


def test_the_number_of_records_has_no_part_in_the_choice_of_a_backend(monkeypatch):
    """It is private: the public number is taken in its place, or a nominal one."""
    asked = []
    monkeypatch.setattr(timing, "number_of_records", lambda data: pytest.fail("it was counted"))
    monkeypatch.setattr(
        driver, "timed", lambda *args: asked.append(args[-1]) or ReleaseTime(0.0, 1e-9 * args[-1])
    )
    for rows in (60, 600):
        fit = set_up(coin(rows), "dp_advi", None, **BUDGET)
        driver.compile_method(fit, None)
    assert set(asked) == {NOMINAL_RECORDS}
    found = pymc_dp.plan(coin(60), num_records=1000, **BUDGET).run_time
    assert found.records == 1000


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ({"python": 1.0}, "python"),  # numba is not even compiled
        ({"python": 500.0, "numba": 30.0}, "numba"),
        ({"python": 500.0, "numba": 700.0}, "python"),
        ({"python": 500.0, "numba": None}, "python"),  # an operation that it does not know
    ],
)
def test_the_backend_is_the_one_that_is_faster_on_made_up_rows(monkeypatch, seconds, chosen):
    def compiled(setup, backend):
        if seconds[backend] is None:
            raise NotImplementedError
        # what follows a release takes as long on every backend
        time = ReleaseTime(seconds[backend] / 2, 0.0, update=1000.0)
        return Compiled({}, backend, times={"few": time})

    monkeypatch.setattr(driver, "_compile", compiled)
    setup = Setup("dp_advi", None, None, None, plan_of())
    assert driver.compile_method(setup, None).update == chosen
    monkeypatch.setitem(seconds, "c", 900.0)
    assert driver.compile_method(setup, "c").update == "c"  # the caller's wins
    with pytest.raises(ValueError, match="backend='theano' is unknown"):
        driver.compile_method(setup, "theano")


def test_a_long_fit_is_announced_before_it_starts_and_not_in_its_result(monkeypatch):
    monkeypatch.setattr(timing, "ANNOUNCED_SECONDS", 0.0)
    number = 20_717
    with pytest.warns(UserWarning, match="14 releases take") as warned:
        idata = pymc_dp.fit(model=coin(number), progressbar=False, **BUDGET)
    told = str([node.attrs for node in idata.subtree]) + str(warned[0].message)
    assert str(number) not in told
    assert f"{number:,}" not in told


def test_a_dry_run_says_how_long_the_fit_takes():
    dry = pymc_dp.plan(coin(60), num_records=10**9, epsilon=1, delta=1e-10)
    assert 1 < dry.run_time.seconds < 1e5
    assert f"Releases take {dry.run_time}." in str(dry)
    assert "of one processor for 1,000,000,000 records" in str(dry)


def coins(persons, rows):
    """As many coins of each person."""
    with pm.Model() as model:
        pm.Data("person", np.repeat(np.arange(persons), rows))
        pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=np.resize([0, 1, 1], persons * rows))
    return model


def test_a_dry_run_counts_a_row_for_each_unit_since_their_number_is_private():
    dry = pymc_dp.plan(coins(30, 8), unit="person", num_records=10**7, epsilon=1, delta=1e-8)
    assert "for 10,000,000 rows, one for each `person`" in str(dry)


def test_whoever_holds_the_data_is_told_the_time_of_all_rows(monkeypatch):
    setup = set_up(coins(30, 8), "dp_advi", None, unit="person", **BUDGET)
    asked = []
    monkeypatch.setattr(timing, "run_time", lambda *terms: asked.append(terms[-1]) or SHORT)
    timing.announce(setup.plan, setup.data, {})
    assert asked == [240]


@pytest.mark.parametrize("backend", ["numba", "c"])
def test_rounds_run_in_python_and_are_exact_on_any_backend(monkeypatch, backend):
    """Other backends would compile their scores and nothing else: most of a round is NumPy's."""
    asked, mode = set(), compile.compile_mode
    monkeypatch.setattr(compile, "compile_mode", lambda name: asked.add(name) or mode(name))
    compiled = driver.compile_method(set_up(coin(60), "dp_advi", None, **BUDGET), backend)
    assert compiled.is_exact
    assert asked <= {"python"}


def test_no_backend_is_compiled_in_vain(monkeypatch):
    monkeypatch.setattr(driver, "WORTH_COMPILING", 0.0)
    asked, compiled = [], driver._compile
    monkeypatch.setattr(driver, "_compile", lambda *x: asked.append(x[1]) or compiled(*x))
    driver.compile_method(set_up(coin(60), "dp_advi", None, **BUDGET), None)
    assert asked == ["python"]


def test_rounds_after_gradient_steps_run_where_the_steps_do():
    steps = {"sample_rate": 0.5, "clip_norm": 1.0, "epsilon": np.inf, "delta": 1e-5}
    assert set_up(coin(60), "dp_advi", 100, **steps).method.compile("python").runs_on is None
