"""Bounds that belong to one kind of contribution: exact ones, and those of a vector's parts.

What holds for every contribution is in test_sensitivity.
"""

import numpy as np
import pytest

import pymc_dp
from pymc_dp.papers.regression import DEFAULTS
from pymc_dp.privacy.contribution import Noisy
from pymc_dp.privacy.norms import row_norms
from tests.guarantees import vips_toys
from tests.guarantees.test_sensitivity import classes, network, regression, toy
from tests.guarantees.vips_toys import N, dense, prepared
from tests.zoo import build as model_of

# --- regressions with |x| <= 1: soundness, rules 9 and 10 ----------------------------------------

D, TRIANGLE = 2, 3
# omega falls from 1/4 to nearly 0 within a small angle
STEEP = np.array([0.0, 1e6])


def statistics(x, y, mean):
    """Score and curvature of logistic records, without scales, in the absolute form."""
    found = toy(vips_toys.logistic, form="absolute", clip_norm=DEFAULTS.clip_norm)
    asked = (mean, found.contexts[0][1])
    values = {"X": np.asarray(x, float), "y": np.asarray(y)}
    columns = {k: column._replace(values=values[k]) for k, column in found.columns.items()}
    norms, vectors = dense(found.contribution, columns, asked)
    np.testing.assert_allclose(norms, row_norms(vectors), rtol=1e-9)
    return vectors[:, : D + TRIANGLE]


def furthest(vectors):
    return np.linalg.norm(vectors[:, None] - vectors[None], axis=2).max()


@pytest.mark.parametrize("mean", [[0.0, 0.0], [2.0, -1.0], [30.0, 40.0], STEEP])
def test_the_bounds_for_short_features_are_never_exceeded(mean):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(150, D)) * 10.0 ** rng.uniform(-3, 3, (150, 1))
    x /= np.maximum(row_norms(x), 1.0)[:, None]
    vectors = statistics(x, rng.integers(0, 2, 150), np.asarray(mean))
    assert row_norms(vectors).max() <= 5**0.5 / 4 + 1e-12
    assert furthest(vectors) <= 17**0.5 / 4 + 1e-12
    assert furthest(vectors[:, D:]) <= 2**0.5 / 4 + 1e-12


def test_the_bounds_for_short_features_are_reached():
    flat = statistics([[1, 0], [0, 1]], [1, 0], np.zeros(D))
    assert row_norms(flat).max() >= 0.99 * 5**0.5 / 4
    assert furthest(flat[:, D:]) >= 0.99 * 2**0.5 / 4
    steep = statistics([[1, 0], [1, 1e-3]], [1, 0], STEEP)
    assert furthest(steep) >= 0.99 * 17**0.5 / 4


# --- noise on the product of all sites -----------------------------------------------------------

CLIP_NORM, NOISE, RATE, STEP, GAMMA = 1.5, 2.0, 0.5, 0.4, 3.0


def moved(build, by, **settings):
    """How far the score in lambda moves when each entry of the third release moves by ``by``."""
    settings = {"sampling": "poisson", "sample_rate": RATE, "num_records": N, **settings}
    terms = {"noise_multiplier": NOISE, "clip_norm": CLIP_NORM, **settings}
    found = prepared(build, 3, "dp_sep", **terms)
    compiled, method = found.method.compile("python"), found.method

    def score(last):
        rng = np.random.default_rng(6)
        state = method.init(rng)
        for offset in (0.0, 0.0, last):
            query = method.query(state, rng=rng)
            value = rng.normal(2.0, 1.0, method.size) + offset
            state = compiled.update(state, query, Noisy(value, NOISE * CLIP_NORM, RATE))
        # Algorithm 3 keeps lambda as one vector, which begins with the scores
        sites = state.sums.value if hasattr(state, "sums") else state.sites
        return np.ravel(sites.score if hasattr(sites, "score") else sites[:2])

    [release] = found.plan.releases
    assert (release.noise_multiplier, release.clip_norm) == (NOISE, CLIP_NORM)
    return np.abs(score(by) - score(0.0))


def test_noise_on_the_sites_covers_a_record_at_the_rate_of_sep():
    build = vips_toys.unknown_shares
    noise = moved(build, NOISE * CLIP_NORM, step=STEP)
    np.testing.assert_allclose(noise, NOISE * CLIP_NORM / RATE * STEP, rtol=1e-9)
    # the paper's sensitivity 2 gamma C / N belongs to steps that are N times shorter
    reach = moved(build, CLIP_NORM, step=STEP)
    np.testing.assert_allclose(noise / reach, NOISE, rtol=1e-9)
    assert reach.min() >= N / 2 * (2 * STEP * CLIP_NORM / N)


@pytest.mark.filterwarnings("ignore:form='algorithm3' is for reproduction")
def test_noise_on_the_sites_of_algorithm_3_is_the_papers():
    noise = moved(vips_toys.log_link, NOISE * CLIP_NORM, step=GAMMA, form="algorithm3")
    np.testing.assert_allclose(noise, NOISE * CLIP_NORM * GAMMA / N, rtol=1e-9)


# --- parts of a network's sites ------------------------------------------------------------------


@pytest.mark.parametrize("build", [regression, classes])
def test_every_part_keeps_its_bound_and_some_reach_it(build):
    sites, columns, asked, (layout, bounds), _ = network(build)
    rows = sites.prepare({leaf: column.values for leaf, column in columns.items()}, asked)
    for part, bound in zip(layout.slices.values(), bounds, strict=True):
        assert row_norms(rows[:, part]).max() == pytest.approx(bound, rel=1e-12)


# --- statistics that vips need not release -------------------------------------------------------


def test_a_hyper_parameter_carries_no_noise_of_its_own():
    terms = {"noise_multiplier": 5.0, "delta": 1e-5, "sampling": "full", "method": "vips"}
    terms["clip_norm"] = 3.0  # asks for sums, where rounds are the default
    model = model_of(vips_toys.poisson_hierarchy)
    idata = pymc_dp.fit(model=model, draws=2, backend="python", progressbar=False, **terms)
    # its shape is 2 by the prior plus 2 by the one rate below it, and so known exactly
    assert idata["fit"]["rate.log_coefficient"].item() == pytest.approx(3, abs=1e-9)
    assert idata["fit"]["rate.rate_noise_sd"].item() == 0
    assert idata["fit"]["r.rate_noise_sd"].item() > 0


def test_statistics_of_the_record_alone_are_released_once():
    builds = (vips_toys.poisson, vips_toys.categorical, vips_toys.mixture)
    methods = [prepared(build, None, noise_multiplier=5.0).method for build in builds]
    once, of_groups, repeated = (method.releases[0].count for method in methods)
    assert (once, of_groups) == (1, 1)
    assert repeated > 1
