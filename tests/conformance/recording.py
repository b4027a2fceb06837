"""A fit seen at its wall: every query, the exact sum, the noise and what was handed out."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import xarray as xr

import pymc_dp
from pymc_dp.accounting.plan import Plan, Release
from pymc_dp.privacy.contribution import Noisy, Query
from pymc_dp.privacy.private_data import Column, ColumnSpec, PrivateData, units_of
from pymc_dp.privacy.wall import PrivacyWall
from tests.guarantees.toys import seen_noise

SETTINGS = {"n": 6, "noise_multiplier": 5.0, "delta": 1e-5, "sampling": "full", "draws": 3}
SETTINGS |= {"random_seed": 1, "progressbar": False, "backend": "python"}


class Exchange(NamedTuple):
    """One release: what was asked, the sum before noise, the noise's scale, and the answer."""

    query: Query
    total: np.ndarray
    sd: float
    answer: Noisy


class Recording(NamedTuple):
    """A fit, its exchanges, and what its wall was made of."""

    idata: xr.DataTree
    exchanges: list[Exchange]
    spec: dict[str, ColumnSpec]
    contributions: dict[str, Any]
    plan: Plan

    def planned(self):
        """Pair every exchange with its release in the plan: the first of its name that is left."""
        left = [release for release in self.plan.releases for _ in range(release.count)]
        pairs = []
        for exchange in self.exchanges:
            release = next(release for release in left if release.name == exchange.query.name)
            left.remove(release)
            pairs.append((exchange, release))
        return pairs

    def first_and_last(self):
        """Return the first and the last exchange of every kind of release."""
        by_name: dict[str, list[tuple[Exchange, Release]]] = {}
        for exchange, release in self.planned():
            by_name.setdefault(exchange.query.name, []).append((exchange, release))
        return [found[k] for found in by_name.values() for k in {0, len(found) - 1}]


OWN_SETTINGS = {
    # whose draws are releases
    "dp_ops": {"n": 1, "draws": 1, "transitions": 100},
    # steps: all releases of so short a fit would be rounds, which are those of dp_advi
    "dp_fullrank_advi": {"noise_aware": False},
}


def record(model, method, answers=None, **more):
    """Fit, and record what passes the wall.

    With ``answers`` the wall's own are dropped, and these are handed out in their place.
    """
    settings = {**SETTINGS, **OWN_SETTINGS.get(method, {}), **more}
    return recorded(lambda: pymc_dp.fit(model=model, method=method, **settings), answers)


def recorded(ask, answers=None):
    """Make a result, and record what passes the wall."""
    exchanges: list[Exchange] = []
    walls: list[tuple[Any, ...]] = []
    release, make = PrivacyWall.release, PrivacyWall.__init__

    with seen_noise() as drawn, pytest.MonkeyPatch.context() as patch:

        def seen_release(wall, query):
            drawn.clear()
            answer = release(wall, query)
            total, sd = (drawn[-1][0].total, drawn[-1][1]) if drawn else (answer.value, 0.0)
            if answers is not None:
                answer = answers[len(exchanges)]
            exchanges.append(Exchange(query, total, sd, answer))
            return answer

        def seen_make(wall, *given, **options):
            walls.append(given)
            make(wall, *given, **options)

        patch.setattr(PrivacyWall, "release", seen_release)
        patch.setattr(PrivacyWall, "__init__", seen_make)
        idata = ask()
    data, contributions, plan = walls[-1][:3]
    return Recording(idata, exchanges, dict(data.spec), dict(contributions), plan)


# draws of records that were replayed before
DRAWN = {}


def with_equal_draws(contribution, axes):
    """Draw for every record from a generator of its own, so that neighbours share their draws."""
    unit, draw = (getattr(contribution, name, None) for name in ("unit", "draw"))
    if unit and unit.draw:
        unit = unit._replace(draw=_equal(unit.draw, contribution.size, axes))
        contribution = contribution._replace(unit=unit)
    if draw:
        contribution = contribution._replace(draw=_equal(draw, contribution.size, axes))
    return contribution


def _equal(drawn, size, axes):
    def draw(batch, context, generator):
        rows = next(iter(batch.values())).shape[axes[next(iter(batch))]]
        each = []
        for i in range(rows):
            one = {name: np.take(x, [i], axis=axes.get(name, 0)) for name, x in batch.items()}
            key = (i, id(context), id(drawn), size, *(x.tobytes() for x in one.values()))
            if key not in DRAWN:
                DRAWN[key] = drawn(one, context, np.random.default_rng(i))
            each.append(DRAWN[key])
        return {name: np.concatenate([one[name] for one in each]) for name in each[0]}

    return draw


def replayed_total(found, data, query):
    """Ask a recorded query of other data, and return the sum before noise."""
    columns = {
        # those of several models are named model/column
        name: Column(data[name.rpartition("/")[2]].astype(spec.dtype), spec.axis, spec.dtype)
        for name, spec in found.spec.items()
    }
    unit = found.plan.unit
    units = None if unit is None else units_of(data[unit], unit)
    axes = {name: spec.axis for name, spec in found.spec.items()}
    contributions = {k: with_equal_draws(c, axes) for k, c in found.contributions.items()}
    wall = PrivacyWall(PrivateData(columns, units), contributions, found.plan)
    with seen_noise() as drawn:
        wall.release(query)
    return drawn[-1][0].total
