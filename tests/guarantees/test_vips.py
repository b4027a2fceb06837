"""No record moves a VIPS release by more than its bound, some record reaches it, faults are caught.

Guard 2 of the tests of a guarantee, for contributions with factors. Soundness, rules 6 to 10: all
statistics of a record are clipped as one vector; the bounds that Pólya-Gamma variables give with
|x| <= 1 are exact.
"""

from functools import cache

import numpy as np
import pytest
from hypothesis import strategies as st

from pymc_dp.contributions import layout
from pymc_dp.papers import regression
from pymc_dp.privacy.norms import row_norms
from tests.guarantees import vips_toys
from tests.guarantees.test_sensitivity import (
    check_neighbours,
    clipped,
    covered_by,
    number,
)
from tests.guarantees.vips_toys import BLOCKS, REGRESSIONS, dense

CASES = [(build, "absolute") for build in REGRESSIONS]
CASES += [(build, "paper") for build in (vips_toys.logistic, vips_toys.gaussian_with_precision)]
CASES += [(build, None) for build in BLOCKS]

toy = cache(vips_toys.toy)


def check_norms(found, context):
    norms, alone = dense(found, context)
    assert np.isfinite(norms).all()
    np.testing.assert_allclose(norms, row_norms(alone), rtol=1e-9)


@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize(("build", "form"), CASES)
def test_a_norm_is_that_of_the_vector_that_is_summed(build, form, later):
    found = toy(build, form=form)
    check_norms(found, found.contexts[later])


# --- neighbours ----------------------------------------------------------------------------------

WHOLE = st.sampled_from([0, 1, 5, -3, 2**40, -(2**62)])
# what pm.Data holds in 32 bits
SHORT = st.sampled_from([0, 1, 2, 7, -3, 2**31 - 1])
PAIR = st.tuples(number, number)
RECORDS = {
    "gaussian_with_precision": {"X": PAIR, "y": number},
    "logistic": {"X": PAIR, "y": WHOLE},
    "binomial": {"X": PAIR, "y": WHOLE, "trials": SHORT},
    "two_columns": {"X": PAIR, "y": PAIR},
    "two_outcomes": {"X": PAIR, "y": number, "z": WHOLE},
    "categorical": {"group": SHORT, "y": WHOLE},
    "poisson": {"exposure": number, "y": WHOLE},
    "mixture": {"y": number},
}
LOUD = {"X": (30.0, -40.0), "y": 1, "trials": 9, "z": 0, "group": 2, "exposure": 50.0}
LOUD_REAL = {"gaussian_with_precision": 900.0, "mixture": 900.0}
LOUD_REAL |= {"two_columns": (900.0, 3.0), "two_outcomes": 900.0, "poisson": 9, "binomial": 9}


def covered_by_vips(build, form=None, later=0):
    found = toy(build, form=form)
    clip_norm = found.clip_norms[later]
    return covered_by(found.contribution, found.columns, found.contexts[later], clip_norm=clip_norm)


def records_of(build):
    return st.fixed_dictionaries(RECORDS[build.__name__])


def loud(build, **changed):
    values = LOUD | {"y": LOUD_REAL.get(build.__name__, 1)} | changed
    return {leaf: values[leaf] for leaf in RECORDS[build.__name__]}


@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize("build", [*REGRESSIONS, *BLOCKS])
def test_no_record_moves_a_release_beyond_the_clip_norm(build, later):
    check_neighbours(covered_by_vips(build, later=later), records_of(build), examples=20)


@pytest.mark.parametrize("form", ["absolute", "paper"])
def test_no_record_moves_the_papers_forms_beyond_the_clip_norm(form):
    covered = covered_by_vips(vips_toys.logistic, form)
    check_neighbours(covered, records_of(vips_toys.logistic), examples=30)


@pytest.mark.parametrize(("build", "form"), [case for case in CASES if case[0] != BLOCKS[0]])
def test_some_record_reaches_the_clip_norm(build, form):
    covered = covered_by_vips(build, form)
    assert 0.99 <= np.linalg.norm(covered([loud(build)]) - covered([])) <= 1


def test_a_category_reaches_the_clip_norm_of_probabilities():
    # one record is one unit vector, which the default clip norm holds exactly
    found = toy(vips_toys.categorical)
    assert found.method.releases[0].clip_norm == 1
    norms, _ = dense(found, found.contexts[0])
    np.testing.assert_allclose(norms, 1)


def test_replacing_a_record_by_its_opposite_reaches_twice_the_clip_norm():
    covered = covered_by_vips(vips_toys.gaussian)
    there, back = ({"X": (1.0, 0.0), "y": sign * 1e6} for sign in (1, -1))
    assert 1.98 <= np.linalg.norm(covered([there]) - covered([back])) <= 2


# --- exact bounds with |x| <= 1 ------------------------------------------------------------------

D, TRIANGLE = 2, 3
# omega falls from 1/4 to nearly 0 within a small angle
STEEP = np.array([0.0, 1e6])


def statistics(x, y, mean):
    """Score and curvature of logistic records, without scales, in the absolute form."""
    found = toy(vips_toys.logistic, form="absolute")
    plain = found.contexts[0].layout.with_scales(curvature=1.0)
    asked = found.contexts[0]._replace(mean=mean, layout=plain)
    values = {"X": np.asarray(x, float), "y": np.asarray(y)}
    columns = {k: column._replace(values=values[k]) for k, column in found.columns.items()}
    norms, vectors = dense(found, asked, columns)
    np.testing.assert_allclose(norms, row_norms(vectors), rtol=1e-9)
    return vectors[:, : D + TRIANGLE]


def furthest(vectors):
    return np.linalg.norm(vectors[:, None] - vectors[None], axis=2).max()


@pytest.mark.parametrize("mean", [[0.0, 0.0], [2.0, -1.0], [30.0, 40.0], STEEP])
def test_the_bounds_for_short_features_are_never_exceeded(mean):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(150, D)) * 10.0 ** rng.uniform(-3, 3, (150, 1))
    x /= np.maximum(row_norms(x), 1.0)[:, None]
    vectors = statistics(x, rng.integers(0, 2, 150), np.asarray(mean))
    assert row_norms(vectors).max() <= 5**0.5 / 4 + 1e-12
    assert furthest(vectors) <= 17**0.5 / 4 + 1e-12
    assert furthest(vectors[:, D:]) <= 2**0.5 / 4 + 1e-12


def test_the_bounds_for_short_features_are_reached():
    flat = statistics([[1, 0], [0, 1]], [1, 0], np.zeros(D))
    assert row_norms(flat).max() >= 0.99 * 5**0.5 / 4
    assert furthest(flat[:, D:]) >= 0.99 * 2**0.5 / 4
    steep = statistics([[1, 0], [1, 1e-3]], [1, 0], STEEP)
    assert furthest(steep) >= 0.99 * 17**0.5 / 4


# --- planted faults ------------------------------------------------------------------------------


def test_a_triangle_without_sqrt_2_is_caught(monkeypatch):
    found = toy(vips_toys.logistic, form=None)
    monkeypatch.setattr(layout, "svec", lambda m: m[..., *np.triu_indices(m.shape[-1])])
    with pytest.raises(AssertionError):
        check_norms(found, found.contexts[0])


def test_a_norm_without_the_curvature_is_caught(monkeypatch):
    found, part_norms = toy(vips_toys.logistic, form=None), regression.part_norms
    monkeypatch.setattr(regression, "part_norms", lambda *args: part_norms(*args)[::2])
    with pytest.raises(AssertionError):
        check_norms(found, found.contexts[0])
    covered = covered_by_vips(vips_toys.logistic)
    with pytest.raises(AssertionError):
        check_neighbours(covered, records_of(vips_toys.logistic), examples=200)


def clip_every_block(rows):
    return np.concatenate([clipped(rows[:, :D]).sum(axis=0), clipped(rows[:, D:]).sum(axis=0)])


def clip_the_sum(rows):
    return clipped(rows.sum(axis=0, keepdims=True))[0]


def clip_jointly(rows):
    return clipped(rows).sum(axis=0)


def covered_after(clip, found):
    """Clip the dense vectors of logistic records, all of them finite, by another rule."""

    def covered(rows):
        if not rows:
            return np.zeros(found.contribution.size)
        values = {leaf: np.array([row[leaf] for row in rows]) for leaf in found.columns}
        columns = {k: column._replace(values=values[k]) for k, column in found.columns.items()}
        return (1 - 1e-9) * clip(dense(found, found.contexts[0], columns)[1])

    return covered


TAME = st.fixed_dictionaries(
    {"X": st.tuples(st.floats(-30, 30), st.floats(-30, 30)), "y": st.sampled_from([0, 1])}
)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a part of norm 0 is not clipped
@pytest.mark.parametrize("clip", [clip_every_block, clip_the_sum])
def test_a_faulty_clip_is_caught(clip):
    check_faulty_clip(clip, toy(vips_toys.logistic, form=None))


def check_faulty_clip(clip, found):
    check_neighbours(covered_after(clip_jointly, found), TAME, examples=30)
    with pytest.raises(AssertionError):
        check_neighbours(covered_after(clip, found), TAME, examples=100)
