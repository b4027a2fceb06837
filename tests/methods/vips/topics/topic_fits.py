"""A small corpus, and a topic model of it."""

import math

import numpy as np
import pymc as pm
import xarray as xr
from scipy.special import digamma

import pymc_dp

K, V, D = 3, 12, 40
RNG = np.random.default_rng(1)
ALPHA, ETA = np.array([0.1, 0.2, 0.3]), RNG.uniform(0.2, 0.8, V)
W = RNG.poisson(RNG.gamma(0.3, size=(D, V)) * 3)
W[7] = 0
QUICK = {"method": "vips", "random_seed": 1, "progressbar": False, "backend": "python", "draws": 5}
NOISELESS = {**QUICK, "epsilon": math.inf, "clip_norm": math.inf}


def lda(w=W, *, alpha=ALPHA, eta=ETA, n=None):
    with pm.Model() as model:
        beta = pm.Dirichlet("beta", eta, shape=(len(alpha), w.shape[1]))
        theta = pm.Dirichlet("theta", alpha, shape=(len(w), len(alpha)))
        n = w.sum(axis=1) if n is None else n
        pm.Multinomial("w", n, pm.math.dot(theta, beta), observed=w)
    return model


def concentration(model=None, **settings):
    idata = pymc_dp.fit(model=model or lda(), **{**NOISELESS, **settings})
    return idata["fit"]["concentration"].values


def geometric_mean(rows):
    return np.exp(digamma(rows) - digamma(rows.sum(axis=-1, keepdims=True)))


def expected_counts(w, beta, iterations):
    gamma = ALPHA + w.sum() / K
    for _ in range(iterations):
        theta = geometric_mean(gamma)
        gamma = ALPHA + theta * (beta @ (w / (theta @ beta)))
    theta = geometric_mean(gamma)
    return theta[:, None] * beta * (w / (theta @ beta))


def stochastic_variational_bayes(batches, *, rate=1.0, tau0=1.0, kappa=0.7, iterations=20):
    lam = np.random.default_rng(QUICK["random_seed"]).gamma(100, 0.01, (K, V))
    for t, rows in enumerate(batches):
        beta, rho = geometric_mean(lam), (tau0 + t) ** -kappa
        counts = sum((expected_counts(w, beta, iterations) for w in W[rows]), np.zeros((K, V)))
        lam = (1 - rho) * lam + rho * (ETA + counts / rate)
    return lam


def result(beta, alpha, weight):
    """A tree with no more than topics."""
    coords = {"topic": np.arange(len(beta)), "word": [f"w{i}" for i in range(beta.shape[1])]}
    variables = {
        "concentration": (("topic", "word"), weight * beta),
        "document_concentration": ("topic", alpha),
    }
    return xr.DataTree.from_dict({"fit": xr.Dataset(variables, coords)})
