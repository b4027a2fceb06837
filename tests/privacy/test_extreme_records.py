"""No record is so extreme that rounding lets it past the clip norm.

Soundness, rule 2. Entries of a record's score may cancel, and numbers near the ends of the range of
doubles round coarsely; a norm and the sum that it bounds must see the same of both.
"""

import numpy as np
import pymc as pm
import pytest

from pymc_dp.methods.linear import quadratic
from pymc_dp.prepare import compile_prepared, prepare
from tests.privacy.test_sensitivity import covered_by

ROWS = 8


def repeated():
    b = pm.Normal("b", 0, 1)
    X = pm.Data("X", np.linspace(0.1, 1, 2 * ROWS).reshape(ROWS, 2))
    pm.Normal("y", X * b, 1.0, observed=np.zeros((ROWS, 2)))


def heavy_tailed():
    X = pm.Data("X", np.linspace(0.1, 1, ROWS))
    pm.StudentT("y", nu=4, mu=X * pm.Normal("b", 0, 1), sigma=1.0, observed=np.zeros(ROWS))


def covered(build, method, **settings):
    with pm.Model() as model:
        build()
    budget = {"noise_multiplier": 1.0, "delta": 1e-5, "sampling": "full"}
    prepared = prepare(model, method, 2, **budget, **settings)
    compiled = compile_prepared(prepared, "python")
    query = prepared.method.query(
        prepared.method.init(np.random.default_rng(0)), rng=np.random.default_rng(0)
    )
    return covered_by(compiled.contributions[query.name], prepared.columns, query.context)


def length_of(covered, record):
    return np.linalg.norm(covered([record]) - covered([]))


FORMS = [("vips", {}), ("vips", {"form": "absolute"}), ("dp_sep", {})]
CANCELLING = [{"X": (0.1, 0.3), "y": (3 * size, -size)} for size in (1e13, 1e15, 1e18, 1e30, 1e100)]


@pytest.mark.parametrize(("method", "settings"), FORMS)
def test_outcomes_that_cancel_in_a_score_stay_inside(method, settings):
    inside = covered(repeated, method, **settings)
    assert max(length_of(inside, record) for record in CANCELLING) <= 1


def test_a_sum_whose_parts_cancel_after_they_are_weighted_is_caught(monkeypatch):
    genuine = quadratic.part_sums

    def sums(part, scales, weights):
        far = np.full_like(part.score, 1e19)
        score = weights @ (part.score + far) - weights @ far
        return (score, *genuine(part, scales, weights)[1:])

    monkeypatch.setattr(quadratic, "part_sums", sums)
    inside = covered(repeated, "vips")
    # beside 1e19 a score of 1100 counts as 2048
    assert length_of(inside, {"X": (0.1, 0.3), "y": (11_000.0, 0.0)}) > 1.2


def test_curvatures_near_the_least_double_stay_inside():
    inside = covered(heavy_tailed, "dp_sep")
    for size in np.geomspace(5e160, 2e162, 60):
        assert length_of(inside, {"X": size, "y": 1e12}) <= 1
