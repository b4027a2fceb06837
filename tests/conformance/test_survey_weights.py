"""Vectors of a fit with survey weights are no longer than those of one without."""

import numpy as np
import pytest

from pymc_dp.tables.weights import SurveyWeights
from tests.conformance import checks
from tests.conformance.model_classes import draw_data, model_of
from tests.conformance.recording import record

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.PrivacyWarning")


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
