"""What a ledger says it has spent, and what it has left, in epsilon: never too much."""

import itertools
import math
import pickle
import re

import pytest

from pymc_dp.ledger.filters import FILTERS, best_order
from tests.ledger.test_ledger import DELTA, FULL, plan_of

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")


@pytest.mark.parametrize("filter", FILTERS)
def test_an_empty_ledger_has_spent_nothing(new, filter):
    ledger = new(filter=filter)
    assert ledger.spent == (0.0, 0.0, 0.0)
    assert 0.85 * 2.0 < ledger.left.epsilon <= 2.0


@pytest.mark.parametrize("filter", FILTERS)
def test_what_was_spent_is_at_least_what_the_fits_cost(new, filter):
    ledger = new(filter=filter, epsilon=3.0, delta=3 * DELTA)
    for _ in range(2):
        ledger.reserve("dp_advi", FULL)
    both = plan_of(noise=8.0, count=6, delta=ledger.spent.delta or ledger.terms.delta)
    assert both.epsilon() <= ledger.spent.epsilon <= 3.0
    assert ledger.spent.amount + ledger.left.amount == pytest.approx(ledger._filter.limit.amount)


def calibrated(epsilon, delta, **terms):
    """Return a plan of full batches of just that epsilon."""
    low, high = 0.31, 1e5
    for _ in range(45):
        middle = math.sqrt(low * high)
        fits = plan_of(noise=middle, delta=delta, **terms).epsilon() <= epsilon
        low, high = (low, middle) if fits else (middle, high)
    return plan_of(noise=high, delta=delta, **terms)


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("epsilon", [0.2, 6.0])
def test_a_fit_of_what_is_left_is_admitted(new, path, filter, neighbours, epsilon):
    for noise in (None, 40.0, 9.0):
        path.unlink(missing_ok=True)
        ledger = new(filter=filter, neighbours=neighbours, epsilon=epsilon, delta=2 * DELTA)
        if noise is not None and filter != "sum":
            try:
                ledger.reserve("earlier", plan_of(noise=noise, neighbours=neighbours))
            except ValueError:
                continue
        left = ledger.left
        delta = left.delta or ledger.terms.delta
        ledger.reserve("last", calibrated(left.epsilon, delta, neighbours=neighbours, count=1))
        assert 0 <= ledger.left.amount < 0.01 * left.amount


def test_an_epsilon_that_is_too_large_is_caught(new):
    """The whole budget's epsilon in place of what is left: the fault the test above must see."""
    ledger = new()
    with pytest.raises(ValueError, match="Nothing was spent"):
        ledger.reserve("last", calibrated(2.0, DELTA))


@pytest.mark.parametrize("filter", FILTERS)
def test_nothing_is_left_once_all_is_spent(new, filter):
    ledger = new(filter=filter)
    if filter == "sum":
        ledger.spend("all", epsilon=2.0, delta=DELTA)
    else:
        order = ledger.terms.order or 1.0
        ledger.spend("all", rho=ledger.left.amount / order * (1 - 1e-12))
    assert ledger.left.epsilon == 0.0
    assert ledger.spent.epsilon == pytest.approx(2.0, rel=1e-3)
    assert ledger.spent.epsilon <= 2.0


def test_the_repr_says_where_it_is_and_what_is_left(new):
    ledger = new()
    ledger.reserve("dp_advi", FULL)
    text = repr(ledger)
    assert repr(str(ledger.path)) in text
    said = r"owed: ([\d.]+) for 1; one more may ask for up to ([\d.]+)"
    spent, left = re.search(said, text).groups()
    assert float(spent) == pytest.approx(ledger.spent.epsilon, rel=1e-3)
    assert float(left) == pytest.approx(ledger.left.epsilon, rel=1e-3)
    ledger.path.unlink()
    assert "unreadable" in repr(ledger)


@pytest.mark.parametrize("filter", ["rdp", "zcdp", "sum"])
def test_the_report_says_the_epsilon_of_each_fit(new, filter):
    ledger = new(filter=filter)
    ledger.reserve("dp_advi", FULL)
    ledger.spend("mean age", **({"epsilon": 0.25} if filter == "sum" else {"rho": 0.005}))
    found = re.findall(r"Fit \d: .*?epsilon ([\d.]+)", ledger.report())
    another = plan_of(noise=0.005**-0.5 / 2**0.5, count=1, delta=DELTA)
    of_mean = 0.25 if filter == "sum" else another.epsilon()
    assert [*map(float, found)] == pytest.approx([FULL.epsilon(), of_mean], rel=2e-3)


def test_a_pickled_ledger_is_the_same_ledger(new):
    ledger = new()
    again = pickle.loads(pickle.dumps(ledger))
    again.reserve("dp_advi", FULL)
    assert ledger.left == again.left
    assert len(pickle.dumps(ledger)) < 2000  # it holds a path and terms, and no spending


def test_orders_of_all_budgets_have_a_balance():
    for epsilon, delta in itertools.product((0.05, 5.0, 50.0), (1e-4, 1e-13)):
        chosen = FILTERS["rdp"](epsilon, delta, best_order(epsilon, delta))
        assert 0 < chosen.affordable(chosen.limit) < epsilon
