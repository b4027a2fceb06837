"""Every private method of the registry keeps its promises on every class of model that it fits.

A method that joins the registry joins these tests. By default each is tried on its first class, or
on those of which it releases what no other method does; on all of them, and in the forms that no
default takes, with ``-m slow``.
"""

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.accounting.plan import GAUSSIAN
from pymc_dp.methods.registry import METHODS
from pymc_dp.tables.weights import SurveyWeights
from tests.conformance import checks
from tests.conformance.model_classes import CLASSES, draw_data, model_of
from tests.conformance.recording import Recording, record

pytestmark = [
    pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore:form='algorithm3' is for reproduction"),
]

# the classes that a method has no update for; all others must fit
LOCAL = {"topics", "factors", "belief_net"}
REFUSED = {
    "dp_advi": {"belief_net"},
    "dp_fullrank_advi": {"belief_net"},
    "dp_sgld": {"belief_net"},
    "dp_ops": LOCAL,
    "vips": {"log_linear", "network", "factors"},
    "dp_sep": LOCAL | {"conjugate"},
}
# of all other classes vips and dp_sep release scores in rounds, as dp_advi does
QUICK = {"vips": ["conjugate", "topics", "belief_net"], "dp_sep": ["network"]}
PRIVATE = [name for name, spec in METHODS.items() if spec.private]
LITERAL = {"form": "algorithm3", "num_records": checks.ROWS, "sampling": "poisson"}
# batches of everyone, in which a record's move is seen; sites of a wide cavity are short
LITERAL |= {"sample_rate": 1.0, "clip_norm": 0.05}
WEIGHTS = SurveyWeights("weight", upper=2.0)
# methods' own updates where rounds are the default, and the letter of the papers
FORMS = {
    ("vips", "logistic"): {"form": "absolute"},
    ("vips", "mixture"): {"noise_aware": False},
    ("dp_sep", "log_linear"): {"form": "damped"},
    ("dp_sep", "mixture"): {"form": "damped"},
    ("dp_sep", "logistic"): LITERAL,
}


def cases():
    found = []
    for method in PRIVATE:
        fits = [name for name in CLASSES if name not in REFUSED.get(method, set())]
        for name in fits:
            marks = [] if name in QUICK.get(method, fits[:1]) else [pytest.mark.slow]
            found.append(pytest.param((method, name, {}), marks=marks, id=f"{method}-{name}"))
    own = [
        pytest.param(
            (*key, FORMS[key]), marks=[pytest.mark.slow] * (k > 0), id=f"own-{'-'.join(key)}"
        )
        for k, key in enumerate(FORMS)
    ]
    # latents of persons, which are integrated out
    more = [(method, "persons", {"unit": "person_id"}) for method in ("dp_advi", "dp_sgld")]
    # both outcomes; drawn ones and a dispersion; counts; scores that are formed
    weighted = ("logistic", "linear", "log_linear", "network")
    more += [("dp_advi", name, {"weights": WEIGHTS}) for name in weighted]
    for case in more:
        marks = [pytest.mark.slow] if case[1] in weighted[2:] else []
        found.append(pytest.param(case, marks=marks, id="-".join([*case[:2], *case[2]])))
    return found + own


# a ledger refuses draws that are private only if they are exact
WITHOUT_LEDGER = {"dp_ops"}


class Fitted(NamedTuple):
    """One fit of a method, and what it took from its ledger."""

    method: str
    name: str
    settings: dict[str, Any]
    model: pm.Model
    recording: Recording
    spent: Any

    @property
    def gaussian(self):
        """Whether every release is a noisy sum."""
        return all(r.mechanism == GAUSSIAN for r in self.recording.plan.releases)


@pytest.fixture(scope="module", params=cases())
def fitted(request, tmp_path_factory):
    method, name, settings = request.param
    model = model_of(name, draw_data(checks.ROWS, seed=0), **settings)
    folder = tmp_path_factory.mktemp("whole") / "folder"
    unit = settings.get("unit")
    ledger = None if method in WITHOUT_LEDGER else checks.new_ledger(folder, unit)
    recording = record(model, method, ledger=ledger, **settings)
    return Fitted(method, name, settings, model, recording, ledger and ledger.spent)


def test_every_release_carries_the_noise_of_the_plan(fitted):
    if fitted.gaussian:
        checks.check_noise(fitted.recording)


def test_data_enter_through_releases_alone(fitted):
    checks.check_data_enter_through_releases_alone(
        fitted.recording, fitted.method, fitted.name, **fitted.settings
    )


def least(fitted):
    """What some record moves: with weights none has the largest score and products at once."""
    return 0.75 if "weights" in fitted.settings else 0.8


def test_no_record_moves_a_sum_by_more_than_the_clip_norm(fitted):
    if fitted.gaussian:
        unit = "unit" in fitted.settings
        assert checks.check_sensitivity(fitted.recording, fitted.name, unit) > least(fitted)


def test_nothing_of_the_data_is_saved(fitted, tmp_path):
    checks.check_nothing_of_the_data_is_saved(fitted.recording, tmp_path)


def test_a_fit_that_is_stopped_claims_its_plan_and_owes_what_it_released(fitted, tmp_path):
    method, _, settings, model, recording, spent = fitted
    if method not in WITHOUT_LEDGER:
        folder = tmp_path / "stopped"
        checks.check_stopping(recording, spent, model, method, folder, **settings)


def test_no_person_moves_a_sum_by_more_than_the_clip_norm(fitted):
    if not fitted.gaussian or "unit" in fitted.settings:
        return
    settings = {**fitted.settings, "unit": "person_id"}
    model = model_of(fitted.name, draw_data(checks.ROWS, seed=0), **settings)
    found = record(model, fitted.method, **settings)
    assert checks.check_sensitivity(found, fitted.name, unit=True) > least(fitted)


@pytest.mark.parametrize("method", PRIVATE)
def test_what_a_method_does_not_fit_is_refused_before_any_release(method):
    for name in REFUSED.get(method, set()):
        with pytest.raises(pymc_dp.NotSeparableError):
            record(model_of(name, draw_data(checks.ROWS, seed=0)), method)


@pytest.mark.parametrize("method", ["dp_advi", "dp_sgld"])
def test_neither_a_persons_latent_nor_the_number_of_persons_leaves(method):
    data = draw_data(checks.ROWS, seed=0)
    idata = record(model_of("persons", data), method, unit="person_id").idata
    assert "own" not in idata["posterior"]
    persons = len(np.unique(data["person_id"]))
    assert all(persons not in node.sizes.values() for node in idata.subtree)


@pytest.mark.parametrize("known", [False, True])
def test_numbers_that_equal_the_number_of_records_leave_no_trace(known):
    """A size that equals a number of the author's would be counted once with it."""
    listed = []
    for rows in (20, 21):
        y = np.zeros(rows)
        with pm.Model() as model:
            u = pm.Normal("u", pm.Normal("m"), 20.0 if known else 7.0, shape=rows)
            pm.Normal("y", u, 20.0, observed=y)
        found = record(model, "dp_advi").idata["privacy"].attrs["trusted_constants"]
        listed.append(found)
    assert listed[0] == listed[1]
    assert "likelihood of y" in listed[0]
