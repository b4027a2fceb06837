"""Each check of the conformance suite can fail: a planted fault is rejected."""

from dataclasses import replace

import numpy as np
import pytest

from pymc_dp.contributions import local_latents
from pymc_dp.driver import fit as driver
from pymc_dp.driver import result
from pymc_dp.ledger.file import Entry
from pymc_dp.privacy import clipping
from pymc_dp.privacy.private_data import open_private, units_of
from pymc_dp.privacy.randomness import SecretRandom
from pymc_dp.tables.weights import SurveyWeights
from tests.conformance import checks, recording
from tests.conformance.model_classes import draw_data, model_of
from tests.conformance.recording import record

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")

METHOD, NAME = "dp_sgld", "logistic"


@pytest.fixture(scope="module")
def model():
    return model_of(NAME, draw_data(checks.ROWS, seed=0))


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    """A fit without a fault, and what its ledger has spent."""
    ledger = checks.new_ledger(tmp_path_factory.mktemp("whole") / "folder")
    return record(model, METHOD, ledger=ledger), ledger.spent


@pytest.fixture(scope="module")
def found(whole):
    return whole[0]


def test_half_of_the_noise_is_rejected(model, monkeypatch):
    gaussian = SecretRandom.rounded_gaussian
    monkeypatch.setattr(
        SecretRandom, "rounded_gaussian", lambda source, sd, *of: gaussian(source, sd / 2, *of)
    )
    with pytest.raises(AssertionError):
        checks.check_noise(record(model, METHOD, n=60))


def less_noise(found):
    more = tuple(replace(release, noise_multiplier=5.1) for release in found.plan.releases)
    return found._replace(plan=replace(found.plan, releases=more))


def a_smaller_epsilon(found):
    idata = found.idata.copy(deep=True)
    idata["privacy"].attrs["epsilon"] *= 0.99
    return found._replace(idata=idata)


def one_noise_for_two_releases(found):
    return found._replace(exchanges=[*found.exchanges[:-1], found.exchanges[0]])


@pytest.mark.parametrize("fault", [less_noise, a_smaller_epsilon, one_noise_for_two_releases])
def test_a_result_that_claims_too_little_is_rejected(found, fault):
    with pytest.raises(AssertionError):
        checks.check_noise(fault(found))


def a_query_that_reads_data(prepared):
    method, mean = prepared.method, open_private(prepared.data).columns["X"].values.mean()

    def query(state, rng):
        asked = method.query(state, rng=rng)
        return asked._replace(context=asked.context + mean)

    return method._replace(query=query)


def the_number_of_records_in_a_result(prepared):
    number = open_private(prepared.data).number
    return prepared.method._replace(settings={**prepared.method.settings, "batch": number})


@pytest.mark.parametrize("leak", [a_query_that_reads_data, the_number_of_records_in_a_result])
def test_a_method_that_leaks_is_rejected(model, leak, monkeypatch):
    set_up = driver.set_up

    def leaking(*args, **terms):
        prepared = set_up(*args, **terms)
        return prepared._replace(method=leak(prepared))

    monkeypatch.setattr(driver, "set_up", leaking)
    with pytest.raises(AssertionError):
        checks.check_data_enter_through_releases_alone(record(model, METHOD), METHOD, NAME)


def test_clipping_at_twice_the_bound_is_rejected(found, monkeypatch):
    weights = clipping.clip_factors
    monkeypatch.setattr(clipping, "clip_factors", lambda norms, bound: weights(norms, 2 * bound))
    with pytest.raises(AssertionError):
        checks.check_sensitivity(found, NAME)


def test_clipping_records_in_place_of_persons_is_rejected(monkeypatch):
    by_person = model_of(NAME, draw_data(checks.ROWS, seed=0), unit="person_id")
    found = record(by_person, METHOD, unit="person_id")
    monkeypatch.setattr(
        recording, "units_of", lambda codes, name: units_of(np.arange(len(codes)), name)
    )
    with pytest.raises(AssertionError):
        checks.check_sensitivity(found, NAME, unit=True)


def test_a_column_in_a_result_is_rejected(found, tmp_path):
    found = found._replace(idata=found.idata.copy(deep=True))
    number = draw_data(checks.ROWS, seed=0)["X"][3, 0]
    found.idata["posterior"].attrs["inference_library"] = repr(float(number))
    with pytest.raises(AssertionError):
        checks.check_nothing_of_the_data_is_saved(found, tmp_path)


def test_a_refund_is_rejected(model, whole, monkeypatch, tmp_path):
    with_guarantee = result.with_guarantee

    def refunding(groups, records, outcome, about):
        made = outcome._replace(plan=outcome.plan.prefix(len(outcome.made)))
        return with_guarantee(groups, records, made, about)

    monkeypatch.setattr(result, "with_guarantee", refunding)
    with pytest.raises(AssertionError):
        checks.check_stopping(*whole, model, METHOD, tmp_path / "stopped")


@pytest.mark.parametrize("owed", [Entry.of_plan, property(lambda entry: entry._with([]))])
def test_a_ledger_that_asks_for_all_or_nothing_of_a_stopped_fit_is_rejected(
    model, whole, monkeypatch, tmp_path, owed
):
    monkeypatch.setattr(Entry, "owed", owed)
    with pytest.raises(AssertionError):
        checks.check_stopping(*whole, model, METHOD, tmp_path / "stopped")


def test_vectors_that_grow_with_the_weight_are_rejected(monkeypatch):
    """The planted fault: nothing holds a weight to the largest one, nor a vector to its norm."""
    weights = {"weights": SurveyWeights("weight", upper=2.0)}
    model = model_of("logistic", draw_data(checks.ROWS, seed=0), **weights)
    found = record(model, "dp_advi", **weights)
    [scores] = [c for c in found.contributions.values() if c.jumps]
    batch = {name: column.zeros(2) for name, column in found.spec.items()}
    batch["weight"][:] = 8.0
    point = found.exchanges[0].query.context

    def longest():
        given = batch | scores.draw(batch, point, np.random.default_rng(0))
        total = scores.weighted_sum(scores.prepare(given, point), point, np.array([1.0, 0.0]))
        return float(np.linalg.norm(total))

    bound = scores.norms(scores.prepare(batch | scores.draw(batch, point, None), point), point)[0]
    assert longest() <= bound
    monkeypatch.setattr(SurveyWeights, "shares", lambda weights, values: values / weights.upper)
    assert longest() > bound


@pytest.mark.parametrize("method", ["dp_advi", "dp_sgld"])
def test_modes_that_start_from_the_persons_before_are_rejected(method, monkeypatch):
    """A search that shares what it found among persons lets one of them move the others."""
    model = model_of("persons", draw_data(checks.ROWS, seed=0))
    found = record(model, method, unit="person_id")
    exact = local_latents.find_modes

    def shared(density, here):
        modes, spread = exact(density, here)
        return modes + 30 * np.sin(modes.sum()), spread

    monkeypatch.setattr(local_latents, "find_modes", shared)
    with pytest.raises(AssertionError):
        checks.check_sensitivity(found, "persons", unit=True)
