"""Combining rules give the textbooks' numbers, and intervals that hold the truth."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import pymc_dp
from pymc_dp.errors import PosteriorWarning

Q = [10.0, 12.0, 11.0, 13.0, 9.0]  # mean 11, variance 2.5
V = [1.0, 1.5, 0.5, 1.25, 0.75]  # mean 1


# by hand: 1.2 * 2.5 - 1 = 2, 4 * (1 - 1/3)^2 = 16/9; 2.5/5 + 1, 4 * (1 + 1/.5)^2; 3 + 1, 4 (4/3)^2
@pytest.mark.parametrize(
    ("kind", "variance", "freedom"),
    [("synthetic", 2.0, 16 / 9), ("partially synthetic", 1.5, 36.0), ("imputed", 4.0, 64 / 9)],
)
@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")
def test_rules_give_the_textbooks_numbers(kind, variance, freedom):
    found = pymc_dp.pool(Q, V, kind, prob=0.95).loc[0]
    assert found["estimate"] == 11
    assert found["sd"] == pytest.approx(variance**0.5)
    assert found["freedom"] == pytest.approx(freedom)
    half = stats.t(freedom).ppf(0.975) * variance**0.5
    assert (found["lower"], found["upper"]) == pytest.approx((11 - half, 11 + half))


def test_a_negative_variance_is_that_of_the_fitted_records():
    with pytest.warns(PosteriorWarning, match="Draw data sets with more records"):
        found = pymc_dp.pool(Q, np.full(5, 8.0), ratio=4.0).loc[0]
    assert found["sd"] == pytest.approx(32**0.5)
    assert found["freedom"] == 4


def test_columns_keep_their_names_and_do_not_meet():
    estimates = pd.DataFrame({"a": Q, "b": np.multiply(Q, 2)})
    variances = pd.DataFrame({"a": np.divide(V, 10), "b": np.divide(V, 2.5)})
    both = pymc_dp.pool(estimates, variances)
    assert list(both.index) == ["a", "b"]
    assert both.loc["b", "sd"] == pytest.approx(2 * both.loc["a", "sd"])
    assert both.loc["a"].tolist() == pymc_dp.pool(Q, np.divide(V, 10)).loc[0].tolist()


def coverage(kind: str, ratio: float, noise: float) -> float:
    """Pool data sets from a posterior that holds privacy noise; how often is the truth inside?

    A mean of 400 records of variance 1 is released with noise, and each of 20 data sets has
    ``ratio`` times 400 records, from another draw of the posterior that follows.
    """
    rng = np.random.default_rng(5)
    runs, m, records = 4000, 20, 400
    sd = (1 / records + noise**2) ** 0.5
    released = rng.normal(0, sd, runs)
    draws = released + rng.normal(0, sd, (m, runs))
    n = ratio * records
    estimates = draws + rng.normal(0, n**-0.5, (m, runs))
    found = pymc_dp.pool(estimates, rng.chisquare(n - 1, (m, runs)) / (n - 1) / n, kind)
    return float(((found["lower"] < 0) & (found["upper"] > 0)).mean())


@pytest.mark.parametrize(("ratio", "noise"), [(0.5, 0.2), (1.0, 0.05), (5.0, 0.2)])
@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")
def test_intervals_hold_the_truth_at_any_number_of_synthetic_records(ratio, noise):
    assert 0.875 < coverage("synthetic", ratio, noise) < 0.97


@pytest.mark.parametrize("kind", ["partially synthetic", "imputed"])
def test_the_other_rules_are_wrong_for_such_data(kind):
    """Planted fault: they leave the noise out, or count the posterior's width and more."""
    found = coverage(kind, 1.0, 0.05) if kind == "imputed" else coverage(kind, 5.0, 0.2)
    assert not 0.86 < found < 0.945


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((Q, V[:4]), "have the shapes"),
        ((Q[:1], V[:1]), "two or more"),
        ((Q, np.negative(V)), "at least 0"),
        (([np.nan, *Q[1:]], V), "finite"),
        ((Q, V, "synthesised"), "kind='synthesised' must be one of"),
        ((pd.DataFrame({"a": Q}), pd.DataFrame({"b": V})), "same columns"),
    ],
)
def test_bad_input_is_refused(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        pymc_dp.pool(*arguments)
