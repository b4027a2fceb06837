"""Private checks of a fit keep the promises that fits keep."""

import importlib
import warnings
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dp
from pymc_dp.checking import release
from pymc_dp.contributions import checks as contributed
from pymc_dp.privacy import clipping
from tests.conformance import checks
from tests.conformance.model_classes import Data, draw_data, model_of
from tests.conformance.recording import SETTINGS, Recording, recorded

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")

TERMS = {"noise_multiplier": 5.0, "delta": 1e-5, "backend": "python"}
FITTED = ("linear", "logistic", "log_linear")


class Asked(NamedTuple):
    """A kind of check, and the class of models that it is made for."""

    kind: str
    name: str
    idata: xr.DataTree

    def record(self, data: Data, answers: Any = None, **more: Any) -> Recording:
        """Make the check on some data, and record what passes the wall."""
        more = TERMS | more
        return recorded(lambda: KINDS[self.kind](self.model(data), self.idata, data, more), answers)

    def model(self, data: Data) -> pm.Model:
        """Build the model on some data."""
        return model_of(self.name, data, person_id=data["person_id"])


def score(model: pm.Model, idata: xr.DataTree, data: Data, terms: Any) -> xr.DataTree:
    return pymc_dp.score(idata, model, score_range=(-3.0, 1.0), **terms)


def compare(model: pm.Model, idata: xr.DataTree, data: Data, terms: Any) -> xr.DataTree:
    read = [str(v.name) for v in (*model.data_vars, *model.observed_RVs)]
    records = {k: data[k] for k in read if k != "person_id" or "unit" in terms}
    shifted = idata.copy(deep=True)
    for values in shifted["posterior"].data_vars.values():
        values.values = 0.5 * values.values
    models = {"one": (idata, model), "half": (shifted, model)}
    return pymc_dp.score(models, data=records, **terms)


def ranks(model: pm.Model, idata: xr.DataTree, data: Data, terms: Any) -> xr.DataTree:
    return pymc_dp.ppc(idata, model, bins=4, **terms)


def histogram(model: pm.Model, idata: xr.DataTree, data: Data, terms: Any) -> xr.DataTree:
    return pymc_dp.ppc(idata, model, statistic="histogram", bins=[-0.5, 0.5, 1.5], **terms)


def effect(model: pm.Model, idata: xr.DataTree, data: Data, terms: Any) -> xr.DataTree:
    return pymc_dp.effect(idata, model, {("X", 0): [-1.0, 1.0]}, bounds=(0.0, 6.0), **terms)


KINDS = {make.__name__: make for make in (score, compare, ranks, histogram, effect)}


@pytest.fixture(scope="module")
def results() -> dict[str, xr.DataTree]:
    settings = {**SETTINGS, "draws": 20, "n": 3}
    data = draw_data(checks.ROWS, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            name: pymc_dp.fit(model=model_of(name, data), method="dp_advi", **settings)
            for name in FITTED
        }


CASES = [("score", "linear"), ("compare", "logistic"), ("ranks", "log_linear")]
CASES += [("effect", "logistic"), ("effect", "log_linear"), ("histogram", "logistic")]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def asked(request: pytest.FixtureRequest, results: dict[str, xr.DataTree]) -> Asked:
    kind, name = request.param
    return Asked(kind, name, results[name])


DATA = draw_data(checks.ROWS, seed=0)


@pytest.fixture(scope="module")
def found(asked: Asked) -> Recording:
    return asked.record(DATA)


def test_the_release_carries_the_noise_of_the_plan(found):
    checks.check_noise(found)


def test_data_enter_through_the_release_alone(asked, found):
    answers = [exchange.answer for exchange in found.exchanges]
    again = asked.record(draw_data(checks.OTHER_ROWS, seed=5), answers)
    checks.check_same_result(found, again)


def test_nobody_moves_the_sum_by_more_than_the_clip_norm(asked, found):
    assert checks.check_sensitivity(found, asked.name) > 0.5
    by_person = asked.record(DATA, unit="person_id")
    assert checks.check_sensitivity(by_person, asked.name, unit=True) > 0.4


def test_nothing_of_the_data_is_saved(found, tmp_path):
    checks.check_nothing_of_the_data_is_saved(found, tmp_path)


def test_one_release_is_booked_and_paid_for(asked, tmp_path):
    ledger = checks.new_ledger(tmp_path / "folder")
    found = asked.record(DATA, ledger=ledger)
    assert len(found.exchanges) == 1
    assert found.plan.total == 1
    assert ledger.spent.amount > 0
    assert "1 of 1" in pymc_dp.privacy_report(found.idata)
    assert pymc_dp.compose([asked.idata, found.idata], delta=1e-5).fits == 2


def test_a_bound_without_the_replicates_mean_is_rejected(results, monkeypatch):
    """The planted fault: the middle part of the vector is forgotten in the bound."""
    make = contributed.RowContribution

    def longer(size, width, rows, **more):
        return make(size, width, lambda *at: 1.3 * rows(*at), **more)

    monkeypatch.setattr(contributed, "RowContribution", longer)
    longest = longest_row(results["logistic"])
    assert longest > contributed.REPLICATES_NORM


def test_vectors_reach_their_bound_and_no_more(results):
    longest = longest_row(results["logistic"])
    assert 0.99 * contributed.REPLICATES_NORM < longest <= contributed.REPLICATES_NORM * (1 + 1e-12)


def longest_row(idata: xr.DataTree) -> float:
    """Return the norm of the longest vector of a record, before it is clipped."""
    asked = Asked("histogram", "logistic", idata)
    found = asked.record(DATA)
    [contribution] = found.contributions.values()
    rng = np.random.default_rng(0)
    predictors = 1e4 * rng.normal(size=(500, 2))  # outcomes are all but certain
    batch = {"X": predictors, "yes": rng.integers(0, 2, 500)}
    points = found.exchanges[0].query.context
    points = np.tile(points[:1], (len(points), 1))
    drawn = contribution.draw(batch, points, rng)
    return float(contribution.norms(batch | drawn, points).max())


def test_slopes_along_the_posterior_cost_nothing(results):
    """Outcomes that agree best with the basis make vectors as long as the bound, and no longer."""
    assert 0.99 < longest_part(results["logistic"], 1.0) <= 1 + 1e-12


def test_a_basis_that_is_not_orthonormal_is_rejected(results):
    """The planted fault: slopes are released on a larger scale than the bound allows for."""
    assert longest_part(results["logistic"], 2.0) > 1.2


def longest_part(idata: xr.DataTree, scale: float) -> float:
    """Return the longest vector of a record over the clip norm, before it is clipped."""
    found = Asked("effect", "logistic", idata).record(DATA)
    [contribution], [(exchange, release)] = found.contributions.values(), found.planned()
    nodes = exchange.query.context
    basis = nodes.basis * np.append(1.0, np.full(nodes.basis.shape[1] - 1, scale))
    best = [basis[:, 1] > 0, np.ones(len(basis)), basis.sum(axis=1) > 0]
    drawn = np.array([[[outcome], [outcome]] for outcome in best], float).reshape(3, 2, -1, 1)
    batch = {contributed.WITH_SET: drawn}
    return float(contribution.norms(batch, nodes._replace(basis=basis)).max() / release.clip_norm)


def test_points_that_hold_data_are_rejected(results, monkeypatch):
    asked = Asked("histogram", "linear", results["linear"])
    other = draw_data(checks.OTHER_ROWS, seed=5)
    found = asked.record(DATA)
    answers = [exchange.answer for exchange in found.exchanges]
    module = importlib.import_module("pymc_dp.checking.release")
    first = module._replicates_first
    monkeypatch.setattr(module, "_replicates_first", lambda *at: first(*at) + other["real"].mean())
    with pytest.raises(AssertionError):
        checks.check_same_result(found, asked.record(other, answers))


def test_summing_a_persons_records_is_rejected(results, monkeypatch):
    """The planted fault: a person's vector is the sum of its records', and nothing is clipped."""
    monkeypatch.setattr(clipping, "clip_factors", lambda norms, bound: np.ones_like(norms))
    asked = Asked("histogram", "logistic", results["logistic"])
    assert checks.check_sensitivity(asked.record(DATA, unit="person_id"), asked.name, True) < 1
    monkeypatch.setattr(release, "averaged_by_unit", lambda contribution: contribution)
    with pytest.raises(pymc_dp.ReleaseError):
        checks.check_sensitivity(asked.record(DATA, unit="person_id"), asked.name, True)
