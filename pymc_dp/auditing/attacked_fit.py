"""Fits of made-up records by the real driver, and what an attacker observes of them."""

from typing import Any, NamedTuple

import numpy as np

from pymc_dp.accounting.neighbours import Neighbours
from pymc_dp.auditing.attack import Observation, features
from pymc_dp.auditing.canary import (
    AskedRelease,
    Pair,
    background_records,
    candidates,
    choose_canary,
    contributing,
    data_of,
    neighbouring_data,
    prepared,
)
from pymc_dp.contributions import Contribution
from pymc_dp.driver.run import run_releases
from pymc_dp.driver.setup import Setup
from pymc_dp.methods.method import Compiled
from pymc_dp.model import PrivateData
from pymc_dp.privacy.query import Noisy, Query


class AttackedFit(NamedTuple):
    """A fit that is run again and again on made-up records, with and without a canary."""

    setup: Setup
    compiled: Compiled

    def neighbours(self, rng: np.random.Generator, rows: int) -> Pair:
        """Choose a canary by what candidates would contribute in a pilot run."""
        records, spec = self.setup.records, self.setup.data.spec
        if self.setup.plan.neighbours is Neighbours.REPLACE_ONE:
            rows -= 1  # so that both data sets have as many as the caller said
        base, tried = background_records(records, rng, rows), candidates(records, rng)
        pilot = data_of(spec, base, [*range(rows), 0])
        queries = [query for query, _ in self._released(pilot, int(rng.integers(2**32)))]
        seen = [
            AskedRelease(self._contribution(query), query.context, self._clip_norm(query))
            for query in queries
        ]
        base, tried = (contributing(made, seen, spec) for made in (base, tried))
        return neighbouring_data(
            spec, base, tried, choose_canary(tried, seen, self.setup.plan.neighbours)
        )

    def _released(self, data: PrivateData, seed: int) -> list[tuple[Query, Noisy]]:
        """Run a fit by the real driver and the real wall, and keep what it released."""
        seen: list[tuple[Query, Noisy]] = []

        def update(state: Any, query: Query, noisy: Noisy) -> Any:
            seen.append((query, noisy))
            return self.compiled.update(state, query, noisy)

        held = self.setup._replace(data=data)
        spied = self.compiled._replace(update=update)
        run_releases(held, spied, np.random.default_rng(seed), range(self.setup.plan.total))
        return seen

    def attack(self, pair: Pair, held: bool, seed: int) -> np.ndarray:
        """Run a fit with or without the canary; return the attacker's features of it."""
        released = self._released(pair.present if held else pair.absent, seed)
        return features([self._observation(pair, query, noisy) for query, noisy in released])

    def _observation(self, pair: Pair, query: Query, noisy: Noisy) -> Observation:
        """Subtract what the attacker expects of the others.

        The attacker clips by itself: a fault of the wall's must not become the attacker's.
        """
        contribution = self._contribution(query)
        with np.errstate(all="ignore"):
            at = prepared(pair.rows, contribution, query.context)
            norms = contribution.norms(at, query.context)
            weights = np.fmin(1.0, self._clip_norm(query) / norms)
            weights[~np.isfinite(norms)] = 0.0
            known, canary = np.arange(len(norms)), np.arange(len(norms)) == pair.others
            instead = known > pair.others
            base = contribution.weighted_sum(at, query.context, weights * ~canary)
            shift = contribution.weighted_sum(at, query.context, weights * (1.0 * canary - instead))
        rest = noisy.value - noisy.sample_rate * base
        return Observation(query.name, rest / noisy.sd, shift / noisy.sd, noisy.sample_rate)

    def _contribution(self, query: Query) -> Contribution:
        found = self.compiled.contributions[query.name]
        if not isinstance(found, Contribution):
            raise ValueError(
                f"Release {query.name!r} is no sum over records, so no canary adds to it."
            )
        return found

    def _clip_norm(self, query: Query) -> float:
        planned = next(r.clip_norm for r in self.setup.plan.releases if r.name == query.name)
        return planned if query.clip_norm is None else query.clip_norm
