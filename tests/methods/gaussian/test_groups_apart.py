"""No record reads two groups, and no curvature lies between them: noise there is taken out."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.contributions.drawn_scores import drawn_scores
from pymc_dp.methods.gaussian import problem
from pymc_dp.methods.gaussian.shifts import groups_apart, shift_directions
from pymc_dp.testing import deterministic_noise
from tests.zoo import separated

GROUPS, ROWS, SPREAD = 40, 5000, 1.0


def schools(rng):
    """Yes-no answers of the members of many groups."""
    member, x = rng.integers(0, GROUPS, ROWS), rng.normal(size=ROWS)
    effect = SPREAD * rng.normal(size=GROUPS)
    answers = rng.random(ROWS) < 1 / (1 + np.exp(-effect[member] - 0.5 * x))
    with pm.Model() as model:
        group = pm.Normal("group", pm.Normal("mu"), pm.HalfNormal("spread"), shape=GROUPS)
        slope = pm.Normal("slope")
        logit = group[pm.Data("member", member)] + slope * pm.Data("x", x)
        pm.Bernoulli("y", logit_p=logit, observed=answers.astype(int))
    return model, effect


def test_pairs_of_groups_are_apart_and_nothing_else_is():
    records, _ = separated(schools(np.random.default_rng(0))[0])
    V = shift_directions(records, lambda: drawn_scores(records, "python"))
    apart = groups_apart(records, V)
    is_group = np.array([label.startswith("group") for label in records.labels])
    assert is_group.sum() == GROUPS
    both = np.outer(is_group, is_group) & ~np.eye(len(is_group), dtype=bool)
    np.testing.assert_array_equal(apart, both)


def test_latents_of_persons_may_join_groups():
    records, _ = separated(schools(np.random.default_rng(0))[0])
    of_persons = SimpleNamespace(local_latents={"ability": None})
    V = shift_directions(records, lambda: drawn_scores(records, "python"))
    assert groups_apart(of_persons, V) is None


def distances_of_groups():
    """Return how far effects are from the truth, in their posterior's sds, at a small budget."""
    found = []
    for key in range(2):
        model, effect = schools(np.random.default_rng(key))
        with deterministic_noise(key):
            idata = pymc_dp.fit(
                model=model, epsilon=0.3, delta=1e-5, progressbar=False, backend="python"
            )
        group = idata["posterior"]["group"]
        dims = ("chain", "draw")
        found.append((group.mean(dims) - effect) / group.std(dims))
    return np.concatenate(found)


@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")
def test_groups_are_not_surely_alike_where_noise_hides_what_sets_them_apart():
    assert np.mean(distances_of_groups() ** 2) ** 0.5 < 3.5


@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")
def test_with_noise_between_groups_they_are(monkeypatch):
    monkeypatch.setattr(problem, "groups_apart", lambda records, V: None)
    assert np.mean(distances_of_groups() ** 2) ** 0.5 > 4.5
