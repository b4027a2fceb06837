"""The columns of a table, each modelled given those before it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pymc_dp.synthetic.column_types import Column
from pymc_dp.synthetic.conditionals import Before, coords_of, observe
from pymc_dp.synthetic.shared_budget import fit_all
from pymc_dp.synthetic.synthesize import SETS, synthesize

# names a column, and its values, in a model where later columns read them
Read = Callable[[str, np.ndarray], Any]


class Columns:
    """The columns of a table, in an order in which each is modelled given those before it.

    Parameters
    ----------
    columns : mapping of str to Column
        By name. Put categories, which have many latents, first, and what depends on the others,
        such as an outcome, last.

    See Also
    --------
    pymc_dp.synthesize : draws from any model that observes all of its columns.
    pymc_dp.pool : puts estimates from several data sets together.

    Notes
    -----
    A column depends on those before it by main effects: slopes of numbers, which are scaled to
    -1 to 1 by their public range, and an effect of each category, which sum to 0. Priors are
    normal, with the standard deviation 1, or 2 for log odds.

    **Privacy.** Every record is prepared by itself, by the public numbers of its columns.

    Examples
    --------
    >>> import numpy as np, pandas as pd, pymc_dp
    >>> from pymc_dp import Column
    >>> rng = np.random.default_rng(0)
    >>> frame = pd.DataFrame({"age": rng.uniform(18, 90, 2000)})
    >>> frame["voted"] = np.where(rng.random(2000) < frame["age"] / 100, "yes", "no")
    >>> columns = pymc_dp.Columns(
    ...     {"age": Column.number(18, 90), "voted": Column.yes_no("no", "yes")}
    ... )
    >>> fits = columns.fit(frame, epsilon=1, delta=1e-5, progressbar=False)
    >>> tables = columns.synthesize(fits, n=500, m=3)
    >>> [table.shape for table in tables]
    [(500, 2), (500, 2), (500, 2)]
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        if not columns:
            raise ValueError("columns= is empty: name one column or more.")
        for name, column in columns.items():
            if not isinstance(column, Column):
                raise TypeError(
                    f"The column `{name}` is {column!r}: describe it by pymc_dp.Column, such as "
                    "pymc_dp.Column.number(0, 100)."
                )
        self._types = dict(columns)

    def __repr__(self) -> str:
        return f"Columns({self._types!r})"

    def model(self, frame: Any) -> pm.Model:
        """Build one model of all columns of a data frame.

        Raises
        ------
        ValueError
            A column is missing, or holds values that its type does not have.
        """
        return self._joint(self._values(frame))

    def fit(
        self, frame: Any, *, epsilon: float, delta: float, **settings: Any
    ) -> dict[str, xr.DataTree]:
        """Fit every column given those before it, within one budget.

        Parameters
        ----------
        frame : DataFrame
            The private records.
        epsilon, delta : float
            The budget of all fits together.
        **settings
            Other keywords of `pymc_dp.fit`.

        Returns
        -------
        dict of str to DataTree
            By column. `pymc_dp.compose` says what all of them cost.

        Raises
        ------
        ValueError, TypeError, NotSeparableError
            Bad input to any of the fits, all of it before the first release.

        Notes
        -----
        **Privacy.** All settings are fixed in advance from the columns' types, so that the
        fits compose; their plans are composed before the first fit. A fit has a share of the
        budget in proportion to its latents. Columns share no latents: the product of
        their posteriors is the posterior of the model of all columns.
        """
        values = self._values(frame)
        models = {name: self._conditional(name, values) for name in self._types}
        return fit_all(models, epsilon, delta, settings)

    def synthesize(
        self,
        fits: Mapping[str, xr.DataTree] | xr.DataTree,
        *,
        n: int,
        m: int = 20,
        random_seed: int | None = None,
    ) -> list[pd.DataFrame]:
        """Draw synthetic data sets as data frames, with the columns' own levels.

        Parameters
        ----------
        fits : mapping or DataTree
            Of `fit`, or a fit of `model`.
        n, m, random_seed
            As in `pymc_dp.synthesize`.

        Returns
        -------
        list of DataFrame
            As many as ``m``, of ``n`` records each.

        Notes
        -----
        **Privacy.** Post-processing, at no cost; no data frame is read.
        """
        made_up = {name: column.made_up() for name, column in self._types.items()}
        results = fits if isinstance(fits, xr.DataTree) else self._all(fits)
        found = synthesize(results, self._joint(made_up), n=n, m=m, random_seed=random_seed)
        sets = found["synthetic"].to_dataset()
        return [self._table(sets.isel({SETS: k})) for k in range(m)]

    def _all(self, fits: Mapping[str, xr.DataTree]) -> list[xr.DataTree]:
        for name in self._types:
            if name not in fits:
                raise ValueError(
                    f"fits= lacks the column `{name}`: give what Columns.fit returned."
                )
        return [fits[name] for name in self._types]

    def _table(self, found: xr.Dataset) -> pd.DataFrame:
        columns = self._types.items()
        return pd.DataFrame({name: x.labelled(found[name].to_numpy()) for name, x in columns})

    def _values(self, frame: Any) -> dict[str, np.ndarray]:
        for name in self._types:
            if name not in frame:
                raise ValueError(f"The data frame lacks the column `{name}`.")
        return {name: column.codes(name, frame[name]) for name, column in self._types.items()}

    def _joint(self, values: Mapping[str, np.ndarray]) -> pm.Model:
        """Model all columns: later ones read the variables of those before them."""
        before = Before({}, {})
        with pm.Model(coords=coords_of(self._types)) as model:
            for name, column in self._types.items():
                data = pm.Data(f"values of {name}", values[name])  # of any number of rows
                before.offer(name, column, observe(name, column, before, data))
        return model

    def _conditional(self, last: str, values: Mapping[str, np.ndarray]) -> pm.Model:
        names: Sequence[str] = [*self._types]
        names = names[: names.index(last) + 1]
        columns, before = {name: self._types[name] for name in names}, Before({}, {})
        with pm.Model(coords=coords_of(columns)) as model:
            for name in names[:-1]:
                data = pm.Data(f"values of {name}", values[name])
                before.offer(name, columns[name], data)
            observe(last, columns[last], before, values[last])
        return model
