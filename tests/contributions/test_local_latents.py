"""Latents of single records or units are integrated out: the score is that of the marginal."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.optimize import approx_fprime
from scipy.special import gammaln, log_expit, logsumexp

from pymc_dp.contributions.gradients import each_gradient
from pymc_dp.contributions.scores import DRAWS, UNDRAWN, compile_draws, drawn_name, drawn_scores
from pymc_dp.model import separate
from pymc_dp.model.columns import read_units
from pymc_dp.privacy.contribution import OWNER

PERSONS = 12
PERSON = np.repeat(np.arange(PERSONS), 4)
RNG = np.random.default_rng(5)
SLOPES = 8
X = RNG.normal(size=(PERSON.size, SLOPES))
COUNTS = RNG.poisson(1.5, PERSON.size)
ANSWERS = RNG.binomial(1, 0.6, PERSON.size)
Z = np.array([0.4, -0.3, *np.zeros(6), 0.2, -0.4])  # b, mean, log sd


def intercepts(poisson=False, centred=True):
    with pm.Model() as model:
        b, mean, log_sd = pm.Normal("b", shape=SLOPES), pm.Normal("mean"), pm.Normal("log_sd")
        person = pm.Data("person", PERSON)
        if centred:
            own = pm.Normal("own", mean, pt.exp(log_sd), shape=PERSONS)[person]
        else:
            own = (mean + pt.exp(log_sd) * pm.Normal("own", shape=PERSONS))[person]
        psi = pm.Data("X", X) @ b + own
        if poisson:
            pm.Poisson("y", pt.exp(psi), observed=COUNTS)
        else:
            pm.Bernoulli("y", logit_p=psi, observed=ANSWERS)
    return model


@cache
def scored(poisson=False, centred=True):
    records, _ = separate(
        intercepts(poisson, centred), units=read_units(intercepts(), "person", None, ())
    )
    return records, each_gradient(records, "python")


def batch_of(poisson=False, rows=slice(None)):
    y = COUNTS if poisson else ANSWERS
    return {"X": X[rows], "y": y[rows], OWNER: PERSON[rows]}


def marginal(z, poisson, rows):
    """The log likelihood of some persons, by fifty nodes around the prior."""
    t, w = np.polynomial.hermite_e.hermegauss(50)
    psi = (X @ z[:-2] + z[-2])[rows, None] + np.exp(z[-1]) * t
    if poisson:
        each = COUNTS[rows, None] * psi - np.exp(psi) - gammaln(COUNTS[rows, None] + 1)
    else:
        each = log_expit(np.where(ANSWERS[rows, None], psi, -psi))
    persons = PERSON[rows]
    sums = [each[persons == k].sum(axis=0) for k in np.unique(persons)]
    return logsumexp(np.stack(sums) + np.log(w / w.sum()), axis=1).sum()


def error_in_sds(score, density, z):
    """How far a score moves the mode from that of a density, in posterior sds."""
    expected = approx_fprime(z, density, 1e-6)
    curvature = -approx_fprime(z, lambda z: approx_fprime(z, density, 1e-4), 1e-4)
    return abs(np.linalg.solve(curvature, score - expected) * np.diag(curvature) ** 0.5).max()


@pytest.mark.parametrize("poisson", [False, True])
@pytest.mark.parametrize("centred", [False, True])
def test_the_score_is_the_slope_of_the_marginal_likelihood(poisson, centred):
    _, scores = scored(poisson, centred)
    found = scores(batch_of(poisson), Z).sum(axis=0)
    assert error_in_sds(found, lambda z: marginal(z, poisson, slice(None)), Z) < 0.003


def test_a_score_without_integration_would_be_seen():
    _, scores = scored()
    naive = np.r_[Z[:-1], -20.0]  # as if all persons had the same intercept
    found = scores(batch_of(), naive).sum(axis=0)
    assert error_in_sds(found, lambda z: marginal(z, False, slice(None)), Z) > 0.03


def test_a_unit_moves_no_other_unit():
    _, scores = scored()
    before = scores(batch_of(), Z)
    changed = batch_of()
    changed["X"] = np.where(PERSON[:, None] == 3, 1e4, changed["X"])
    changed["X"] = np.where(PERSON[:, None] == 5, np.nan, changed["X"])
    after = scores(changed, Z)
    others = ~np.isin(PERSON, [3, 5])
    np.testing.assert_allclose(after[others], before[others], rtol=1e-12)
    alone = batch_of(rows=PERSON == 7) | {OWNER: np.zeros(4, int)}
    np.testing.assert_allclose(scores(alone, Z), before[PERSON == 7], rtol=1e-9)


def test_a_record_that_is_not_finite_is_left_out_of_its_unit():
    _, scores = scored()
    batch = batch_of()
    batch["X"] = np.where(np.arange(PERSON.size)[:, None] == 8, np.nan, batch["X"])
    found = scores(batch, Z)
    assert np.isnan(found[8]).all()
    kept = np.delete(np.arange(PERSON.size), 8)
    short = scores({name: values[kept] for name, values in batch_of().items()}, Z)
    np.testing.assert_allclose(found[kept], short, rtol=1e-9)


def test_without_units_every_record_is_a_unit():
    with pm.Model() as model:
        b, log_sd = pm.Normal("b", shape=SLOPES), pm.Normal("log_sd")
        own = pm.Normal("own", 0, pt.exp(log_sd), shape=PERSON.size)
        pm.Poisson("y", pt.exp(pm.Data("X", X) @ b + own), observed=COUNTS)
    records, _ = separate(model)
    z, t = np.delete(Z, -2), np.linspace(-8, 8, 4001)

    def likelihood(z):
        psi = (X @ z[:-1])[:, None] + np.exp(z[-1]) * t
        each = COUNTS[:, None] * psi - np.exp(psi) - gammaln(COUNTS[:, None] + 1)
        return logsumexp(each - t**2 / 2, axis=1).sum()

    found = each_gradient(records, "python")({"X": X, "y": COUNTS}, z).sum(axis=0)
    assert error_in_sds(found, likelihood, z) < 0.003


def test_records_of_a_unit_share_the_draw_of_its_latents():
    records, _ = scored()
    draw = compile_draws(records, 1)
    z = np.r_[np.zeros(SLOPES + 1), 3.0]  # intercepts are far from 0: outcomes of a person agree
    drawn = draw(batch_of(), z, np.random.default_rng(0))
    assert not drawn[UNDRAWN].any()
    by_person = drawn[drawn_name("y")].reshape(PERSONS, 4).mean(axis=1)
    assert np.isin(by_person, [0, 1]).mean() > 0.7
    assert 0 < by_person.mean() < 1


def test_drawn_outcomes_have_scores_of_mean_zero():
    records, scores = scored()
    many = 400
    drawn = compile_draws(records, many)(batch_of(), Z, np.random.default_rng(1))
    y = drawn[drawn_name("y")].T.ravel()
    owner = PERSON + PERSONS * np.arange(many)[:, None]
    batch = {"X": np.tile(X, (many, 1)), "y": y, OWNER: owner.ravel()}
    found = scores(batch, Z).reshape(many, -1, Z.size).sum(axis=1)
    deviation = found.mean(axis=0) / (found.std(axis=0) / many**0.5)
    assert abs(deviation).max() < 4.9  # 1e-6


@pytest.mark.parametrize("poisson", [False, True])
def test_scores_in_their_span_are_the_formed_ones(poisson):
    """A batch whose outcomes are drawn: one call for all of them, or one for each."""
    records, scores = scored(poisson)
    drawn = drawn_scores(records)
    batch = batch_of(poisson)
    batch |= drawn.draw(batch, Z, np.random.default_rng(2))
    weights, vectors = drawn.of_batch(batch, Z)
    assert len(vectors) == drawn.channels > 0
    found = np.einsum("rkc,crd->rkd", weights, vectors)
    np.testing.assert_allclose(found[:, 0], scores(batch_of(poisson), Z), rtol=1e-9, atol=1e-12)
    for k in (0, DRAWS - 1):
        own = batch_of(poisson) | {"y": batch[drawn_name("y")][:, k]}
        np.testing.assert_allclose(found[:, 1 + k], scores(own, Z), rtol=1e-9, atol=1e-12)
