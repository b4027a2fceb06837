"""The budget of one data set, kept in a file over many fits.

First what was spent and what is left; then the booking of one fit, release by release; last the
ledger itself, where plans are set aside, gone on with, and ended.
"""

import os
import sqlite3
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from pymc_dp.accounting.accountants import Selection
from pymc_dp.accounting.plan import Plan, Release, checked_number
from pymc_dp.errors import PrivacyWarning, ReleaseError, UnbookedError, UnreadableError
from pymc_dp.ledger import file as ledger_file
from pymc_dp.ledger.file import Entry, Terms, difference, new_terms, refuse_other_fits, total
from pymc_dp.ledger.filters import FILTERS, Cost, Filter, Spending, external_mechanism


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


def report_of(terms: Terms, filter: Filter, fits: list[Entry]) -> str:
    """Say what the budget is, what was spent on what, and what is left."""
    taken, left = balances(filter, fits)
    _, delta = filter.meaning(Cost(*taken[:2]))
    guarantee = f"({terms.epsilon:g}, {terms.delta:g})"
    lines = [
        f"Ledger of {terms.dataset!r}: {guarantee}-differential privacy per {terms.unit} "
        f"({terms.neighbours}) for all fits together.",
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
        f"once it is spent, the total is {guarantee}, whatever settings depended on. What adds up "
        f"is {filter.measure}{', and not epsilons' if filter.adds_up_releases else ''}.",
    ]
    if incomplete := [str(fit.fit) for fit in fits if fit.booked < fit.planned]:
        lines.append(  # a count that can depend on the data
            f"Not all releases are booked of fit {', '.join(incomplete)}: it is running, or ended "
            "early. That can be because of the data, which no guarantee covers: do not publish it."
        )
    return "\n".join(lines)


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


class Booking:
    """Book the releases of one fit in the file, each before it is handed out.

    A fork copies the position, and the file takes each position once: whoever comes second stays
    refused.

    As a context manager it settles the fit when the block ends, also by an interrupt: what is
    booked is owed. A release that failed may have done so because of the records, and the price of
    a fit must not tell: such a fit owes its whole plan for good. After any other error it owes its
    plan until it goes on or `Ledger.settle` ends it, as if its process had been killed.
    """

    def __init__(
        self, path: Path, fit: int, amounts: Mapping[Release, float], position: int = 0
    ) -> None:
        self.path, self.fit, self.position = path, fit, position
        self._amounts = amounts
        self._process = os.getpid()

    def __call__(self, release: Release | None = None) -> None:
        """Book a release, which must not be handed out if this raises an UnbookedError."""
        price = 0.0 if release is None else self._amounts.get(release, 0.0)
        try:
            booked = ledger_file.book(self.path, self.fit, self.position, price)
            fits = [] if booked else ledger_file.fits_of(self.path)
        except sqlite3.Error as error:
            raise UnbookedError(
                f"The release could not be booked in {self.path} ({error}); nothing is handed out."
            ) from error
        if any(entry.ended for entry in fits if entry.fit == self.fit):
            text = f"Fit {self.fit} was settled in {self.path} while it ran"
            raise UnbookedError(f"{text}: it can make no further release. Nothing is handed out.")
        if not booked:
            raise UnbookedError(
                f"Release {self.position + 1} of fit {self.fit} is booked in {self.path} already, "
                "by a fork of this process, or beyond its plan; nothing is handed out."
            )
        self.position += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._process != os.getpid():
            return  # the fit belongs to the process that this one was forked from
        if isinstance(error, UnreadableError | UnbookedError):
            return  # not because of any value
        failed = isinstance(error, ReleaseError)
        if not failed and not isinstance(error, KeyboardInterrupt | SystemExit | None):
            return
        try:
            ledger_file.settle(self.path, self.fit, whole=failed)
        except sqlite3.Error as unwritten:  # the whole plan stays owed, as the report says
            if failed:
                text = f"A release of fit {self.fit} failed, and {self.path} could not be written"
                text += f" ({unwritten}): the fit owes its whole plan. Do not settle it."
                warnings.warn(text, PrivacyWarning, stacklevel=2)


def filter_of(terms: Terms) -> Filter:
    """Return how the costs of a ledger of these terms add up."""
    return FILTERS[terms.filter](terms.epsilon, terms.delta, terms.order)


class Ledger:
    """The privacy budget of one data set, over all fits on it.

    Parameters
    ----------
    path : str or Path
        A file. It is created if it does not exist, else terms that are given must be its own.
    epsilon, delta : float
        What all fits together may cost.
    dataset : str
        A name for the data.
    neighbours : {"add_remove", "zero_out", "replace_one"}, default "add_remove"
    unit : str, default "record"
        Whom the budget protects: the name of the ``pm.Data``, as in `pymc_dp.fit`. Its codes must
        mean the same persons in every fit; names alone are compared.
    filter : {"rdp", "zcdp", "sum"}, default "rdp"
        How costs add up: Rényi divergences at one order, rho of Gaussian releases of all records,
        or epsilons and deltas.

    Raises
    ------
    ValueError, TypeError
        The file is no ledger, is damaged or cannot be created, has other terms, or a term is
        missing or out of its range.

    Notes
    -----
    **Privacy.** All fits that were given this ledger are together (epsilon, delta)-differentially
    private, although their settings may depend on earlier results. A fit's plan is set aside
    before its first release, and each release is booked before it is handed out. What is booked is
    never refunded. A fit that is interrupted, or killed and then settled (`settle`), owes what it
    has booked; with ``filter="sum"``, which has no proof for parts, its whole plan. When it is
    interrupted must not depend on the data. Fits without the ledger do not count, nor do those that
    an old copy of the file has forgotten.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> terms = {"epsilon": 1.0, "delta": 1e-5, "dataset": "survey"}
    >>> ledger = Ledger(folder.name + "/survey.ledger", **terms)
    >>> round(ledger.left.epsilon, 2)  # for a fit of all records
    0.91
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        dataset: str | None = None,
        neighbours: str | None = None,
        unit: str | None = None,
        filter: str | None = None,
    ) -> None:
        numbers = {"epsilon": epsilon, "delta": delta}
        given: dict[str, Any] = {name: checked_number(name, x) for name, x in numbers.items()}
        given |= {"dataset": dataset, "neighbours": neighbours, "unit": unit, "filter": filter}
        given = {name: value for name, value in given.items() if value is not None}
        # a link may later point to another file, with other terms
        self.path = Path(path).resolve()
        if not self.path.exists():
            ledger_file.create(self.path, new_terms(given, self.path))
        self.terms = ledger_file.terms_of(self.path)
        for name, value in given.items():
            kept = getattr(self.terms, name)
            if value != kept:
                text = f"{name}={value!r} is not the ledger's: {self.path} keeps its {kept!r}"
                raise ValueError(f"{text}. Leave {name}= out.")

    def __repr__(self) -> str:
        terms = self.terms
        try:
            fits = self._fits
            spent, left = balances(self._filter, fits)
            state = (
                f"at delta={terms.delta:g} for all fits; owed: {spent.epsilon:.4g} for "
                f"{len(fits)}; one more may ask for up to {left.epsilon:.4g} "
                f"({self._filter.measure} add up)"
            )
        except (sqlite3.Error, ValueError) as error:
            state = f"(unreadable: {error})"
        return f"Ledger({str(self.path)!r}, {terms.dataset!r}: epsilon {terms.epsilon:g} {state})"

    @property
    def spent(self) -> Balance:
        """What is owed: ``epsilon``, ``delta``, and ``amount`` in the filter's unit.

        A fit that has ended owes what it has booked, any other its whole plan. The epsilon is what
        the amount means at the ledger's delta (with ``filter="sum"`` at the sum of deltas) if no
        setting depended on an earlier result; the ledger's own guarantee needs no such condition.
        """
        return balances(self._filter, self._fits)[0]

    @property
    def left(self) -> Balance:
        """What later fits may cost: ``epsilon``, ``delta``, and ``amount`` in the filter's unit.

        A further fit of all records (``sampling="full"``) is admitted if its epsilon at the
        ledger's delta is at most this, by whatever accountant. For sampled batches it is a guide,
        good to a few percent for 100 releases and more; a fit of few releases or little noise can
        need more than its epsilon. With ``filter="sum"`` it holds for every fit whose own delta is
        at most ``delta``.
        """
        return balances(self._filter, self._fits)[1]

    def reserve(self, method: str, plan: Plan | Selection) -> Booking:
        """Set a whole plan aside, or refuse it and spend nothing; `pymc_dp.fit` calls it.

        The `Booking` books each release before it is handed out or written anywhere. Raises
        ValueError for a fit that costs more than is left, is not private, or has other terms than
        the ledger, and ReleaseError where the file could not be written: make no release.
        """
        for each in [plan] if isinstance(plan, Plan) else plan.plans:
            refuse_other_fits(self.terms, each)
        return self._reserve(method, plan)

    def resume(self, fit: int, method: str, plan: Plan, made: int) -> Booking:
        """Go on with a plan that an interrupted fit has set aside; ``made`` releases are kept.

        A release that is booked is never made again: those that are kept must be all that are
        booked. Raises ValueError for another plan or number of releases than the ledger has, and
        where other fits have taken what the interrupt has freed.
        """
        refuse_other_fits(self.terms, plan)
        price, entry = self._filter.price(plan), self._entry(fit)
        known = entry and (entry.method, entry.upfront, {x.price: x.planned for x in entry.lines})
        if entry is None or known != (method, price.upfront, price.counts):
            text = f"{self.path} has set no such plan aside for fit {fit}"
            raise ValueError(f"{text}: give the ledger and the settings that it began with.")
        if entry.booked != made:
            raise ValueError(
                f"{self.path} has booked {entry.booked} releases of this fit, and the checkpoint "
                f"holds {made}: it is an old copy, another process has gone on, or the fit ended "
                "while it wrote one. It cannot go on; nothing was released."
            )
        with self._writing(f"Fit {fit} could not go on", "; nothing is released"):
            reopened = ledger_file.reopen(self.path, self.terms, fit, self._filter.limit)
        if not reopened:
            words, measure = self._filter.words, self._filter.measure
            raise ValueError(
                f"Fit {fit} was interrupted, which freed its rest, and other fits have taken it: "
                f"the plan costs {words(entry.of_plan.rounded())} in {measure}, "
                f"{words(entry.of_booked.rounded())} of it are booked, and {self._left()}. It can "
                "go on only if another fit that still holds its plan ends early."
            )
        return Booking(self.path, fit, price.amounts, made)

    def settle(self, fit: int) -> None:
        """End a fit whose process was killed: what it has booked stays owed, the rest is free.

        Parameters
        ----------
        fit : int
            Its number in the report.

        Raises
        ------
        ValueError
            The ledger holds no such fit, or it has ended.
        ReleaseError
            The file could not be written.

        Notes
        -----
        **Privacy.** A process that is still alive is refused its next release. By calling this you
        say that the fit did not end because of what the records are, such as by memory that one
        record filled: how much a fit owes would tell. With ``filter="sum"``, and for
        `pymc_dp.tune`, nothing is freed. A fit with a checkpoint can go on later if what it needs
        is left (fully adaptive composition, theorem 4.3 of Feldman and Zrnic 2021).
        """
        with self._writing(f"Fit {fit} could not be settled"):
            ended = ledger_file.settle(self.path, fit)
        if not ended:
            state = "holds no such fit" if self._entry(fit) is None else "has settled it already"
            raise ValueError(f"Fit {fit!r} cannot be settled: {self.path} {state}.")

    def spend(
        self,
        what: str,
        *,
        rho: float | None = None,
        epsilon: float | None = None,
        delta: float = 0.0,
    ) -> None:
        """Book a mechanism of another library, before it runs.

        Parameters
        ----------
        what : str
            What it releases, in one line. It is stored and reported as it is: write no values of
            the data into it.
        rho : float, optional
            Its loss in zero-concentrated DP; of Gaussian noise, sensitivity squared over twice the
            variance. Not for a ledger with ``filter="sum"``.
        epsilon, delta : float, optional
            Its loss in their place. A delta above zero is for a ledger with ``filter="sum"`` alone.

        Raises
        ------
        ValueError, TypeError
            It costs more than is left, or the price is none of the ledger's. Nothing is spent.
        ReleaseError
            The file could not be written: the price may be set aside, so do not run the mechanism.

        Notes
        -----
        **Privacy.** The price is taken on trust: it must hold between the ledger's neighbours, for
        its unit, whatever was released before. Nothing is refunded if the mechanism fails.
        Sources: Rogers et al. (2016), theorem 3.6; Feldman and Zrnic (2021), theorem 4.3.

        Examples
        --------
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = Ledger(folder.name + "/a.ledger", epsilon=1, delta=1e-5, dataset="survey")
        >>> ledger.spend("mean income, clipped at 100", rho=0.005)
        >>> round(ledger.left.amount, 2)  # 18 times less: the filter's order is 18
        0.46
        >>> folder.cleanup()
        """
        if not isinstance(what, str) or not what.isprintable() or not what.strip():
            raise ValueError(f"what={what!r} must say in one line what the mechanism releases.")
        with self._reserve(what, external_mechanism(rho, epsilon, delta)) as booking:
            booking()

    def report(self) -> str:
        """Say in words what the budget is, what was spent on what, and what is left.

        Returns
        -------
        str

        Notes
        -----
        **Privacy.** Made of settings, and of how many releases each fit has booked. A fit may have
        ended early because of the data: its count is for whoever holds them.
        """
        return report_of(self.terms, self._filter, self._fits)

    @property
    def _filter(self) -> Filter:
        return filter_of(self.terms)

    @property
    def _fits(self) -> list[Entry]:
        return ledger_file.fits_of(self.path)

    def _entry(self, fit: int) -> Entry | None:
        return next((entry for entry in self._fits if entry.fit == fit), None)

    def _reserve(self, what: str, spending: Spending) -> Booking:
        """Set a price aside, or refuse it and spend nothing."""
        price = self._filter.price(spending)
        with self._writing(f"{what!r} could not be set aside", "; nothing is released"):
            fit = ledger_file.reserve(self.path, self.terms, what, price, self._filter.limit)
        if fit is None:
            cost = self._filter.words(self._filter.cost(spending))
            raise ValueError(
                f"{what!r} costs {cost} in {self._filter.measure}, and {self._left()}. Nothing was "
                "spent; add more noise, or release less (pymc_dp.plan says what a fit costs)."
            )
        return Booking(self.path, fit, price.amounts)

    @contextmanager
    def _writing(self, failed: str, so: str = "") -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ReleaseError(f"{failed} in {self.path} ({error}){so}.") from error

    def _left(self) -> str:
        left = self._filter.words(Cost(*self.left[:2]))
        return f"the ledger of {self.terms.dataset!r} has {left} left"


def open_ledger(ledger: Ledger | str | os.PathLike[str] | None) -> Ledger | None:
    """Return a ledger, or open the one at a path; it must exist, since a new one needs terms."""
    if ledger is None or isinstance(ledger, Ledger):
        return ledger
    if not isinstance(ledger, str | os.PathLike):
        raise TypeError(f"ledger={ledger!r} must be a pymc_dp.Ledger, or the path of one.")
    if not Path(ledger).exists():
        raise ValueError(
            f"ledger={os.fspath(ledger)!r} does not exist: create it with its terms, "
            "pymc_dp.Ledger(path, epsilon=..., delta=..., dataset=...)."
        )
    return Ledger(ledger)
