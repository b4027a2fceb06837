"""The budget of one data set, kept in a file over many fits."""

import math
import os
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pymc_dp import ledger_file
from pymc_dp.errors import ReleaseError
from pymc_dp.filters import FILTERS, Cost, Filter, Priced, best_order
from pymc_dp.ledger_file import Booked, Terms
from pymc_dp.plans import Plan
from pymc_dp.release import SENSITIVITY
from pymc_dp.rng import TEST_SEED

DEFAULTS = {"neighbours": "add_remove", "unit": "record", "filter": "rdp"}


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
            ledger_file.create(self.path, _checked(DEFAULTS | given, self.path))
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
        cost = self._filter.cost(plan)
        # the number of a selection's runs is secret: it is booked as one release
        planned = plan.total if isinstance(plan, Plan) else 1
        fit = ledger_file.reserve(self.path, method, planned, cost, self._filter.limit)
        if fit is None:
            raise ValueError(
                f"The fit costs {_amounts(cost)} in {self._filter.measure}, and the ledger of "
                f"{self.terms.dataset!r} has {_amounts(self.left)} left. Nothing was spent; give "
                "the fit more noise, or fewer releases."
            )
        return _Booking(self.path, fit)

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


class _Booking:
    """Book the releases of one fit in the file, each before it is made.

    A fork copies the position, and the file takes each position once: whoever comes second stays
    refused, so that a plan's releases are made along one line, whatever their order in it.
    """

    def __init__(self, path: Path, fit: int) -> None:
        self.path, self.fit, self.position = path, fit, 0

    def __call__(self) -> None:
        try:
            found = ledger_file.book(self.path, self.fit, self.position)
        except sqlite3.Error as error:
            raise ReleaseError(
                f"The release could not be booked in {self.path} ({error}); nothing is handed out."
            ) from error
        if not found:
            raise ReleaseError(
                f"Release {self.position + 1} of fit {self.fit} is booked in {self.path} already, "
                "by a process that was forked from this fit, or is beyond its plan; nothing is "
                "handed out. Let one process alone go on with a fit."
            )
        self.position += 1


def _checked(given: dict[str, Any], path: Path) -> Terms:
    """Check the terms of a new ledger."""
    for name in ("epsilon", "delta", "dataset"):
        if name not in given:
            raise ValueError(f"{path} does not exist, and to create it {name}= is missing.")
    if not 0 < given["epsilon"] < math.inf:
        raise ValueError(f"epsilon={given['epsilon']!r} must be above 0 and finite.")
    if not 0 < given["delta"] < 1:
        raise ValueError(f"delta={given['delta']!r} must lie strictly between 0 and 1.")
    choices: dict[str, Iterable[str]] = {"neighbours": SENSITIVITY, "filter": FILTERS}
    for name, known in choices.items():
        if given[name] not in set(known):
            raise ValueError(f"{name}={given[name]!r} is unknown: use one of {sorted(known)}.")
    order = best_order(given["epsilon"], given["delta"]) if given["filter"] == "rdp" else 0.0
    return Terms(**given, order=order)


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
