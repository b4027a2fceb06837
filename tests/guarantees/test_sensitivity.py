"""No record moves what the noise is added to by more than its bound, and some record reaches it.

Guard 2 of the tests of a guarantee. Soundness, rule 5: one record is its row in all leaves;
rule 13: with adaptive clipping, the sum and the count of clipped records are bounded together.
"""

import numpy as np
import pymc as pm
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from pymc_dp.contributions import gradients
from pymc_dp.contributions.gradients import AtClipNorm, gradient, with_clipped_count
from pymc_dp.privacy.norms import row_norms
from tests.guarantees import toys
from tests.guarantees.toys import before_noise, columns_of_rows, vectors, wall_of
from tests.zoo import separated

C = 1.5
NOISE = 0.7
# neighbours of toy records: every planted fault below is caught within a fifth of them
EXAMPLES = 350
EXTREMES = (0.0, -0.0, 1e300, -1e300, 1e25, -1e25, 1e-23, 5e-324, np.nan, np.inf, -np.inf)


def logistic():
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        X = pm.Data("X", rng.normal(size=(20, 2)))
        group = pm.Data("group", np.repeat(np.arange(4), 5))
        a = pm.Normal("a")
        b = pm.Normal("b", shape=2)
        sd = pm.HalfNormal("sd")
        g = pm.Normal("g", shape=4)
        eta = a + X @ b + sd * g[group]
        pm.Bernoulli("y", logit_p=eta, observed=rng.integers(0, 2, 20))
    return model


def two_outcomes():
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        x = pm.Data("x", rng.normal(size=20))
        a = pm.Normal("a")
        b = pm.Normal("b")
        sd = pm.HalfNormal("sd")
        pm.Gamma("cost", mu=pm.math.exp(a + b * x), sigma=sd, observed=rng.gamma(2.0, size=20))
        pm.Normal("weight", b * x, sd, observed=rng.normal(size=20))
    return model


number = st.one_of(st.floats(-3, 3), st.sampled_from(EXTREMES))
RECORDS = {  # one record's part of every leaf; -9 and 7 point outside the four groups
    "logistic": st.fixed_dictionaries(
        {
            "X": st.tuples(number, number),
            "group": st.sampled_from([0, 1, 2, 3, -9, 7]),
            "y": st.sampled_from([0, 1, -5, 2**40]),
        }
    ),
    "two_outcomes": st.fixed_dictionaries({"x": number, "cost": number, "weight": number}),
    "toy": st.fixed_dictionaries({"x": st.tuples(number, number, number)}),
}


@pytest.fixture(scope="module")
def compiled():
    """The graphs of the models, and their columns, whose values the tests replace."""
    models = {"logistic": logistic(), "two_outcomes": two_outcomes()}
    found = {}
    for name, model in models.items():
        records, columns = separated(model)
        found[name] = gradient(records, "python"), columns, records.size
    return found


def covered_by_model(compiled, name, at=0.3, **release):
    """Map records to the vector that a full-batch release of them adds noise to, over C."""
    contribution, columns, size = compiled[name]
    return covered_by(contribution, columns, np.full((1, size), at), **release)


def counted(contribution, context, quantile, clip_norm=C):
    """Return contribution, context and clip norm of a sum with the count of clipped records."""
    joint = clip_norm * gradients.JOINT_NORM
    return with_clipped_count(contribution, quantile), AtClipNorm(context, clip_norm), joint


def covered_by(contribution, columns, context, quantile=None, clip_norm=C):
    release = {"clip_norm": clip_norm}
    if quantile is not None:
        contribution, context, release["clip_norm"] = counted(contribution, context, quantile)

    def covered(rows):
        held = columns_of_rows(columns, rows)
        wall = wall_of(held, contribution, clip_norm=C, noise_multiplier=NOISE)
        total, sd = before_noise(wall, context, **release)
        return total / (sd / NOISE)

    return covered


def covered_by_toy(rows, quantile=None, contribution=None):
    contribution, context, release = contribution or vectors(3), None, {}
    if quantile is not None:
        contribution, context, release["clip_norm"] = counted(contribution, context, quantile)
    wall = wall_of(as_array(rows), contribution, clip_norm=C, noise_multiplier=NOISE)
    total, sd = before_noise(wall, context, **release)
    return total / (sd / NOISE)


def as_array(rows):
    return np.array([row["x"] for row in rows]).reshape(-1, 3)


def check_neighbours(covered, record, examples=80, most=6):
    """Compare a data set with one record more, and with that record replaced by another."""

    @seed(1)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(record, max_size=most), record, record, st.integers(0, most))
    def check(rows, new, other, place):
        without = covered(rows)
        added = covered([*rows[:place], new, *rows[place:]])
        replaced = covered([*rows[:place], other, *rows[place:]])
        assert np.linalg.norm(added - without) <= 1
        assert np.linalg.norm(added - replaced) <= 2

    check()


@pytest.mark.parametrize("at", [0.3, -30.0])
@pytest.mark.parametrize("model", ["logistic", "two_outcomes"])
def test_no_record_moves_a_models_sum_beyond_the_clip_norm(compiled, model, at):
    check_neighbours(covered_by_model(compiled, model, at), RECORDS[model])


@pytest.mark.parametrize("quantile", [0.1, 0.5])
def test_the_count_of_clipped_records_is_covered_together_with_the_sum(compiled, quantile):
    covered = covered_by_model(compiled, "logistic", quantile=quantile)
    check_neighbours(covered, RECORDS["logistic"], examples=40)
    for kind in (vectors(3), toys.rows(3)):
        check_neighbours(
            lambda rows: covered_by_toy(rows, quantile, kind),  # noqa: B023
            RECORDS["toy"],
            examples=EXAMPLES // 4,
        )


def test_no_record_moves_a_toy_sum_beyond_the_clip_norm():
    check_neighbours(covered_by_toy, RECORDS["toy"], examples=EXAMPLES)


def test_no_record_whose_norm_the_wall_takes_moves_a_sum_beyond_the_clip_norm():
    check_neighbours(
        lambda rows: covered_by_toy(rows, contribution=toys.rows(3)),
        RECORDS["toy"],
        examples=EXAMPLES,
    )


LOUD = {
    "logistic": {"X": (900.0, -400.0), "group": 2, "y": 0},
    "two_outcomes": {"x": 3.0, "cost": 1e4, "weight": -1e3},
}


@pytest.mark.parametrize("model", LOUD)
def test_some_record_reaches_the_bound(compiled, model):
    covered = covered_by_model(compiled, model)
    assert 0.99 <= np.linalg.norm(covered([LOUD[model]]) - covered([])) <= 1


def test_replacing_a_models_record_moves_its_sum_by_more_than_the_clip_norm(compiled):
    covered = covered_by_model(compiled, "logistic")
    other = {"X": (-400.0, 900.0), "group": 2, "y": 0}
    assert 1.8 <= np.linalg.norm(covered([LOUD["logistic"]]) - covered([other])) <= 2


def test_replacing_a_record_by_its_opposite_reaches_twice_the_bound():
    there, back = {"x": (3.0, 0.0, 4.0)}, {"x": (-3.0, 0.0, -4.0)}
    assert 1.98 <= np.linalg.norm(covered_by_toy([there]) - covered_by_toy([back])) <= 2


def test_a_clipped_record_and_its_count_reach_their_joint_bound():
    for quantile in (0.1, 0.5):
        with_one = covered_by_toy([{"x": (9.0, 0.0, 0.0)}], quantile=quantile)
        unclipped = covered_by_toy([{"x": (1.499, 0.0, 0.0)}], quantile=1 - quantile)
        reach = max(np.linalg.norm(with_one), np.linalg.norm(unclipped))
        assert (0.99 if quantile == 0.5 else 0.98) <= reach <= 1


@pytest.mark.parametrize("model", ["logistic", "two_outcomes"])
def test_norms_are_those_of_the_vectors_that_are_summed(compiled, model):
    contribution, columns, size = compiled[model]
    batch = {name: column.take(np.arange(20)) for name, column in columns.items()}
    points = np.random.default_rng(2).normal(size=(1, size))
    prepared = contribution.prepare(batch, points)
    summed = [contribution.weighted_sum(prepared, points, one) for one in np.eye(20)]
    norms = contribution.norms(prepared, points)
    np.testing.assert_allclose(norms, np.linalg.norm(summed, axis=1), rtol=1e-9)


def finite(rows):
    rows = as_array(rows)
    return rows[np.isfinite(norms_of(rows))]


def norms_of(rows):
    return row_norms(rows) if len(rows) else np.zeros(0)


def clipped(rows):
    return np.fmin(1, 1 / norms_of(rows))[:, None] * rows


def clip_after_the_sum(rows):
    return clipped(finite(rows).sum(axis=0, keepdims=True))[0]


def clip_every_variable(rows):
    rows = finite(rows)
    return np.append(clipped(rows[:, :2]).sum(axis=0), clipped(rows[:, 2:]).sum(axis=0))


def scale_by_the_batch(rows):
    return clipped(finite(rows)).sum(axis=0) * 20 / max(len(rows), 1)


def add_the_prior_for_every_record(rows):
    return (clipped(finite(rows)) - [0.3, 0.3, 0.3]).sum(axis=0)


def weigh_bad_rows_by_zero(rows):
    rows = as_array(rows)
    norms = norms_of(rows)
    return np.where(np.isfinite(norms), np.fmin(1, 1 / norms), 0) @ rows


def count_unscaled(rows):
    joint = covered_by_toy(rows, quantile=0.5)
    joint[-1] *= 0.5 / 0.2
    return joint


@pytest.mark.parametrize(
    "fault",
    [
        clip_after_the_sum,
        clip_every_variable,
        scale_by_the_batch,
        add_the_prior_for_every_record,
        weigh_bad_rows_by_zero,
        count_unscaled,
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_faulty_sum_is_caught(fault):
    with pytest.raises(AssertionError):
        check_neighbours(fault, RECORDS["toy"], examples=EXAMPLES)
