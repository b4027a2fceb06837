"""With privacy, a logistic regression ranks new records almost as well as without."""

import functools
import math

import numpy as np
import pymc as pm
from scipy.special import expit
from scipy.stats import rankdata

import pymc_dp
from pymc_dp.testing import deterministic_noise

ROWS, FEATURES = 3341, 9


@functools.cache
def sparse_survey():
    """Two numbers and seven rare indicators, as surveys have; train and test."""
    rng = np.random.default_rng(7)
    size = 2 * ROWS
    rare = rng.random((size, FEATURES - 2)) < np.linspace(0.05, 0.4, FEATURES - 2)
    design = np.column_stack([rng.normal(size=(size, 2)), rare])
    weights = np.concatenate([[1.0, -0.6], np.linspace(-1.5, 1.5, FEATURES - 2)])
    y = (rng.random(size) < expit(design @ weights - 0.5)).astype(int)
    return design[:ROWS], y[:ROWS], design[ROWS:], y[ROWS:]


def auc(score, y):
    positives = y.sum()
    ranks = rankdata(score)[y == 1].sum()
    return (ranks - positives * (positives + 1) / 2) / positives / (len(y) - positives)


def test_a_private_fit_ranks_almost_as_well_as_one_that_is_not():
    design, y, new, outcome = sparse_survey()
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 3), pm.Normal("b", 0, 3, shape=FEATURES)
        pm.Bernoulli("y", logit_p=a + pm.Data("X", design) @ b, observed=y)

    def score(**settings):
        idata = pymc_dp.fit(model=model, method="vips", progressbar=False, draws=2, **settings)
        fit = idata["fit"].to_dataset()
        [dim] = fit["mean_vector"].dims
        mean = fit["mean_vector"].sel({dim: [f"b[{k}]" for k in range(FEATURES)]})
        return auc(new @ mean.values, outcome)

    private = []
    for seed in range(3):
        with deterministic_noise(seed):
            private.append(score(epsilon=1.0, delta=1e-5))
    best = score(epsilon=math.inf, clip_norm=math.inf, sampling="full", kappa=0.0)
    assert best > 0.75
    assert np.median(private) > best - 0.01
