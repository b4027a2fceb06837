"""The truth benchmark says what its fits say, and fits nothing twice."""

import math
import warnings

import numpy as np
import pymc as pm
import pytest
from scipy.stats import chi2, gamma, norm

import pymc_dp
from benchmarks.truth import real, run
from benchmarks.truth.cell import Cell, Fit, private_fits, reference_fits
from benchmarks.truth.laplace import approximate, draw_along
from benchmarks.truth.problem import Problem, data_set, labels, reported
from benchmarks.truth.problems import PROBLEMS
from benchmarks.truth.run import Place, Task
from benchmarks.truth.same_rows import compare_rows
from benchmarks.truth.store import append, file_of, read
from benchmarks.truth.summary import joint_error, summarise
from benchmarks.truth.table import row
from pymc_dp.errors import PrivacyWarning
from pymc_dp.model.modes import without_c

ALPHA = 1e-6
ROWS = 300


# --- statistics ----------------------------------------------------------------------------------

SETS, SIZE = 1000, 2
REACH = norm.ppf(0.95)
PLAIN_SD = np.array([0.5, 2.0])


def made_up_fits(noise, claimed):
    """Posteriors whose means are off by ``noise`` plain sds, and that claim ``claimed`` of them."""
    rng = np.random.default_rng(5)
    fits, references = [], {}
    for k in range(SETS):
        truth = rng.normal(size=SIZE)
        mean, sd = truth + noise * PLAIN_SD * rng.normal(size=SIZE), claimed * PLAIN_SD
        low, high = mean - REACH * sd, mean + REACH * sd
        fits.append(Fit(k, "", 0.1, *map(list, (truth, mean, sd, low, high))))
        covariance = list(np.diag(PLAIN_SD**2).ravel())
        references[k] = fits[-1]._replace(sd=list(PLAIN_SD), covariance=covariance)
    return fits, references


@pytest.mark.parametrize("noise", [1.0, 1.5])
def test_a_calibrated_posterior_is_called_calibrated(noise):
    found = summarise(*made_up_fits(noise, claimed=noise))
    each = found.coefficients
    np.testing.assert_allclose(each.coverage, 0.9, atol=5 * math.sqrt(0.09 / SETS))
    np.testing.assert_allclose(each.calibration, 1.0, atol=0.12)
    np.testing.assert_allclose(each.error, noise, rtol=0.12)
    np.testing.assert_allclose(each.width, noise, rtol=1e-9)
    np.testing.assert_allclose(each.bias, 0.0, atol=5 * noise / SETS**0.5)
    assert found.joint == pytest.approx(noise**2, rel=0.2)
    assert (found.sets, found.failures, found.seconds) == (SETS, 0, 0.1)


def test_a_posterior_that_is_too_narrow_is_called_so():
    each = summarise(*made_up_fits(noise=2.0, claimed=1.0)).coefficients
    np.testing.assert_allclose(each.calibration, 0.5, rtol=0.12)
    np.testing.assert_allclose(each.coverage, 1 - 2 * norm.sf(REACH / 2), atol=0.08)


def test_a_fit_without_a_posterior_counts_as_a_failure():
    fits, references = made_up_fits(1.0, 1.0)
    fits[3] = Fit(3, "", 0.0, [], [], [], [], [], error="ValueError: no")
    found = summarise(fits, references)
    assert (found.sets, found.failures) == (SETS, 1)
    assert summarise(fits[3:4], references) is None
    assert "1000 (1 failed)" in row(Cell("p", "vips", 1.0), found)


def test_the_joint_error_has_as_many_directions_as_are_free():
    """Shares sum to one: e' H e in two of three directions."""
    p = np.array([0.5, 0.3, 0.2])
    covariance = (np.diag(p) - np.outer(p, p)) / 100
    rng = np.random.default_rng(1)
    errors = rng.multivariate_normal(np.zeros(3), covariance, 500, method="eigh")
    reference = Fit(0, "", 0.0, [], [], list(np.sqrt(np.diag(covariance))), [], [])
    reference = reference._replace(covariance=list(covariance.ravel()))
    total = sum(2 * joint_error(e, reference) for e in errors)
    assert chi2.ppf(ALPHA, 1000) < total < chi2.isf(ALPHA, 1000)


# --- private posteriors beside that without privacy of the same rows ----------------------------


def fits_of_rows(noise, claimed, doubts=0):
    """Fits whose means are ``noise`` plain sds from the plain ones, and allow for ``claimed``."""
    rng = np.random.default_rng(3)
    plain = Fit(0, "", 0.1, [], [], list(PLAIN_SD), [], [])
    fits, references = [], {}
    for k in range(SETS):
        mean = rng.normal(size=SIZE)
        references[k] = plain._replace(set=k, mean=list(mean))
        found = mean + noise * PLAIN_SD * rng.normal(size=SIZE)
        sd = PLAIN_SD * (1 + claimed**2) ** 0.5
        fits.append(plain._replace(set=k, mean=list(found), sd=list(sd), doubts=doubts))
    return fits, references


@pytest.mark.parametrize("noise", [0.3, 1.0, 10.0])
def test_a_fit_whose_added_width_is_its_added_error_is_called_calibrated(noise):
    found = compare_rows(*fits_of_rows(noise, noise))
    np.testing.assert_allclose(found.calibrated, 1.0, rtol=5 / (2 * SETS) ** 0.5)
    np.testing.assert_allclose(found.ratio, (1 + noise**2) ** 0.5)
    assert found.silent < 0.01


@pytest.mark.parametrize(("doubts", "silent"), [(0, 1.0), (1, 0.0)])
def test_a_fit_far_from_its_rows_is_silent_without_a_doubt(doubts, silent):
    found = compare_rows(*fits_of_rows(100.0, 0.3, doubts))
    assert found.silent == pytest.approx(silent, abs=0.02)
    assert found.warned == doubts
    assert found.calibrated.min() > 100


def test_a_fit_of_a_made_up_table_says_what_it_doubts():
    problem = real.made_up(200)
    [fit] = private_fits(problem, "dp_advi", 1.0, [0])
    [plain] = reference_fits(problem, [0])
    assert fit.error is None
    assert fit.doubts >= 0
    assert fit.digest == plain.digest
    assert compare_rows([fit], {0: plain}).z.shape == (5,)


# --- the posterior without privacy ---------------------------------------------------------------


def quadratic(mode, curvature):
    def loss(z):
        return 0.5 * (z - mode) @ curvature @ (z - mode), curvature @ (z - mode)

    return loss


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e8])
def test_a_normal_density_is_found_from_afar(condition):
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    curvature = (Q * np.geomspace(1, condition, 5)) @ Q.T
    mode = rng.normal(size=5)
    found = approximate(quadratic(mode, curvature), mode + 3.0)
    np.testing.assert_allclose(found.mode, mode, atol=2e-3)
    np.testing.assert_allclose(found.curvature, curvature, rtol=1e-3, atol=1e-6 * condition)
    draws = found.draw(2000, rng)
    size = np.einsum("ni,ij,nj->", draws - found.mode, curvature, draws - found.mode)
    assert chi2.ppf(ALPHA, 10_000) < size < chi2.isf(ALPHA, 10_000)


def test_a_spread_is_drawn_from_its_own_density():
    """Log precision t with density exp(a t - b e^t), and a normal of that precision beside it."""
    a, b = 3.0, 2.0

    def loss(z):
        x, t = z
        value = -(a * t - b * np.exp(t)) + 0.5 * np.exp(t) * x**2 - 0.5 * t
        slope = -(a - b * np.exp(t)) + 0.5 * np.exp(t) * x**2 - 0.5
        return value, np.array([np.exp(t) * x, slope])

    draws = draw_along(loss, np.zeros(2), 1, 5000, np.random.default_rng(3))
    precision = np.exp(draws[:, 1])
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        below = np.mean(precision < gamma.ppf(share, a, scale=1 / b))
        assert below == pytest.approx(share, abs=0.035)
    assert np.std(draws[:, 0] * precision**0.5) == pytest.approx(1.0, abs=0.05)


def coins():
    """A problem that is fitted in no time."""

    def model(data):
        with pm.Model() as built:
            pm.Bernoulli("y", pm.Beta("p", 2, 2), observed=data["y"])
        return built

    return Problem(
        "coins",
        "a",
        lambda rng: {"p": rng.beta(2, 2)},
        lambda truth, rng: {"y": rng.binomial(1, truth["p"], ROWS)},
        model,
        ("vips",),
        backend="python",
    )


def test_the_reference_is_the_posterior():
    for fit in reference_fits(coins(), [0, 1, 2]):
        ones = data_set(coins(), fit.set).data["y"].sum()
        a, b = 2 + ones, 2 + ROWS - ones
        sd = math.sqrt(a * b / (a + b) ** 2 / (a + b + 1))
        assert fit.mean[0] == pytest.approx(a / (a + b), abs=0.25 * sd)
        assert fit.sd[0] == pytest.approx(sd, rel=0.15)
        assert fit.covariance == pytest.approx([fit.sd[0] ** 2], rel=0.01)


# --- cells and their store -----------------------------------------------------------------------


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setitem(run.PROBLEMS, "coins", coins())
    return Place(tmp_path, "now")


VIPS = Cell("coins", "vips", 1.0)


def test_a_data_set_is_fixed_by_its_number():
    assert data_set(coins(), 4).digest == data_set(coins(), 4).digest
    assert data_set(coins(), 4).digest != data_set(coins(), 5).digest


def test_private_fits_are_of_the_data_sets_that_were_asked_for():
    fits = list(private_fits(coins(), "vips", 1e4, [0, 3]))
    assert [fit.set for fit in fits] == [0, 3]
    for fit in fits:  # so little noise that the mean is that of the data set's own outcomes
        here = data_set(coins(), fit.set)
        assert fit.truth == pytest.approx([float(here.truth["p"])], rel=1e-6)
        assert fit.mean[0] == pytest.approx((2 + here.data["y"].sum()) / (4 + ROWS), abs=0.02)
        assert fit.low[0] < fit.mean[0] < fit.high[0]


def test_an_interrupted_cell_goes_on_where_it_stopped(place, monkeypatch):
    run.run(place, Task(VIPS, range(2)))
    path = file_of(*place, VIPS)
    before = path.read_text()
    path.write_text(before + before[: len(before) // 3])  # killed while it wrote
    asked = []

    def counted(problem, method, epsilon, sets):
        asked.extend(sets)
        return private_fits(problem, method, epsilon, sets)

    monkeypatch.setattr(run, "private_fits", counted)
    append(path, ())
    with path.open("a") as file:
        file.write("\n")
    run.run(place, Task(VIPS, range(4)))
    assert asked == [2, 3]
    assert sorted(read(path)) == [0, 1, 2, 3]


def test_fits_of_another_state_of_the_code_are_not_read(place):
    run.run(place, Task(VIPS, range(1)))
    assert run.stored(place._replace(version="later"), Task(VIPS, range(1))) == {}
    reference = run.reference_of("coins")
    later = place._replace(version="later")
    assert file_of(*place, reference) == file_of(*later, reference)


def test_a_fit_that_fails_is_counted_and_the_others_go_on(monkeypatch):
    real = run_releases_of(monkeypatch)
    fits = list(private_fits(coins(), "vips", 1.0, [0, 1]))
    assert real.calls == 2
    assert fits[0].error == "RuntimeError: no luck"
    assert fits[1].error is None


def run_releases_of(monkeypatch):
    """Let the first fit of a cell fail."""
    from benchmarks.truth import cell

    class Unlucky:
        calls = 0
        real = staticmethod(cell.run_releases)

        def __call__(self, *arguments):
            Unlucky.calls += 1
            if Unlucky.calls == 1:
                raise RuntimeError("no luck")
            return self.real(*arguments)

    unlucky = Unlucky()
    monkeypatch.setattr(cell, "run_releases", unlucky)
    return unlucky


# --- the problems --------------------------------------------------------------------------------


def ready(name):
    """Return a problem and its data; tables are no part of the repository."""
    try:
        return PROBLEMS[name], data_set(PROBLEMS[name], 0)
    except SystemExit as missing:
        pytest.skip(str(missing))


QUICK = ("exponential", "normal", "linear-10", "age-in-years", "weibull-potential", "rate-1")
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
    of_reference = problem.regular(here.data) if problem.regular else model
    assert set(here.truth) >= {variable.name for variable in of_reference.free_RVs}
    assert len(labels(shown)) == sum(value.size for value in shown.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["groups-8", "correlated-slopes", "student-t", "rare-binary"])
def test_references_hold_their_truth(name):
    """The squared distance of the truth from a right posterior has its dimension for a mean."""
    problem, _ = ready(name)
    fits = list(reference_fits(problem, list(range(10))))
    size = np.mean([joint_error(np.subtract(f.mean, f.truth), f) for f in fits])
    freedom = 10 * len(fits[0].truth)
    assert chi2.ppf(ALPHA, freedom) / freedom < size < 1.3 * chi2.isf(ALPHA, freedom) / freedom
