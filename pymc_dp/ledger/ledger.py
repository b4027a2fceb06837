"""The budget of one data set, kept in a file over many fits."""

import os
import sqlite3

from pymc_dp.accounting.plan import Plan, checked_number
from pymc_dp.accounting.selection import Selection
from pymc_dp.ledger.account import Account
from pymc_dp.ledger.booking import Booking
from pymc_dp.ledger.external import external_mechanism
from pymc_dp.ledger.filters import Filter
from pymc_dp.ledger.report import Balance, balances, in_short, report_of
from pymc_dp.ledger.terms import refuse_other_fits


class Ledger:
    """The privacy budget of one data set, over all fits on it.

    Parameters
    ----------
    path : str or Path
        A file; it is created if it does not exist. An existing ledger keeps its terms: those
        given must be the same.
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
    ValueError
        The file is no ledger, is damaged or cannot be created, has other terms, or a term is
        missing or out of its range.
    TypeError
        Epsilon or delta is no number.

    Notes
    -----
    **Privacy.** All fits that were given this ledger are together (epsilon, delta)-differentially
    private, although their settings may depend on earlier results. A fit's plan is set aside
    before its first release, and each release is booked before it is handed out. What is booked is
    never refunded. A fit that is stopped or interrupted owes what it has booked, unless the filter
    is ``"sum"``, which has no proof for parts of a plan; `settle` does the same for a fit that was
    killed. When a fit is interrupted must not be chosen by looking at the data. Fits without the
    ledger do not count, and neither do those that an old copy of the file has forgotten.

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
        given = {
            "dataset": dataset,
            "epsilon": checked_number("epsilon", epsilon),
            "delta": checked_number("delta", delta),
            "neighbours": neighbours,
            "unit": unit,
            "filter": filter,
        }
        given = {name: value for name, value in given.items() if value is not None}
        self._account = Account.opened(path, given)
        self.path, self.terms = self._account

    def __repr__(self) -> str:
        terms = self.terms
        try:
            state = in_short(terms, self._filter, self._account.fits)
        except (sqlite3.Error, ValueError) as error:
            state = f"(unreadable: {error})"
        return f"Ledger({str(self.path)!r}, {terms.dataset!r}: epsilon {terms.epsilon:g} {state})"

    @property
    def spent(self) -> Balance:
        """What is owed: ``epsilon``, ``delta``, and ``amount`` in the filter's unit.

        A fit that has ended owes what it has booked, any other its whole plan.

        The epsilon is what the amount means at the ledger's delta (with ``filter="sum"`` at the sum
        of deltas) if the settings of these fits did not depend on each other's results. The
        ledger's guarantee needs no such condition, and is that of its terms.
        """
        return balances(self._filter, self._account.fits)[0]

    @property
    def left(self) -> Balance:
        """What later fits may cost: ``epsilon``, ``delta``, and ``amount`` in the filter's unit.

        A further fit that releases sums of all records (``sampling="full"``) is admitted if its
        epsilon at the ledger's delta is at most this, by whatever accountant. For fits of sampled
        batches, whose divergence of one order is not a function of their epsilon, it is a guide:
        it was within a few percent for fits of 100 releases and more, and a fit of few releases or
        little noise can need more than its epsilon. With ``filter="sum"`` it holds for every fit
        whose own delta is at most ``delta``.
        """
        return balances(self._filter, self._account.fits)[1]

    def reserve(self, method: str, plan: Plan | Selection) -> Booking:
        """Set a whole plan aside, or refuse it and spend nothing; `pymc_dp.fit` calls it.

        The `Booking` that it returns is to book each release before it is handed out or written
        anywhere. Of processes forked from a fit, only the first to book goes on.

        Raises
        ------
        ValueError
            The fit costs more than is left, is not private, or has other terms than the ledger.
        ReleaseError
            The file could not be written: the plan may be set aside, so make no release.
        """
        for each in [plan] if isinstance(plan, Plan) else plan.plans:
            refuse_other_fits(self.terms, each)
        return self._account.reserve(method, plan)

    def resume(self, fit: int, method: str, plan: Plan, made: int) -> Booking:
        """Go on with a plan that an interrupted fit has set aside; ``made`` releases are kept.

        A release that is booked was handed out, or written, so that it is never made again: those
        that are kept must be all that are booked. What the interrupt has freed is set aside again.

        Raises
        ------
        ValueError
            The fit has other terms than the ledger, which has set no such plan aside, or has booked
            another number of releases; or other fits have taken what the interrupt has freed.
        """
        refuse_other_fits(self.terms, plan)
        return self._account.resume(fit, method, plan, made)

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
        **Privacy.** It is safe whether or not the process is still alive: a fit that is settled is
        refused its next release, and loses it. By calling this you say that the fit did not end
        because of what the records are, such as by memory that one record filled: how much a fit
        owes would tell. With ``filter="sum"``, and for `pymc_dp.tune`, nothing is freed. A fit with
        a checkpoint can go on later if what it needs is still left.

        Source: fully adaptive composition, theorem 4.3 of Feldman and Zrnic (2021).
        """
        self._account.settle(fit)

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
            Its loss in zero-concentrated DP: sensitivity squared over twice the noise's variance,
            for Gaussian noise. Not for a ledger with ``filter="sum"``.
        epsilon, delta : float, optional
            Its loss in their place. A delta above zero is for a ledger with ``filter="sum"`` alone.

        Raises
        ------
        ValueError
            It costs more than is left, or the price is not of the ledger's kind. Nothing is spent.
        TypeError
            The price is no number.
        ReleaseError
            The file could not be written: the price may be set aside, so do not run the mechanism.

        Notes
        -----
        **Privacy.** The price is taken on trust: it must hold between the ledger's neighbours, for
        its unit, whatever was released before. Nothing is refunded if the mechanism fails.

        Source: theorem 3.6 of Rogers et al. (2016), theorem 4.3 of Feldman and Zrnic (2021).

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
        with self._account.reserve(what, external_mechanism(rho, epsilon, delta)) as booking:
            booking()

    def report(self) -> str:
        """Say in words what the budget is, what was spent on what, and what is left.

        Returns
        -------
        str

        Notes
        -----
        **Privacy.** Made of settings, and of how many releases each fit has booked. A fit that
        ended early may have done so because of the data: its count is no release, and is for
        whoever holds the data.
        """
        return report_of(self.terms, self._filter, self._account.fits)

    @property
    def _filter(self) -> Filter:
        return self._account.filter
