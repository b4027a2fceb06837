"""The models that the benchmarks time, on generated data."""

import numpy as np
import pymc as pm

HIDDEN = 50


def generate(kind, rows, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, d))
    eta = X @ rng.normal(size=d) / np.sqrt(d)
    if kind == "logistic":
        return X, (rng.random(rows) < 1 / (1 + np.exp(-eta))).astype("int32")
    return X, np.tanh(eta) + rng.normal(size=rows)


def build(kind, X, y, d, **observed):
    """Build the model on arrays, pm.Data or pm.Minibatch."""
    with pm.Model() as model:
        if kind == "logistic":
            a, b = pm.Normal("a"), pm.Normal("b", shape=d)
            pm.Bernoulli("y", logit_p=a + pm.math.dot(X, b), observed=y, **observed)
        else:
            W1, b1 = pm.Normal("W1", shape=(d, HIDDEN)), pm.Normal("b1", shape=HIDDEN)
            W2, b2 = pm.Normal("W2", shape=HIDDEN), pm.Normal("b2")
            hidden = pm.math.tanh(pm.math.dot(X, W1) + b1)
            pm.Normal("y", pm.math.dot(hidden, W2) + b2, 1.0, observed=y, **observed)
    return model
