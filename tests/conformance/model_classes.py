"""One small model of each class, and data for it of any length.

A class is a function that builds the model on given data; every array of records has a name, so
that ``data=`` can replace it.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

GROUPS = 4  # so many that rounds of whitened scores begin with shifts of them


def draw_data(rows, seed):
    """Draw columns of every kind; a model class reads some of them."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(2.0, size=(rows, 4))
    return {
        "X": rng.uniform(-1, 1, size=(rows, 2)),
        "group": rng.permutation(np.arange(rows) % GROUPS),
        "real": rng.normal(size=rows),
        "yes": rng.integers(0, 2, rows),
        "count": rng.poisson(2.0, rows),
        "pair": rng.normal(size=(rows, 3)),
        "words": counts,
        "person_id": np.arange(rows) // 3,
        "weight": rng.uniform(0.2, 2.0, rows),
        "bits": rng.integers(0, 2, size=(rows, 3)),
    }


def linear(data):
    weights = pm.Normal("weights", 0, 2, shape=2)
    noise = pm.Gamma("precision", 2, 1)
    pm.Normal("real", pm.Data("X", data["X"]) @ weights, tau=noise, observed=data["real"])


def logistic(data):
    weights = pm.Normal("weights", 0, 2, shape=2)
    pm.Bernoulli("yes", logit_p=pm.Data("X", data["X"]) @ weights, observed=data["yes"])


def log_linear(data):
    weights = pm.Normal("weights", 0, 1, shape=2)
    effect = pm.Normal("effect", 0, 1, shape=GROUPS)[pm.Data("group", data["group"])]
    mean = pm.math.exp(pm.Data("X", data["X"]) @ weights + effect)
    pm.Poisson("count", mean, observed=data["count"])


def conjugate(data):
    pm.Poisson("count", pm.Gamma("rate", 2, 1), observed=data["count"])


def mixture(data):
    shares = pm.Dirichlet("shares", [2.0, 3.0])
    centres = pm.Normal("centres", 0, 3, shape=2)
    pm.NormalMixture("real", shares, centres, sigma=0.7, observed=data["real"])


def topics(data):
    topic = pm.Dirichlet("topic", np.full(4, 0.5), shape=(2, 4))
    share = pm.Dirichlet("share", np.full(2, 0.5), shape=(len(data["words"]), 2))
    total = data["words"].sum(axis=1)
    pm.Multinomial("words", total, pm.math.dot(share, topic), observed=data["words"])


def factors(data):
    loadings = pm.Normal("loadings", 0, 1, shape=(3, 1))
    factor = pm.Normal("factor", 0, 1, shape=(len(data["pair"]), 1))
    pm.Normal("pair", pt.dot(factor, loadings.T), 0.7, observed=data["pair"])


def belief_net(data):
    loadings = pm.Normal("loadings", 0, 1, shape=(3, 1))
    hidden = pm.Bernoulli("hidden", 0.4, shape=(len(data["bits"]), 1))
    pm.Bernoulli("bits", logit_p=pt.dot(hidden, loadings.T), observed=data["bits"])


def network(data):
    inner = pm.Normal("inner", 0, 1, shape=(2, 3))
    outer = pm.Normal("outer", 0, 1, shape=3)
    hidden = pt.maximum(pt.dot(pm.Data("X", data["X"]), inner), 0.0)
    pm.Normal("real", pt.dot(hidden, outer), tau=pm.Gamma("tau", 6, 6), observed=data["real"])


def variance(data):
    spread = pm.InverseGamma("spread", 3, 2)
    weights = pm.Normal("weights", 0, pm.math.sqrt(spread), shape=2)
    noise = pm.math.sqrt(pm.InverseGamma("noise", 3, 2))
    pm.Normal("real", pm.Data("X", data["X"]) @ weights, noise, observed=data["real"])


def persons(data):
    """Give every person an effect, which only ``unit="person_id"`` can integrate out."""
    codes = data["person_id"]
    spread = pm.math.exp(pm.Normal("log_spread", 0, 0.5))
    own = pm.Normal("own", pm.Normal("centre", 0, 1), spread, shape=int(codes.max()) + 1)
    slope = pm.Normal("slope", 0, 1, shape=2)
    linear = pm.Data("X", data["X"]) @ slope + own[pm.Data("person_id", codes)]
    pm.Poisson("count", pm.math.exp(linear), observed=data["count"])


# fmt: off
CLASSES = {build.__name__: build for build in (
    log_linear, linear, logistic, conjugate, mixture, topics, factors, belief_net, network, variance
)}
# fmt: on


def model_of(name, data, unit=None, weights=None, **_):
    """Build a class's model on data, with the columns of the unit and the weights of a fit."""
    with pm.Model() as model:
        (CLASSES | {"persons": persons})[name](data)
        for column in {unit, weights and weights.name} - {None, *model.named_vars}:
            pm.Data(column, data[column])
    return model
