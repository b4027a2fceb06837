"""The budget of one data set, kept in a file over many fits."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pymc_dp import ledger_file
from pymc_dp.booking import Booking
from pymc_dp.elsewhere import elsewhere
from pymc_dp.filters import FILTERS, Cost, Filter, Priced
from pymc_dp.ledger_file import Booked
from pymc_dp.ledger_terms import new_terms
from pymc_dp.plans import Plan
from pymc_dp.rng import TEST_SEED


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
        The file is no ledger, has other terms, or a term is missing or out of its range.

    Notes
    -----
    **Privacy.** All fits that were given this ledger are together (epsilon, delta)-differentially
    private, although their settings may depend on earlier results. A fit's plan is set aside
    before its first release, each release is booked before it is handed out, and nothing is ever
    refunded. Fits without the ledger do not count, and neither do those that an old copy of the
    file has forgotten.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> terms = {"epsilon": 1.0, "delta": 1e-5, "dataset": "survey"}
    >>> ledger = Ledger(folder.name + "/survey.ledger", **terms)
    >>> round(ledger.left.amount, 2)
    0.55
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
        self.path = Path(path).absolute()
        given = {
            "dataset": dataset,
            "epsilon": None if epsilon is None else float(epsilon),
            "delta": None if delta is None else float(delta),
            "neighbours": neighbours,
            "unit": unit,
            "filter": filter,
        }
        given = {name: value for name, value in given.items() if value is not None}
        if not self.path.exists():
            ledger_file.create(self.path, new_terms(given, self.path))
        self.terms = ledger_file.terms_of(self.path)
        self._refuse_other_terms(given)
        self._filter: Filter = FILTERS[self.terms.filter](
            self.terms.epsilon, self.terms.delta, self.terms.order
        )

    @property
    def left(self) -> Cost:
        """What later fits may cost, in the filter's measure, and of delta."""
        return ledger_file.difference(self._filter.limit, ledger_file.fits_of(self.path))

    def reserve(self, method: str, plan: Priced) -> Callable[[], None]:
        """Set a whole plan aside, or refuse it; `pymc_dp.fit` calls it.

        Parameters
        ----------
        method : str
        plan : Plan or Selection

        Returns
        -------
        callable
            To be called before every release: it books the next one, or raises `ReleaseError`.
            Of processes forked from a fit, only the first to book goes on.

        Raises
        ------
        ValueError
            The fit costs more than is left, is not private, or has other terms than the ledger.
            Nothing is spent.
        """
        self._refuse_other_fits(plan)
        # the number of a selection's runs is secret: it is booked as one release
        planned = plan.total if isinstance(plan, Plan) else 1
        return self._reserve(method, planned, self._filter.cost(plan))

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
        cost = self._filter.price(elsewhere(rho, epsilon, delta))
        self._reserve(what, 1, cost)()

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
        terms, limit = self.terms, self._filter.limit
        fits = ledger_file.fits_of(self.path)
        spent, left = ledger_file.spent(fits), ledger_file.difference(limit, fits)
        epsilon, delta = self._filter.meaning(spent)
        lines = [
            f"Ledger of {terms.dataset!r}: ({terms.epsilon:g}, {terms.delta:g})-differential "
            f"privacy per {terms.unit} ({terms.neighbours}) for all fits together.",
            f"Limit: {_amounts(limit)} in {self._filter.measure}.",
            *map(_told, fits),
            f"Spent: {_amounts(spent)}, which is ({epsilon:.4g}, {delta:g})-differential privacy.",
            f"Left: {_amounts(left)}; once it is spent, the total is "
            f"({terms.epsilon:g}, {terms.delta:g}).",
        ]
        return "\n".join(lines + _warning(fits))

    def _reserve(self, what: str, planned: int, cost: Cost) -> Booking:
        fit = ledger_file.reserve(self.path, what, planned, cost, self._filter.limit)
        if fit is None:
            raise ValueError(
                f"{what!r} costs {_amounts(cost)} in {self._filter.measure}, and the ledger of "
                f"{self.terms.dataset!r} has {_amounts(self.left)} left. Nothing was spent; add "
                "more noise, or release less (pymc_dp.plan says what a fit costs)."
            )
        return Booking(self.path, fit)

    def _refuse_other_terms(self, given: dict[str, Any]) -> None:
        for name, value in given.items():
            stored = getattr(self.terms, name)
            if value != stored:
                raise ValueError(
                    f"{name}={value!r} is not the ledger's: {self.path} was created with "
                    f"{name}={stored!r}, and keeps its terms. Leave {name}= out."
                )

    def _refuse_other_fits(self, plan: Priced) -> None:
        for name, value in {"neighbours": plan.neighbours, "unit": plan.unit or "record"}.items():
            stored = getattr(self.terms, name)
            if value != stored:
                raise ValueError(
                    f"The fit's {name}={value!r} is not that of the ledger, {stored!r}: costs of "
                    "different guarantees do not add up."
                )
        if any(release.noise_multiplier == 0 for release in plan.releases):
            raise ValueError("A fit without noise is not private: no budget is large enough.")
        if plan.assumes_exact_draws:
            raise ValueError(
                "This fit's epsilon holds only if its sampler is exact, which no one can check: a "
                "ledger takes noisy sums alone."
            )
        if TEST_SEED.get() is not None:
            raise ValueError("Test mode protects no one: fits in it have no place in a ledger.")


def check_ledger(ledger: Any) -> None:
    """Refuse what is neither a ledger nor None."""
    if ledger is not None and not isinstance(ledger, Ledger):
        raise TypeError(f"ledger={ledger!r} must be a pymc_dp.Ledger, such as Ledger(path).")


def _amounts(cost: Cost) -> str:
    return f"{cost.amount:.4g}" + (f" and delta {cost.delta:g}" if cost.delta else "")


def _told(fit: Booked) -> str:
    return (
        f"Fit {fit.fit}: {fit.method}, {_amounts(fit.cost)}, {fit.booked} of {fit.planned} "
        "releases booked."
    )


def _warning(fits: list[Booked]) -> list[str]:
    """Say so if a count can depend on the data."""
    short = [str(fit.fit) for fit in fits if fit.booked < fit.planned]
    if not short:
        return []
    return [
        f"Not all releases are booked of fit {', '.join(short)}: it runs, or it ended early. That "
        "can be because of the data, and is not covered by the guarantee: keep this to yourself."
    ]
