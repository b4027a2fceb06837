"""Groups written as ``mu + tau * z`` become latents, and the posterior is that of the model."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.contributions.scores import compile_draws
from pymc_dp.engine.centred import centred
from pymc_dp.engine.conditional import log_prior_of
from pymc_dp.model import separate
from pymc_dp.model.compilation import function
from pymc_dp.testing import deterministic_noise

ROWS, GROUPS = 600, 8
rng = np.random.default_rng(0)
MEMBER, X, Y = rng.integers(0, GROUPS, ROWS), rng.normal(size=ROWS), rng.normal(size=ROWS)
QUIETLY = {"progressbar": False, "backend": "python", "random_seed": 1}


def member():
    return pm.Data("member", MEMBER)


def observed(mean):
    pm.Normal("y", mean, 1.0, observed=Y)


def scaled():
    observed((pm.Normal("mu") + pm.HalfNormal("tau") * pm.Normal("z", shape=GROUPS))[member()])


def scaled_behind_an_index():
    z = pm.Normal("z", shape=GROUPS)
    observed(pm.Normal("mu") + pm.HalfNormal("tau") * z[member()])


def divided_and_subtracted():
    z = pm.Normal("z", shape=GROUPS)
    observed((pm.Normal("mu") - z / pm.Gamma("root", 2, 1))[member()])


def gaussian_process():
    length, height = pm.Gamma("length", 6, 2), pm.HalfNormal("height")
    process = pm.gp.Latent(cov_func=height**2 * pm.gp.cov.ExpQuad(1, ls=length))
    observed(process.prior("f", X=np.arange(0.0, 4.0 * GROUPS, 4.0)[:, None])[member()])


def horseshoe():
    local = pm.HalfCauchy("local", 1, shape=3)
    b = pm.Normal("z", shape=3) * local * pm.HalfCauchy("whole", 1)
    observed(b[0] * pm.Data("x", X) + b[1] * pm.Data("w", X**2) + b[2])


def horseshoe_of_a_matrix():
    local = pm.HalfCauchy("local", 1, shape=3)
    b = pm.Normal("z", shape=3) * local * pm.HalfCauchy("whole", 1)
    observed(pm.Data("x", np.stack([X, X**2, X > 0], axis=1)) @ b)


def read_by_two():
    z, mu, tau = pm.Normal("z", shape=GROUPS), pm.Normal("mu"), pm.HalfNormal("tau")
    mine = (mu + tau * z)[member()]
    pm.Bernoulli("high", logit_p=mine, observed=Y > 0)
    observed(tau * z[pm.Data("member again", MEMBER)] + mu)


def read_by_a_mixture():
    z, mu, tau = pm.Normal("z", shape=GROUPS), pm.Normal("mu"), pm.HalfNormal("tau")
    mine = (mu + tau * z)[member()]
    parts = [pm.Normal.dist(mine, 1.0), pm.Normal.dist(2 * mine, 3.0)]
    pm.Mixture("y", pm.Dirichlet("w", np.ones(2)), parts, observed=Y)


def rotated():
    sds = pm.Gamma.dist(4, 4, size=2)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=sds)
    line = pm.Normal("mu", shape=2) + pm.Normal("z", shape=(GROUPS, 2)) @ chol.T
    mine = line[member()]
    observed(mine[:, 0] + mine[:, 1] * pm.Data("x", X))


def records_of(build):
    with pm.Model() as model:
        build()
    return separate(model)[0]


BUILDS = [
    *(scaled, scaled_behind_an_index, divided_and_subtracted, rotated),
    *(horseshoe, horseshoe_of_a_matrix),
    *(read_by_two, read_by_a_mixture, gaussian_process),
]


@pytest.mark.parametrize("build", BUILDS)
def test_records_read_of_groups_what_they_read_of_the_latents(build):
    written = records_of(build)
    found = centred(written)
    assert not found.records.latents.keys().isdisjoint(["groups of z", "groups of f_rotated_"])
    point = {k: np.full((1, *x.shape), 0.3) for k, x in found.records.point.items()}
    as_written = dict(zip(written.latents, found.as_written(point), strict=True))
    pairs = zip(read_by_rows(written, as_written), read_by_rows(found.records, point), strict=True)
    for old, new in pairs:
        np.testing.assert_allclose(new, old, rtol=1e-12)


def read_by_rows(records, draws):
    """The likelihood of rows, of one and of three, and outcomes that are drawn for these."""
    values, found = [draws[name][0] for name in records.latents], []
    for graph, number in ((records.single, 1), (records.batch, 3)):
        inputs = graph.inputs
        rows = {
            name: np.ones([n or number for n in shape], inputs[name].type.dtype)
            for name, shape in records.shapes.items()
        }
        given = [*records.latents.values(), *inputs.values()]
        found.append(function(given, graph.log_likelihood(), "python")(*values, *rows.values()))
    point = np.concatenate([x.ravel() for x in values])
    drawn = compile_draws(records, 2)(rows, point, np.random.default_rng(0))
    return [*found, *drawn.values()]


@pytest.mark.parametrize("build", BUILDS)
def test_the_prior_is_that_of_the_model_by_the_change_of_variables(build):
    written = records_of(build)
    found = centred(written)
    point = 0.3 * np.random.default_rng(1).normal(size=found.records.size)
    steps = 1e-5 * np.eye(point.size)
    points = np.vstack([point, point + steps, point - steps])
    draws = dict(zip(found.records.latents, found.records.split(points), strict=True))
    each = [x.reshape(len(points), -1) for x in found.as_written(draws)]
    as_written, *moved = np.concatenate(each, axis=1)

    def log_prior(records, x):
        return log_prior_of(records)(x[None])[0]

    ahead, back = np.split(np.array(moved), 2)
    determinant = np.linalg.slogdet((ahead - back) / 2e-5)[1]
    as_it_was = log_prior(written, as_written)
    np.testing.assert_allclose(log_prior(found.records, point), as_it_was + determinant, rtol=1e-7)
    assert abs(determinant) > 0.01


def without_a_start():
    z, s = pm.Normal("z", shape=GROUPS), pm.Normal("s")
    observed((z / s)[member()])


def read_twice():
    z, tau = pm.Normal("z", shape=GROUPS), pm.HalfNormal("tau")
    observed((tau * z)[member()] + z[0])


def scaled_by_themselves():
    z = pm.Normal("z", shape=GROUPS)
    observed((pm.HalfNormal("tau") * z * (z + 1))[member()])


def scaled_by_records():
    z = pm.Normal("z", shape=GROUPS)
    observed(z[member()] * pm.Data("x", X) * pm.HalfNormal("tau"))


@pytest.mark.parametrize(
    "build", [read_twice, without_a_start, scaled_by_themselves, scaled_by_records]
)
def test_other_latents_stay(build):
    written = records_of(build)
    assert list(centred(written).records.latents) == list(written.latents)


def test_the_spread_of_groups_is_as_doubtful_as_twelve_groups_leave_it():
    draw = np.random.default_rng(3)
    member = draw.integers(0, 12, 3000)
    truth = 0.5 + 1.5 * draw.normal(size=12)
    with pm.Model() as model:
        z, tau = pm.Normal("z", shape=12), pm.HalfNormal("tau", 2)
        a = pm.Deterministic("a", pm.Normal("mu", 0, 2) + tau * z)
        y = draw.normal(truth[member], 1.0)
        pm.Normal("y", a[pm.Data("member", member)], 1.0, observed=y)
    with deterministic_noise(4):
        idata = pymc_dp.fit(model=model, epsilon=4, delta=1e-5, **QUIETLY)
    a, mu, tau, z = (idata["posterior"][name].to_numpy()[0] for name in ("a", "mu", "tau", "z"))
    np.testing.assert_allclose(a, mu[:, None] + tau[:, None] * z)
    assert abs(tau.mean() - truth.std()) < 2 * tau.std()
    # with groups known, the spread's posterior sd is about tau / sqrt(2 * 12)
    assert 0.6 < tau.std() / (truth.std() / 24**0.5) < 1.8
