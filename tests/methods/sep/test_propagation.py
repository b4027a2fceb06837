"""Rules of moments are right: against draws, against closed forms, or refused by name."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from scipy.stats import norm

from pymc_dp.methods.options import NotConjugateError
from pymc_dp.methods.sep import network as rules
from pymc_dp.methods.sep.network import Moments, propagate
from pymc_dp.model.compilation import function

DRAWS = 40_000
X = np.random.default_rng(3).normal(size=(2, 5))


def inputs(shapes):
    """Means and variances of independent latents, as variables and as values."""
    rng = np.random.default_rng(7)
    means = [pt.tensor(f"w{i}", dtype="float64", shape=shape) for i, shape in enumerate(shapes)]
    variances = [mean.clone() for mean in means]
    values = [rng.normal(size=shape) for shape in shapes]
    return means, variances, values, [rng.uniform(0.1, 1.5, size=shape) for shape in shapes]


def moments(build, *shapes):
    """Propagated moments of a graph, and the same by draws."""
    means, variances, at, spread = inputs(shapes)
    output = build(*means)
    given = {m: Moments(m, v, frozenset([m.name])) for m, v in zip(means, variances, strict=True)}
    fn = function([*means, *variances], list(propagate(output, given).pair), "python")
    many = [pt.tensor(dtype="float64", shape=(None, *shape)) for shape in shapes]
    each = vectorize_graph(output, dict(zip(means, many, strict=True)))
    rng = np.random.default_rng(11)
    draws = [
        a + np.sqrt(v) * rng.normal(size=(DRAWS, *a.shape)) for a, v in zip(at, spread, strict=True)
    ]
    return fn(*at, *spread), function(many, each, "python")(*draws)


EXACT = {
    "dot with data": (lambda w: pt.dot(X, w), (5,)),
    "data with a matrix": (lambda w: pt.constant(X) @ w, (5, 3)),
    "dot of latents": (pt.dot, (2, 5), (5,)),
    "product": (lambda w, u: w * u, (5,), (5,)),
    "product by a constant": (lambda w: 3 * w, (5,)),
    "sum": (lambda w, u: w + u - 1, (5,), (5,)),
    "difference": (lambda w, u: -(w - u), (5,), (5,)),
    "quotient": (lambda w: w / np.arange(1.0, 6.0), (5,)),
    "mean": (lambda w: w.mean(), (5,)),
    "sum along an axis": (lambda w: w.sum(axis=0, keepdims=True), (2, 5)),
    "transposed and flat": (lambda w: w.T.flatten(), (2, 5)),
    "joined dims": (pt.join_dims, (2, 5)),
    "joined": (lambda w, u: pt.concatenate([w, u, np.ones(2)]), (3,), (2,)),
    "stacked": (lambda w: pt.stack([w[0], w[3]]), (5,)),
    "picked": (lambda w: w[[0, 2]], (5,)),
    "allocated": (lambda w: pt.alloc(w, 1, 5), (5,)),
    "larger than a constant": (lambda w: pt.maximum(w, 0.3), (5,)),
    "ReLU": (lambda w: pt.maximum(0, w), (5,)),
    "ReLU as a switch": (lambda w: pt.switch(w > 0, w, 0), (5,)),
    "chosen by data": (lambda w, u: pt.switch(X[0] > 0, w, u), (5,), (5,)),
    "event": (lambda w, u: (w > 0) * u, (5,), (5,)),
    "erf": (pt.erf, (5,)),
    "erfc": (lambda w: pt.erfc(-w / 2**0.5) / 2, (5,)),
}
MATCHED = {"sigmoid": (pt.sigmoid, (5,)), "tanh": (pt.tanh, (5,))}


@pytest.mark.parametrize("case", [*EXACT, *MATCHED])
def test_a_rule_agrees_with_draws(case):
    (mean, variance), draws = moments(*(EXACT | MATCHED)[case])
    assert mean.shape == variance.shape == draws.shape[1:]
    sd = draws.std(axis=0)
    slack = 0.03 if case in MATCHED else 1e-9
    np.testing.assert_array_less(np.abs(mean - draws.mean(axis=0)), 0.025 * sd + slack)
    np.testing.assert_array_less(np.abs(variance - draws.var(axis=0)), 0.05 * sd**2 + slack)


def test_the_logarithm_of_phi_is_right_far_out_and_so_is_its_slope():
    x, points = pt.dvector("x"), np.array([-1e4, -40.0, -5.0, -1.0, 0.0, 3.0, 40.0, 1e4])
    value = rules.log_cdf(x)
    got, slope = function([x], [value, pt.grad(value.sum(), x)], "python")(points)
    np.testing.assert_allclose(got, norm.logcdf(points), rtol=1e-9)
    exact = np.exp(norm.logpdf(points) - norm.logcdf(points))
    np.testing.assert_allclose(slope[1:], exact[1:], rtol=1e-9)
    np.testing.assert_allclose(slope[0], 1e4, rtol=1e-6)


REFUSED = {
    "passes through Exp": (pt.exp, (5,)),
    "passes through Abs": (pt.abs, (5,)),
    "`w0` enters Mul by two ways": (lambda w: w * pt.sigmoid(w), (5,)),
    "`w0` enters Dot by two ways": (lambda w: pt.dot(pt.dot(X, w.T), w), (5, 5)),
    "divides by a latent": (lambda w, u: w / u, (5,), (5,)),
    "Add repeats entries of `w1`": (lambda w, u: w + u, (5,), ()),
    "the larger of two variables": (pt.maximum, (5,), (5,)),
    "switches by a latent": (lambda w: pt.switch(w > 0, w, 0.1 * w), (5,)),
}


@pytest.mark.parametrize("told", REFUSED)
def test_what_has_no_rule_is_refused_by_name(told):
    with pytest.raises(NotConjugateError, match=told):
        moments(*REFUSED[told])
