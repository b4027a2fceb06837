"""Records that are outcomes alone: the prior as written times the likelihood of released scores."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pymc_dp.engine.sampler import likely_points
from pymc_dp.methods.gaussian import draws
from pymc_dp.testing import deterministic_noise

QUIETLY = {"progressbar": False, "backend": "python", "random_seed": 1}
rng = np.random.default_rng(20261127)
N = 2000


def categories():
    p = pm.Dirichlet("p", np.ones(4))
    pm.Categorical("y", p=p, observed=rng.choice(4, p=[0.5, 0.3, 0.2, 0.0], size=N))


def no_events():
    pm.Poisson("y", pm.Gamma("rate", 1, 1), observed=np.zeros(N, int))


def few_values():
    mu, sd = pm.Normal("mu", 0, 5), pm.HalfNormal("sd", 5)
    pm.Normal("y", mu, sd, observed=rng.normal(0.5, 1.0, size=60))


def posterior_of(build, seed, **settings):
    with pm.Model() as model:
        build()
    settings = {"epsilon": 1.0, "delta": 1e-5, **QUIETLY, **settings}
    with deterministic_noise(seed):
        found = pm.fit(model=model, method="dp_advi", **settings)
    return found["posterior"].isel(chain=0)


def test_a_level_that_does_not_occur_has_hardly_any_probability():
    p = posterior_of(categories, 0)["p"].values
    assert p[:, 3].mean() < 0.03
    assert np.quantile(p[:, 3], 0.95) < 0.08
    z = (p[:, :3].mean(axis=0) - [0.5, 0.3, 0.2]) / p[:, :3].std(axis=0)
    assert (abs(z) < 4).all()


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_a_rate_without_events_is_small():
    rate = posterior_of(no_events, 0)["rate"].values
    assert rate.mean() < 0.1
    assert rate.std() < 0.3


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_what_noise_hides_of_few_values_is_no_wider_than_the_prior():
    found = posterior_of(few_values, 0)
    prior = stats.halfnorm(scale=5)
    assert found["sd"].values.std() < 1.2 * prior.std()
    assert np.quantile(found["sd"].values, 0.99) < 1.2 * prior.ppf(0.99)
    assert abs(found["mu"].values.std()) < 1.2 * 5


def test_gradients_are_those_of_the_density(monkeypatch):
    kept = []
    made = draws.outcome_likelihood

    def keep(*given):
        kept.append(made(*given))
        return kept[-1]

    monkeypatch.setattr(draws, "outcome_likelihood", keep)
    posterior_of(few_values, 0, epsilon=8.0, draws=2)
    points, step = rng.normal(0, 0.3, size=(3, 2)), 1e-5
    density = kept[-1].log_density
    ends = [(density(points + step * e)[0], density(points - step * e)[0]) for e in np.eye(2)]
    slopes = np.stack([(up - down) / (2 * step) for up, down in ends], axis=1)
    np.testing.assert_allclose(density(points)[1], slopes, rtol=1e-5, atol=1e-5)


def test_likely_points_move_to_a_density_that_is_far_and_skewed():
    gamma = stats.gamma(2.0)

    def density(z):
        return gamma.logpdf(np.exp(z[:, 0] - 3.0)) + z[:, 0]

    z = likely_points(density, np.array([-5.0]), np.eye(1) * 16, np.random.default_rng(0))[-200:]
    expected = np.log(gamma.rvs(4000, random_state=1)) + 3.0
    assert z.mean() == pytest.approx(expected.mean(), abs=0.4)
    assert z.std() == pytest.approx(expected.std(), rel=0.4)
