"""`pymc_dp.audit` shows no more than is claimed of correct code, and catches what is broken.

Planted faults: a quarter of the noise, no clipping, noise that is used twice, one key for all runs.
Keys are fixed, so that what a test sees is the same in every run.
"""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.auditing import audit
from pymc_dp.auditing.audit import learn, lower_bound
from pymc_dp.model import separate
from pymc_dp.privacy.private_data import open_private
from pymc_dp.privacy.randomness import SecretRandom
from pymc_dp.testing import deterministic_noise
from tests.guarantees import vips_toys
from tests.zoo import build as model_of

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")

TERMS = {"epsilon": 4.0, "delta": 1e-5, "runs": 400, "random_seed": 1, "progressbar": False}
SAMPLED = {"sample_rate": 0.5}
# the last steps shorten scores themselves, so that missing clipping shows in the others alone
PLAIN = {**SAMPLED, "noise_aware": False}
CASES = {
    "dp_advi": (vips_toys.logistic, PLAIN),
    "dp_fullrank_advi": (vips_toys.logistic, PLAIN),
    "dp_sgld": (vips_toys.logistic, SAMPLED),
    "vips": (vips_toys.categorical, {}),
    # its own updates: rounds, which centre scores by draws that no attacker knows, hide more
    "dp_sep": (vips_toys.unknown_shares, {"form": "damped"}),
}
# methods' own updates, too
KINDS = {
    "conjugate blocks": (vips_toys.poisson, "vips", {"clip_norm": 3.0}),
    "a linear predictor": (vips_toys.logistic, "vips", {"form": "absolute"}),
    "a mixture": (vips_toys.mixture, "vips", {"noise_aware": False}),
    "sites of a linear predictor": (vips_toys.logistic, "dp_sep", {"form": "damped"}),
}


def audited(build, method, **settings):
    return pymc_dp.audit(model_of(build), method, **{**TERMS, **settings})


def quarter(patch):
    gaussian = SecretRandom.rounded_gaussian
    less = lambda self, sd, *of: gaussian(self, sd / 4, *of)  # noqa: E731
    patch.setattr(SecretRandom, "rounded_gaussian", less)


def unclipped(patch):
    patch.setattr("pymc_dp.privacy.clipping.clip_factors", lambda norms, _: np.ones_like(norms))
    # the wall would refuse sums beyond their bound
    patch.setattr("pymc_dp.privacy.randomness.Grid.holds", lambda *of: True)


def reused(patch):
    gaussian, kept = SecretRandom.rounded_gaussian, {}

    def again(self, sd, step, size):
        if (id(self), size) not in kept:
            kept.clear()
            kept[id(self), size] = self, gaussian(self, 1.0, 2.0**-28, size) * 2.0**-28
        return np.rint(sd / step * kept[id(self), size][1]).astype(np.int64)

    patch.setattr(SecretRandom, "rounded_gaussian", again)


@pytest.mark.slow
@pytest.mark.audit
def test_rounds_are_not_accused_and_a_quarter_of_the_noise_is(monkeypatch):
    assert not audited(vips_toys.logistic, "dp_advi", runs=200).contradicted
    quarter(monkeypatch)
    assert audited(vips_toys.logistic, "dp_advi", runs=200).contradicted


def test_correct_code_is_not_accused():
    assert not audited(vips_toys.logistic, "dp_advi", **PLAIN).contradicted


@pytest.mark.parametrize("fault", [quarter, unclipped, reused])
def test_a_fault_is_caught(fault, monkeypatch):
    fault(monkeypatch)
    assert audited(vips_toys.logistic, "dp_advi", **PLAIN).contradicted


def test_one_key_for_all_runs_is_caught():
    with deterministic_noise(1):
        assert audited(vips_toys.logistic, "dp_advi", runs=200, **PLAIN).contradicted


@pytest.mark.audit
def test_replaced_records_are_audited_too(monkeypatch):
    terms = {"neighbours": "replace_one", "sampling": "full", "noise_aware": False}
    assert not audited(vips_toys.logistic, "dp_advi", **terms).contradicted
    quarter(monkeypatch)
    assert audited(vips_toys.logistic, "dp_advi", **terms).contradicted


@pytest.mark.slow
@pytest.mark.audit
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("method", CASES)
def test_forty_audits_of_correct_code_accuse_none(method, seed):
    build, settings = CASES[method]
    found = audited(build, method, epsilon=1.0, random_seed=seed, **settings)
    assert not found.contradicted, str(found)


@pytest.mark.slow
@pytest.mark.audit
@pytest.mark.parametrize("fault", [quarter, unclipped, reused])
@pytest.mark.parametrize("method", ["dp_advi", "dp_fullrank_advi", "dp_sgld", "dp_sep"])
def test_every_fault_is_caught_in_every_method_that_it_can_break(method, fault, monkeypatch):
    fault(monkeypatch)
    build, settings = CASES[method]
    assert audited(build, method, runs=1000, **settings).contradicted


@pytest.mark.slow
@pytest.mark.audit
@pytest.mark.parametrize("kind", KINDS)
def test_noise_that_is_used_twice_is_caught_in_every_kind(kind, monkeypatch):
    build, method, settings = KINDS[kind]
    assert not audited(build, method, **settings).contradicted
    reused(monkeypatch)
    assert audited(build, method, **settings).contradicted


def test_the_bound_holds_as_often_as_it_says():
    # errors of the best attack at epsilon = 1: a bound above 1 is an accident of probability alpha
    rng, rate, alpha = np.random.default_rng(0), 1 / (1 + np.e), 0.01
    errors = rng.binomial(200, rate, (2, 20_000))
    wrong = (lower_bound(*errors, 200, 200, 1e-9, alpha) > 1).mean()
    assert wrong <= alpha
    assert (lower_bound(*errors, 200, 200, 1e-9, 0.5) > 1).mean() > alpha  # and it can be wrong


def test_a_rule_is_judged_on_runs_that_did_not_teach_it():
    rng = np.random.default_rng(0)
    seen, present = rng.normal(size=(100, 7)), np.arange(100) % 2 == 0
    claims = np.array([1e-5]), np.array([0.0])
    rule = learn(seen[:20], present[:20], claims, 0.5)
    errors = (rule(seen[:20]) != present[:20]).mean()
    assert errors < 0.35 < (rule(seen[20:]) != present[20:]).mean()


def test_the_result_is_a_sentence():
    found = audited(vips_toys.logistic, "dp_advi", runs=60, **PLAIN)
    assert str(found).startswith("An attack on 60 runs of dp_advi on made-up records shows that")
    assert "which does not contradict the claim of 4" in str(found)
    assert (found.delta, found.confidence, found.runs) == (1e-5, 0.9999, 60)
    assert found.epsilon_lower <= found.epsilon <= 4


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"runs": 10}, "prove nothing"),
        ({"confidence": 0.95}, "contradict sound claims too often"),
        ({"rows": 0}, "rows=0"),
        ({"epsilon": np.inf}, "nothing to audit"),
        ({"method": "dp_ops"}, "nothing to audit"),
    ],
)
def test_what_cannot_be_audited_is_refused(settings, words):
    settings = {"method": "dp_advi", **settings}
    with pytest.raises(ValueError, match=words):
        audited(vips_toys.logistic, **settings)


def test_no_run_reads_the_data(monkeypatch):
    held = []
    init = pymc_dp.privacy.wall.PrivacyWall.__init__

    def spy(self, data, *rest, **others):
        held.extend(float(np.max(c.values)) for c in open_private(data).columns.values())
        init(self, data, *rest, **others)

    monkeypatch.setattr("pymc_dp.privacy.wall.PrivacyWall.__init__", spy)

    def secret():
        b = pm.Normal("b", 0, 1, shape=2)
        pm.Normal("y", pm.Data("X", vips_toys.X) @ b, 1.0, observed=vips_toys.REAL + 98765.0)

    audited(secret, "dp_advi", runs=40, **PLAIN)
    assert held
    assert max(held) < 90000


def own_record():
    """A record of ones."""
    shapes = separate(model_of(vips_toys.logistic))[0].shapes
    return {name: np.ones([n for n in shape if n is not None]) for name, shape in shapes.items()}


@pytest.mark.parametrize("settings", [{}, {"neighbours": "replace_one"}])
def test_a_record_of_ones_own_is_what_the_data_differ_by(settings, monkeypatch):
    seen = []
    real = audit.neighbouring_data

    def spied(spec, base, tried, chosen):
        seen.append({n: np.take(tried[n], chosen[0], axis=spec[n].axis) for n in spec})
        return real(spec, base, tried, chosen)

    monkeypatch.setattr(audit, "neighbouring_data", spied)
    canary = own_record()
    settings = {**PLAIN, "runs": 40, "canary": canary, **settings}
    assert not audited(vips_toys.logistic, "dp_advi", **settings).contradicted
    [found] = seen
    assert all((found[name] == canary[name]).all() for name in canary)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda own: own | {"other": 1.0}, "a value for each of"),
        (lambda own: {name: np.ones(99) for name in own}, "one finite number"),
        (lambda own: own | {"y": np.nan}, "one finite number"),
        (lambda own: own | {"y": 0.7}, "that no .* holds"),
        (lambda own: own | {"X": np.full(2, 1e305)}, "adds nothing"),
    ],
    ids=["name", "shape", "nan", "part", "huge"],
)
def test_a_record_of_ones_own_must_be_one_of_the_model(change, says):
    with pytest.raises(ValueError, match=says):
        audited(vips_toys.logistic, "dp_advi", runs=40, canary=change(own_record()), **PLAIN)
