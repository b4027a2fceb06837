"""The truth benchmark says what its fits say, and fits nothing twice."""

import warnings

import numpy as np
import pymc as pm
import pytest
from scipy.stats import norm

import pymc_dp
from benchmarks.truth import run
from benchmarks.truth.cell import Cell, Fit, private_fits
from benchmarks.truth.problem import Problem, data_set, labels, reported
from benchmarks.truth.problems import PROBLEMS
from benchmarks.truth.run import Place, Task, file_of, read
from benchmarks.truth.summary import summarise
from pymc_dp.errors import PrivacyWarning
from pymc_dp.model.compilation import without_c

SETS, SIZE = 1000, 2
PLAIN_SD = np.array([0.5, 2.0])


def made_up_fits(noise, claimed):
    """Posteriors whose means are off by ``noise`` plain sds, and that claim ``claimed`` of them."""
    rng, half = np.random.default_rng(5), norm.ppf(0.95) * claimed * PLAIN_SD
    fits, references = [], {}
    for k in range(SETS):
        truth = rng.normal(size=SIZE)
        mean = truth + noise * PLAIN_SD * rng.normal(size=SIZE)
        numbers = (truth, mean, claimed * PLAIN_SD, mean - half, mean + half)
        fits.append(Fit(k, "", 0.1, *map(list, numbers)))
        covariance = list(np.diag(PLAIN_SD**2).ravel())
        references[k] = fits[-1]._replace(sd=list(PLAIN_SD), covariance=covariance)
    return fits, references


@pytest.mark.parametrize(("noise", "claimed"), [(1.0, 1.0), (2.0, 1.0)])
def test_a_calibrated_posterior_is_called_calibrated_and_a_narrow_one_narrow(noise, claimed):
    fits, references = made_up_fits(noise, claimed)
    fits[3] = Fit(3, "", 0.0, [], [], [], [], [], error="ValueError: no")
    found = summarise(fits, references)
    each, covered = found.coefficients, 1 - 2 * norm.sf(norm.ppf(0.95) * claimed / noise)
    np.testing.assert_allclose(each.coverage, covered, atol=0.08)
    np.testing.assert_allclose(each.calibration, claimed / noise, rtol=0.12)
    np.testing.assert_allclose(each.error, noise, rtol=0.12)
    np.testing.assert_allclose(each.width, claimed, rtol=1e-9)
    assert found.joint == pytest.approx(noise**2, rel=0.2)
    assert (found.sets, found.failures) == (SETS, 1)


def coins():
    """A problem that is fitted in no time."""

    def describe(data):
        pm.Bernoulli("y", pm.Beta("p", 2, 2), observed=data["y"])

    draw_truth = lambda rng: {"p": rng.beta(2, 2)}  # noqa: E731
    draw_data = lambda truth, rng: {"y": rng.binomial(1, truth["p"], 300)}  # noqa: E731
    return Problem("coins", "a", draw_truth, draw_data, describe, ("vips",), backend="python")


def test_an_interrupted_cell_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setitem(run.PROBLEMS, "coins", coins())
    place, cell, asked = Place(tmp_path, "now"), Cell("coins", "vips", 1.0), []
    run.run(place, Task(cell, range(2)))
    path = file_of(*place, cell)
    before = path.read_text()
    path.write_text(f"{before}{before[: len(before) // 3]}\n")  # killed while it wrote

    def counted(problem, method, epsilon, sets):
        asked.extend(sets)
        return private_fits(problem, method, epsilon, sets)

    monkeypatch.setattr(run, "private_fits", counted)
    run.run(place, Task(cell, range(4)))
    assert asked == [2, 3]
    assert sorted(read(path)) == [0, 1, 2, 3]
    # fits of another state of the code are not read
    assert run.stored(place._replace(version="later"), Task(cell, range(1))) == {}


def ready(name):
    """Return a problem and its data; tables are no part of the repository."""
    try:
        return PROBLEMS[name], data_set(PROBLEMS[name], 0)
    except SystemExit as missing:
        pytest.skip(str(missing))


QUICK = ("exponential", "linear-10", "rate-1")
EVERY = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in PROBLEMS]


@pytest.mark.parametrize("name", EVERY)
def test_a_problem_s_model_is_one_of_records_and_its_methods_take_it(name):
    problem, here = ready(name)
    model = problem.model(here.data)
    unit = problem.unit or None
    with warnings.catch_warnings(), without_c():
        warnings.simplefilter("ignore", PrivacyWarning)
        for method in problem.methods:
            planned = pymc_dp.plan(model, method=method, epsilon=1.0, delta=1e-5, unit=unit)
            assert planned.epsilon <= 1.0
    names = {variable.name for variable in model.free_RVs + model.deterministics}
    shown = reported(problem, here.truth)
    assert names >= shown.keys()
    of_reference = problem.regular_model(here.data)
    assert set(here.truth) >= {variable.name for variable in of_reference.free_RVs}
    assert len(labels(shown)) == sum(value.size for value in shown.values())
