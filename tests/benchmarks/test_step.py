"""The steps that the benchmark times are those of the docs' table: gradients on all three sides."""

from benchmarks.models import build, generate
from benchmarks.step import measure, plain_step, prepare, private_step, stock_step, summary


def test_a_private_step_runs_beside_one_without_noise_and_pymcs(monkeypatch):
    monkeypatch.setattr("benchmarks.step.ROUNDS", 2)
    monkeypatch.setattr("benchmarks.step.SECONDS", 0.005)
    X, y = generate("logistic", 400, 3)
    prepared = prepare(build("logistic", X, y, 3), 0.1)
    assert len(prepared.plan.releases) == 1
    steps = {
        "dp_advi": private_step(prepared, "python"),
        "no clip, no noise": plain_step(prepared, "python"),
        "pm.ADVI": stock_step("logistic", X, y, 3, 40, "python"),
    }
    found = summary(measure(steps))
    assert all(found[name] > 0 for name in steps)
    assert found["/ pm.ADVI"] > 0
