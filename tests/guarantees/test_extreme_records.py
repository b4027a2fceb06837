"""No record is so extreme that rounding lets it past the clip norm.

Soundness, rule 2. Entries of a record's score may cancel, and numbers near the ends of the range of
doubles round coarsely; a norm and the sum that it bounds must see the same of both.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.gradient import disconnected_grad, grad

from pymc_dp import ReleaseError
from pymc_dp.contributions import frontier
from pymc_dp.contributions.gradients import gradient
from pymc_dp.driver.fit import set_up
from pymc_dp.driver.run import compile_method
from pymc_dp.papers import regression
from pymc_dp.privacy.clipping import SumsByRecord
from pymc_dp.privacy.private_data import Partition
from pymc_dp.privacy.randomness import Grid, SecretRandom
from tests.guarantees.test_sensitivity import covered_by
from tests.zoo import build as model_of
from tests.zoo import columns_of, separated

ROWS = 8


def repeated():
    b = pm.Normal("b", 0, 1)
    X = pm.Data("X", np.linspace(0.1, 1, 2 * ROWS).reshape(ROWS, 2))
    pm.Normal("y", X * b, 1.0, observed=np.zeros((ROWS, 2)))


def covered(build, method, **settings):
    model = model_of(build)
    budget = {"noise_multiplier": 1.0, "delta": 1e-5, "sampling": "full"}
    # the method's own updates
    prepared = set_up(model, method, 2, noise_aware=False, **budget, **settings)
    compiled = compile_method(prepared, "python")
    rng = np.random.default_rng(0)
    query = prepared.method.query(prepared.method.init(rng), rng=rng)
    return covered_by(compiled.contributions[query.name], columns_of(prepared), query.context)


def length_of(covered, record):
    return np.linalg.norm(covered([record]) - covered([]))


CANCELLING = [{"X": (0.1, 0.3), "y": (3 * size, -size)} for size in (1e13, 1e15, 1e18, 1e30, 1e100)]


@pytest.mark.parametrize("method", ["vips", "dp_sep"])
def test_outcomes_that_cancel_in_a_score_stay_inside(method):
    inside = covered(repeated, method)
    assert max(length_of(inside, record) for record in CANCELLING) <= 1


def test_a_sum_whose_parts_cancel_after_they_are_weighted_is_caught(monkeypatch):
    genuine = regression.part_sums

    def sums(part, weights):
        far = np.full_like(part.score_row, 1e19)
        score = weights @ (part.score_row + far) - weights @ far
        return (score, *genuine(part, weights)[1:])

    inside = covered(repeated, "vips")  # the check before a fit would see the fault as well
    monkeypatch.setattr(regression, "part_sums", sums)
    # beside 1e19 a score of 1100 counts as 2048, and the wall sees that the sum is too long
    with pytest.raises(ReleaseError, match="beyond its bound"):
        length_of(inside, {"X": (0.1, 0.3), "y": (11_000.0, 0.0)})


def longest_far_from_its_place(method, form):
    def shifted():
        X, shift = (pm.Data(name, np.linspace(0.1, 1, ROWS)) for name in ("X", "shift"))
        pm.Bernoulli("y", logit_p=X * pm.Normal("b", 0, 1) + shift, observed=np.arange(ROWS) % 2)

    inside = covered(shifted, method, form=form, clip_norm=1.0)
    sizes, shifts = np.geomspace(5e160, 2e162, 16), (1e80, -280.0)
    records = [{"X": size, "shift": shift, "y": 0} for size in sizes for shift in shifts]
    return max(length_of(inside, record) for record in records)


@pytest.mark.parametrize(("method", "form"), [("vips", "absolute"), ("dp_sep", "damped")])
def test_rows_whose_weight_would_be_near_the_least_double_stay_inside(method, form, monkeypatch):
    assert longest_far_from_its_place(method, form) <= 1
    monkeypatch.setattr(regression, "LONGEST_ROW", np.inf)
    # the wall sees it where a batch has little else
    with pytest.raises(ReleaseError, match="beyond its bound"):
        longest_far_from_its_place(method, form)


# --- latents behind a function -------------------------------------------------------------------


def one_meeting():
    t = pm.math.exp(pm.Normal("b", 0, 1))
    X = pm.Data("X", np.ones((ROWS, 3)))
    pm.Normal("y", X @ pt.stack([t, t, -t]), 1.0, observed=np.zeros(ROWS))


def three_meetings():
    t = pm.math.exp(pm.Normal("b", 0, 1))
    parts = [pm.Data(f"x{k}", np.ones(ROWS)) * t for k in range(3)]
    pm.Normal("y", parts[0] + parts[1] - parts[2], 1.0, observed=np.zeros(ROWS))


def longest(build):
    """Of clipped gradients of a record whose parts nearly cancel, at latents near and far."""
    records, columns = separated(model_of(build))
    contribution, rng = gradient(records, "python"), np.random.default_rng(1)
    parts = {"X": [[0.1, 0.2, 0.3]], "x0": [0.1], "x1": [0.2], "x2": [0.3]}
    found = []
    for z in (0.0, 7.0, 14.0, 23.0):
        for y in 10.0 ** rng.uniform(8, 30, 100):
            held = {
                name: column._replace(values=np.array(parts.get(name, [y])))
                for name, column in columns.items()
            }
            at, secret = np.full((1, 1), z), SecretRandom().generator
            sums = SumsByRecord(Partition(held, None), contribution, at, secret)
            [part] = sums.clipped_sums(np.arange(1), Grid.of(1.0, 1.0, contribution.size, True))
            found.append(np.linalg.norm(part[1].whole) * 2.0**-28)
    return max(found)


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@pytest.mark.parametrize("build", [one_meeting, three_meetings])
def test_a_latent_behind_a_function_cannot_take_a_record_past_the_clip_norm(build, monkeypatch):
    assert longest(build) <= 1

    rows_of, sum_over_records, pending = frontier.rows_of, frontier.sum_over_records, []

    def remembered(latent, touching, edges, count):
        pending.append((latent, touching, edges))
        return rows_of(latent, touching, edges, count)

    def added_first(weights, rows):
        if not pending:
            return sum_over_records(weights, rows)
        latent, touching, edges = pending.pop()
        sums = [(disconnected_grad(e.total(edges[e], weights)) * e.operand).sum() for e in touching]
        return grad(pt.add(*sums), latent).ravel()

    # the planted fault: parts are added over the batch before they are pulled back
    monkeypatch.setattr(frontier, "rows_of", remembered)
    monkeypatch.setattr(frontier, "sum_over_records", added_first)
    assert longest(build) > 1
