"""Private scores: how well posteriors predict records, for a comparison of models."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dp.calibration.budget import Budget
from pymc_dp.checking.release import Fitted, ask, later_budget, open_fitted
from pymc_dp.contributions.predictive_density import Range, check_range, predictive_density
from pymc_dp.driver.setup import model_in_use
from pymc_dp.ledger.ledger import Ledger
from pymc_dp.model import Records
from pymc_dp.model.tables import read_tables
from pymc_dp.privacy.contribution import Batch, RowContribution
from pymc_dp.privacy.private_data import joined
from pymc_dp.privacy.query import Noisy
from pymc_dp.results.build import privacy_of, with_guarantee

NAME = "log predictive densities"
DRAWS = 100  # draws behind a record's log predictive density
COUNT_SHARE = 0.5**0.5  # what a record adds to their count, over what it can add to a score
# what the square of a score adds, over that of the score: it says how records vary
SQUARE_SHARE = 0.5

Fits = Mapping[str, tuple[xr.DataTree, pm.Model]]


class Terms(NamedTuple):
    """How densities become vectors, and sums become scores; public."""

    limits: Range
    largest_difference: float
    number: int | None  # declared, of records

    @property
    def of_count(self) -> float:
        """What a record adds to the count: nothing where the number is declared."""
        return COUNT_SHARE if self.number is None else 0.0

    def clip_norm(self, models: int) -> float:
        """The longest vector: scores lie between -1 and 1, their squares between 0 and 1."""
        return float((models * (1 + SQUARE_SHARE**2) + self.of_count**2) ** 0.5)


def score(
    idata: xr.DataTree | Fits,
    model: pm.Model | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    data: Mapping[str, Any] | None = None,
    score_range: tuple[float, float] = (-4.0, 0.0),
    largest_difference: float = 1.0,
    neighbours: str | None = None,
    accountant: str = "pld",
    num_records: int | None = None,
    unit: str | None = None,
    ledger: Ledger | str | PathLike[str] | None = None,
    backend: str = "python",
) -> xr.DataTree:
    """Release how well posteriors predict records: their mean log predictive density.

    Give records that were held out. Those that were fitted flatter the model that adapts most.

    Parameters
    ----------
    idata : DataTree, or mapping of {str : (result, model)}
        A result of `pymc_dp.fit`. Several are scored on the same records in one release, which says
        more about their differences than one release each.
    model : pymc.Model
        The model that was fitted; left out for several.
    epsilon, delta, noise_multiplier, accountant, ledger, backend
        As in `pymc_dp.fit`, for this release alone.
    neighbours, unit : str, optional
        Those of the fit, of several the first one. With a unit the scores are those of persons,
        each the mean of its records'.
    data : mapping, optional
        The records, in place of the model's own, as in `pymc_dp.fit`, with the fit's unit. Several
        models need it: each takes the arrays that it knows.
    score_range : tuple of two floats
        Where a record's log predictive density is clipped to. The default suits outcomes of about
        unit scale, one or two a record.
    largest_difference : float
        Where the difference between a record's densities under another model and under the first
        one is clipped to, on both sides. Half of it halves the noise on differences.
    num_records : int, optional
        The number of these records, or of persons with ``unit=``, if it is public. Otherwise a
        noisy count takes its place.

    Returns
    -------
    DataTree
        ``score`` by model: ``mean`` log density of a record and ``difference`` to the first
        model's, each with ``..._noise_sd``, of the privacy noise, and ``..._sampling_sd``, for the
        choice of records, rather too large; ``number`` of records. And ``privacy``, as from
        `pymc_dp.fit`.

    Raises
    ------
    NotSeparableError
        Records have latents of their own, or the likelihood is not one term a record.
    ValueError, TypeError
        Any other bad input. All of it is refused before any budget is spent.

    Notes
    -----
    **Privacy.** One Gaussian release of all records. A record adds its first model's density less
    the centre of ``score_range``, over half of its length; the difference of each other model's,
    over ``largest_difference``; half the square of each of these numbers; and, where the number is
    not declared, sqrt(1/2). For K models its squared norm is at most 5 K / 4 + 1/2. The results
    count as public, and cost what their own fits did.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     y = pm.Bernoulli("y", p, observed=np.repeat([0, 1], [300, 700]))
    >>> terms = {"epsilon": 1, "delta": 1e-5}
    >>> idata = pymc_dp.fit(model=model, progressbar=False, **terms)
    >>> held_out = {"y": np.repeat([0, 1], [320, 680])}
    >>> found = pymc_dp.score(idata, model, data=held_out, **terms)
    >>> -0.8 < found["score"]["mean"].item() < -0.5
    True
    """
    fits = _fits(idata, model, data)
    budget = later_budget(
        next(iter(fits.values()))[0],
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=noise_multiplier,
        neighbours=neighbours,
        accountant=accountant,
        num_records=num_records,
        unit=unit,
    )
    if not 0 < largest_difference < math.inf:
        raise ValueError(f"largest_difference={largest_difference!r} must be above 0 and finite.")
    terms = Terms(check_range(score_range), largest_difference, num_records)
    fitted = _open(fits, data, budget)
    public = sorted({name for each in fitted.values() for name in each.public})
    columns = joined({name: each.data for name, each in fitted.items()})
    together = next(iter(fitted.values()))._replace(data=columns, public=tuple(public))
    records = {name: (each.records, [*each.data.spec]) for name, each in fitted.items()}
    noisy, outcome = ask(
        NAME,
        together,
        budget,
        ledger,
        backend,
        compile_one=partial(_scores, records, terms),
        context=tuple(each.points for each in fitted.values()),
        size=2 * len(fitted) + 1,
        clip_norm=terms.clip_norm(len(fitted)),
    )
    settings = {
        "score_range": list(terms.limits),
        "largest_difference": largest_difference,
        "draws": [len(each.points) for each in fitted.values()],
    }
    groups = {"score": _describe([*fitted], noisy, terms)}
    return with_guarantee(groups, together.records, outcome, {"settings": settings})


def _fits(idata: xr.DataTree | Fits, model: pm.Model | None, data: Any) -> Fits:
    """Return the results with their models, by name."""
    if not isinstance(idata, Mapping) or isinstance(idata, xr.DataTree):
        privacy_of(idata)
        return {"model": (idata, model_in_use(model))}
    if model is not None or data is None or not idata:
        raise ValueError(
            "Several models are given as {'name': (result, model), ...} without model=, and with "
            "data=: the records that all of them are to predict, row by row the same."
        )
    for result, _ in idata.values():
        privacy_of(result)
    return {name: (result, model_in_use(one)) for name, (result, one) in idata.items()}


def _open(fits: Fits, data: Mapping[str, Any] | None, budget: Budget) -> dict[str, Fitted]:
    if len(fits) == 1:
        return {name: open_fitted(*fit, data, budget, DRAWS) for name, fit in fits.items()}
    data = read_tables(data) or {}
    known = {
        name: {str(v.name) for v in (*model.data_vars, *model.observed_RVs)}
        for name, (_, model) in fits.items()
    }
    for name in sorted(data.keys() - set().union(*known.values())):
        raise ValueError(f"data= names `{name}`, which is an array of none of the models.")
    return {
        name: open_fitted(*fit, {k: data[k] for k in data if k in known[name]}, budget, DRAWS)
        for name, fit in fits.items()
    }


def _scores(
    models: Mapping[str, tuple[Records, list[str]]], terms: Terms, backend: str
) -> RowContribution:
    """Contribute a record's density under the first model, differences to it, and a count."""
    # a model comes with the names of its columns
    each = [
        _of_model(name, columns, predictive_density(records, terms.limits, backend))
        for name, (records, columns) in models.items()
    ]

    def prepare(batch: Batch, points: Sequence[np.ndarray]) -> np.ndarray:
        found = [density(batch, z) for density, z in zip(each, points, strict=True)]
        return np.stack(found, axis=1)

    def rows(densities: np.ndarray, points: Sequence[np.ndarray]) -> np.ndarray:
        first = (densities[:, :1] - terms.limits.centre) / terms.limits.radius
        most = terms.largest_difference
        others = np.clip((densities[:, 1:] - densities[:, :1]) / most, -1.0, 1.0)
        scores = np.concatenate([first, others], axis=1)
        count = np.full_like(first, terms.of_count)
        return np.concatenate([scores, SQUARE_SHARE * scores**2, count], axis=1)

    return RowContribution(2 * len(each) + 1, DRAWS * len(each), rows, prepare)


def _of_model(
    model: str, columns: list[str], density: Callable[[Batch, np.ndarray], np.ndarray]
) -> Callable[[Batch, np.ndarray], np.ndarray]:
    """Let a density read its own columns of the joined records."""
    return lambda batch, z: density({name: batch[f"{model}/{name}"] for name in columns}, z)


def _describe(models: list[str], noisy: Noisy, terms: Terms) -> xr.Dataset:
    """Turn sums into means, with their noise's standard deviation to first order."""
    of_count, sd = terms.of_count, noisy.sd
    counted = (noisy.value[-1], sd) if of_count else (float(terms.number or 1), 0.0)
    number, number_sd = (x / (of_count or 1.0) for x in counted)
    divisor = max(number, number_sd, 1.0)
    scores, squares = np.split(noisy.value[:-1] / divisor, 2)
    noise = np.hypot(sd, scores * number_sd) / divisor
    # a variance of records and one standard deviation of its noise, at most that of the range
    spread = (squares + sd / divisor) / SQUARE_SHARE - scores**2
    sampling = np.sqrt(np.clip(spread, 0.0, 1.0) / divisor)
    scale = np.array([terms.limits.radius, *[terms.largest_difference] * (len(models) - 1)])
    first, *others = np.stack([scores, noise, sampling], axis=1) * scale[:, None]
    difference, its_noise, its_sampling = np.stack([np.zeros(3), *others], axis=1)
    return xr.Dataset(
        {
            "mean": ("model", terms.limits.centre + first[0] + difference),
            "mean_noise_sd": ("model", np.hypot(first[1], its_noise)),
            "mean_sampling_sd": ("model", first[2] + its_sampling),
            "difference": ("model", difference),
            "difference_noise_sd": ("model", its_noise),
            "difference_sampling_sd": ("model", its_sampling),
            "number": number,
            "number_noise_sd": number_sd,
        },
        {"model": models},
    )
