"""The page on wages: methods of releasing a regression, and what is said of them."""

import argparse
import math

import pandas as pd
import pytest
from scipy.stats import norm

from benchmarks import wages, wages_releases
from benchmarks.wages_releases import DELTA


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_the_noise_by_hand_costs_what_it_says(epsilon):
    """The privacy loss of a Gaussian of this sd is above epsilon with a mass of delta."""
    mu = 1 / wages_releases.analytic_sigma(epsilon)
    above = norm.sf(epsilon / mu - mu / 2) - math.exp(epsilon) * norm.sf(epsilon / mu + mu / 2)
    assert above == pytest.approx(DELTA, rel=1e-6)


def test_a_summary_measures_errors_in_standard_errors():
    cells = list(wages.cells(argparse.Namespace(seeds=2)))
    assert len(set(cells)) == len(cells) == 2 * (1 + 4 * 3) + 2 * (1 + 2 * 3)
    width = 2 * norm.ppf(0.95)  # of a standard error of 1
    columns = {"mean": 2.0, "lower": -1.0, "upper": 5.0, "free": 0.0, "width": width, "truth": 1.0}
    cell = wages.Cell("wage", wages.OURS, 1.0, 0)._asdict()
    row = cell | {f"{name} education": value for name, value in columns.items()}
    [found] = wages.summary(pd.DataFrame([row])).to_dict("records")
    assert found["error"] == found["largest"] == pytest.approx(2.0)
    assert found["width"] == pytest.approx(6 / width)
    assert found["coverage"] == 1
