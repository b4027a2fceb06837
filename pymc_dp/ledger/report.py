"""What was spent from a ledger and what is left, as numbers and as the text of its report."""

from typing import NamedTuple

from pymc_dp.ledger.entry import Entry, difference, total
from pymc_dp.ledger.filters import Cost, Filter
from pymc_dp.ledger.terms import Terms


class Balance(NamedTuple):
    """What was spent from a ledger, or what is left in it; see `Ledger` for epsilon."""

    amount: float  # in the filter's measure
    delta: float  # the sum of the fits' deltas with filter="sum", and 0 with the others
    epsilon: float


def balances(filter: Filter, fits: list[Entry]) -> tuple[Balance, Balance]:
    """Return what fits owe and what they leave."""
    exact = total(entry.owed for entry in fits)
    taken, left = exact.rounded(), difference(filter.limit, exact).rounded()
    epsilon, _ = filter.meaning(taken)
    return Balance(*taken, epsilon), Balance(*left, filter.affordable(left))


def in_short(terms: Terms, filter: Filter, fits: list[Entry]) -> str:
    """Say in a few words what was spent and what is left."""
    spent, left = balances(filter, fits)
    return (
        f"at delta={terms.delta:g} for all fits; owed: {spent.epsilon:.4g} for {len(fits)}; one "
        f"more may ask for up to {left.epsilon:.4g} ({filter.measure} add up)"
    )


def report_of(terms: Terms, filter: Filter, fits: list[Entry]) -> str:
    """Say what the budget is, what was spent on what, and what is left."""
    taken, left = balances(filter, fits)
    _, delta = filter.meaning(Cost(taken.amount, taken.delta))
    lines = [
        f"Ledger of {terms.dataset!r}: ({terms.epsilon:g}, {terms.delta:g})-differential "
        f"privacy per {terms.unit} ({terms.neighbours}) for all fits together.",
        f"Limit: {_amounts(filter.limit)} in {filter.measure}, which is epsilon "
        f"{terms.epsilon:g} at delta={terms.delta:g}.",
        *(
            f"Fit {fit.fit}: {fit.method}, {filter.words(fit.owed.rounded())}, {fit.booked} of "
            f"{fit.planned} releases booked{_state(filter, fit)}."
            for fit in fits
        ),
        f"Owed: {_amounts(taken)}, which is ({taken.epsilon:.4g}, {delta:g})-differential "
        "privacy if no setting depended on an earlier result.",
        f"Left: {_amounts(left)}, which is a fit of all records with epsilon {left.epsilon:.4g}; "
        f"once it is spent, the total is ({terms.epsilon:g}, {terms.delta:g}), whatever settings "
        f"depended on. What adds up is {filter.measure}"
        + (", and not epsilons." if filter.adds_up_releases else "."),
    ]
    return "\n".join(lines + _warning(fits))


def _amounts(cost: Cost | Balance) -> str:
    """Write an amount, and a delta where there is one."""
    return f"{cost.amount:.4g}" + (f" and delta {cost.delta:g}" if cost.delta else "")


def _state(filter: Filter, entry: Entry) -> str:
    """Say of a fit that has not ended what it would owe if it had."""
    if entry.ended:
        return ""
    running = "; it is running, or its process was killed"
    if entry.of_booked == entry.of_plan:
        return running
    booked = filter.words(entry.of_booked.rounded())
    return f" for {booked}{running}, in which case ledger.settle({entry.fit}) frees the rest"


def _warning(fits: list[Entry]) -> list[str]:
    """Say so if a count can depend on the data."""
    incomplete = [str(fit.fit) for fit in fits if fit.booked < fit.planned]
    if not incomplete:
        return []
    return [
        f"Not all releases are booked of fit {', '.join(incomplete)}: it is running, or it ended "
        "early. That can be because of the data, and is not covered by the guarantee: do not "
        "publish it."
    ]
