"""No record moves a DP-SEP release beyond its bound, some record reaches it, faults are caught.

Guard 2 of the tests of a guarantee, for sites of linear predictors and mixtures. A record's sites
are clipped as one vector, and the noise on their product is that of the plan.
"""

from functools import cache

import numpy as np
import pytest
from hypothesis import strategies as st

from pymc_dp.errors import ReleaseError
from pymc_dp.papers import regression
from pymc_dp.privacy.contribution import FactoredContribution
from pymc_dp.privacy.norms import row_norms
from pymc_dp.privacy.query import Noisy
from tests.guarantees import vips_toys
from tests.guarantees.test_sensitivity import check_neighbours, covered_by, number
from tests.guarantees.test_vips import (
    PAIR,
    SHORT,
    WHOLE,
    check_faulty_clip,
    check_norms,
    clip_every_block,
    clip_the_sum,
)
from tests.guarantees.vips_toys import MIXTURES, PREDICTORS, N, dense, prepared

pytestmark = pytest.mark.filterwarnings("ignore:form='algorithm3' is for reproduction")

LITERAL = {"form": "algorithm3", "num_records": N, "sampling": "poisson"}
DAMPED = [*PREDICTORS, *MIXTURES]
CASES = [(build, False) for build in DAMPED]
CASES += [(vips_toys.log_link, True)]


@cache
def toy(build, literal=False):
    return vips_toys.toy(build, method="dp_sep", **(LITERAL if literal else {}))


@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize(("build", "literal"), CASES)
def test_a_norm_is_that_of_the_vector_that_is_summed(build, literal, later):
    found = toy(build, literal)
    check_norms(found, found.contexts[later])


@pytest.mark.parametrize("build", DAMPED)
def test_a_record_says_the_same_alone_and_among_others(build):
    found = toy(build)
    context = found.contexts[1]
    norms, among = dense(found, context)
    for i in range(3, N, 14):
        one = {
            leaf: column._replace(values=column.values[i : i + 1])
            for leaf, column in found.columns.items()
        }
        norm, alone = dense(found, context, one)
        np.testing.assert_allclose(norm, norms[i], rtol=1e-9)
        np.testing.assert_allclose(alone[0], among[i], rtol=1e-9, atol=1e-9 * norms[i])


# --- neighbours ----------------------------------------------------------------------------------

RECORDS = {
    "gaussian_with_precision": {"X": PAIR, "y": number},
    "probit": {"X": PAIR, "y": WHOLE},
    "log_link": {"X": PAIR, "group": SHORT, "y": WHOLE},
    "student": {"X": PAIR, "y": number},
    "two_outcomes": {"X": PAIR, "y": number, "z": WHOLE},
    "unknown_shares": {"y": number},
    "known_covariance": {"y": PAIR},
}
LOUD = {"X": (30.0, -40.0), "group": 2, "y": 1, "z": 0}
LOUD_OUTCOMES = dict.fromkeys(["gaussian_with_precision", "two_outcomes", "unknown_shares"], 900.0)
LOUD_OUTCOMES |= {"known_covariance": (900.0, 3.0)}


def records_of(build):
    return st.fixed_dictionaries(RECORDS[build.__name__])


def loud(build):
    values = LOUD | {"y": LOUD_OUTCOMES.get(build.__name__, 1)}
    return {leaf: values[leaf] for leaf in RECORDS[build.__name__]}


def covered_by_sep(build, literal=False, later=0, contribution=None):
    found = toy(build, literal)
    context, clip_norm = found.contexts[later], found.clip_norms[later]
    contribution = contribution or found.contribution
    return covered_by(contribution, found.columns, context, clip_norm=clip_norm)


@pytest.mark.parametrize("build", DAMPED)
def test_no_record_moves_a_release_beyond_the_clip_norm(build):
    check_neighbours(covered_by_sep(build, later=1), records_of(build), examples=20)


@pytest.mark.parametrize("literal", [False, True])
def test_no_record_moves_the_first_release_beyond_the_clip_norm(literal):
    build = vips_toys.log_link
    check_neighbours(covered_by_sep(build, literal), records_of(build), examples=20)


@pytest.mark.parametrize(("build", "literal"), CASES)
def test_some_record_reaches_the_clip_norm(build, literal):
    found = toy(build, literal)
    context = found.contexts[0]
    if literal:  # sites of a wide cavity stay below the clip norm
        context = context._replace(covariance=1e-4 * context.covariance)
    clip_norm = found.clip_norms[0]
    covered = covered_by(found.contribution, found.columns, context, clip_norm=clip_norm)
    assert 0.99 <= np.linalg.norm(covered([loud(build)]) - covered([])) <= 1


def test_replacing_a_record_by_its_opposite_reaches_twice_the_clip_norm():
    covered = covered_by_sep(vips_toys.gaussian)
    there, back = ({"X": (1.0, 0.0), "y": sign * 1e6} for sign in (1, -1))
    assert 1.98 <= np.linalg.norm(covered([there]) - covered([back])) <= 2


# --- noise on the product of all sites -----------------------------------------------------------

CLIP_NORM, NOISE, RATE, STEP, GAMMA = 1.5, 2.0, 0.5, 0.4, 3.0


def moved(build, by, **settings):
    """How far the score in lambda moves when each entry of the third release moves by ``by``."""
    settings = {"sampling": "poisson", "sample_rate": RATE, "num_records": N, **settings}
    terms = {"noise_multiplier": NOISE, "clip_norm": CLIP_NORM, **settings}
    found = prepared(build, 3, "dp_sep", **terms)
    compiled, method = found.method.compile("python"), found.method

    def score(last):
        rng = np.random.default_rng(6)
        state = method.init(rng)
        for offset in (0.0, 0.0, last):
            query = method.query(state, rng=rng)
            value = rng.normal(2.0, 1.0, method.size) + offset
            state = compiled.update(state, query, Noisy(value, NOISE * CLIP_NORM, RATE))
        return np.ravel(state.sums.value.score)

    [release] = found.plan.releases
    assert (release.noise_multiplier, release.clip_norm) == (NOISE, CLIP_NORM)
    return np.abs(score(by) - score(0.0))


@pytest.mark.parametrize("build", [vips_toys.log_link, vips_toys.unknown_shares])
def test_noise_on_the_sites_covers_a_record_at_the_rate_of_sep(build):
    noise = moved(build, NOISE * CLIP_NORM, step=STEP)
    np.testing.assert_allclose(noise, NOISE * CLIP_NORM / RATE * STEP, rtol=1e-9)
    # the paper's sensitivity 2 gamma C / N belongs to steps that are N times shorter
    reach = moved(build, CLIP_NORM, step=STEP)
    np.testing.assert_allclose(noise / reach, NOISE, rtol=1e-9)
    assert reach.min() >= N / 2 * (2 * STEP * CLIP_NORM / N)


def test_noise_on_the_sites_of_algorithm_3_is_the_papers():
    noise = moved(vips_toys.log_link, NOISE * CLIP_NORM, step=GAMMA, form="algorithm3")
    np.testing.assert_allclose(noise, NOISE * CLIP_NORM * GAMMA / N, rtol=1e-9)


# --- planted faults ------------------------------------------------------------------------------


def test_a_norm_without_the_precisions_is_caught(monkeypatch):
    found, part_norms = toy(vips_toys.log_link), regression.part_norms
    monkeypatch.setattr(regression, "part_norms", lambda *args: part_norms(*args)[::2])
    with pytest.raises(AssertionError):
        check_norms(found, found.contexts[1])
    covered = covered_by_sep(vips_toys.log_link, later=1)
    with pytest.raises(AssertionError):
        check_neighbours(covered, records_of(vips_toys.log_link), examples=2000)


FAR = st.fixed_dictionaries({"y": st.floats(-30, 30)})
# what a record says of two components on a line
PARTS = np.repeat(["score", "precision", "weights", "count"], [2, 2, 2, 1])


@pytest.mark.parametrize("part", ["score", "precision", "weights"])
def test_a_norm_without_a_part_of_a_mixtures_sites_is_caught(part):
    found = toy(vips_toys.unknown_shares)
    genuine = found.contribution
    faulty = FactoredContribution(
        genuine.size,
        genuine.width,
        norms=lambda rows, asked: row_norms(rows[:, part != PARTS]),
        weighted_sum=genuine.weighted_sum,
        prepare=genuine.prepare,
    )
    with pytest.raises(AssertionError):
        check_norms(found._replace(contribution=faulty), found.contexts[1])
    sound, covered = (
        covered_by_sep(vips_toys.unknown_shares, contribution=one)
        for one in (found.contribution, faulty)
    )
    check_neighbours(sound, FAR, examples=50)
    with pytest.raises((AssertionError, ReleaseError)):
        check_neighbours(covered, FAR, examples=50)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a part of norm 0 is not clipped
@pytest.mark.parametrize("clip", [clip_every_block, clip_the_sum])
def test_a_faulty_clip_is_caught(clip):
    check_faulty_clip(clip, toy(vips_toys.logistic))
