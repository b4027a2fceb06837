"""Private checks of a fit keep the promises that fits keep."""

import warnings
from functools import cache

import numpy as np
import pytest

import pymc_dp
from pymc_dp.checking import private_checks
from pymc_dp.contributions import checks as contributed
from pymc_dp.privacy import clipping
from tests.conformance import checks
from tests.conformance.model_classes import draw_data, model_of
from tests.conformance.recording import SETTINGS, recorded

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")

TERMS = {"noise_multiplier": 5.0, "delta": 1e-5, "backend": "python"}
DATA, OTHER = draw_data(checks.ROWS, seed=0), draw_data(checks.OTHER_ROWS, seed=5)


def compare(idata, model, data, **terms):
    read = [str(v.name) for v in (*model.data_vars, *model.observed_RVs)]
    records = {k: data[k] for k in read if k != "person_id" or "unit" in terms}
    half = idata.copy(deep=True)
    for values in half["posterior"].data_vars.values():
        values.values = 0.5 * values.values
    models = {"one": (idata, model), "half": (half, model)}
    return pymc_dp.score(models, data=records, **terms)


CHANGE, EDGES = {("X", 0): [-1.0, 1.0]}, [-0.5, 0.5, 1.5]
KINDS = {
    "score": lambda *of, data, **to: pymc_dp.score(*of, score_range=(-3.0, 1.0), **to),
    "compare": compare,
    "ranks": lambda *of, data, **to: pymc_dp.ppc(*of, bins=4, **to),
    "histogram": lambda *of, data, **to: pymc_dp.ppc(*of, statistic="histogram", bins=EDGES, **to),
    "effect": lambda *of, data, **to: pymc_dp.effect(*of, CHANGE, bounds=(0.0, 6.0), **to),
}


@cache
def fitted(name):
    with warnings.catch_warnings(action="ignore"):
        settings = {**SETTINGS, "draws": 20, "n": 3}
        return pymc_dp.fit(model=model_of(name, DATA), method="dp_advi", **settings)


def ask(kind, name, data=DATA, answers=None, **more):
    """Check the fit of a class of models on some data, and record what passes the wall."""
    of = fitted(name), model_of(name, data, unit="person_id")
    return recorded(lambda: KINDS[kind](*of, data=data, **TERMS | more), answers)


CASES = [("score", "linear"), ("compare", "logistic"), ("ranks", "log_linear")]
CASES += [("effect", "logistic"), ("effect", "log_linear"), ("histogram", "logistic")]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def asked(request):
    return request.param


@pytest.fixture(scope="module")
def found(asked):
    return ask(*asked)


def check_same(found, kind, name):
    """Other data with the same answer from the wall give the same query and the same result."""
    answers = [exchange.answer for exchange in found.exchanges]
    checks.check_same_result(found, ask(kind, name, OTHER, answers))


def test_the_release_carries_the_noise_of_the_plan(found):
    checks.check_noise(found)


def test_data_enter_through_the_release_alone(asked, found):
    check_same(found, *asked)


def test_nobody_moves_the_sum_by_more_than_the_clip_norm(asked, found):
    assert checks.check_sensitivity(found, asked[1]) > 0.5
    by_person = ask(*asked, unit="person_id")
    assert checks.check_sensitivity(by_person, asked[1], unit=True) > 0.4


def test_nothing_of_the_data_is_saved(found, tmp_path):
    checks.check_nothing_of_the_data_is_saved(found, tmp_path)


def test_one_release_is_booked_and_paid_for(asked, tmp_path):
    ledger = checks.new_ledger(tmp_path / "folder")
    found = ask(*asked, ledger=ledger)
    assert len(found.exchanges) == found.plan.total == 1
    assert ledger.spent.amount > 0
    assert "1 of 1" in pymc_dp.privacy_report(found.idata)
    assert pymc_dp.compose([fitted(asked[1]), found.idata], delta=1e-5).fits == 2


def longest_row():
    """Return the norm of the longest vector of a record, before it is clipped, over its bound."""
    found = ask("histogram", "logistic")
    [contribution] = found.contributions.values()
    rng = np.random.default_rng(0)
    predictors = 1e4 * rng.normal(size=(500, 2))  # outcomes are all but certain
    batch = {"X": predictors, "yes": rng.integers(0, 2, 500)}
    points = found.exchanges[0].query.context
    points = np.tile(points[:1], (len(points), 1))
    drawn = contribution.draw(batch, points, rng)
    return float(contribution.norms(batch | drawn, points).max()) / contributed.REPLICATES_NORM


def test_a_bound_without_the_replicates_mean_is_rejected(monkeypatch):
    """The planted fault: the middle part of the vector is forgotten in the bound."""
    assert 0.99 < longest_row() <= 1 + 1e-12
    make = contributed.RowContribution

    def longer(size, width, rows, **more):
        return make(size, width, lambda *at: 1.3 * rows(*at), **more)

    monkeypatch.setattr(contributed, "RowContribution", longer)
    assert longest_row() > 1


def longest_part(scale):
    """Return the longest vector of outcomes that agree best with the basis, over the clip norm."""
    found = ask("effect", "logistic")
    [contribution], [(exchange, release)] = found.contributions.values(), found.planned()
    nodes = exchange.query.context
    basis = nodes.basis * np.append(1.0, np.full(nodes.basis.shape[1] - 1, scale))
    best = [basis[:, 1] > 0, np.ones(len(basis)), basis.sum(axis=1) > 0]
    drawn = np.array([[[outcome], [outcome]] for outcome in best], float).reshape(3, 2, -1, 1)
    batch = {contributed.WITH_SET: drawn}
    return float(contribution.norms(batch, nodes._replace(basis=basis)).max() / release.clip_norm)


def test_a_basis_that_is_not_orthonormal_is_rejected():
    """The planted fault: slopes are released on a larger scale than the bound allows for."""
    assert 0.99 < longest_part(1.0) <= 1 + 1e-12
    assert longest_part(2.0) > 1.2


def test_points_that_hold_data_are_rejected(monkeypatch):
    found, points = ask("histogram", "linear"), private_checks._points
    monkeypatch.setattr(private_checks, "_points", lambda *at: points(*at) + OTHER["real"].mean())
    with pytest.raises(AssertionError):
        check_same(found, "histogram", "linear")


def test_summing_a_persons_records_is_rejected(monkeypatch):
    """The planted fault: a person's vector is the sum of its records', and nothing is clipped."""
    monkeypatch.setattr(clipping, "clip_factors", lambda norms, bound: np.ones_like(norms))
    by_person = {"kind": "histogram", "name": "logistic", "unit": "person_id"}
    assert checks.check_sensitivity(ask(**by_person), "logistic", unit=True) < 1
    monkeypatch.setattr(private_checks, "averaged_by_unit", lambda contribution: contribution)
    with pytest.raises(pymc_dp.ReleaseError):
        checks.check_sensitivity(ask(**by_person), "logistic", unit=True)
