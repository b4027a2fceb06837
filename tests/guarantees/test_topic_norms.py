"""No document moves a topic model's sums by more than the clip norm, however long it is.

Guard 2 of the tests of a guarantee, for statistics that are sparse: a document's matrix of counts
(topics, words) is never formed, and its norm is that of the matrix all the same.
"""

import numpy as np
import pytest
from hypothesis import strategies as st

from pymc_dp.errors import ReleaseError
from pymc_dp.methods.vips.topics import (
    TopicModel,
    explain,
    read_documents,
    topic_counts,
    word_counts,
)
from pymc_dp.model import Column
from pymc_dp.privacy.norms import row_norms
from tests.guarantees.test_sensitivity import check_neighbours
from tests.guarantees.toys import before_noise, wall_of

C, NOISE = 7.0, 0.7
K, V = 3, 9
RNG = np.random.default_rng(5)
MODEL = TopicModel("beta", "theta", "w", np.full((K, V), 0.1), np.array([0.1, 0.2, 0.3]))
EVEN = np.full((K, V), 1 / V)
POINTS = {
    "even": EVEN,
    "sparse": RNG.dirichlet(np.full(V, 0.05), size=K),
    "tiny": RNG.dirichlet(np.full(V, 0.5), size=K) * 1e-150,
    "a word that no topic has": np.where(np.arange(V) == 2, 0.0, EVEN),
    "topics apart": np.kron(np.eye(K), np.full(V // K, 1 / 3)),
}
DOCUMENTS = np.concatenate(
    [
        RNG.poisson(0.3, (60, V)),
        RNG.poisson(30, (20, V)),
        np.eye(V, dtype=int)[:4] * 10**9,
        RNG.integers(0, 10**6, (20, V)),
        np.zeros((2, V), int),
    ]
).astype(float)
CONTRIBUTIONS = {"topics": topic_counts(MODEL, 20), "words": word_counts(MODEL)}
BOTH = pytest.mark.parametrize("name", CONTRIBUTIONS)
AT = pytest.mark.parametrize("point", POINTS.values(), ids=POINTS)


def norms_and_sums(contribution, rows, point):
    """Return the norms of all rows, and the vector of each by a weight of one for it alone."""
    at = contribution.prepare({"w": rows}, point)
    alone = [contribution.weighted_sum(at, point, one) for one in np.eye(len(rows))]
    return contribution.norms(at, point), np.array(alone)


def check_norms(contribution, point):
    norms, alone = norms_and_sums(contribution, DOCUMENTS, point)
    np.testing.assert_allclose(norms, row_norms(alone), rtol=1e-9)


@BOTH
@AT
def test_a_documents_norm_is_that_of_what_it_adds(name, point):
    check_norms(CONTRIBUTIONS[name], point)


@BOTH
@AT
def test_a_document_adds_the_same_whatever_is_beside_it(name, point):
    contribution = CONTRIBUTIONS[name]
    _, alone = norms_and_sums(contribution, DOCUMENTS, point)
    for i, row in enumerate(DOCUMENTS):
        _, [by_itself] = norms_and_sums(contribution, row[None], point)
        np.testing.assert_allclose(by_itself, alone[i], rtol=1e-9)


@AT
def test_a_documents_counts_by_topic_sum_to_its_counts(point):
    _, alone = norms_and_sums(CONTRIBUTIONS["topics"], DOCUMENTS, point)
    explained = np.where(point.max(axis=0) > 0, DOCUMENTS, 0)
    np.testing.assert_allclose(alone.reshape(-1, K, V).sum(axis=1), explained, rtol=1e-9)


# --- neighbours ----------------------------------------------------------------------------------

number = st.one_of(
    st.sampled_from([0.0, 0.0, 0.0]),
    st.integers(0, 9).map(float),
    st.sampled_from([2.0**40, 1e15, 1e150, 1e200, 1e308, -1.0, 0.5, np.nan, np.inf, -np.inf]),
)
RECORD = st.tuples(*[number] * V)
HUGE = [1e12, *[0] * (V - 1)]
ELSEWHERE = [*[0] * (V - 1), 1e12]


def as_rows(documents):
    return np.array(documents, "float64").reshape(-1, V)


def covered_by(contribution, point):
    """Map documents to the sum that a full-batch release of them adds noise to, over C."""

    def covered(documents):
        columns = {"w": Column(as_rows(documents), 0, "float64")}
        wall = wall_of(columns, contribution, clip_norm=C, noise_multiplier=NOISE)
        total, sd = before_noise(wall, point)
        return total / (sd / NOISE)

    return covered


@BOTH
@pytest.mark.parametrize("point", ["sparse", "topics apart"])
def test_no_document_moves_a_sum_beyond_the_clip_norm(name, point):
    check_neighbours(covered_by(CONTRIBUTIONS[name], POINTS[point]), RECORD)


@BOTH
def test_a_huge_document_reaches_the_bound_and_not_more(name):
    covered = covered_by(CONTRIBUTIONS[name], POINTS["topics apart"])
    others = DOCUMENTS[:5].tolist()
    assert 0.99 <= np.linalg.norm(covered([*others, HUGE]) - covered(others)) <= 1


@BOTH
def test_documents_without_a_word_in_common_are_as_far_apart_as_counts_can_be(name):
    # counts are not negative, so this is sqrt 2 and not 2; the accountant takes 2
    covered = covered_by(CONTRIBUTIONS[name], POINTS["topics apart"])
    apart = np.linalg.norm(covered([HUGE]) - covered([ELSEWHERE]))
    assert 0.99 * 2**0.5 <= apart <= 2**0.5


@BOTH
def test_a_document_that_is_not_made_of_counts_adds_nothing(name):
    covered = covered_by(CONTRIBUTIONS[name], POINTS["sparse"])
    others = DOCUMENTS[:5].tolist()
    for bad in (-1, 0.5, np.nan, np.inf, 1e300):
        document = [3, bad, *[1] * (V - 2)]
        np.testing.assert_array_equal(covered([*others, document]), covered(others))
        np.testing.assert_array_equal(covered([document]), 0)


# --- planted faults ------------------------------------------------------------------------------


def norms_of_the_counts_alone(at, point):
    return row_norms(at.documents.matrix(at.documents.counts, V).toarray())


def norms_of_the_words_that_occur(at, point):
    return np.sqrt(at.documents.by_document((at.shares**2).sum(axis=1)))


@pytest.mark.parametrize("fault", [norms_of_the_counts_alone, norms_of_the_words_that_occur])
def test_a_norm_of_something_else_is_caught(fault):
    with pytest.raises(AssertionError):
        check_norms(CONTRIBUTIONS["topics"]._replace(norms=fault), POINTS["sparse"])


def clip_after_the_sum(documents):
    counts = read_documents(as_rows(documents))
    at = explain(counts, POINTS["sparse"], MODEL.alpha, 20)
    total = CONTRIBUTIONS["topics"].weighted_sum(at, None, np.ones(len(documents)))
    return total * min(1.0, C / max(np.linalg.norm(total), 1e-300)) / C


def clip_by_the_words_that_occur(documents):
    short = CONTRIBUTIONS["topics"]._replace(norms=norms_of_the_words_that_occur)
    return covered_by(short, POINTS["sparse"])(documents)


def divide_by_the_number_of_documents(documents):
    covered = covered_by(CONTRIBUTIONS["topics"], POINTS["sparse"])
    return covered(documents) * 20 / max(len(documents), 1)


@pytest.mark.parametrize(
    "fault",
    [clip_after_the_sum, clip_by_the_words_that_occur, divide_by_the_number_of_documents],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_faulty_sum_is_caught(fault):
    with pytest.raises((AssertionError, ReleaseError)):  # the wall checks its sums, too
        check_neighbours(fault, RECORD)
