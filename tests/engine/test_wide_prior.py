"""Groups that differ by more than their prior expects are found where they are."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import expit, logsumexp

import pymc_dp
from pymc_dp.testing import deterministic_noise

MEMBERS = 100
GROUPS = np.linspace(-4, 4, 12)
YES = np.round(MEMBERS * expit(GROUPS)).astype(int)


def fitted():
    """Mean and sd of each group's effect, without privacy noise."""
    member = np.repeat(np.arange(len(GROUPS)), MEMBERS)
    answers = np.concatenate([np.arange(MEMBERS) < yes for yes in YES]).astype(int)
    with pm.Model() as model:
        effect = pm.Normal("effect", pm.Normal("mu"), pm.HalfNormal("spread"), shape=len(GROUPS))
        pm.Bernoulli("y", logit_p=effect[pm.Data("member", member)], observed=answers)
    with deterministic_noise(0):
        idata = pymc_dp.fit(
            model=model, epsilon=np.inf, progressbar=False, backend="python", random_seed=1
        )
    draws = idata["posterior"]["effect"].to_numpy()[0]
    return draws.mean(axis=0), draws.std(axis=0)


def exact():
    """The same by quadrature over the mean and the spread of groups, and over each effect."""
    effect = np.linspace(-12, 12, 601)
    mu, spread = np.linspace(-2, 2, 41)[:, None, None], np.linspace(0.8, 4, 65)[:, None]
    given = stats.norm.logpdf(effect, mu, spread) + stats.binom.logpmf(
        YES[:, None, None, None], MEMBERS, expit(effect)
    )
    of_group = logsumexp(given, axis=-1)
    hyper = of_group.sum(axis=0) + stats.norm.logpdf(mu[..., 0]) + stats.norm.logpdf(spread[:, 0])
    weight = np.exp(hyper - logsumexp(hyper))
    density = np.einsum("ms,gmse->ge", weight, np.exp(given - of_group[..., None]))
    mean = density @ effect
    return mean, (density @ effect**2 - mean**2) ** 0.5


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_groups_of_a_large_spread_are_found():
    (mean, sd), (true_mean, true_sd) = fitted(), exact()
    assert np.all(abs(mean - true_mean) < 0.4 * true_sd)
    assert np.all(abs(np.log(sd / true_sd)) < 0.2)
