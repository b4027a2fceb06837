"""Noise is the exact rounding of a normal number, as its random bits decide."""

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from pymc_dp.privacy import randomness as module
from pymc_dp.privacy.randomness import RELATIVE, rounded_normal

ALPHA = 1e-6
DRAWS = 200_000


def source(seed):
    rng = np.random.default_rng(seed)
    return lambda n: rng.integers(0, 2**64, n, np.uint64)


def given(words, more=0):
    """Hand out some words, and then the same one for ever."""
    left = list(words)
    return lambda n: np.array([left.pop(0) if left else more for _ in range(n)], np.uint64)


def tail_beyond(z):
    return mpmath.erfc(z / mpmath.sqrt(2)) / 2


def p_value(draws, sd):
    """Chi-square against exact probabilities of whole numbers, with cells of ten draws or more."""
    edges = np.arange(-int(6 * sd) - 2, int(6 * sd) + 3) - 0.5
    below = np.array([float(tail_beyond(-mpmath.mpf(e) / sd)) for e in edges])
    expected = np.diff(np.concatenate([[0.0], below, [1.0]])) * len(draws)
    counts = np.bincount(np.searchsorted(edges, draws), minlength=len(expected))
    enough = expected >= 10
    observed = np.append(counts[enough], counts[~enough].sum())
    predicted = np.append(expected[enough], expected[~enough].sum())
    return stats.chisquare(observed, predicted).pvalue


@pytest.fixture
def coarse(monkeypatch):
    """Grant the quantile function so large an error that many words do not decide."""
    monkeypatch.setattr(module, "RELATIVE", 0.02)
    monkeypatch.setattr(module, "ABSOLUTE", 0.02)


@pytest.mark.parametrize("sd", [0.5, 1.0, 3.0, 100.0])
def test_every_whole_number_has_its_exact_probability(sd):
    assert p_value(rounded_normal(sd, DRAWS, source(1)), sd) > ALPHA


@pytest.mark.parametrize("sd", [0.5, 3.0])
def test_undecided_words_do_not_change_the_distribution(sd, coarse):
    assert p_value(rounded_normal(sd, 20_000, source(2)), sd) > ALPHA


def starting_over(sd, size, bits):
    """Reject the words that do not decide."""
    words = bits(4 * size)
    least, most = module._quantiles(words & ~module.SIGN, sd)
    decided = np.where(words & module.SIGN, -least, least)[least == most]
    return decided[:size].astype(np.int64)


def of_larger_noise(sd, size, bits):
    return rounded_normal(1.02 * sd, size, bits)


def rounded_down(sd, size, bits):
    rng = np.random.default_rng(3)
    return np.floor(sd * rng.normal(size=size)).astype(np.int64)


@pytest.mark.parametrize("fault", [of_larger_noise, rounded_down])
def test_faulty_noise_is_caught(fault):
    assert p_value(fault(3.0, DRAWS, source(2)), 3.0) < ALPHA


def test_starting_over_is_caught(coarse):
    assert p_value(starting_over(3.0, DRAWS, source(2)), 3.0) < ALPHA


def words_beside_thresholds(sd, thresholds):
    """Return words whose quantiles lie next to k - 1/2, and the rounded quantile of each."""
    words, expected = [], []
    with mpmath.workprec(400):
        for k in thresholds:
            exact = tail_beyond((k - mpmath.mpf(0.5)) / mpmath.mpf(sd)) * 2**64
            word = int(mpmath.floor(exact))
            words += [word - 1, word + 1]
            expected += [k, k - 1]
    return words, expected


@pytest.mark.parametrize("sd", [0.75, 100.0, 2.0**28, 2.0**40 / 3])
def test_words_next_to_a_threshold_are_decided_right(sd):
    thresholds = np.unique((sd * np.linspace(0.0, 5.0, 40)).astype(int)) + 1
    words, expected = words_beside_thresholds(sd, thresholds.tolist())
    found = rounded_normal(sd, len(words), given(words, more=2**63))
    # where a cell holds less than two words, more bits decide, and both neighbours are right
    wide = np.diff(expected, append=expected[-1] - 1) != 0
    assert np.abs(found - expected).max() <= (0 if sd < 2**40 else 1)
    assert (found == expected)[wide].mean() > 0.9


def test_floating_point_alone_would_decide_some_of_them_wrong():
    sd = 2.0**28
    words, expected = words_beside_thresholds(sd, range(1, 200_001, 1000))
    naive = np.floor(-ndtri(np.array(words, "float64") / 2.0**64) * sd + 0.5)
    assert (naive != expected).any()


def test_the_word_that_holds_a_threshold_is_decided_by_its_next_bits():
    sd, k = 100.0, 37
    with mpmath.workprec(400):
        exact = tail_beyond((k - mpmath.mpf(0.5)) / sd) * 2**64
        word = int(mpmath.floor(exact))
        following = int(mpmath.floor((exact - word) * 2**64))
    for bits, expected in [(following - 1, k), (following + 1, k - 1)]:
        assert rounded_normal(sd, 1, given([word, bits])).tolist() == [expected]


def test_the_farthest_tail_is_reached_and_finite():
    [near] = rounded_normal(1.0, 1, given([1]))
    [far] = rounded_normal(1.0, 1, given([0, 0, 0, 1]))
    assert near == 9
    with mpmath.workprec(600):
        assert tail_beyond(far + 0.5) < mpmath.mpf(2) ** -255 < tail_beyond(far - 0.5)


def test_the_sign_is_a_bit_of_its_own():
    words = [5 << 55, (5 << 55) + 2**63]
    up, down = rounded_normal(1000.0, 2, given(words))
    assert up == -down != 0


def test_a_number_depends_on_its_word_alone():
    words = source(4)(1001)
    together = rounded_normal(2.0**20, len(words), given(words.tolist()))
    alone = [rounded_normal(2.0**20, 1, given([word]))[0] for word in words.tolist()]
    assert together.tolist() == alone


def test_the_error_granted_to_the_quantile_function_is_generous():
    tails = [2.0**-k * share for k in range(1, 64) for share in (1.0, 0.8125, 0.6, 0.51)]
    with mpmath.workprec(120):
        exact = [-mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(q) - 1) for q in tails[1:]]
        errors = [abs(-ndtri(q) / x - 1) for q, x in zip(tails[1:], exact, strict=True)]
    assert max(errors) < RELATIVE / 10


@pytest.mark.parametrize("sd", [0.0, -1.0, np.nan, np.inf, 2.0**50])
def test_other_standard_deviations_are_refused(sd):
    with pytest.raises(ValueError, match="standard deviation"):
        rounded_normal(sd, 1, source(0))
